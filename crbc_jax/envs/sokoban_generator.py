"""Seeded Sokoban levels with known optimal lengths, split by layout.

A layout is the walls and the targets. For each layout a backward search from
its solved states, pulling instead of pushing, gives the exact optimal length
of every start (player and boxes) that can be solved; starts are drawn from
those in the wanted range. Train and held-out levels never share a layout, not
even one turned or mirrored.
"""

import hashlib
import inspect
import json
import os
import pathlib

import numpy as np

from crbc_jax import files as files_lib
from crbc_jax.envs import sokoban_levels, sokoban_solver

FORMAT = 1
"""Goes up whenever `generate` begins to answer the same arguments otherwise."""

TRAIN, HELD_OUT, MANIFEST = "train.txt", "held_out.txt", "levels.json"

_FLOOR, _WALL, _TARGET = range(3)


def generate(
  seed: int,
  *,
  size: tuple[int, int] = (6, 6),
  boxes: int = 1,
  inner_walls: tuple[int, int] = (0, 5),
  optimal_length: tuple[int, int] = (3, 20),
  layouts: int = 1500,
  held_out_layouts: int = 128,
  starts_per_layout: int = 8,
  max_attempts: int | None = None,
) -> tuple[sokoban_levels.LevelSet, sokoban_levels.LevelSet]:
  """Draws levels; the same arguments give the same levels.

  The number of inner walls is uniform in its range, then walls and targets are
  uniform. A draw is dropped when its floor is not connected, when it equals an
  earlier one up to a symmetry of the grid, or when it has fewer than
  `starts_per_layout` starts in the range.

  Args:
    seed: seed of the NumPy generator.
    size: rows and columns, the outer wall included.
    boxes: boxes, and targets, of every level.
    inner_walls: least and most walls inside the outer wall.
    optimal_length: least and most steps of a shortest solution.
    layouts: layouts to train on.
    held_out_layouts: layouts kept for evaluation.
    starts_per_layout: distinct starts of each layout.
    max_attempts: layouts to draw at most; 100 for each wanted one by default.

  Returns:
    The train and the held-out levels; the starts of one layout stand together.

  Raises:
    ValueError: an argument out of its range.
    LevelError: the attempts ran out; says how many layouts were found.
  """
  _check(size, boxes, inner_walls, optimal_length, starts_per_layout)
  if layouts < 1 or held_out_layouts < 1:
    raise ValueError("layouts and held_out_layouts must be >= 1")
  wanted = layouts + held_out_layouts
  attempts = 100 * wanted if max_attempts is None else max_attempts
  rng = np.random.default_rng(seed)
  symmetries = grid_symmetries(*size)
  seen, found = set(), []
  for _ in range(attempts):
    layout = _draw_layout(rng, size, boxes, inner_walls)
    key = layout_key(layout, symmetries)
    if key in seen:
      continue
    seen.add(key)
    if not _is_connected(layout != _WALL, size[1]):
      continue
    lengths = optimal_lengths(
      layout == _WALL,
      layout == _TARGET,
      width=size[1],
      longest=optimal_length[1],
    )
    starts = [s for s, n in lengths.items() if n >= optimal_length[0]]
    if len(starts) < starts_per_layout:
      continue
    picked = rng.choice(len(starts), starts_per_layout, replace=False)
    found.append((layout, [starts[i] for i in picked]))
    if len(found) == wanted:
      break
  else:
    raise sokoban_levels.LevelError(
      f"found {len(found)} of {wanted} layouts ({layouts} to train on,"
      f" {held_out_layouts} held out) in {attempts} attempts, among them"
      f" {len(seen)} distinct layouts of size={size}, boxes={boxes},"
      f" inner_walls={inner_walls}; ask for fewer layouts or starts_per_layout"
      f" ({starts_per_layout}), widen inner_walls or optimal_length"
      f" {optimal_length}, enlarge size, or raise max_attempts"
    )
  # Shuffled: layouts of small families are used up early, and the split must
  # not follow that.
  order = rng.permutation(wanted)
  return (
    _level_set([found[i] for i in order[:layouts]], size, TRAIN),
    _level_set([found[i] for i in order[layouts:]], size, HELD_OUT),
  )


def ensure_levels(
  folder: str | os.PathLike, **spec
) -> tuple[pathlib.Path, pathlib.Path]:
  """Generates level files once and afterwards checks and reuses them.

  The folder holds `train.txt`, `held_out.txt` and `levels.json` (the arguments
  of `generate`, the number of levels and the sha256 of each file). A file that
  is missing is generated again; nothing is ever overwritten.

  Args:
    folder: created where needed.
    **spec: arguments of `generate`, `seed` among them.

  Returns:
    The paths of the train and of the held-out file.

  Raises:
    LevelError: the folder holds levels of another spec, or a file was changed.
    TypeError: an unknown argument, or no seed.
  """
  folder = pathlib.Path(folder)
  bound = inspect.signature(generate).bind(**spec)
  bound.apply_defaults()
  wanted = json.loads(json.dumps({"format": FORMAT, "spec": bound.arguments}))
  manifest_path = folder / MANIFEST
  paths = folder / TRAIN, folder / HELD_OUT
  manifest = _read_manifest(manifest_path, paths, wanted)
  missing = [path for path in paths if not path.exists()]
  if missing:
    levels = dict(zip(paths, generate(**spec), strict=True))
    files = {
      path.name: {"levels": len(some), "sha256": some.digest}
      for path, some in levels.items()
    }
    if manifest and manifest["files"] != files:
      raise sokoban_levels.LevelError(
        f"{manifest_path}: this version generates other levels for this spec;"
        " use a new folder"
      )
    # The manifest goes first: after a crash the missing files are made again.
    manifest = wanted | {"files": files}
    files_lib.write_text(manifest_path, json.dumps(manifest, indent=2) + "\n")
    for path in missing:
      sokoban_levels.write_levels(path, levels[path])
  for path in paths:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != manifest["files"][path.name]["sha256"]:
      raise sokoban_levels.LevelError(
        f"{path}: was changed after it was generated (sha256 differs from"
        f" {MANIFEST}); delete it to have it generated again"
      )
  return paths


def optimal_lengths(
  walls: np.ndarray, targets: np.ndarray, *, width: int, longest: int
) -> dict[tuple[int, int], int]:
  """Exact optimal lengths of all starts of one layout.

  Breadth-first search backward from every solved state. A player that came
  from the cell behind may have pushed the box that now stands in front.

  Args:
    walls: bool [C].
    targets: bool [C].
    width: columns of the grid.
    longest: lengths beyond this are left out.

  Returns:
    {(player cell, boxes as a bit set): length}, from the solved states
    (length 0) on, in order of length.
  """
  wall = walls.tolist()
  solved = sokoban_solver.bit_set(np.flatnonzero(targets))
  starts = [
    (int(cell), solved)
    for cell in np.flatnonzero(~walls)
    if not solved >> int(cell) & 1
  ]
  lengths = dict.fromkeys(starts, 0)
  queue = list(starts)
  for player, boxes in queue:  # grows while we go
    length = lengths[player, boxes] + 1
    if length > longest:
      break
    for stride in (-width, width, -1, 1):
      behind = player - stride
      if wall[behind] or boxes >> behind & 1:
        continue
      before = [(behind, boxes)]
      ahead = player + stride
      if boxes >> ahead & 1:
        before.append((behind, boxes ^ (1 << ahead) ^ (1 << player)))
      for state in before:
        if state not in lengths:
          lengths[state] = length
          queue.append(state)
  return lengths


def grid_symmetries(height: int, width: int) -> np.ndarray:
  """The symmetries of the grid as permutations of its cells.

  Returns:
    int [8, C] for a square, [4, C] otherwise.
  """
  grid = np.arange(height * width).reshape(height, width)
  turned = [np.rot90(g, n) for g in (grid, np.fliplr(grid)) for n in range(4)]
  return np.stack([g.reshape(-1) for g in turned if g.shape == grid.shape])


def layout_key(layout: np.ndarray, symmetries: np.ndarray) -> bytes:
  """The same bytes for layouts ([C], a code per cell) equal up to symmetry."""
  return min(row.tobytes() for row in layout.astype(np.uint8)[symmetries])


def _draw_layout(rng, size, boxes, inner_walls) -> np.ndarray:
  """Cell codes, uint8 [C]."""
  height, width = size
  inner = np.zeros((height - 2) * (width - 2), np.uint8)
  cells = rng.permutation(inner.size)
  walls = rng.integers(inner_walls[0], inner_walls[1] + 1)
  inner[cells[:walls]] = _WALL
  inner[cells[walls : walls + boxes]] = _TARGET
  layout = np.full(size, _WALL, np.uint8)
  layout[1:-1, 1:-1] = inner.reshape(height - 2, width - 2)
  return layout.reshape(-1)


def _is_connected(floor: np.ndarray, width: int) -> bool:
  free = set(np.flatnonzero(floor).tolist())
  todo = [free.pop()]
  while todo:
    cell = todo.pop()
    for stride in (-width, width, -1, 1):
      if cell + stride in free:
        free.remove(cell + stride)
        todo.append(cell + stride)
  return not free


def _level_set(found, size, name) -> sokoban_levels.LevelSet:
  """One level per start, the starts of a layout side by side."""
  starts = [start for _, some in found for start in some]
  layout = np.repeat(
    [code for code, _ in found], [len(some) for _, some in found], axis=0
  )
  return sokoban_levels.LevelSet(
    walls=layout == _WALL,
    targets=layout == _TARGET,
    player=np.array([player for player, _ in starts], np.int32),
    boxes=np.array(
      [sokoban_solver.bit_cells(bits) for _, bits in starts], np.int32
    ),
    height=size[0],
    width=size[1],
    ids=tuple(f"{name}:{i}" for i in range(len(starts))),
  )


def _read_manifest(manifest_path, paths, wanted):
  """The manifest when it fits, None for a fresh folder."""
  if not manifest_path.exists():
    for path in paths:
      if path.exists():
        raise sokoban_levels.LevelError(
          f"{path}: exists without {MANIFEST}, so it was not generated here;"
          " use another folder or move it away"
        )
    return None
  try:
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    have = {"format": manifest["format"]} | manifest["spec"]
    _ = [manifest["files"][path.name]["sha256"] for path in paths]
  except (ValueError, KeyError, TypeError) as error:
    raise sokoban_levels.LevelError(
      f"{manifest_path}: not a levels manifest ({error!r}); delete the folder"
      " to have it generated again"
    ) from error
  want = {"format": wanted["format"]} | wanted["spec"]
  differing = [
    f"{name}: {have.get(name)} there, {want.get(name)} wanted"
    for name in sorted(have.keys() | want.keys())
    if have.get(name) != want.get(name)
  ]
  if differing:
    raise sokoban_levels.LevelError(
      f"{manifest_path}: the folder holds levels of another spec"
      f" ({'; '.join(differing)}); use another folder or delete this one"
    )
  return manifest


def _check(size, boxes, inner_walls, optimal_length, starts_per_layout):
  if len(size) != 2 or min(size) < 3:
    raise ValueError(f"size must be two sides >= 3 (with walls), got {size}")
  if not 0 <= inner_walls[0] <= inner_walls[1]:
    raise ValueError(f"inner_walls must be 0 <= least <= most: {inner_walls}")
  if not 1 <= optimal_length[0] <= optimal_length[1]:
    raise ValueError(
      f"optimal_length must be 1 <= least <= most: {optimal_length}"
    )
  if boxes < 1 or starts_per_layout < 1:
    raise ValueError("boxes and starts_per_layout must be >= 1")
  inner = (size[0] - 2) * (size[1] - 2)
  if inner_walls[1] + 2 * boxes + 1 > inner:
    raise ValueError(
      f"size {size} has {inner} inner cells: too few for {inner_walls[1]}"
      f" walls, {boxes} boxes on other cells than their targets, and the player"
    )
