"""StepTable -> GroupBatch: intern keys inside a group, pad to few shapes.

Every new shape compiles (about two seconds each on a CPU), while padding costs
little, so shapes come from a rule that settles: `grow_shape` never shrinks an
axis, and `next_rung` gives a small fixed ladder for the anchor axis, whose
dense solve is cubic.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from crbc_jax.rollouts import table as table_lib
from crbc_jax.rollouts.table import StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import GroupArrays


class BatchShape(NamedTuple):
  """Padded sizes of a batch: [B] groups of [R] rows, [N], [M] and [G]."""

  groups: int
  rows: int
  anchors: int
  pairs: int
  rollouts: int


@dataclasses.dataclass(frozen=True, eq=False)
class GroupBatch:
  """Padded groups, and the way back from padded rows to table rows."""

  arrays: GroupArrays  # NumPy leaves with a leading axis [B]
  row_index: np.ndarray  # [B, R] int64, row of the table, -1 on padding
  group_ids: tuple  # one per real group, in canonical order
  shape: BatchShape

  def to_rows(self, values: np.ndarray, size: int) -> np.ndarray:
    """Scatters per-row results [B, R] back to table order [size].

    Rows of weight zero are in no group and get 0.
    """
    values = np.asarray(values)
    real = self.row_index >= 0
    out = np.zeros(size, values.dtype)
    out[self.row_index[real]] = values[real]
    return out


class Interned(NamedTuple):
  """A table in canonical row order with ids local to each group."""

  order: np.ndarray  # [S'] rows of the table, sorted by group, traj, step
  group: np.ndarray  # [S'] group number, from 0
  column: np.ndarray  # [S'] position inside the group
  state: np.ndarray  # [S'] anchor in the group, by first appearance
  pair: np.ndarray  # [S'] (state, action) pair in the group
  next_state: np.ndarray  # [S'] anchor in the group, -1 = never acted from
  traj: np.ndarray  # [S'] trajectory in the group
  step: np.ndarray  # [S'] position in the trajectory
  needed: BatchShape


def next_rung(n: int, *, smallest: int = 8) -> int:
  """The smallest power of two that is >= max(n, smallest)."""
  return 1 << (max(n, smallest) - 1).bit_length()


def grow_shape(shape: BatchShape | None, needed: BatchShape) -> BatchShape:
  """A running maximum: keeps `shape` where it fits, else the next rung.

  Feed the result of one batch into the next: the shapes of a whole run are
  then at most a handful, however the batches vary.
  """
  current = shape or BatchShape(0, 0, 0, 0, 0)
  return BatchShape(
    *(
      c if n <= c else next_rung(n, smallest=1 if i in (0, 4) else 8)
      for i, (c, n) in enumerate(zip(current, needed, strict=True))
    )
  )


def intern_table(table: StepTable) -> Interned:
  """Orders rows canonically and numbers states, pairs and trajectories.

  Numbers depend on ids and keys only, never on the order of the rows, so
  results are bit-identical when a log is shuffled.
  """
  order = table_lib.canonical_order(table)
  if not len(order):
    raise table_lib.RolloutError(
      "no row has a positive weight; there is nothing to credit"
    )
  in_order = np.array_equal(order, np.arange(len(table)))
  t = table if in_order else table.take(order)
  size = len(t)
  starts_group = np.append(True, t.group_id[1:] != t.group_id[:-1])
  starts_traj = starts_group | np.append(True, t.traj_id[1:] != t.traj_id[:-1])
  group_row = np.flatnonzero(starts_group)  # first row of each group
  group = np.cumsum(starts_group) - 1
  traj_row = np.flatnonzero(starts_traj)
  traj = np.cumsum(starts_traj) - 1
  rows = np.arange(size)

  last = np.append(traj_row[1:], size) - 1  # last row of each trajectory
  state_code, final_code = _key_codes(t, last)
  stride = max(state_code.max(), final_code.max()) + 2
  node = group * stride + state_code
  state, state_of_code = _first_appearance(node, group, group_row)
  action_code = table_lib.factorize(t.action_key)
  span = action_code.max() + 1
  anchor = group * (state.max() + 1) + state  # distinct over groups
  pair, _ = _first_appearance(anchor * span + action_code, group, group_row)

  next_state = np.append(state[1:], -1)
  known = state_of_code(group[last] * stride + final_code)
  next_state[last] = np.where(final_code < 0, -1, known)

  counts = np.diff(np.append(group_row, size))
  needed = BatchShape(
    groups=len(group_row),
    rows=int(counts.max()),
    anchors=int(state.max()) + 1,
    pairs=int(pair.max()) + 1,
    rollouts=int((traj - traj[group_row][group]).max()) + 1,
  )
  return Interned(
    order=order,
    group=group,
    column=rows - group_row[group],
    state=state,
    pair=pair,
    next_state=next_state,
    traj=traj - traj[group_row][group],
    step=rows - traj_row[traj],
    needed=needed,
  )


def pad_groups(
  table: StepTable, interned: Interned, shape: BatchShape
) -> GroupBatch:
  """Pads interned rows to `shape`.

  Raises:
    ValueError: an axis of `shape` is smaller than the table needs.
  """
  if any(
    have < need for have, need in zip(shape, interned.needed, strict=True)
  ):
    raise ValueError(f"shape {shape} is smaller than needed {interned.needed}")
  b, r, n, m, g = shape
  at = interned.group * r + interned.column  # flat position in [B, R]

  def padded(values, dtype, fill=0):
    out = np.full(b * r, fill, dtype)
    out[at] = values
    return out.reshape(b, r)

  def flags(width, ids):
    out = np.zeros(b * width, bool)
    out[interned.group * width + ids] = True
    return out.reshape(b, width)

  pair_state = np.zeros(b * m, np.int32)
  pair_state[interned.group * m + interned.pair] = interned.state
  row_index = padded(interned.order, np.int64, fill=-1)
  source = interned.order
  arrays = GroupArrays(
    state=padded(interned.state, np.int32),
    pair=padded(interned.pair, np.int32),
    next_state=padded(
      np.where(interned.next_state < 0, n, interned.next_state), np.int32
    ),
    traj=padded(interned.traj, np.int32),
    step=padded(interned.step, np.int32),
    boundary=padded(table.boundary[source], np.int32),
    reward=padded(table.reward[source], np.float32),
    value=(
      np.zeros((b, r), np.float32)
      if table.value is None
      else padded(table.value[source], np.float32)
    ),
    valid=padded(table.valid[source], bool),
    mask=padded(True, bool),
    pair_state=pair_state.reshape(b, m),
    pair_mask=flags(m, interned.pair),
    state_mask=flags(n, interned.state),
    traj_mask=flags(g, interned.traj),
  )
  first = np.flatnonzero(interned.column == 0)
  return GroupBatch(
    arrays=arrays,
    row_index=row_index,
    shape=shape,
    group_ids=tuple(table.group_id[source[first]].tolist()),
  )


def make_batch(table: StepTable, shape: BatchShape | None = None) -> GroupBatch:
  """Validates, interns and pads a table in one go.

  Args:
    table: S rows, any number of groups.
    shape: of the batch before; it is kept where the table fits and grows
      otherwise. Pass `batch.shape` on from batch to batch, so that a run
      compiles a handful of times; without it every batch is a new shape.

  Returns:
    The padded groups and the way back to table rows.

  Raises:
    RolloutError: as `validation.validate`.
  """
  validate(table)
  interned = intern_table(table)
  return pad_groups(table, interned, grow_shape(shape, interned.needed))


def _key_codes(t: StepTable, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Codes of states, and of the successors of the rows `last` (-1 = unknown).

  A missing state (None) gets a code of its own: it merges with nothing.
  """
  size, final = len(t), t.next_state_key[last]
  if t.state_key.dtype != object and final.dtype != object:
    codes = table_lib.factorize(np.concatenate([t.state_key, final]))
    return codes[:size], codes[size:]
  # First appearance in canonical order; only equality of codes matters.
  seen: dict = {}
  state = [
    size + i if key is None else seen.setdefault(key, len(seen))
    for i, key in enumerate(t.state_key)
  ]
  after = [-1 if key is None else seen.get(key, -1) for key in final]
  return np.array(state, np.int64), np.array(after, np.int64)


def _first_appearance(code, group, group_row):
  """Numbers codes inside each group by first appearance.

  Returns the number of each row and a look-up from code to number (-1 if the
  code is on no row). Codes of different groups differ.
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
