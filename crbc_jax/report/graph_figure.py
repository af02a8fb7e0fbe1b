"""Pictures of a group: its rollouts, and the merged graph with credit."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from crbc_jax.credit.table_credit import TableCredit
from crbc_jax.report import graph_drawing
from crbc_jax.report.graph_drawing import draw_graph, draw_rollouts
from crbc_jax.report.merged_graph import MergedGraph, merge, positions
from crbc_jax.rollouts.interning import intern_table
from crbc_jax.rollouts.table import StepTable

_BAR, _TITLE = 0.95, 0.4  # inches for the colour bar and for a title


def graph_figure(
  graph: MergedGraph, *, title: str = "", width: float = 8.0
) -> Figure:
  """The merged graph with its colour bar.

  Args:
    graph: see `merged_graph.merge`.
    title: above it.
    width: inches.
  """
  frame = _graph_frame(graph)
  unit = (width - _BAR) / np.ptp(frame[:, 0])
  figure, axes = _panels([title], [frame], [unit])
  draw_graph(axes[0], graph)
  colour_bar(figure, graph.reach)
  return figure


def depth_figure(
  table: StepTable,
  credits: Mapping[str, TableCredit],
  *,
  width: float = 13.0,
) -> Figure:
  """One graph for each credit of a group, in one layout and colour scale.

  Args:
    table: S rows of one group.
    credits: title -> credit of the table; the last decides the layout.
    width: inches.
  """
  graphs = {title: merge(table, credit) for title, credit in credits.items()}
  last = list(graphs.values())[-1]
  reach = max(graph.reach for graph in graphs.values())
  frame, place = _graph_frame(last), positions(last)
  unit = (width - _BAR) / len(graphs) / np.ptp(frame[:, 0])
  figure, axes = _panels(
    list(graphs), [frame] * len(graphs), [unit] * len(graphs)
  )
  for axis, graph in zip(axes, graphs.values(), strict=True):
    draw_graph(axis, graph, reach=reach, place=place, size=1.2 * unit)
  colour_bar(figure, reach)
  return figure


def group_figure(
  table: StepTable, per_rollout: TableCredit, credit: TableCredit
) -> Figure:
  """Left the rollouts with one credit each, right their merged graph.

  Args:
    table: S rows of one group.
    per_rollout: credit whose advantage is shown on the left.
    credit: credit with values, shown on the right.
  """
  graph = merge(table, credit)
  figure, (left, right) = _panels(
    [
      "one advantage for each rollout (GRPO)",
      "one for each step: Q − V on the merged graph (CRBC)",
    ],
    [_chain_frame(table), _graph_frame(graph)],
    [0.62, 0.9],
  )
  draw_rollouts(left, table, per_rollout.advantage)
  draw_graph(right, graph)
  colour_bar(figure, graph.reach)
  return figure


def colour_bar(figure: Figure, reach: float) -> None:
  """The scale of the edges' colours, at the right end of a figure."""
  wide = figure.get_figwidth()
  cax = figure.add_axes((1 - (_BAR - 0.1) / wide, 0.12, 0.12 / wide, 0.7))
  bar = figure.colorbar(
    ScalarMappable(graph_drawing.scale(reach), graph_drawing.CREDIT), cax=cax
  )
  bar.set_label("step credit Q − V", fontsize=9, color=graph_drawing.INK)
  bar.ax.tick_params(labelsize=8)
  bar.outline.set_visible(False)


def _panels(
  titles: Sequence[str], frames: Sequence[np.ndarray], units: Sequence[float]
) -> tuple[Figure, list[Axes]]:
  """A figure with its axes side by side, each to scale.

  Args:
    titles: of the K panels.
    frames: of each (low, high) in data units, [2, 2].
    units: of each, inches for one data unit.
  """
  sizes = [
    np.ptp(frame, axis=0) * unit
    for frame, unit in zip(frames, units, strict=True)
  ]
  wide = sum(size[0] for size in sizes) + _BAR
  high = max(size[1] for size in sizes) + _TITLE
  figure = Figure(figsize=(wide, high))
  axes, left = [], 0.0
  for title, frame, size in zip(titles, frames, sizes, strict=True):
    bottom = (high - _TITLE - size[1]) / 2
    axis = figure.add_axes(
      (left / wide, bottom / high, size[0] / wide, size[1] / high)
    )
    axis.set(xlim=frame[:, 0], ylim=frame[:, 1])
    figure.text(
      (left + size[0] / 2) / wide,
      1 - 0.06 / high,
      title,
      ha="center",
      va="top",
      fontsize=11,
      color=graph_drawing.INK,
    )
    axes.append(axis)
    left += size[0]
  return figure, axes


def _graph_frame(graph: MergedGraph) -> np.ndarray:
  at = graph_drawing.graph_places(graph)
  margin = np.array([[1.15, 0.75], [0.8, 0.75]])  # at the low and high end
  return np.stack([at.min(axis=0) - margin[0], at.max(axis=0) + margin[1]])


def _chain_frame(table: StepTable) -> np.ndarray:
  at = graph_drawing.chain_places(intern_table(table))
  return np.stack([[-0.6, -0.6], at.max(axis=0) + np.array([3.0, 0.6])])
