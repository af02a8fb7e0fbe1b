"""Keys -> small integers inside each group, in an order of the log's own.

Numbers depend on ids and keys only, never on the order of the rows, so results
are bit-identical when a log is shuffled.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xxhash

from crbc_jax.rollouts import table as table_lib
from crbc_jax.rollouts.table import StepTable

_LONG_TEXT = 1_024  # characters on average; below, plain dictionaries win


class Interned(NamedTuple):
  """A table in canonical row order with ids local to each group."""

  order: np.ndarray  # [S'] rows of the table, sorted by group, traj, step
  group: np.ndarray  # [S'] group number, from 0
  group_row: np.ndarray  # [B'] first row of each group
  state: np.ndarray  # [S'] anchor in the group, by first appearance
  pair: np.ndarray  # [S'] (state, action) pair in the group
  action: np.ndarray  # [S'] action, numbered over the whole table
  next_state: np.ndarray  # [S'] anchor in the group, -1 = never acted from
  traj: np.ndarray  # [S'] trajectory in the group
  step: np.ndarray  # [S'] position in the trajectory
  boundary: np.ndarray  # [S'] int, a `Boundary`

  @property
  def column(self) -> np.ndarray:
    """Position of each row inside its group, [S']."""
    return np.arange(len(self.order)) - self.group_row[self.group]


def intern_table(table: StepTable) -> Interned:
  """Orders rows canonically and numbers states, pairs and trajectories."""
  if not len(table.order):
    raise table_lib.RolloutError(
      "no row has a positive weight; there is nothing to credit"
    )
  t = table.in_order
  size = len(t)
  starts_group = np.append(True, t.group_codes[1:] != t.group_codes[:-1])
  starts_traj = np.append(True, t.traj_codes[1:] != t.traj_codes[:-1])
  starts_traj |= starts_group
  group_row = np.flatnonzero(starts_group)
  group = np.cumsum(starts_group) - 1
  traj_row = np.flatnonzero(starts_traj)
  traj = np.cumsum(starts_traj) - 1

  last = np.append(traj_row[1:], size) - 1  # last row of each trajectory
  state_code, final_code = _key_codes(t, last)
  stride = max(state_code.max(), final_code.max()) + 2
  node = group * stride + state_code
  state, state_of_code = first_appearance(node, group, group_row)
  action_code, _ = table_lib.first_codes(t.action_key.tolist())
  span = action_code.max() + 1
  anchor = group * (state.max() + 1) + state  # distinct over groups
  pair, _ = first_appearance(anchor * span + action_code, group, group_row)

  next_state = np.append(state[1:], -1)
  known = state_of_code(group[last] * stride + final_code)
  next_state[last] = np.where(final_code < 0, -1, known)
  return Interned(
    order=table.order,
    group=group,
    group_row=group_row,
    state=state,
    pair=pair,
    action=action_code,
    next_state=next_state,
    traj=traj - traj[group_row][group],
    step=np.arange(size) - traj_row[traj],
    boundary=t.boundary.astype(np.int64),
  )


def first_appearance(
  code: np.ndarray, group: np.ndarray, group_row: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
  """Numbers codes inside each group by first appearance.

  Args:
    code: [S] int >= 0; codes of different groups differ.
    group: [S] group of each row, from 0, ascending.
    group_row: [B] first row of each group.

  Returns:
    The number of each row [S], and a look-up from code to number (-1 if the
    code is on no row).
  """
  size, rows = len(code), np.arange(len(code))
  if table_lib.is_dense(int(code.max()), size):
    first_of = np.full(code.max() + 1, size)
    first_of[code[::-1]] = rows[::-1]  # the last write, the first row, wins
    first = first_of[code]

    def first_row(wanted):
      known = (wanted >= 0) & (wanted < len(first_of))
      return np.where(known, first_of[np.where(known, wanted, 0)], size)

  else:
    values, firsts, inverse = np.unique(
      code, return_index=True, return_inverse=True
    )
    first = firsts[inverse]

    def first_row(wanted):
      at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
      return np.where(values[at] == wanted, firsts[at], size)

  rank = np.cumsum(first == rows) - 1  # of a first row, over all groups
  local = np.append(rank - rank[group_row][group], -1)

  return local[first], lambda wanted: local[first_row(wanted)]


def _key_codes(t: StepTable, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Codes of states, and of the successors of the rows `last` (-1 = unknown).

  A missing state (None) gets a code of its own: it merges with nothing.
  """
  size, final = len(t), t.next_state_key[last]
  if t.state_key.dtype != object and final.dtype != object:
    codes = table_lib.factorize(np.concatenate([t.state_key, final]))
    return codes[:size], codes[size:]
  # First appearance in canonical order; only equality of codes matters.
  keys = _digests(t.state_key.tolist() + final.tolist())
  codes, distinct = table_lib.first_codes(keys)
  if None in distinct:
    missing = np.flatnonzero(codes == distinct.index(None))
    codes[missing] = len(keys) + missing  # each its own
  return codes[:size], np.where(codes[size:] < len(keys), codes[size:], -1)


def _digests(keys: list) -> list:
  """Long texts as 128-bit hashes, which are faster to compare; others as is.

  Python compares every text in full with its equal in a dictionary. Two texts
  of one log share a digest with a chance below 1e-20.
  """
  first = [key for key in keys[:64] if isinstance(key, str)]
  if sum(map(len, first)) < _LONG_TEXT * max(len(first), 1):
    return keys
  if not {str, type(None)}.issuperset(map(type, keys)):
    return keys
  digest = xxhash.xxh3_128_digest
  return [
    None if key is None else digest(key.encode("utf-8", "surrogatepass"))
    for key in keys
  ]
