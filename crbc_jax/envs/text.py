"""What every text environment on the host looks like.

An environment object is one episode of one game: plain Python, no global state,
no randomness of its own. `TextEnv.copy` makes a second episode that goes on
from here.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from crbc_jax.types import Boundary


class GameDataError(ValueError):
  """Games or products that cannot be read; the message says where and why."""


class TextStep(NamedTuple):
  """What the agent sees after a reset or a command."""

  text: str  # the observation
  commands: tuple[str, ...]  # admissible now, in a fixed order; () at the end
  reward: float = 0.0
  boundary: Boundary = Boundary.NONE  # SUCCESS or FAILURE; never TRUNCATED


class TextEnv(Protocol):
  """One episode of one game; the caller cuts it at a step limit."""

  @property
  def game_id(self) -> str:
    """Stable over processes; what makes rollouts one task group."""

  @property
  def task_type(self) -> str:
    """What success is reported by."""

  @property
  def goal(self) -> str:
    """The instruction, the same throughout the episode."""

  def reset(self) -> TextStep:
    """Begins the episode anew."""

  def step(self, command: str) -> TextStep:
    """Any text is allowed; one that is not admissible changes nothing."""

  def describe(self, command: str) -> str:
    """An admissible command in words, as a policy may read it."""

  def copy(self) -> "TextEnv":
    """An independent episode in the same state."""

  def keys(self) -> "TextKeys":
    """Identities of the present state, without the number of steps played."""


class TextKeys(NamedTuple):
  """Three answers to "is this the same state?", from coarse to exact."""

  text: str  # the observation as shown
  history: str  # what the papers use (each environment says what)
  state: str  # the latent state, exactly


def step_all(
  envs: Sequence[TextEnv], commands: Sequence[str]
) -> list[TextStep]:
  """One command for each environment."""
  return [env.step(c) for env, c in zip(envs, commands, strict=True)]
