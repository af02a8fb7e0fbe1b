"""What every estimator must satisfy; run on one's own at registration."""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import numpy as np

from crbc_jax.credit import combine
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Estimator, GroupArrays, StepCredit

_ROWS = ("advantage", "trajectory", "step", "q", "v", "live")
_CLOSE = 1e-4


def check_estimator(function: Estimator, **options: Any) -> None:
  """Checks a pure function `estimator(group, *, options) -> StepCredit`.

  On probe groups (several rollouts that meet, one rollout, all failed, all
  successful, single steps) it must run under jit and vmap with results of the
  right shapes, be finite, give the same without jit, whatever padding holds
  and whatever else is in the batch, and not depend on the order of rollouts.

  Args:
    function: the estimator.
    **options: options to check it with; its defaults otherwise.

  Raises:
    ValueError: says what it does not satisfy.
  """
  name = getattr(function, "__name__", repr(function))
  _check_signature(name, function)
  bound = functools.partial(function, **options)
  run = jax.jit(jax.vmap(bound, axis_name=combine.BATCH_AXIS))
  batch, again = make_batch(_probe()), make_batch(_probe(reverse=True))
  try:
    got = jax.device_get(run(batch.arrays))
  except Exception as error:
    raise ValueError(
      f"estimator {name} does not run under jit and vmap on one group of "
      f"padded arrays: {error}"
    ) from error
  _check_result(name, got, batch.arrays)
  want = _rows(got, batch)

  single = jax.vmap(bound, axis_name=combine.BATCH_AXIS)
  with jax.disable_jit():
    eager = jax.device_get(single(batch.arrays))
  # The compiler may turn 0/0 into 0: what is not finite shows here.
  _check_result(name, eager, batch.arrays)
  _compare(name, _rows(eager, batch), want, "changes without jit")

  larger = BatchShape(*(2 * n for n in batch.shape))
  padded = make_batch(_probe(), larger)
  filled = _with_garbage(padded.arrays)
  loose = jax.device_get(run(filled))
  _check_result(name, loose, filled)
  _compare(
    name,
    _rows(loose, padded),
    want,
    "depends on what padding holds: apply `group.mask` before an operation",
  )
  moved = _rows(jax.device_get(run(again.arrays)), again)
  back = np.argsort(_order(reverse=True))
  _compare(
    name,
    {f: x[back] for f, x in moved.items()},
    want,
    "depends on the order of the rollouts",
  )


def _check_signature(name: str, function: Estimator) -> None:
  parameters = list(inspect.signature(function).parameters.values())
  rest_is_named = all(
    p.kind == p.KEYWORD_ONLY and p.default is not p.empty
    for p in parameters[1:]
  )
  if not parameters or not rest_is_named:
    raise ValueError(
      f"estimator {name} must take one group and then keyword-only options "
      f"with defaults: def {name}(group, *, option=1.0)"
    )


def _check_result(name: str, got: Any, arrays: GroupArrays) -> None:
  if not isinstance(got, StepCredit):
    raise ValueError(
      f"estimator {name} must return a StepCredit, got {type(got).__name__}"
    )
  mask = np.asarray(arrays.mask)
  for field in _ROWS:
    values = np.asarray(getattr(got, field))
    kind = "b" if field == "live" else "f"
    if values.shape != mask.shape or values.dtype.kind != kind:
      what = "bool" if kind == "b" else "float"
      raise ValueError(
        f"estimator {name}: {field} must be {what} [R], one entry per row; "
        f"got {values.dtype} {values.shape[1:]}"
      )
    if not np.isfinite(values).all():
      raise ValueError(
        f"estimator {name}: {field} is not finite on a degenerate group (one "
        "rollout, all failed, all successful, or all padding): guard divisions"
      )
    if values[~mask].any():
      raise ValueError(
        f"estimator {name}: {field} is not 0 on padding: end with "
        f"jnp.where(group.mask, {field}, 0)"
      )


def _compare(name: str, got, want, what: str) -> None:
  for field in _ROWS:
    if not np.allclose(got[field], want[field], rtol=_CLOSE, atol=_CLOSE):
      raise ValueError(f"estimator {name}: {field} {what}")


def _rows(credit: StepCredit, batch: GroupBatch) -> dict[str, np.ndarray]:
  size = int(batch.row_index.max()) + 1
  return {f: batch.to_rows(getattr(credit, f), size) for f in _ROWS}


_PROBE = (  # group, states and actions in turn, how it ended
  ("meet", "s a t c", "success"),
  ("meet", "s a t d u e", "failure"),
  ("meet", "s b u f", "success"),
  ("meet", "s b u e s b u e", "truncated"),
  ("alone", "s a s a t b", "success"),
  ("failed", "s a t b", "failure"),
  ("failed", "s b", "truncated"),
  ("failed", "s a t c", "failure"),
  ("solved", "s a t b", "success"),
  ("solved", "s b", "success"),
  ("step", "s a", "failure"),
)


def _probe(*, reverse: bool = False) -> StepTable:
  """The probe groups, rollouts numbered in this order or the other way."""
  rollouts = _PROBE[::-1] if reverse else _PROBE
  rows = []
  for number, (group, path, end) in enumerate(rollouts):
    words = path.split()
    for t in range(len(words) // 2):
      last = 2 * t + 2 == len(words)
      rows.append(
        {
          "group_id": group,
          "traj_id": number,
          "step_idx": t,
          "state_key": words[2 * t],
          "action_key": words[2 * t + 1],
          "boundary": end if last else "none",
          "reward": float(last and end == "success") - 0.125 * (t % 2),
          "valid": words[2 * t + 1] != "e",
          "value": 0.25 * len(words[2 * t :]) / len(words),
        }
      )
  return StepTable.from_rows(rows)


def _order(*, reverse: bool) -> np.ndarray:
  """Position in the forward probe of each row of the (reversed) probe."""
  lengths = [len(path.split()) // 2 for _, path, _ in _PROBE]
  starts = np.cumsum([0, *lengths[:-1]])
  blocks = [np.arange(a, a + n) for a, n in zip(starts, lengths, strict=True)]
  return np.concatenate(blocks[::-1] if reverse else blocks)


def _with_garbage(arrays: GroupArrays) -> GroupArrays:
  """Padding holds NaN and the numbers of real rows."""

  def filled(mask, values, garbage):
    return np.where(mask, values, garbage).astype(values.dtype)

  row, anchor, merged = arrays.mask, arrays.state_mask, arrays.transitions
  seen = merged.count > 0
  return dataclasses.replace(
    arrays,
    reward=filled(row, arrays.reward, np.nan),
    value=filled(row, arrays.value, np.inf),
    valid=filled(row, arrays.valid, True),
    boundary=filled(row, arrays.boundary, 1),
    step=filled(row, arrays.step, 3),
    state=filled(row, arrays.state, 1),
    action=filled(row, arrays.action, 1),
    pair=filled(row, arrays.pair, 1),
    traj=filled(row, arrays.traj, 1),
    next_state=filled(row, arrays.next_state, 0),
    pair_state=filled(arrays.pair_mask, arrays.pair_state, 1),
    transitions=dataclasses.replace(
      merged,
      row=filled(row, merged.row, 1),
      pair=filled(seen, merged.pair, 1),
      next_state=filled(seen, merged.next_state, 0),
      boundary=filled(seen, merged.boundary, 1),
      hop=filled(anchor, merged.hop, 0),
      slot=filled(anchor, merged.slot, 0),
    ),
  )
