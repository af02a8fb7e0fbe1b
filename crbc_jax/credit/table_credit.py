"""Credit of a whole table in one call: validate, batch, estimate, scatter."""

import dataclasses
from typing import Any

import jax
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.rollouts.batching import make_batch
from crbc_jax.rollouts.table import StepTable, validate


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
    estimator: a registered name.
    **options: its options.

  Returns:
    Credit in the order of the table's rows.

  Raises:
    RolloutError: the table cannot be credited; says which row and why.
    ValueError: unknown estimator or option.
  """
  credit_fn = registry.make_credit_fn(estimator, **options)
  validate(table)
  batch = make_batch(table)
  credit = jax.device_get(credit_fn(batch.arrays))
  names = [field.name for field in dataclasses.fields(TableCredit)]
  return TableCredit(
    **{n: batch.to_rows(getattr(credit, n), len(table)) for n in names}
  )
