"""The merged graph of a group as a figure: values in states, credit on steps.

For papers and notebooks, and for groups small enough to read; the HTML report
draws the large ones.
"""

import pathlib
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from crbc_jax.report import plots
from crbc_jax.report.report_data import ReportGroup, make_view, report_groups
from crbc_jax.rollouts.batching import make_batch
from crbc_jax.rollouts.table import StepTable

# Blue is good and orange bad, also for colour-blind readers.
_CREDIT = LinearSegmentedColormap.from_list(
  "credit", ["#B24A00", "#E69F00", "#BDBDBD", "#56B4E9", "#005B99"]
)
_ENDS = (
  ("success", "#009E73", "✓"),
  ("failure", "#D55E00", "✗"),
  ("truncated", "#777777", "…"),
)
_RADIUS = 0.23
_SPREAD = (1.9, 1.5)  # between layers, and within one
_LARGEST = 30  # anchors that a reader can tell apart


def draw_group(
  table: StepTable,
  path: pathlib.Path | None = None,
  *,
  estimator: str = "crbc",
  title: str | None = None,
) -> Figure:
  """Draws one group: an arrow for each action and where it led.

  An arrow is as wide as it is often walked and coloured by the advantage of its
  steps (the mean, where an estimator credits rollouts and not actions); a state
  holds V. States stand by the least number of steps from the start.

  Args:
    table: the rows of one group, at most 30 states.
    path: without suffix; writes .png and .svg. None writes nothing.
    estimator: a registered name, also with options: "crbc(depth=2)".
    title: of the figure; what it shows, by default.

  Returns:
    The figure; a notebook shows it.

  Raises:
    RolloutError: the table cannot be credited or holds several groups.
    ValueError: unknown estimator, or more states than can be drawn.
  """
  view = make_view(estimator)
  (data,) = report_groups([ReportGroup(table)], [view])
  states = data.states
  if len(states) > _LARGEST:
    raise ValueError(
      f"{len(states)} states are too many for a figure (at most {_LARGEST});"
      " `crbc report` draws them"
    )
  numbers, edges = data.numbers, data.numbers["edges"]
  value = numbers["views"][0]["v"][view.start]
  of_edge = np.array(numbers["edge"])
  # Not those of `numbers`, which are rounded already.
  advantage = view.credit_fn(make_batch(table).arrays).advantage
  advantage = np.asarray(advantage)[0, view.start, : len(of_edge)]
  walked = range(len(edges["count"]))
  credit = np.array([advantage[of_edge == e].mean() for e in walked])
  ends = sorted({t - len(states) for t in edges["target"] if t >= len(states)})
  starts = [numbers["state"][t["start"]] for t in numbers["trajs"]]
  place = _places(len(states), ends, edges, starts)

  columns, rows = place.max(axis=0) - place.min(axis=0)
  figure = Figure(
    figsize=(2.2 + 1.35 * columns, 2.0 + 1.35 * rows), layout="constrained"
  )
  axis = figure.subplots()
  largest = max(np.abs(credit).max(), 1e-9)
  scale = Normalize(-largest, largest)
  most = max(edges["count"])
  crowd: dict[tuple[int, int], int] = {}
  ways = set(zip(edges["source"], edges["target"], strict=True))
  for e in walked:
    source, target, count = (edges[k][e] for k in ("source", "target", "count"))
    action = data.actions[edges["action"][e]]
    number = crowd[source, target] = crowd.get((source, target), 0) + 1
    both_ways = (target, source) in ways
    _arrow(
      axis,
      place[source],
      place[target],
      bend=0.16 * number if number > 1 or both_ways else 0.0,
      width=1.2 + 3.0 * count / most,
      colour=_CREDIT(scale(credit[e])),
      text=f"{action}  {credit[e]:+.2f}" + f"  ({count}x)" * (count > 1),
    )
  for i, name in enumerate(states):
    _state(axis, place[i], name, f"{value[i]:.2f}")
  for end in ends:
    name, colour, sign = _ENDS[end]
    x, y = place[len(states) + end]
    axis.add_patch(Circle((x, y), _RADIUS, color=colour, zorder=3))
    _write(axis, x, y, sign, color="white", fontsize=15)
    _write(axis, x, y - 0.33, name, fontsize=9)
  low, high = place.min(axis=0), place.max(axis=0)
  axis.set_xlim(low[0] - 0.5, high[0] + 0.5)
  axis.set_ylim(low[1] - 0.5, high[1] + 0.5)
  axis.set_aspect("equal")
  axis.axis("off")
  axis.set_title(
    title or f"{data.summary['rollouts']} rollouts, credit by {estimator}",
    fontsize=11,
  )
  bar = figure.colorbar(
    matplotlib.cm.ScalarMappable(scale, _CREDIT), ax=axis, shrink=0.6, pad=0.01
  )
  bar.set_label("advantage", fontsize=9)
  bar.outline.set_visible(False)
  if path is not None:
    plots.save(figure, path)
  return figure


def _places(count: int, ends, edges, starts: Sequence[int]) -> np.ndarray:
  """[N + 3, 2]: layers by distance from the start, ends in the last."""
  far = np.full(count + len(_ENDS), np.inf)
  far[list(starts)] = 0
  for _ in range(count):
    for source, target in zip(edges["source"], edges["target"], strict=True):
      far[target] = min(far[target], far[source] + 1)
  layer = np.where(np.isfinite(far), far, 0)
  layer[count:] = layer[:count].max() + 1
  place = np.zeros((count + len(_ENDS), 2))
  place[:, 0] = layer * _SPREAD[0]
  for depth in np.unique(layer[:count]):
    members = np.flatnonzero(layer[:count] == depth)
    # Those that lead straight to success stand above those that do not.
    fate = [_fate(edges, int(m), count) for m in members]
    for rank, i in enumerate(np.argsort(fate, kind="stable")):
      height = (len(members) - 1) / 2 - rank
      place[members[i], 1] = height * _SPREAD[1]
  for rank, end in enumerate(ends):
    place[count + end, 1] = ((len(ends) - 1) / 2 - rank) * _SPREAD[1]
  unused = [e for e in range(len(_ENDS)) if e not in ends]
  place[[count + e for e in unused]] = place[0]
  return place


def _fate(edges, state: int, count: int) -> float:
  """Mean end that a state leads to at once, 0 success; others in between."""
  ends = [
    t - count if t >= count else 0.5
    for s, t in zip(edges["source"], edges["target"], strict=True)
    if s == state
  ]
  return float(np.mean(ends))


def _arrow(axis: Axes, begin, end, *, bend, width, colour, text) -> None:
  """One step, with its text beside the middle."""
  shrink = 23.0  # points: an arrow ends at the circle of a state
  loops = bool((begin == end).all())
  if loops:  # it stays where it is: from the top of the circle to the top
    begin, end = np.add(begin, (-0.1, 0.2)), np.add(end, (0.1, 0.2))
    bend, shrink = -1.9, 0.0
  axis.add_patch(
    FancyArrowPatch(
      begin,
      end,
      connectionstyle=f"arc3,rad={bend}",
      arrowstyle="-|>",
      mutation_scale=9 + 2 * width,
      shrinkA=shrink,
      shrinkB=shrink,
      linewidth=width,
      color=colour,
      zorder=2,
    )
  )
  along = np.subtract(end, begin)
  middle = np.add(begin, end) / 2
  middle += np.array([along[1], -along[0]]) * bend / (1 if loops else 2)
  axis.annotate(
    text,
    middle,
    ha="center",
    va="center",
    fontsize=8,
    zorder=4,
    bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"},
  )


def _state(axis: Axes, place, name: str, value: str) -> None:
  x, y = place
  axis.add_patch(
    Circle((x, y), _RADIUS, facecolor="white", edgecolor="black", zorder=3)
  )
  short = name if len(name) <= 6 else name[:5] + "…"
  _write(axis, x, y + 0.06, short, fontsize=9, fontweight="bold")
  _write(axis, x, y - 0.09, value, fontsize=8)


def _write(axis: Axes, x: float, y: float, text: str, **style) -> None:
  axis.text(x, y, text, ha="center", va="center", zorder=5, **style)
