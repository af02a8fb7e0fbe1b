"""Step-level credit for agents trained with group-based RL, in JAX."""

from crbc_jax.credit.closure import EXACT, exact_values, finite_values
from crbc_jax.credit.estimators.crbc import crbc, crbc_depths
from crbc_jax.credit.estimators.gigpo import gigpo
from crbc_jax.credit.estimators.graphgpo import graphgpo
from crbc_jax.credit.estimators.group_outcome import grpo, rloo
from crbc_jax.credit.estimators.rtmc import rtmc
from crbc_jax.credit.process import build_process, transition_probs
from crbc_jax.credit.registry import (
  ESTIMATORS,
  estimator_options,
  make_credit_fn,
  make_estimator,
  parse_estimator,
)
from crbc_jax.credit.table_credit import TableCredit, credit_table
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import (
  Boundary,
  EmpiricalProcess,
  Estimator,
  GroupArrays,
  StepCredit,
  Values,
)

__version__ = "0.1.0"

__all__ = [
  "ESTIMATORS",
  "EXACT",
  "BatchShape",
  "Boundary",
  "EmpiricalProcess",
  "Estimator",
  "GroupArrays",
  "GroupBatch",
  "RolloutError",
  "StepCredit",
  "StepTable",
  "TableCredit",
  "Values",
  "build_process",
  "crbc",
  "crbc_depths",
  "credit_table",
  "estimator_options",
  "exact_values",
  "finite_values",
  "gigpo",
  "graphgpo",
  "grpo",
  "make_batch",
  "make_credit_fn",
  "make_estimator",
  "parse_estimator",
  "rloo",
  "rtmc",
  "transition_probs",
  "validate",
]
