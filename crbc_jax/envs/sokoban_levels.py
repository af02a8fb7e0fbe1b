"""Sokoban level files: XSB and Boxoban text to arrays and back (host side).

  #  wall               $  box              @  player
  .  target             *  box on target    +  player on target
  space, - or _  floor

A line that begins with `;` (Boxoban's `; 12`, a title, a comment) and a line
of nothing but floor end a level. Lines of one level may differ in length. What
lies outside the outer wall is floor, and a level whose player can reach the
edge of its own text is refused. Levels smaller than the largest of their set
are padded with walls on the right and at the bottom.

A level must have exactly as many targets as boxes: success means here "all
boxes on targets" and elsewhere often "all targets covered", and only then do
the two agree.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib

import jax.numpy as jnp
import numpy as np

from crbc_jax import files
from crbc_jax.envs import sokoban

SUFFIXES = (".txt", ".xsb")

_FLOOR = str.maketrans("-_", "  ")
_KNOWN = set("#.$*@+ ")


class LevelError(ValueError):
  """A level that can't be played; says where it is and what would help."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LevelSet:
  """L levels of one grid size; C = height * width cells, row by row.

  Attributes:
    walls: bool [L, C].
    targets: bool [L, C].
    player: int32 [L], start cells.
    boxes: int32 [L, K], start cells in ascending order; C marks an absent box.
    height: rows of the grid.
    width: columns of the grid.
    ids: where each level comes from, e.g. "train.txt:17" (counted from 0).
  """

  walls: np.ndarray
  targets: np.ndarray
  player: np.ndarray
  boxes: np.ndarray
  height: int
  width: int
  ids: tuple[str, ...]

  def __post_init__(self):
    cells = (len(self.ids), self.height * self.width)
    for name, shape in (
      ("walls", cells),
      ("targets", cells),
      ("player", cells[:1]),
      ("boxes", (cells[0], self.num_boxes)),
    ):
      got = getattr(self, name).shape
      if got != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {got}")

  def __len__(self) -> int:
    return len(self.ids)

  @property
  def num_boxes(self) -> int:
    """K, the box slots of a level."""
    return self.boxes.shape[-1]

  @functools.cached_property
  def solved(self) -> np.ndarray:
    """Levels whose boxes all stand on targets from the start, bool [L]."""
    padded = np.pad(self.targets, ((0, 0), (0, 1)), constant_values=True)
    on_target = np.take_along_axis(padded, self.boxes, axis=1)
    return np.logical_and.reduce(on_target, axis=1)

  @functools.cached_property
  def digest(self) -> str:
    """sha256 (hex) of `levels_text`; the ids are not part of it."""
    return hashlib.sha256(levels_text(self).encode()).hexdigest()

  def take(self, indices) -> "LevelSet":
    """The levels at `indices` (integers or a boolean mask), in that order."""
    indices = np.arange(len(self))[np.asarray(indices)].reshape(-1)
    return dataclasses.replace(
      self,
      walls=self.walls[indices],
      targets=self.targets[indices],
      player=self.player[indices],
      boxes=self.boxes[indices],
      ids=tuple(self.ids[i] for i in indices),
    )

  def as_levels(self) -> sokoban.Level:
    """All levels on the device; every array leads with [L]."""
    return sokoban.Level(
      walls=jnp.asarray(self.walls),
      targets=jnp.asarray(self.targets),
      player=jnp.asarray(self.player),
      boxes=jnp.asarray(self.boxes),
    )

  def text(self, i: int) -> str:
    """Level `i` as XSB lines, padding included, no newline at the end."""
    return board_text(
      self.walls[i],
      self.targets[i],
      self.player[i],
      self.boxes[i],
      width=self.width,
    )


def board_text(walls, targets, player, boxes, *, width: int) -> str:
  """A board as XSB lines.

  Args:
    walls: bool [C].
    targets: bool [C].
    player: cell.
    boxes: [K] cells; C marks an absent box.
    width: columns of the grid.

  Returns:
    The lines, joined by newlines, none at the end.
  """
  walls, targets = np.asarray(walls), np.asarray(targets)
  cells = np.where(walls, "#", np.where(targets, ".", " "))
  boxes = np.asarray(boxes)
  boxes = boxes[boxes < len(cells)]
  cells[boxes] = np.where(targets[boxes], "*", "$")
  cells[player] = "+" if targets[player] else "@"
  return "\n".join("".join(row) for row in cells.reshape(-1, width))


def levels_text(levels: LevelSet) -> str:
  """The canonical text of a set: `; i`, the lines, a blank line, and so on."""
  return "".join(f"; {i}\n{levels.text(i)}\n\n" for i in range(len(levels)))


def parse_levels(text: str, name: str) -> LevelSet:
  """Reads the levels of one text.

  Args:
    text: XSB or Boxoban text.
    name: what ids and errors call the text, e.g. the file's name.

  Returns:
    The levels in their order; ids are "name:0", "name:1", ...

  Raises:
    LevelError: naming `name`, the level, its line and the fix.
  """
  return _pack(_parse(text, name))


def read_levels(path: str | os.PathLike) -> LevelSet:
  """Reads a level file, or every *.txt and *.xsb below a folder.

  Args:
    path: a file or a folder. Files of a folder come in sorted order, and their
      ids begin with the path relative to the folder.

  Returns:
    All levels, padded with walls to the largest height and width.

  Raises:
    LevelError: missing path, no level files, or a level that is refused.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise LevelError(f"{path}: no such file or folder; check the path")
  if path.is_file():
    return _pack(_parse(_read_text(path), path.name))
  found = sorted(
    file
    for file in path.rglob("*")
    if file.suffix in SUFFIXES and file.is_file()
  )
  if not found:
    raise LevelError(
      f"{path}: no level files ({', '.join('*' + s for s in SUFFIXES)}) in"
      " this folder or below it"
    )
  boards = []
  for file in found:
    boards += _parse(_read_text(file), file.relative_to(path).as_posix())
  return _pack(boards)


def write_levels(path: str | os.PathLike, levels: LevelSet):
  """Writes `levels_text` to `path` in one piece (a temporary file, renamed)."""
  files.write_text(path, levels_text(levels))


@dataclasses.dataclass(frozen=True)
class _Board:
  """One parsed level in its own rectangle."""

  cells: np.ndarray  # [h, w] one character each
  id: str


def _read_text(path: pathlib.Path) -> str:
  try:
    return path.read_text(encoding="utf-8-sig")
  except UnicodeDecodeError as error:
    raise LevelError(
      f"{path}: not a text file ({error.reason}); unpack it or save it as UTF-8"
    ) from error


def _parse(text: str, name: str) -> list[_Board]:
  boards: list[_Board] = []
  rows: list[str] = []
  first = 0
  for number, line in enumerate([*text.splitlines(), ""], start=1):
    line = line.translate(_FLOOR).rstrip()
    if line and not line.startswith(";"):
      first = first if rows else number
      rows.append(line)
    elif rows:
      where = f"{name}: level {len(boards)} (line {first})"
      cells = _cells(rows, name, len(boards), first)
      _check_pieces(cells, where)
      _check_closed(cells, where)
      boards.append(_Board(cells, f"{name}:{len(boards)}"))
      rows = []
  if not boards:
    raise LevelError(f"{name}: holds no level; write levels as XSB text")
  return boards


def _cells(rows: list[str], name: str, index: int, first: int) -> np.ndarray:
  width = max(map(len, rows))
  if not set().union(*rows) <= _KNOWN:
    offset, row = next(
      (i, row) for i, row in enumerate(rows) if not set(row) <= _KNOWN
    )
    column = next(i for i, char in enumerate(row) if char not in _KNOWN)
    raise LevelError(
      f"{name}: level {index} (line {first + offset}, column {column + 1}):"
      f" unknown character {row[column]!r}; a level is written with"
      " # . $ * @ + and space, - or _ for floor, a comment begins with ;"
    )
  text = "".join(row.ljust(width) for row in rows)
  return np.array(list(text)).reshape(len(rows), width)


def _check_pieces(cells: np.ndarray, where: str):
  text = "".join(cells.flat)
  players = text.count("@") + text.count("+")
  boxes = text.count("$") + text.count("*")
  targets = text.count(".") + text.count("*") + text.count("+")
  if players != 1:
    found = "no player" if players == 0 else f"{players} players"
    raise LevelError(f"{where}: {found}; put exactly one @ (or + on a target)")
  if boxes == 0:
    raise LevelError(f"{where}: no boxes; put at least one $ (or *)")
  if targets != boxes:
    kind = "fewer" if targets < boxes else "more"
    raise LevelError(
      f"{where}: {kind} targets than boxes ({targets} targets, {boxes} boxes);"
      " give every box exactly one target (. * +)"
    )


def _check_closed(cells: np.ndarray, where: str):
  walls = cells == "#"
  if walls[[0, -1]].all() and walls[:, [0, -1]].all():
    return
  height, width = walls.shape
  todo = [tuple(np.argwhere(np.isin(cells, ("@", "+")))[0])]
  seen = set(todo)
  while todo:
    row, column = todo.pop()
    if row in (0, height - 1) or column in (0, width - 1):
      raise LevelError(
        f"{where}: not closed, the player can reach the edge at row {row + 1},"
        f" column {column + 1}; close the outer wall with #"
      )
    for cell in (
      (row - 1, column),
      (row + 1, column),
      (row, column - 1),
      (row, column + 1),
    ):
      if cell not in seen and not walls[cell]:
        seen.add(cell)
        todo.append(cell)


def _pack(boards: list[_Board]) -> LevelSet:
  height = max(board.cells.shape[0] for board in boards)
  width = max(board.cells.shape[1] for board in boards)
  cells = np.full((len(boards), height, width), "#")
  for padded, board in zip(cells, boards, strict=True):
    rows, columns = board.cells.shape
    padded[:rows, :columns] = board.cells
  cells = cells.reshape(len(boards), -1)
  is_box = np.isin(cells, ("$", "*"))
  slots = is_box.sum(axis=1).max()
  places = np.where(is_box, np.arange(cells.shape[1]), cells.shape[1])
  return LevelSet(
    walls=cells == "#",
    targets=np.isin(cells, (".", "*", "+")),
    player=np.isin(cells, ("@", "+")).argmax(axis=1).astype(np.int32),
    boxes=np.sort(places, axis=1)[:, :slots].astype(np.int32),
    height=height,
    width=width,
    ids=tuple(board.id for board in boards),
  )


def match_sizes(*sets: LevelSet) -> tuple[LevelSet, ...]:
  """Pads level sets with walls and absent boxes until they fit one shape."""
  height = max(levels.height for levels in sets)
  width = max(levels.width for levels in sets)
  slots = max(levels.num_boxes for levels in sets)
  return tuple(_padded(levels, height, width, slots) for levels in sets)


def _padded(levels: LevelSet, height: int, width: int, slots: int) -> LevelSet:
  grid = np.arange(levels.height * levels.width).reshape(levels.height, -1)
  # Where each old cell goes; the last entry is the mark of an absent box.
  cell = np.append(
    (grid // levels.width * width + grid % levels.width).reshape(-1),
    height * width,
  ).astype(np.int32)
  boxes = np.full((len(levels), slots), height * width, np.int32)
  boxes[:, : levels.num_boxes] = cell[levels.boxes]
  walls = np.ones((len(levels), height * width), bool)
  walls[:, cell[:-1]] = levels.walls
  targets = np.zeros_like(walls)
  targets[:, cell[:-1]] = levels.targets
  return LevelSet(
    walls=walls,
    targets=targets,
    player=cell[levels.player],
    boxes=boxes,
    height=height,
    width=width,
    ids=levels.ids,
  )
