"""What every environment on the device looks like: pure functions, no state.

An environment is a frozen, hashable object (static under `jax.jit`) whose
methods act on ONE level and ONE state; callers add the batch axes with
`jax.vmap` and the time axis with `jax.lax.scan`.
"""

from typing import Any, Protocol

import chex


@chex.dataclass(frozen=True)
class TimeStep:
  """What one step returned."""

  state: Any  # the environment's own state, after the step
  reward: chex.Array  # [] float32
  boundary: chex.Array  # [] int32, a `crbc_jax.types.Boundary`
  moved: chex.Array  # [] bool, the step changed the state (beyond its clock)


class Environment(Protocol):
  """The methods a rollout needs.

  The environment does not reset itself: after a boundary other than
  `Boundary.NONE` the caller stops or calls `reset`.
  """

  num_actions: int

  @property
  def key_words(self) -> int:
    """W, the number of int32 words of a state key."""

  def reset(self, level: Any) -> Any:
    """Returns the first state of `level`."""

  def step(
    self, level: Any, state: Any, action: chex.Array, key: chex.PRNGKey | None
  ) -> TimeStep:
    """Returns what follows `action` (int32 []) in `state`."""

  def state_key(self, state: Any) -> chex.Array:
    """Returns the exact identity of `state` without its clock; int32 [W]."""
