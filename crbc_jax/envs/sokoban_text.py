"""Sokoban as a text game on the host: the board as XSB lines, four commands.

The rules are those of `sokoban_solver`, which the tests hold against the JAX
environment.
"""

import numpy as np

from crbc_jax.envs import sokoban_solver
from crbc_jax.envs.sokoban_levels import LevelSet, board_text
from crbc_jax.envs.sokoban_solver import bit_cells, bit_set
from crbc_jax.envs.text import TextKeys, TextStep
from crbc_jax.types import Boundary

COMMANDS = ("up", "down", "left", "right")
GOAL = "push every box onto a target"


class SokobanTextEnv:
  """One episode of one level; satisfies `text.TextEnv`."""

  task_type = "sokoban"
  goal = GOAL

  def __init__(self, levels: LevelSet, index: int):
    self._levels, self._index = levels, index
    self._walls = levels.walls[index].tolist()
    self._targets = bit_set(np.flatnonzero(levels.targets[index]))
    self.reset()

  @property
  def game_id(self) -> str:
    """Of the level."""
    return self._levels.ids[self._index]

  def reset(self) -> TextStep:
    """Begins the episode anew."""
    placed = self._levels.boxes[self._index]
    cells = len(self._walls)
    self._player = int(self._levels.player[self._index])
    self._boxes = bit_set(placed[placed < cells])
    return self._seen()

  def step(self, command: str) -> TextStep:
    """Any text is allowed; one that is no command changes nothing."""
    if command in COMMANDS and not self._solved:
      width = self._levels.width
      stride = (-width, width, -1, 1)[COMMANDS.index(command)]
      self._player, self._boxes = sokoban_solver.move(
        self._player, self._boxes, stride, self._walls
      )
    return self._seen()

  def describe(self, command: str) -> str:
    """A command is in words already."""
    return command

  def copy(self) -> "SokobanTextEnv":
    """An independent episode in the same state."""
    other = SokobanTextEnv(self._levels, self._index)
    other._player, other._boxes = self._player, self._boxes
    return other

  def keys(self) -> TextKeys:
    """The board is all there is."""
    board = self._board()
    return TextKeys(board, board, board)

  def shortest(self) -> str:
    """The first command of a shortest solution; "" where there is none."""
    cells = len(self._walls)
    boxes = [*bit_cells(self._boxes), *[cells] * self._levels.num_boxes]
    level = self._levels.take([self._index])
    level.player[0] = self._player
    level.boxes[0] = boxes[: self._levels.num_boxes]
    actions = sokoban_solver.solve(level, 0).actions
    return COMMANDS[actions[0]] if actions else ""

  @property
  def _solved(self) -> bool:
    return not self._boxes & ~self._targets

  def _board(self) -> str:
    cells = len(self._walls)
    boxes = [*bit_cells(self._boxes), *[cells] * self._levels.num_boxes]
    return board_text(
      self._levels.walls[self._index],
      self._levels.targets[self._index],
      self._player,
      np.array(boxes[: self._levels.num_boxes]),
      width=self._levels.width,
    )

  def _seen(self) -> TextStep:
    if self._solved:
      return TextStep(self._board(), (), 1.0, Boundary.SUCCESS)
    return TextStep(self._board(), COMMANDS)
