"""StepTable -> GroupBatch: intern keys inside a group, pad to few shapes.

Every new shape compiles (seconds each on a CPU), while padding costs little, so
shapes come from a rule that settles: `grow_shape` never shrinks an axis and
grows all of them together.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from crbc_jax.rollouts.interning import Interned, intern_table
from crbc_jax.rollouts.merging import Merged, merge_transitions
from crbc_jax.rollouts.table import StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import GroupArrays, Transitions


class BatchShape(NamedTuple):
  """Padded sizes of a batch: [B], [R], [N], [M], [G], [E] and [A]."""

  groups: int
  rows: int
  anchors: int
  pairs: int
  rollouts: int
  transitions: int
  branching: int  # the anchors left to solve for; the solve is cubic in it


_SMALLEST = BatchShape(1, 8, 8, 8, 1, 8, 4)
"""The smallest rung of each axis."""


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


class Prepared(NamedTuple):
  """A table interned and merged, not yet padded."""

  ids: Interned
  merged: Merged
  needed: BatchShape


def next_rung(n: int, *, smallest: int = 8) -> int:
  """The smallest power of two that is >= max(n, smallest)."""
  return 1 << (max(n, smallest) - 1).bit_length()


def grow_shape(shape: BatchShape | None, needed: BatchShape) -> BatchShape:
  """Keeps `shape` where the batch fits; else every axis grows, with headroom.

  Feed the result of one batch into the next: the shapes of a whole run are
  then a handful, however the batches vary. The first shape is each need's next
  power of two; one that is outgrown makes room for twice the need on every
  axis at once. The branching axis has no headroom: it costs its cube.
  """
  if shape is not None and fits(needed, shape):
    return shape
  current = shape or BatchShape(*(0 for _ in BatchShape._fields))
  headroom = 1 if shape is None else 2
  return BatchShape(
    **{
      axis: max(
        getattr(current, axis),
        next_rung(
          getattr(needed, axis)
          * (1 if axis in ("groups", "rollouts", "branching") else headroom),
          smallest=getattr(_SMALLEST, axis),
        ),
      )
      for axis in BatchShape._fields
    }
  )


def fits(needed: BatchShape, shape: BatchShape) -> bool:
  """Whether no axis of `shape` is smaller than needed."""
  return all(have >= need for have, need in zip(shape, needed, strict=True))


def prepare(table: StepTable) -> Prepared:
  """Interns and merges a table, and says what shape it needs."""
  ids = intern_table(table)
  merged = merge_transitions(ids)
  rows = np.diff(np.append(ids.group_row, len(ids.order)))
  needed = BatchShape(
    groups=len(ids.group_row),
    rows=int(rows.max()),
    anchors=int(ids.state.max()) + 1,
    pairs=int(ids.pair.max()) + 1,
    rollouts=int(ids.traj.max()) + 1,
    transitions=int(merged.row.max()) + 1,
    branching=max(int(merged.slot.max()) + 1, 1),
  )
  return Prepared(ids, merged, needed)


def group_shapes(prepared: Prepared) -> np.ndarray:
  """Rows, rollouts and branching anchors of each group, [B, 3]."""
  ids, merged, needed = prepared
  sizes = np.zeros((needed.groups, 3), np.int64)
  sizes[:, 0] = np.diff(np.append(ids.group_row, len(ids.order)))
  np.maximum.at(sizes[:, 1], ids.group, ids.traj + 1)
  np.maximum.at(sizes[:, 2], merged.node_group, merged.slot + 1)
  return sizes


def pad_groups(
  table: StepTable, prepared: Prepared, shape: BatchShape
) -> GroupBatch:
  """Pads prepared rows to `shape`.

  Raises:
    ValueError: an axis of `shape` is smaller than the table needs.
  """
  ids, merged, needed = prepared
  if not fits(needed, shape):
    raise ValueError(f"shape {shape} is smaller than needed {needed}")
  b, r, n, m, g, e, a = shape
  at_row = ids.group * r + ids.column  # flat position in [B, R]
  at_transition = merged.group * e + merged.number
  at_node = merged.node_group * n + merged.node_state

  def padded(values, dtype, fill=0, *, at=at_row, width=r):
    out = np.full(b * width, fill, dtype)
    out[at] = values
    return out.reshape(b, width)

  def of_transitions(values):
    return padded(values, np.int32, at=at_transition, width=e)

  def flags(width, group, number):
    return padded(True, bool, at=group * width + number, width=width)

  slotted = merged.slot >= 0
  transitions = Transitions(
    row=padded(merged.row, np.int32),
    pair=of_transitions(merged.pair),
    next_state=of_transitions(_outside(merged.next_state, n)),
    boundary=of_transitions(merged.boundary),
    count=of_transitions(merged.visits),
    hop=padded(merged.hop, np.int32, at=at_node, width=n),
    slot=padded(_outside(merged.slot, a), np.int32, a, at=at_node, width=n),
    slot_mask=flags(a, merged.node_group[slotted], merged.slot[slotted]),
  )
  pair_state = np.zeros(b * m, np.int32)
  pair_state[ids.group * m + ids.pair] = ids.state
  source = ids.order
  arrays = GroupArrays(
    state=padded(ids.state, np.int32),
    pair=padded(ids.pair, np.int32),
    action=padded(ids.action, np.int32),
    next_state=padded(_outside(ids.next_state, n), np.int32),
    traj=padded(ids.traj, np.int32),
    step=padded(ids.step, np.int32),
    boundary=padded(ids.boundary, np.int32),
    reward=padded(table.reward[source], np.float32),
    value=(
      np.zeros((b, r), np.float32)
      if table.value is None
      else padded(table.value[source], np.float32)
    ),
    valid=padded(table.valid[source], bool),
    mask=padded(True, bool),
    pair_state=pair_state.reshape(b, m),
    pair_mask=flags(m, ids.group, ids.pair),
    state_mask=flags(n, ids.group, ids.state),
    traj_mask=flags(g, ids.group, ids.traj),
    transitions=transitions,
  )
  return GroupBatch(
    arrays=arrays,
    row_index=padded(source, np.int64, fill=-1),
    shape=shape,
    group_ids=tuple(table.group_id[source[ids.group_row]].tolist()),
  )


def make_batch(table: StepTable, shape: BatchShape | None = None) -> GroupBatch:
  """Validates, interns, merges and pads a table in one go.

  Args:
    table: S rows, any number of groups.
    shape: of the batch before; it is kept where the table fits and grows
      otherwise. Pass `GroupBatch.shape` on from batch to batch, so that a run
      compiles a handful of times; without it every batch is a new shape.

  Returns:
    The padded groups and the way back to table rows.

  Raises:
    RolloutError: as `validation.validate`.
  """
  validate(table)
  prepared = prepare(table)
  return pad_groups(table, prepared, grow_shape(shape, prepared.needed))


def _outside(number: np.ndarray, size: int) -> np.ndarray:
  """-1 -> one past the end of an axis."""
  return np.where(number < 0, size, number)
