"""Credit of a whole table in one call: validate, batch, estimate, scatter."""

import dataclasses
from typing import Any

import jax
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.credit.closure import RESIDUAL_LIMIT
from crbc_jax.rollouts.batching import GroupBatch, make_batch
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.types import Boundary, StepCredit


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


def credit_table(
  table: StepTable, estimator: str = "crbc", **options: Any
) -> TableCredit:
  """Credits every row of a table.

  The same numbers come out whatever the order of the rows. For many batches
  use `make_batch` and `make_credit_fn`, which keep what they compiled.

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
      table has no column `value`.
    ValueError: unknown estimator or option.
    ClosureError: the values of a group do not solve their equation.
  """
  name, named = registry.parse_estimator(estimator)
  options = named | options
  credit_fn = registry.make_credit_fn(name, **options)
  if options.get("truncation") == "bootstrap":
    _check_successors(table)
  if registry.lookup(name).needs_critic:
    _check_values(name, table)
  batch = make_batch(table)
  credit = jax.device_get(credit_fn(batch.arrays))
  _check_residual(credit, batch)
  names = [field.name for field in dataclasses.fields(TableCredit)]
  return TableCredit(
    **{n: batch.to_rows(getattr(credit, n), len(table)) for n in names}
  )


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
