"""Rollouts collected on the device -> StepTable, without a Python loop."""

import dataclasses

import numpy as np

from crbc_jax.rollouts.batching import (
  BatchShape,
  GroupBatch,
  next_rung,
  pad_groups,
  prepare,
)
from crbc_jax.rollouts.table import StepTable, factorize
from crbc_jax.types import Boundary, GroupArrays

_WORD_BITS = 31


def fold_key_words(words: np.ndarray) -> np.ndarray:
  """Folds integer keys of several 31-bit words [..., W] into one int64 [...].

  Two words fit as they are; more are interned first, so keys stay exact (and
  comparable inside this call only).
  """
  folded = words[..., 0].astype(np.int64)
  for i in range(1, words.shape[-1]):
    if i > 1:
      folded = factorize(folded.reshape(-1)).reshape(folded.shape)
    folded = (folded << _WORD_BITS) | words[..., i]
  return folded


def table_from_arrays(
  *,
  state_key: np.ndarray,
  final_key: np.ndarray,
  action: np.ndarray,
  reward: np.ndarray,
  boundary: np.ndarray,
  mask: np.ndarray,
  value: np.ndarray | None = None,
) -> StepTable:
  """One row for each step that was played.

  Args:
    state_key: [P, G, T, W] int, key of the state before each step.
    final_key: [P, G, W] int, key of the state after the last step.
    action: [P, G, T] int.
    reward: [P, G, T].
    boundary: [P, G, T] int, `Boundary`.
    mask: [P, G, T] bool, steps that were played.
    value: [P, G, T], a critic's value of the state before each step.

  Returns:
    The table; `row_id` is the flat position in [P, G, T], `group_id` is p and
    `traj_id` is p * G + g.
  """
  _, rollouts, steps = mask.shape
  keys = fold_key_words(
    np.concatenate([state_key, final_key[:, :, None]], axis=2)
  )
  rows = np.flatnonzero(mask)

  def flat(x):
    return np.ascontiguousarray(x).reshape(-1)[rows]

  traj = rows // steps
  won = (boundary == Boundary.SUCCESS).any(axis=2).reshape(-1)
  count = len(rows)
  return StepTable(
    group_id=traj // rollouts,
    traj_id=traj,
    step_idx=rows % steps,
    state_key=flat(keys[:, :, :-1]),
    next_state_key=flat(keys[:, :, 1:]),
    action_key=flat(action),
    reward=flat(reward).astype(np.float64),
    boundary=flat(boundary).astype(np.int8),
    outcome=won[traj],
    valid=np.broadcast_to(True, count),
    weight=np.broadcast_to(1.0, count),
    row_id=rows,
    value=None if value is None else flat(value).astype(np.float64),
  )


def fixed_shape(
  needed: BatchShape, *, groups: int, rollouts: int, steps: int, actions: int
) -> BatchShape:
  """The shape of a training batch: only the anchor axis varies, on a ladder.

  It is a function of this batch alone (not of the run so far), so a resumed
  run pads exactly as the uninterrupted one.
  """
  rows = rollouts * steps
  anchors = next_rung(needed.anchors, smallest=32)
  # Short episodes on a grid have little to contract; where there are many
  # anchors, a solve of them all would cost more than another compilation.
  branching = min(anchors, next_rung(needed.branching, smallest=128))
  return BatchShape(
    groups=groups,
    rows=rows,
    anchors=anchors,
    pairs=min(rows, anchors * actions),
    rollouts=rollouts,
    transitions=rows,
    branching=branching,
  )


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayBatch:
  """Padded groups of rollouts that came as arrays [P, G, T]."""

  table: StepTable
  batch: GroupBatch
  mask: np.ndarray  # [P, G, T] bool

  @property
  def arrays(self) -> GroupArrays:
    """The padded groups, [P, ...]."""
    return self.batch.arrays

  def to_steps(self, values: np.ndarray) -> np.ndarray:
    """Per-row results [P, R] as [P, G, T], 0 where masked."""
    steps = np.zeros(self.mask.size, values.dtype)
    steps[self.table.row_id] = self.batch.to_rows(values, len(self.table))
    return steps.reshape(self.mask.shape)

  def from_steps(self, values: np.ndarray) -> np.ndarray:
    """Values [P, G, T] of the steps as padded rows [P, R]; 0 on padding."""
    index = self.batch.row_index
    flat = np.asarray(values).reshape(-1)[self.table.row_id]
    return np.where(index >= 0, flat[index], np.zeros((), flat.dtype))


def batch_arrays(
  *, mask: np.ndarray, actions: int, shape: BatchShape | None = None, **arrays
) -> ArrayBatch:
  """Interns and pads rollouts in one go, without validation.

  Args:
    mask: [P, G, T] bool, steps that were played.
    actions: number of actions of the environment.
    shape: to pad to; `fixed_shape` of this batch by default.
    **arrays: the other arguments of `table_from_arrays`.
  """
  table = table_from_arrays(mask=mask, **arrays)
  prepared = prepare(table)
  groups, rollouts, steps = mask.shape
  shape = shape or fixed_shape(
    prepared.needed,
    groups=groups,
    rollouts=rollouts,
    steps=steps,
    actions=actions,
  )
  return ArrayBatch(table, pad_groups(table, prepared, shape), mask)
