"""Every reachable state of a Sokoban level, by plain breadth-first search.

Independent of the JAX rules on purpose: tests compare the two.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from crbc_jax.envs import sokoban_levels

NUM_ACTIONS = 4


class StateLimitError(ValueError):
  """A level with more reachable states than allowed."""


@dataclasses.dataclass(frozen=True, eq=False)
class StateGraph:
  """S states in the order of breadth-first search; state 0 is the start.

  Solved states absorb: the search does not go on from them.
  """

  player: np.ndarray  # [S] int32, cells
  boxes: np.ndarray  # [S, K] int32, cells in ascending order; C = absent
  next_state: np.ndarray  # [S, 4] int32, up, down, left, right
  solved: np.ndarray  # [S] bool


@dataclasses.dataclass(frozen=True)
class Solution:
  """A shortest solution, or the proof that there is none."""

  length: int | None  # steps; None when the level can't be solved
  reachable_states: int  # states reachable before solving, solved ones included
  actions: tuple[int, ...] | None  # one shortest solution


def enumerate_states(
  levels: sokoban_levels.LevelSet, i: int, *, max_states: int = 1_000_000
) -> StateGraph:
  """Finds all states that can be reached from the start of level `i`.

  Args:
    levels: the levels.
    i: which one.
    max_states: the most states to keep (some 3 microseconds and 200 bytes
      each).

  Returns:
    The states and what each action does in each of them.

  Raises:
    StateLimitError: there are more than `max_states`.
  """
  strides = (-levels.width, levels.width, -1, 1)
  cells = levels.walls.shape[1]
  walls = levels.walls[i].tolist()
  targets = bit_set(np.flatnonzero(levels.targets[i]))
  placed = levels.boxes[i]
  start = (int(levels.player[i]), bit_set(placed[placed < cells]))
  index = {start: 0}
  states = [start]
  next_state = []
  for here, (player, boxes) in enumerate(states):  # grows while we go
    if not boxes & ~targets:
      next_state += [here] * NUM_ACTIONS
      continue
    for stride in strides:
      after = move(player, boxes, stride, walls)
      number = index.setdefault(after, len(states))
      if number == len(states):
        states.append(after)
      next_state.append(number)
    if len(states) > max_states:
      raise StateLimitError(
        f"{levels.ids[i]}: more than max_states={max_states} reachable states;"
        " raise max_states or choose a level with fewer boxes or less floor"
      )
  slots = levels.num_boxes
  solved = np.array([not boxes & ~targets for _, boxes in states])
  places = {
    boxes: [*bit_cells(boxes), *[cells] * slots][:slots]
    for boxes in {boxes for _, boxes in states}
  }
  return StateGraph(
    player=np.array([player for player, _ in states], np.int32),
    boxes=np.array([places[boxes] for _, boxes in states], np.int32),
    next_state=np.array(next_state, np.int32).reshape(-1, NUM_ACTIONS),
    solved=solved,
  )


def solve(
  levels: sokoban_levels.LevelSet, i: int, *, max_states: int = 1_000_000
) -> Solution:
  """Finds a shortest solution of level `i`; see `enumerate_states`."""
  graph = enumerate_states(levels, i, max_states=max_states)
  size = len(graph.solved)
  if not graph.solved.any():
    return Solution(None, size, None)
  # In breadth-first order the first edge into a state is the one that found it.
  found, found_by = np.unique(graph.next_state, return_index=True)
  edge = dict(zip(found.tolist(), found_by.tolist(), strict=True))
  actions = []
  state = int(graph.solved.argmax())
  while state != 0:
    state, action = divmod(edge[state], NUM_ACTIONS)
    actions.append(action)
  return Solution(len(actions), size, tuple(reversed(actions)))


def move(
  player: int, boxes: int, stride: int, walls: Sequence[bool]
) -> tuple[int, int]:
  """Player and boxes after a move; walls and blocked boxes stop it.

  Args:
    player: cell.
    boxes: as a `bit_set`.
    stride: cells from here to the cell ahead.
    walls: [C].
  """
  ahead = player + stride
  if walls[ahead]:
    return player, boxes
  if not boxes >> ahead & 1:
    return ahead, boxes
  beyond = ahead + stride
  if walls[beyond] or boxes >> beyond & 1:
    return player, boxes
  return ahead, boxes ^ (1 << ahead) ^ (1 << beyond)


def bit_set(cells) -> int:
  """A set of cells as the bits of one integer."""
  return sum(1 << int(cell) for cell in cells)


def bit_cells(bits: int) -> list[int]:
  """The cells of a bit set, ascending."""
  cells = []
  while bits:
    lowest = bits & -bits
    cells.append(lowest.bit_length() - 1)
    bits ^= lowest
  return cells
