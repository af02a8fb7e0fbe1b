"""A group as the closure sees it: its rollouts merged by state, with credit."""

import dataclasses

import numpy as np

from crbc_jax.credit.table_credit import TableCredit
from crbc_jax.rollouts.interning import intern_table
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.types import Boundary

ENDS = {
  Boundary.SUCCESS: "success",
  Boundary.FAILURE: "failure",
  Boundary.TRUNCATED: "cut off",
}
"""What an end is called in a figure."""


@dataclasses.dataclass(frozen=True)
class Edge:
  """The steps with equal state, action and successor."""

  source: int  # state, in [0, N)
  target: int  # state, or N + k for the k-th end
  action: str
  count: int
  credit: float  # mean over its steps of Q - V


@dataclasses.dataclass(frozen=True, eq=False)
class MergedGraph:
  """N states, the ends that were reached, and the edges between them."""

  states: tuple[str, ...]  # in order of first appearance; the start is first
  v: np.ndarray  # [N], value of each
  visits: np.ndarray  # [N] int
  ends: tuple[Boundary, ...]  # that occur, in the order of `Boundary`
  edges: tuple[Edge, ...]

  @property
  def reach(self) -> float:
    """Largest |credit|."""
    return max(abs(edge.credit) for edge in self.edges)


def merge(table: StepTable, credit: TableCredit) -> MergedGraph:
  """The merged graph of a group.

  Args:
    table: S rows of one group.
    credit: of the table, by an estimator with values; V of a state is the mean
      over its visits, the credit of an edge that of Q - V over its steps.

  Raises:
    RolloutError: the table holds more than one group.
  """
  ids = intern_table(table)
  if len(ids.group_row) != 1:
    raise RolloutError(
      f"a graph shows one group, the table holds {len(ids.group_row)}"
    )
  size = int(ids.state.max()) + 1
  ends = tuple(end for end in ENDS if (ids.boundary == end).any())
  place = {end: size + k for k, end in enumerate(ends)}
  v, q = credit.v[ids.order], credit.q[ids.order]
  visits = np.bincount(ids.state, minlength=size)
  actions = table.action_key[ids.order].tolist()
  states = table.state_key[ids.order].tolist()
  rows: dict[tuple[int, int, str], list[int]] = {}
  for row, end in enumerate(ids.boundary.tolist()):
    target = place[Boundary(end)] if end else int(ids.next_state[row])
    at = int(ids.state[row]), target, str(actions[row])
    rows.setdefault(at, []).append(row)
  _, first_visit = np.unique(ids.state, return_index=True)
  return MergedGraph(
    states=tuple(str(states[row]) for row in first_visit),
    v=np.bincount(ids.state, v, minlength=size) / visits,
    visits=visits,
    ends=ends,
    edges=tuple(
      Edge(source, target, action, len(own), float((q[own] - v[own]).mean()))
      for (source, target, action), own in rows.items()
    ),
  )


def layers(graph: MergedGraph) -> np.ndarray:
  """Fewest steps from the first state; the ends stand behind all; [N + K].

  States that only rollouts with another start reach begin at 0 too.
  """
  size = len(graph.states)
  layer = np.full(size + len(graph.ends), -1)
  while (layer[:size] < 0).any():
    fresh = int(np.argmax(layer[:size] < 0))  # the earliest still unreached
    layer[fresh] = depth = 0
    front = {fresh}
    while front:
      depth += 1
      front = {
        edge.target
        for edge in graph.edges
        if edge.source in front
        and edge.target < size
        and layer[edge.target] < 0
      }
      layer[list(front)] = depth
  layer[size:] = layer[:size].max() + 1
  return layer


def positions(graph: MergedGraph) -> np.ndarray:
  """X is the layer; inside a layer, more valuable states stand higher.

  Returns:
    float [N + K, 2]; neighbours of a layer are 1 apart and centred on y = 0.
  """
  layer = layers(graph)
  worth = {Boundary.SUCCESS: np.inf, Boundary.FAILURE: -np.inf}
  value = np.append(graph.v, [worth.get(end, 0.0) for end in graph.ends])
  place = np.zeros((len(layer), 2))
  for x in np.unique(layer):
    members = np.flatnonzero(layer == x)
    best_first = members[np.argsort(-value[members], kind="stable")]
    height = (len(members) - 1) / 2
    place[best_first, 1] = height - np.arange(len(members))
  place[:, 0] = layer
  return place
