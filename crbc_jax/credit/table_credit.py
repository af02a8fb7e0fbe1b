"""Credit of a whole table: validate, batch, estimate, scatter.

A group is padded to a shape that only its own sizes decide, and batches of a
shape always hold the same number of groups. So a group gets the same numbers,
to the last bit, whatever else is in the table, and a log may be credited in
pieces.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.credit.closure import RESIDUAL_LIMIT
from crbc_jax.credit.combine import BATCH_TERMS
from crbc_jax.credit.hidden_state import HiddenState, hidden_state_of
from crbc_jax.rollouts.batching import (
  BatchShape,
  GroupBatch,
  group_shapes,
  grow_shape,
  next_rung,
  pad_groups,
  prepare,
)
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import Boundary, StepCredit

_BATCH_ROWS = 16_384  # padded rows of a batch, if its groups are smaller
_BATCH_SOLVE = 1 << 26  # multiplications of its dense solves, likewise


_CHAINING = (
  "crbc",
  "crbc_loo",
  "crbc_shrunk",
  "g2po",
  "gagpo",
  "graft",
  "graphgpo",
  "graphhca",
  "rewardflow",
)


class ClosureError(ArithmeticError):
  """Values that do not solve the equation they should; names the group."""


@dataclasses.dataclass(frozen=True, eq=False)
class TableCredit:
  """Credit per row of a table; rows of weight 0 get 0."""

  advantage: np.ndarray  # [S] float32, weighted sum of the two terms
  trajectory: np.ndarray  # [S] float32, A^G
  step: np.ndarray  # [S] float32, A^S
  q: np.ndarray  # [S] float32
  v: np.ndarray  # [S] float32
  live: np.ndarray  # [S] bool, the step term could differ from 0


_FIELDS = tuple(field.name for field in dataclasses.fields(TableCredit))


def credit_table(
  table: StepTable, estimator: str = "crbc", **options: Any
) -> TableCredit:
  """Credits every row of a table.

  The same numbers come out whatever the order of the rows and whatever other
  groups the table holds; only the REINFORCE++ terms compare a group with the
  rest of the table. For training, `make_batch` and `make_credit_fn` keep one
  shape for all groups.

  Args:
    table: S rows, any number of groups.
    estimator: a registered name, also with options: "crbc(depth=2)".
    **options: its options.

  Returns:
    Credit in the order of the table's rows.

  Raises:
    RolloutError: the table cannot be credited; says which row and why. Also
      when truncated rollouts are to be bootstrapped and no state after the
      last step was recorded, or when the estimator needs a critic and the
      table has no column `value`, or when credit overflows.
    ValueError: unknown estimator or option.
    ClosureError: the values of a group do not solve their equation.
  """
  return make_table_credit_fn(estimator, **options)(table)


def make_table_credit_fn(
  estimator: str = "crbc", **options: Any
) -> Callable[[StepTable], TableCredit]:
  """`credit_table` of one estimator, which keeps what it compiled.

  Raises:
    ValueError: unknown estimator or option.
  """
  name, named = registry.parse_estimator(estimator)
  options = named | options
  credit_fn = registry.make_credit_fn(name, **options)
  needs_critic = registry.lookup(name).needs_critic
  bootstraps = options.get("truncation") == "bootstrap"
  batches = _one_batch if spans_batch(estimator, **options) else _batches

  def credit(table: StepTable) -> TableCredit:
    if bootstraps:
      _check_successors(table)
    if needs_critic:
      _check_values(name, table)
    validate(table)
    size = len(table)
    columns = {
      n: np.zeros(size, bool if n == "live" else np.float32) for n in _FIELDS
    }
    for rows, batch in batches(table):
      found = jax.device_get(credit_fn(batch.arrays))
      _check_residual(found, batch)
      _check_finite(found, batch)
      for n, column in columns.items():
        column[rows] = batch.to_rows(getattr(found, n), len(rows))
    return TableCredit(**columns)

  return credit


def table_hidden_state(table: StepTable) -> HiddenState:
  """Evidence that the keys of a table hide state; see `hidden_state`.

  Anchors are named by group and state key.

  Raises:
    RolloutError: the table breaks a rule.
  """
  validate(table)
  found = HiddenState()
  for rows, batch in _batches(table):
    found += hidden_state_of(batch, table.take(rows))
  return found


def spans_batch(estimator: str, **options: Any) -> bool:
  """Whether an estimator compares a group with the rest of its batch."""
  name, resolved = _resolved(estimator, options)
  return resolved.get("trajectory", name) in BATCH_TERMS


def reads_rewards(estimator: str, **options: Any) -> bool:
  """Whether an estimator reads the rewards of the steps, not the outcome."""
  name, resolved = _resolved(estimator, options)
  by_itself = registry.lookup(name).needs == "rewards"
  return by_itself or resolved.get("signal") == "observed"


def chains_states(estimator: str, **options: Any) -> bool:
  """Whether credit joins pieces of different rollouts into routes.

  That is what a key that hides state leads astray: see `hidden_state`. Of the
  built-in estimators; nothing is known of others. `crbc_anchored` and
  `crbc_lambda` do too, but are held by what was really returned.
  """
  name, resolved = _resolved(estimator, options)
  return name in _CHAINING and resolved.get("depth") != 0


def _resolved(
  estimator: str, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
  """Name of an estimator and all its options, defaults included."""
  name, named = registry.parse_estimator(estimator)
  return name, registry.estimator_options(name) | named | options


def _one_batch(table: StepTable) -> Iterator[tuple[np.ndarray, GroupBatch]]:
  prepared = prepare(table)
  shape = grow_shape(None, prepared.needed)
  yield np.arange(len(table)), pad_groups(table, prepared, shape)


def _batches(table: StepTable) -> Iterator[tuple[np.ndarray, GroupBatch]]:
  """Batches of groups of one shape, and the rows of the table they hold."""
  prepared = prepare(table)
  needed = group_shapes(prepared)
  shapes = [_own_shape(*sizes) for sizes in needed.tolist()]
  group = np.full(len(table), -1)
  group[prepared.ids.order] = prepared.ids.group
  for shape in dict.fromkeys(shapes):
    members = np.flatnonzero([other == shape for other in shapes])
    for start in range(0, len(members), shape.groups):
      chosen = members[start : start + shape.groups]
      if len(chosen) == len(shapes):  # all there are
        yield np.arange(len(table)), pad_groups(table, prepared, shape)
        continue
      rows = np.flatnonzero(np.isin(group, chosen))
      part = table.take(rows)
      yield rows, pad_groups(part, prepare(part), shape)


def _own_shape(rows: int, rollouts: int, branching: int) -> BatchShape:
  """The shape of the batches that a group of this size is credited in.

  Few shapes, since each compiles for a second or two: sizes go up in powers
  of four, and anchors, pairs and transitions share that of the rows, which
  bounds them.
  """
  padded, slots = _power_of_four(rows, 16), _power_of_four(branching, 8)
  return BatchShape(
    groups=max(1, min(_BATCH_ROWS // padded, _BATCH_SOLVE // slots**3)),
    rows=padded,
    anchors=padded,
    pairs=padded,
    rollouts=next_rung(rollouts),
    transitions=padded,
    branching=slots,
  )


def _power_of_four(size: int, smallest: int) -> int:
  while smallest < size:
    smallest *= 4
  return smallest


def _check_residual(credit: StepCredit, batch: GroupBatch) -> None:
  if "residual" not in credit.aux:
    return
  residual = np.asarray(credit.aux["residual"])[: len(batch.group_ids)]
  worst = int(np.argmax(residual))
  if not residual[worst] <= RESIDUAL_LIMIT:
    raise ClosureError(
      f"group {batch.group_ids[worst]!r}: the values miss their equation by "
      f"{residual[worst]:.1e} of the rewards (at most {RESIDUAL_LIMIT:g} is "
      "rounding); a smaller beta solves better, and please report the group"
    )


def _check_finite(credit: StepCredit, batch: GroupBatch) -> None:
  for name in _FIELDS:
    bad = ~np.isfinite(getattr(credit, name)[: len(batch.group_ids)])
    if bad.any():
      group = batch.group_ids[int(np.argmax(bad.any(axis=1)))]
      raise RolloutError(
        f"group {group!r}: {name} is not finite: its rewards or values overflow"
        " float32, scale them down"
      )


def _check_values(name: str, table: StepTable) -> None:
  if table.value is None:
    raise RolloutError(
      f"estimator {name!r} needs a critic, but the table has no column 'value':"
      " write the critic's value of the state before each step"
    )


def _check_successors(table: StepTable) -> None:
  truncated = table.boundary == Boundary.TRUNCATED
  after = table.next_state_key[truncated]
  if len(after) and all(key is None for key in after):
    raise RolloutError(
      "truncation='bootstrap' needs the state after the last step of truncated "
      "rollouts, but next_state_key is empty on all of them: record it, or use "
      "truncation='failure'"
    )
