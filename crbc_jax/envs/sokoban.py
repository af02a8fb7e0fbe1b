"""Sokoban in pure JAX: any grid, any number of boxes, exact state keys.

A grid of `height` x `width` has C = height * width cells, numbered row by row.
Boxes are a short list of cells, not a map, so that a step is a few compares.
Levels must be closed by walls (`sokoban_levels` refuses others).
"""

import dataclasses
import numbers
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from crbc_jax import types
from crbc_jax.envs import api

UP, DOWN, LEFT, RIGHT = range(4)

STATE_KEYS = ("exact", "player")
REWARDS = ("sparse", "shaped", "distance")


@chex.dataclass(frozen=True)
class Level:
  """What stays fixed while a level is played, and where it starts."""

  walls: chex.Array  # [C] bool
  targets: chex.Array  # [C] bool
  player: chex.Array  # [] int32, start cell
  boxes: chex.Array  # [K] int32, start cells; C marks an absent box


@chex.dataclass(frozen=True)
class State:
  """Where things are now."""

  player: chex.Array  # [] int32, cell
  boxes: chex.Array  # [K] int32, cells, in no particular order; C = absent
  step: chex.Array  # [] int32, steps already taken


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sokoban:
  """The rules, as a static (hashable) object; see `api.Environment`.

  One box can be pushed, none can be pulled; a wall or a second box blocks the
  push. A blocked move leaves everything as it is but costs a step.

  Rewards of a step:
    sparse: 1 on success, else 0.
    shaped: -0.1, +1 for a box pushed onto a target, -1 for a box pushed off
      one, +10 on success (gym-sokoban's numbers).
    distance: by how much the step decreased D, the sum over the present boxes
      of the Manhattan distance to the nearest target: +1 for a push towards
      it, -1 for a push away, 0 for everything else. D ignores walls, the
      player and that boxes may share a nearest target; it is 0 exactly when
      the level is solved, so the rewards of a success sum to D of its start.

  Attributes:
    height: rows of the grid, the outer wall included.
    width: columns of the grid, the outer wall included.
    boxes: K, box slots of a state; levels with fewer boxes leave slots absent.
    step_limit: steps after which an unsolved episode is truncated.
    slip: probability that a uniformly random one of the four actions (the
      chosen one among them) is executed instead of the chosen one.
    reward: "sparse", "shaped" or "distance".
    state_keys: "exact", or "player": keys that leave the boxes out, so that
      different states share an anchor. For studies of aliased keys.

  Raises:
    ValueError: naming the attribute that is out of its range.
  """

  num_actions: ClassVar[int] = 4

  height: int
  width: int
  boxes: int
  step_limit: int
  slip: float = 0.0
  reward: str = "sparse"
  state_keys: str = "exact"

  def __post_init__(self):
    for name, least in (
      ("height", 3),
      ("width", 3),
      ("boxes", 1),
      ("step_limit", 1),
    ):
      value = getattr(self, name)
      if not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
      object.__setattr__(self, name, int(value))
    if not 0.0 <= self.slip <= 1.0:
      raise ValueError(f"slip must be in [0, 1], got {self.slip!r}")
    if self.reward not in REWARDS:
      raise ValueError(f"reward must be one of {REWARDS}, got {self.reward!r}")
    if self.state_keys not in STATE_KEYS:
      raise ValueError(
        f"state_keys must be one of {STATE_KEYS}, got {self.state_keys!r}"
      )

  @property
  def cells(self) -> int:
    """C, the number of cells."""
    return self.height * self.width

  @property
  def _digits_per_word(self) -> int:
    digits = 1
    while (self.cells + 1) ** (digits + 1) <= 2**31:
      digits += 1
    return digits

  @property
  def key_words(self) -> int:
    """W, the number of int32 words of `state_key`."""
    digits = 1 + (self.boxes if self.state_keys == "exact" else 0)
    return -(-digits // self._digits_per_word)

  def reset(self, level: Level) -> State:
    """Returns the start of `level`."""
    self._check(level, level)
    return State(
      player=level.player, boxes=level.boxes, step=jnp.zeros((), jnp.int32)
    )

  def step(
    self,
    level: Level,
    state: State,
    action: chex.Array,
    key: chex.PRNGKey | None = None,
  ) -> api.TimeStep:
    """Plays one action.

    The boundary is SUCCESS when every present box stands on a target after the
    step (also when the level began like that), else TRUNCATED when the step
    was number `step_limit`, else NONE. Steps after a boundary go on by the
    same rules.

    Args:
      level: the level; arrays as in `Level`.
      state: the state; arrays as in `State`.
      action: int32 [], 0 up, 1 down, 2 left, 3 right.
      key: a PRNG key; neither used nor needed while `slip == 0`.

    Returns:
      The `api.TimeStep`.
    """
    self._check(level, state)
    chex.assert_rank(action, 0)
    if self.slip > 0.0:
      action = self._slip(action, key)

    stride = jnp.where(action < LEFT, self.width, 1)
    stride = jnp.where((action == UP) | (action == LEFT), -stride, stride)
    ahead = state.player + stride
    beyond = ahead + stride  # outside the grid only where `ahead` is a wall
    is_pushed = state.boxes == ahead  # [K]
    push = is_pushed.any()
    push_blocked = _at(level.walls, beyond) | (state.boxes == beyond).any()
    moved = ~(_at(level.walls, ahead) | (push & push_blocked))
    push &= moved

    boxes = jnp.where(is_pushed & moved, beyond, state.boxes)
    state = State(
      player=jnp.where(moved, ahead, state.player),
      boxes=boxes,
      step=state.step + 1,
    )
    success = is_solved(level, boxes)
    reward = success.astype(jnp.float32)
    if self.reward == "shaped":
      gained = _at(level.targets, beyond).astype(jnp.float32)
      gained -= _at(level.targets, ahead).astype(jnp.float32)
      reward = -0.1 + jnp.where(push, gained, 0.0) + 10.0 * reward
    elif self.reward == "distance":
      # At most one box moved: from `ahead` to `beyond`.
      nearer = self._target_distance(level, ahead) - self._target_distance(
        level, beyond
      )
      reward = jnp.where(push, nearer, 0).astype(jnp.float32)
    boundary = jnp.where(
      success,
      int(types.Boundary.SUCCESS),
      jnp.where(
        state.step >= self.step_limit,
        int(types.Boundary.TRUNCATED),
        int(types.Boundary.NONE),
      ),
    )
    return api.TimeStep(
      state=state,
      reward=reward,
      boundary=boundary.astype(jnp.int32),
      moved=moved,
    )

  def state_key(self, state: State) -> chex.Array:
    """Returns the identity of a state within its level (see `state_keys`).

    The digits (player, boxes in ascending order), in base C + 1, are packed
    into as few non-negative int32 words as hold them, first digit highest.

    Args:
      state: the state; the clock and the order of the boxes do not matter.

    Returns:
      int32 [W], W = `key_words`.
    """
    chex.assert_shape(state.boxes, (self.boxes,))
    digits = [state.player]
    if self.state_keys == "exact":
      digits += _sort(list(state.boxes))
    words = []
    for first in range(0, len(digits), self._digits_per_word):
      word = jnp.zeros((), jnp.int32)
      for digit in digits[first : first + self._digits_per_word]:
        word = word * (self.cells + 1) + digit
      words.append(word)
    return jnp.stack(words)

  def _target_distance(self, level: Level, cell: chex.Array) -> chex.Array:
    """Manhattan distance from `cell` to the nearest target; int32 []."""
    cells = jnp.arange(self.cells)
    rows = jnp.abs(cells // self.width - cell // self.width)
    columns = jnp.abs(cells % self.width - cell % self.width)
    # Where there is no target: further than any could be, wherever one is.
    far = self.height + self.width
    return jnp.min(jnp.where(level.targets, rows + columns, far))

  def _slip(self, action: chex.Array, key: chex.PRNGKey | None) -> chex.Array:
    if key is None:
      raise ValueError(f"slip is {self.slip}: step() needs a PRNG key")
    slip_key, action_key = jax.random.split(key)
    slipped = jax.random.bernoulli(slip_key, self.slip)
    other = jax.random.randint(action_key, (), 0, self.num_actions)
    return jnp.where(slipped, other, action)

  def _check(self, level: Level, placed: Level | State):
    chex.assert_shape([level.walls, level.targets], (self.cells,))
    chex.assert_shape(placed.boxes, (self.boxes,))
    chex.assert_shape(placed.player, ())


def is_solved(level: Level, boxes: chex.Array) -> chex.Array:
  """Whether every present box of `boxes` [K] is on a target; bool []."""
  on_target = level.targets.at[boxes].get(mode="fill", fill_value=True)
  return on_target.all()


def _at(mask: chex.Array, cell: chex.Array) -> chex.Array:
  """`mask[cell]`, clipped into the grid."""
  return mask.at[cell].get(mode="clip")


def _sort(values: list[chex.Array]) -> list[chex.Array]:
  """Sorts a few scalars by an odd-even network (`jnp.sort` is slow on rows)."""
  for sweep in range(len(values)):
    for left in range(sweep % 2, len(values) - 1, 2):
      pair = values[left], values[left + 1]
      values[left] = jnp.minimum(*pair)
      values[left + 1] = jnp.maximum(*pair)
  return values
