"""A small Flax policy that scores the admissible commands of a text state.

Texts become hashed word tokens; observation, goal, recent commands and the
commands themselves share one embedding. What a command's words have in common
with the goal and the observation, and what happened when it was issued before,
are features of their own: with them a policy of 300,000 parameters learns from
a few hundred demonstrations.
"""

import collections
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from crbc_jax.envs.text import TextStep

STATS = 4  # of a command: see `Memory.stats`
VERBS = 16  # hashed first words of the commands so far
RECENT = 3  # commands that are remembered word for word
MASKED = -1e9  # logit of padding

_WORD = re.compile(r"[a-z0-9]+")


class TextSizes(NamedTuple):
  """Lengths that texts are cut to, in tokens, and the size of the table."""

  vocabulary: int = 4_096
  observation: int = 96
  goal: int = 24
  command: int = 10


@chex.dataclass(frozen=True)
class TextState:
  """What the policy sees of a state; token 0 is padding. K commands."""

  observation: chex.Array  # [observation] int32
  recent: chex.Array  # [RECENT, command] int32, the last commands
  verbs: chex.Array  # [VERBS] float32, commands so far by hashed first word
  commands: chex.Array  # [K, command] int32
  stats: chex.Array  # [K, STATS] float32
  mask: chex.Array  # [K] bool, False on padding


def tokenize(text: str, vocabulary: int) -> list[int]:
  """Lower-case words and numbers, hashed to 1 ... vocabulary - 1."""
  return [
    zlib.crc32(word.encode()) % (vocabulary - 1) + 1
    for word in _WORD.findall(text.lower())
  ]


class TokenTable:
  """Texts numbered as they come, each cut or padded to `length` tokens.

  Number 0 is the empty text.
  """

  def __init__(self, vocabulary: int, length: int):
    self._vocabulary, self._length = vocabulary, length
    self._number: dict[str, int] = {"": 0}
    self._tokens: list[list[int]] = [[]]

  def number(self, text: str) -> int:
    """The number of a text."""
    found = self._number.get(text)
    if found is None:
      found = self._number[text] = len(self._tokens)
      tokens = tokenize(text, self._vocabulary)
      self._tokens.append(tokens[: self._length])
    return found

  def words(self, text: str) -> list[int]:
    """The tokens of a text, cut."""
    return self._tokens[self.number(text)]

  def __len__(self) -> int:
    return len(self._tokens)

  def as_array(self) -> np.ndarray:
    """Tokens of all texts, int32 [texts, length]."""
    table = np.zeros((len(self), self._length), np.int32)
    for row, tokens in zip(table, self._tokens, strict=True):
      row[: len(tokens)] = tokens
    return table


class Memory:
  """What an episode has shown so far, as features of the next choice."""

  def __init__(self, goal: str, first: TextStep, vocabulary: int):
    self._vocabulary = vocabulary
    self._goal = set(tokenize(goal, vocabulary))
    self._issued: dict[str, tuple[int, int, float, int]] = {}
    self._text = first.text
    self._step = 0
    self.recent: collections.deque[str] = collections.deque(
      [""] * RECENT, maxlen=RECENT
    )
    self.verbs = np.zeros(VERBS, np.float32)

  def add(self, command: str, after: TextStep) -> None:
    """Notes what a command led to."""
    count, _, _, idle = self._issued.get(command, (0, 0, 0.0, 0))
    self._step += 1
    words = set(tokenize(after.text, self._vocabulary))
    overlap = len(words & self._goal) / max(len(self._goal), 1)
    idle += after.text == self._text
    self._issued[command] = (count + 1, self._step, overlap, idle)
    self._text = after.text
    self.recent.append(command)
    verb = zlib.crc32(command.partition(" ")[0].encode()) % VERBS
    self.verbs[verb] += 1

  def stats(self, command: str) -> tuple[float, float, float, float]:
    """What is known of a command.

    How often and how lately it was issued, how much of the goal its last answer
    named, how often it changed nothing.
    """
    found = self._issued.get(command)
    if found is None:
      return (0.0, 0.0, 0.0, 0.0)
    count, last, overlap, idle = found
    since = 1.0 / (self._step - last + 1)
    return (math.log1p(count), since, overlap, math.log1p(idle))


class TextNetwork(nnx.Module):
  """Scores of commands from one state."""

  def __init__(
    self, sizes: TextSizes, width: int, hidden: int, *, rngs: nnx.Rngs
  ):
    self.embed = nnx.Embed(sizes.vocabulary, width, rngs=rngs)
    self.context = nnx.Linear(3 * width + VERBS, hidden, rngs=rngs)
    self.command = nnx.Linear(3 * width + 3 + STATS, hidden, rngs=rngs)
    self.hidden = nnx.Linear(hidden, hidden // 2, rngs=rngs)
    self.last = nnx.Linear(
      hidden // 2,
      1,
      rngs=rngs,
      kernel_init=nnx.initializers.variance_scaling(
        1e-4, "fan_in", "truncated_normal"
      ),
    )

  def __call__(self, goal: chex.Array, state: TextState) -> chex.Array:
    """Logits [K] of the commands; `MASKED` on padding.

    Args:
      goal: [goal] int32 tokens.
      state: of one state.
    """
    goal_vector = self._pooled(goal)
    seen = self._pooled(state.observation)
    context = self.context(
      jnp.concatenate(
        [
          goal_vector,
          seen,
          self._pooled(state.recent.reshape(-1)),
          jnp.log1p(state.verbs),
        ]
      )
    )
    words = self._pooled(state.commands)
    size = self.embed.num_embeddings
    of_goal = _held(state.commands, goal, size)
    of_seen = _held(state.commands, state.observation, size)
    length = jnp.maximum(jnp.sum(state.commands > 0, axis=-1), 1)
    shares = (
      of_goal / length,
      of_seen / length,
      of_goal / jnp.maximum(jnp.sum(goal > 0), 1),
    )
    command = self.command(
      jnp.concatenate(
        [
          words,
          words * goal_vector[None],
          words * seen[None],
          *(share[:, None] for share in shares),
          state.stats,
        ],
        axis=-1,
      )
    )
    hidden = jax.nn.relu(self.hidden(jax.nn.relu(command + context[None])))
    return jnp.where(state.mask, self.last(hidden)[:, 0], MASKED)

  def _pooled(self, tokens: chex.Array) -> chex.Array:
    """Embeddings [..., width] of texts of tokens [..., L], 0 being padding.

    The sum over a text's tokens, divided by the root of their number.
    """
    real = (tokens > 0).astype(jnp.float32)[..., None]
    total = jnp.sum(self.embed(tokens) * real, axis=-2)
    return total / jnp.sqrt(jnp.maximum(jnp.sum(real, axis=-2), 1.0))


def _held(commands: chex.Array, text: chex.Array, size: int) -> chex.Array:
  """How many of each command's tokens [K, L] a text holds."""
  holds = jnp.zeros(size, bool).at[text].set(True).at[0].set(False)
  return jnp.sum(holds[commands], axis=-1)


def make_text_policy(
  sizes: TextSizes, *, width: int, hidden: int, seed: int
) -> tuple[Any, Any]:
  """Initial parameters and the pure function that applies them.

  Args:
    sizes: lengths of the texts.
    width: of the embedding.
    hidden: width of the first hidden layer; the second has half of it.
    seed: of the initialisation.

  Returns:
    (params, `logits(params, goal [L], state) -> [K]` for ONE state).
  """
  module = TextNetwork(sizes, width, hidden, rngs=nnx.Rngs(params=seed))
  graph, params = nnx.split(module)

  def logits(params, goal, state):
    return nnx.merge(graph, params)(goal, state)

  return nnx.to_pure_dict(params), logits


def pad_tokens(texts: Sequence[str], sizes: TextSizes) -> np.ndarray:
  """Goals as tokens, int32 [texts, goal]."""
  table = TokenTable(sizes.vocabulary, sizes.goal)
  numbers = [table.number(text) for text in texts]
  return table.as_array()[numbers]
