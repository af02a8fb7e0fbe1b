"""Interned rows -> distinct transitions, and how their graph contracts.

Everything is flat over the groups and linear in the number of rows, save for a
sort of those rows whose (state, action) led to several successors.

What counts as a live successor here holds for every option of the estimators:
a truncated step whose last state is a known anchor is live when truncation is
bootstrapped, and an edge of weight zero otherwise.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from crbc_jax.rollouts.interning import Interned
from crbc_jax.types import Boundary

_ENDS = len(Boundary)


class Merged(NamedTuple):
  """Distinct transitions of all groups, flat, with ids local to each group."""

  row: np.ndarray  # [S'] transition of each row, in its group
  group: np.ndarray  # [E'] group of each transition
  number: np.ndarray  # [E'] number of the transition in its group
  pair: np.ndarray  # [E']
  next_state: np.ndarray  # [E'], -1 = never acted from
  boundary: np.ndarray  # [E']
  visits: np.ndarray  # [E'] rows merged
  node_group: np.ndarray  # [N'] group of each anchor, flat over the groups
  node_state: np.ndarray  # [N'] number of the anchor in its group
  hop: np.ndarray  # [N'] in its group
  slot: np.ndarray  # [N'] number of a branching anchor in its group, else -1


def merge_transitions(ids: Interned) -> Merged:
  """Merges equal transitions and classifies the anchors between them."""
  groups = len(ids.group_row)
  pair = _flat_ids(ids.pair, ids.group, groups)
  state = _flat_ids(ids.state, ids.group, groups)
  transition, first = _number_transitions(
    pair, ids.next_state * _ENDS + ids.boundary
  )
  group = ids.group[first]
  start = np.searchsorted(group, np.arange(groups))  # groups ascend in `first`
  live = (ids.next_state[first] >= 0) & np.isin(
    ids.boundary[first], (Boundary.NONE, Boundary.TRUNCATED)
  )
  # First rows of anchors ascend with their flat number: any row does here.
  num_nodes = int(state.max()) + 1
  node_row = np.empty(num_nodes, np.int64)
  node_row[state] = np.arange(len(state))
  node_group, node_state = ids.group[node_row], ids.state[node_row]
  first_node = np.searchsorted(node_group, np.arange(groups))
  source = state[first]
  target = first_node[group] + ids.next_state[first]
  hop, branches = _contract(source[live], target[live], num_nodes)
  slot = np.full(num_nodes, -1)
  slot[branches] = _rank_in_group(node_group[branches])
  return Merged(
    row=transition - start[ids.group],
    group=group,
    number=np.arange(len(first)) - start[group],
    pair=ids.pair[first],
    next_state=ids.next_state[first],
    boundary=ids.boundary[first],
    visits=np.bincount(transition),
    node_group=node_group,
    node_state=node_state,
    hop=hop - first_node[node_group],
    slot=slot,
  )


def _flat_ids(local: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
  """Ids local to a group -> ids over all groups, groups one after another."""
  size = np.zeros(groups, np.int64)
  np.maximum.at(size, group, local + 1)
  return (np.cumsum(size) - size)[group] + local


def _number_transitions(
  pair: np.ndarray, what: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Numbers distinct (pair, what) by first row.

  Args:
    pair: [S] flat id of the (state, action) pair, numbered by first row.
    what: [S] where it led and how it ended.

  Returns:
    (number [S], first row of each [E]).
  """
  size = len(pair)
  rows = np.arange(size)
  first_of = np.empty(int(pair.max()) + 1, np.int64)
  first_of[pair[::-1]] = rows[::-1]
  first = first_of[pair]
  differs = what != what[first]
  # Most pairs always did the same; only rows that did not need sorting.
  odd = np.flatnonzero(differs)
  if len(odd):
    span = int(what.max()) - int(what.min()) + 1
    code = pair[odd] * span + (what[odd] - what.min())
    _, at, inverse = np.unique(code, return_index=True, return_inverse=True)
    first[odd] = odd[at][inverse]
  is_first = first == rows
  return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)


def _contract(
  source: np.ndarray, target: np.ndarray, num_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
  """Hops of the merged graph, and the anchors that must be solved for.

  Args:
    source, target: [E] flat ids of the live transitions.
    num_nodes: N'.

  Returns:
    (hop [N'], the only live successor other than itself, or the anchor itself;
    the branching anchors, ascending).
  """
  away = source != target
  source, target = source[away], target[away]
  hop = np.arange(num_nodes)
  hop[source] = target
  branching = np.zeros(num_nodes, bool)
  branching[source[hop[source] != target]] = True
  hop[branching] = np.flatnonzero(branching)
  # Hops can run in circles that leave through absorbing states only. A circle
  # has a hop to a smaller number; without one there is nothing to look for.
  nodes = np.arange(num_nodes)
  if (hop < nodes).any():
    moving = np.flatnonzero(hop != nodes)
    graph = scipy.sparse.csr_array(
      (np.ones(len(moving), np.int8), (moving, hop[moving])),
      shape=(num_nodes, num_nodes),
    )
    count, label = scipy.sparse.csgraph.connected_components(
      graph, connection="strong"
    )
    if count < num_nodes:
      smallest = np.full(count, num_nodes)
      np.minimum.at(smallest, label, nodes)
      on_circle = np.bincount(label)[label] > 1
      opened = on_circle & (smallest[label] == nodes)
      branching |= opened
      hop[opened] = nodes[opened]
  return hop, np.flatnonzero(branching)


def _rank_in_group(group: np.ndarray) -> np.ndarray:
  """Position of each entry among those of its group; `group` ascends."""
  return np.arange(len(group)) - np.searchsorted(group, group)
