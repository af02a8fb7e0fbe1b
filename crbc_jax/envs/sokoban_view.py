"""Pictures of Sokoban episodes: the terminal (rich), PNG strips and GIFs.

An episode is its level, its states stacked along a leading time axis [T + 1]
(the start first) and the actions [T] between them. Colours are from Okabe and
Ito's colour-blind-safe palette, and every kind of tile has its own shape too.
"""

import itertools
import os
import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rich import columns, console, text

from crbc_jax.envs import sokoban, sokoban_levels

ARROWS = "↑↓←→"

_FLOOR, _GRID, _WALL, _MORTAR = "#F4F1EA", "#E3DED2", "#4A4F57", "#6B717B"
_TARGET, _BOX, _BOX_EDGE, _DONE = "#CC79A7", "#E69F00", "#8A5F00", "#009E73"
_DONE_EDGE, _PLAYER, _INK = "#00533C", "#0072B2", "#22252A"

_STYLES = {  # two columns a cell, so that a cell is about square
  "#": ("██", _WALL),
  " ": ("  ", _FLOOR),
  ".": ("◇ ", f"bold {_TARGET}"),
  "$": ("▣ ", f"bold {_BOX}"),
  "*": ("▣✓", f"bold {_DONE}"),
  "@": ("● ", f"bold {_PLAYER}"),
  "+": ("◈ ", f"bold {_PLAYER}"),
}


def level_text(
  level: sokoban.Level,
  state: sokoban.State | None = None,
  *,
  width: int,
) -> text.Text:
  """A level, or one state of it, as coloured terminal text.

  Args:
    level: one level; arrays as in `sokoban.Level`.
    state: one state; the start of the level when left out.
    width: columns of the grid.

  Returns:
    One line per row, two characters per cell.
  """
  lines = []
  for row in _board(level, level if state is None else state, width):
    lines.append(text.Text.assemble(*(_STYLES[cell] for cell in row)))
  return text.Text("\n").join(lines)


def rollout_view(
  level: sokoban.Level,
  states: sokoban.State,
  actions: np.ndarray,
  *,
  width: int,
) -> console.RenderableType:
  """An episode as frames side by side, each with its step and action.

  Args:
    level: the level.
    states: states, arrays leading with [T + 1].
    actions: int [T].
    width: columns of the grid.

  Returns:
    Something `rich.print` shows, wrapped to the width of the terminal.
  """
  frames = []
  for frame, caption in _frames(states, actions):
    picture = level_text(level, frame, width=width)
    frames.append(text.Text(f"{caption}\n", style="dim").append_text(picture))
  return columns.Columns(frames, padding=(1, 2))


def save_strip(
  path: str | os.PathLike,
  level: sokoban.Level,
  states: sokoban.State,
  actions: np.ndarray,
  *,
  width: int,
  tile: int = 28,
  per_row: int = 8,
):
  """Saves an episode as one picture, frame by frame, read like text.

  Args:
    path: where to; the suffix (.png) chooses the format.
    level: the level.
    states: states, arrays leading with [T + 1].
    actions: int [T].
    width: columns of the grid.
    tile: pixels of a cell's side.
    per_row: frames in a row.
  """
  pictures = [
    _draw_frame(level, frame, caption, width, tile)
    for frame, caption in _frames(states, actions)
  ]
  gap = tile // 2
  across = min(per_row, len(pictures))
  down = -(-len(pictures) // across)
  frame_w, frame_h = pictures[0].size
  strip = Image.new(
    "RGB",
    (across * (frame_w + gap) + gap, down * (frame_h + gap) + gap),
    "white",
  )
  for i, picture in enumerate(pictures):
    row, column = divmod(i, across)
    corner = gap + column * (frame_w + gap), gap + row * (frame_h + gap)
    strip.paste(picture, corner)
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  strip.save(path)


def save_gif(
  path: str | os.PathLike,
  level: sokoban.Level,
  states: sokoban.State,
  actions: np.ndarray,
  *,
  width: int,
  tile: int = 40,
  frame_ms: int = 350,
):
  """Saves an episode as an endless animation; the last frame stays longer.

  Args:
    path: where to, ending in .gif.
    level: the level.
    states: states, arrays leading with [T + 1].
    actions: int [T].
    width: columns of the grid.
    tile: pixels of a cell's side.
    frame_ms: milliseconds of a frame.
  """
  pictures = [
    _draw_frame(level, frame, caption, width, tile)
    for frame, caption in _frames(states, actions)
  ]
  # One palette with every tile in it for all frames: no flicker.
  palette = _draw_board(["".join(_STYLES)], tile).quantize(colors=128)
  pictures = [picture.quantize(palette=palette) for picture in pictures]
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  pictures[0].save(
    path,
    save_all=True,
    append_images=pictures[1:],
    duration=[frame_ms] * (len(pictures) - 1) + [4 * frame_ms],
    loop=0,
  )


def _frames(states: sokoban.State, actions):
  """Yields each state and its caption: the step and the action that led on."""
  actions = np.asarray(actions).tolist()
  players, boxes = np.asarray(states.player), np.asarray(states.boxes)
  steps = np.asarray(states.step)
  if len(players) != len(actions) + 1:
    raise ValueError(
      f"{len(actions)} actions need {len(actions) + 1} states, the start"
      f" first; got {len(players)}"
    )
  for t, action in itertools.zip_longest(range(len(players)), actions):
    arrow = "end" if action is None else ARROWS[action]
    frame = sokoban.State(player=players[t], boxes=boxes[t], step=steps[t])
    yield frame, f"{int(steps[t])} {arrow}"


def _board(level, placed, width: int) -> list[str]:
  """Rows of XSB characters."""
  return sokoban_levels.board_text(
    level.walls, level.targets, placed.player, placed.boxes, width=width
  ).split("\n")


def _draw_frame(level, state, caption: str, width: int, tile: int):
  """One state with its caption below, as an RGB image."""
  board = _draw_board(_board(level, state, width), tile)
  label = tile * 4 // 5
  frame = Image.new("RGB", (board.width, board.height + label), "white")
  frame.paste(board, (0, 0))
  _draw_caption(frame, caption, board.height, label)
  return frame


def _draw_board(rows: list[str], tile: int):
  """Rows of XSB characters as an RGB image."""
  side = tile * 4  # drawn large and scaled down: smooth edges
  width = len(rows[0])
  board = Image.new("RGB", (width * side, len(rows) * side), _FLOOR)
  draw = ImageDraw.Draw(board)
  for r, row in enumerate(rows):
    for c, cell in enumerate(row):
      _draw_cell(draw, cell, c * side, r * side, side)
  return board.resize((width * tile, len(rows) * tile), Image.Resampling.BOX)


def _draw_caption(frame, caption: str, top: int, height: int):
  """The step in text, the action as a drawn arrow (fonts may lack it)."""
  step, arrow = caption.split(" ")
  draw = ImageDraw.Draw(frame)
  font = ImageFont.load_default(size=height * 0.62)
  middle = top + height * 0.55
  shown = step if arrow in ARROWS else caption
  draw.text((height * 0.2, middle), shown, _INK, font, anchor="lm")
  if arrow in ARROWS:
    center = height * 0.9 + draw.textlength(step, font), middle
    dy, dx = ((-1, 0), (1, 0), (0, -1), (0, 1))[ARROWS.index(arrow)]
    half = height * 0.34
    tip = center[0] + dx * half, center[1] + dy * half
    neck = center[0], center[1]
    tail = center[0] - dx * half, center[1] - dy * half
    draw.line((tail, neck), _PLAYER, max(2, round(height * 0.14)))
    wing = half * 0.75
    draw.polygon(
      (
        tip,
        (neck[0] + dy * wing, neck[1] + dx * wing),
        (neck[0] - dy * wing, neck[1] - dx * wing),
      ),
      _PLAYER,
    )


def _draw_cell(draw, cell: str, x: int, y: int, side: int):
  """One tile with its corner at (x, y)."""

  def at(*points):  # fractions of the tile -> pixels
    return [(x + round(px * side), y + round(py * side)) for px, py in points]

  line = max(1, side // 24)
  if cell == "#":
    draw.rectangle(at((0, 0), (1, 1)), _WALL)
    draw.line(at((0, 0.5), (1, 0.5)), _MORTAR, line)
    draw.line(at((0, 1), (1, 1)), _MORTAR, line)
    draw.line(at((0.3, 0), (0.3, 0.5)), _MORTAR, line)
    draw.line(at((0.8, 0.5), (0.8, 1)), _MORTAR, line)
    return
  draw.rectangle(at((0, 0), (1, 1)), _FLOOR, _GRID, line)
  if cell in ".+":
    diamond = ((0.5, 0.14), (0.86, 0.5), (0.5, 0.86), (0.14, 0.5))
    draw.polygon(at(*diamond), None, _TARGET, 3 * line)
  if cell in "$*":
    fill, edge = (_BOX, _BOX_EDGE) if cell == "$" else (_DONE, _DONE_EDGE)
    draw.rounded_rectangle(
      at((0.1, 0.1), (0.9, 0.9)), side // 12, fill, edge, 2 * line
    )
  if cell == "$":
    draw.line(at((0.25, 0.25), (0.75, 0.75)), _BOX_EDGE, 2 * line)
    draw.line(at((0.25, 0.75), (0.75, 0.25)), _BOX_EDGE, 2 * line)
  if cell == "*":
    tick = at((0.27, 0.52), (0.43, 0.68), (0.74, 0.34))
    draw.line(tick, "white", 3 * line, joint="curve")
  if cell in "@+":
    low, high = (0.2, 0.8) if cell == "@" else (0.28, 0.72)
    draw.ellipse(at((low, low), (high, high)), _PLAYER, "white", line)
    for px in (0.42, 0.58):
      draw.ellipse(at((px - 0.05, 0.4), (px + 0.05, 0.5)), "white")
