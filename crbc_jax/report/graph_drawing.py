"""Draws a merged graph, or the rollouts of a group, into axes.

Blue is better than the average of the state, orange worse: the colours of the
report, which readers of any colour vision tell apart.
"""

import collections

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Patch

from crbc_jax.report.merged_graph import ENDS, Edge, MergedGraph, positions
from crbc_jax.rollouts.interning import Interned, intern_table
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

CREDIT = LinearSegmentedColormap.from_list(
  "credit", ["#c2510a", "#e08a4e", "#c9c9c4", "#5d92d1", "#1a5fb4"]
)
"""Diverging: orange, grey, blue."""

_END_COLOURS = {
  Boundary.SUCCESS: "#1a5fb4",
  Boundary.FAILURE: "#b0480a",
  Boundary.TRUNCATED: "#5c6266",
}
INK, _MUTED, _NODE = "#22272b", "#5c6266", "#f3f3ef"
_RADIUS = 0.42  # of a state
_STEP = 1.5  # of a chain
_WIDE, _HIGH = 2.7, 2.3  # between layers, and inside one
_LABELLED = 40  # edges; a busier graph shows no actions
_LETTERS = 14  # of an action or a state


def draw_graph(
  axis: Axes,
  graph: MergedGraph,
  *,
  reach: float | None = None,
  place: np.ndarray | None = None,
  size: float = 1.0,
) -> None:
  """Draws states with their V and edges: width = count, colour = credit.

  Args:
    axis: it is cleared of ticks and frame.
    graph: N states and K ends.
    reach: the credit at the ends of the colours; None: the largest.
    place: [N + K, 2] of `merged_graph.positions`; None: the graph's own.
    size: of letters and lines.
  """
  reach = graph.reach if reach is None else reach
  at = graph_places(graph, place)
  nodes = _draw_nodes(axis, graph, at, size)
  bends = _bends(graph, at)
  most = max(edge.count for edge in graph.edges)
  labelled = len(graph.edges) <= _LABELLED
  for edge, bend in zip(graph.edges, bends, strict=True):
    colour = CREDIT(scale(reach)(edge.credit))
    _draw_edge(axis, at, nodes, edge, bend, colour, most, size, labelled)
  x, y = at[0]
  axis.annotate(
    "",
    (x - _RADIUS - 0.05, y),
    (x - _RADIUS - 0.6, y),
    arrowprops={"arrowstyle": "-|>", "color": _MUTED, "lw": 1.2 * size},
  )
  axis.axis("off")


def draw_rollouts(axis: Axes, table: StepTable, advantage: np.ndarray) -> None:
  """Draws each rollout of a group as a chain, steps coloured by advantage.

  Args:
    axis: it is cleared of ticks and frame.
    table: S rows of one group.
    advantage: [S], in the order of the table.
  """
  ids = intern_table(table)
  states = table.state_key[ids.order].tolist()
  actions = table.action_key[ids.order].tolist()
  credit = advantage[ids.order]
  reach = float(np.abs(credit).max())
  at = chain_places(ids)
  radius = 0.3
  for row, (x, y) in enumerate(at):
    node = Circle((x, y), radius, fc=_NODE, ec=_MUTED, lw=1, zorder=3)
    axis.add_patch(node)
    axis.text(
      x, y, _short(states[row]), ha="center", va="center", fontsize=8, zorder=4
    )
    end = Boundary(int(ids.boundary[row]))
    colour = CREDIT(scale(reach)(credit[row]))
    target = x + (_STEP - radius if end == Boundary.NONE else _STEP - 0.36)
    axis.add_patch(
      FancyArrowPatch(
        (x + radius, y),
        (target, y),
        arrowstyle="-|>",
        mutation_scale=11,
        shrinkA=1,
        shrinkB=1,
        lw=2.4,
        color=colour,
      )
    )
    axis.text(
      x + _STEP / 2,
      y + 0.14,
      _short(actions[row]),
      ha="center",
      fontsize=8,
      color=INK,
    )
    if end != Boundary.NONE:
      _draw_end(axis, (x + _STEP + 0.1, y), end, 0.78, wide=0.46)
      axis.text(
        x + _STEP + 0.66,
        y,
        _signed(credit[row]),
        va="center",
        fontsize=9,
        color=colour,
        weight="bold",
      )
  axis.axis("off")


def chain_places(ids: Interned) -> np.ndarray:
  """Where each row of a group stands in its chain, [S', 2]."""
  below = ids.traj.max() - ids.traj
  return np.stack([_STEP * ids.step, 1.35 * below], axis=1)


def scale(reach: float) -> Normalize:
  """From credit to a place in `CREDIT`; `reach` is its end."""
  reach = reach or 1.0  # an all-fail group has no credit at all
  return Normalize(-reach, reach)


def graph_places(
  graph: MergedGraph, place: np.ndarray | None = None
) -> np.ndarray:
  """States and ends of a graph in data units, [N + K, 2]."""
  place = positions(graph) if place is None else place
  return place * (_WIDE, _HIGH)


def _draw_nodes(
  axis: Axes, graph: MergedGraph, at: np.ndarray, size: float
) -> list[Patch]:
  """States and ends, to which edges are clipped."""
  nodes: list[Patch] = []
  for name, v, (x, y) in zip(graph.states, graph.v, at, strict=False):
    node = Circle((x, y), _RADIUS, fc=_NODE, ec=INK, lw=1.2 * size, zorder=3)
    nodes.append(axis.add_patch(node))
    axis.text(
      x,
      y + 0.11,
      _short(name),
      ha="center",
      va="center",
      fontsize=10 * size,
      weight="bold",
      color=INK,
      zorder=4,
    )
    axis.text(
      x,
      y - 0.15,
      f"V {v:.2f}",
      ha="center",
      va="center",
      fontsize=8 * size,
      color=_MUTED,
      zorder=4,
    )
  for end, place in zip(graph.ends, at[len(graph.states) :], strict=True):
    nodes.append(_draw_end(axis, place, end, size))
  return nodes


def _draw_end(
  axis: Axes, place, end: Boundary, size: float, *, wide: float = 0.5
) -> Patch:
  x, y = place
  high = 0.22
  box = FancyBboxPatch(
    (x - wide, y - high),
    2 * wide,
    2 * high,
    boxstyle="round,pad=0,rounding_size=0.14",
    fc=_END_COLOURS[end],
    ec="none",
    zorder=3,
  )
  axis.add_patch(box)
  axis.text(
    x,
    y,
    ENDS[end],
    ha="center",
    va="center",
    fontsize=9.5 * size,
    color="white",
    weight="bold",
    zorder=4,
  )
  return box


def _bends(graph: MergedGraph, at: np.ndarray) -> list[float]:
  """Curvature of each edge, so that edges between two nodes stay apart."""
  between = collections.Counter(
    frozenset((edge.source, edge.target)) for edge in graph.edges
  )
  used: collections.Counter = collections.Counter()
  bends = []
  for edge in graph.edges:
    ends = frozenset((edge.source, edge.target))
    # There and back bend to the same side as seen by each: they stay apart.
    turn = used[edge.source, edge.target]
    used[edge.source, edge.target] += 1
    far = abs(at[edge.target, 0] - at[edge.source, 0]) > 1.5 * _WIDE
    first = 0.2 if between[ends] > 1 else 0.25 if far else 0.06
    bends.append(first + 0.22 * turn)
  return bends


def _draw_edge(
  axis, at, nodes, edge: Edge, bend, colour, most, size, labelled
) -> None:
  begin, end = at[edge.source], at[edge.target]
  loop = edge.source == edge.target
  if loop:
    begin, end = at[edge.source] + [[-0.2, 0.3], [0.2, 0.3]]
    bend = -1.8
  axis.add_patch(
    FancyArrowPatch(
      tuple(begin),
      tuple(end),
      connectionstyle=f"arc3,rad={bend}",
      arrowstyle="-|>",
      mutation_scale=15 * size,
      patchA=None if loop else nodes[edge.source],
      patchB=None if loop else nodes[edge.target],
      shrinkA=2,
      shrinkB=2,
      lw=size * (1.2 + 4.2 * edge.count / most),
      color=colour,
      zorder=2,
      joinstyle="miter",
    )
  )
  if not labelled:
    return
  along = end - begin
  # The middle of the curve that arc3 draws.
  middle = (begin + end) / 2 + bend / 2 * np.array([along[1], -along[0]])
  times = f" ×{edge.count}" if edge.count > 1 else ""
  axis.text(
    *middle,
    f"{_short(edge.action)}{times}\n{_signed(edge.credit)}",
    ha="center",
    va="center",
    fontsize=9 * size,
    color=INK,
    linespacing=1.05,
    bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none"},
    zorder=5,
  )


def _signed(value: float) -> str:
  return f"{value:+.2f}".replace("-", "−")


def _short(text: object) -> str:
  text = str(text)
  return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
