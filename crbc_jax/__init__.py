"""Step-level credit for agents trained with group-based RL, in JAX."""

from crbc_jax.credit.closure import EXACT, exact_values, finite_values
from crbc_jax.credit.conformance import check_estimator
from crbc_jax.credit.estimators.anchored import crbc_anchored, crbc_lambda
from crbc_jax.credit.estimators.crbc import crbc, crbc_depths
from crbc_jax.credit.estimators.g2po import g2po
from crbc_jax.credit.estimators.gae import gae
from crbc_jax.credit.estimators.gagpo import gagpo
from crbc_jax.credit.estimators.gigpo import gigpo
from crbc_jax.credit.estimators.graft import graft
from crbc_jax.credit.estimators.graphgpo import graphgpo
from crbc_jax.credit.estimators.graphhca import graphhca
from crbc_jax.credit.estimators.group_outcome import (
  dr_grpo,
  grpo,
  reinforce_pp,
  reinforce_pp_baseline,
  rloo,
)
from crbc_jax.credit.estimators.hgpo import hgpo
from crbc_jax.credit.estimators.loo import crbc_loo
from crbc_jax.credit.estimators.mica import mica
from crbc_jax.credit.estimators.rewardflow import rewardflow
from crbc_jax.credit.estimators.rtmc import rtmc
from crbc_jax.credit.estimators.salt import salt
from crbc_jax.credit.estimators.shrunk import crbc_shrunk
from crbc_jax.credit.leave_one_out import leave_one_out
from crbc_jax.credit.posterior import closure_posterior, standard_errors
from crbc_jax.credit.process import build_process, transition_probs
from crbc_jax.credit.registry import (
  ESTIMATORS,
  estimator_options,
  make_credit_fn,
  make_estimator,
  parse_estimator,
  register_estimator,
)
from crbc_jax.credit.table_credit import ClosureError, TableCredit, credit_table
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.potential import potential_rewards
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import (
  Boundary,
  EmpiricalProcess,
  Estimator,
  GroupArrays,
  StepCredit,
  Transitions,
  Values,
)

__version__ = "0.1.0"

__all__ = [
  "ESTIMATORS",
  "EXACT",
  "BatchShape",
  "Boundary",
  "ClosureError",
  "EmpiricalProcess",
  "Estimator",
  "GroupArrays",
  "GroupBatch",
  "RolloutError",
  "StepCredit",
  "StepTable",
  "TableCredit",
  "Transitions",
  "Values",
  "build_process",
  "check_estimator",
  "closure_posterior",
  "crbc",
  "crbc_anchored",
  "crbc_depths",
  "crbc_lambda",
  "crbc_loo",
  "crbc_shrunk",
  "credit_table",
  "dr_grpo",
  "estimator_options",
  "exact_values",
  "finite_values",
  "g2po",
  "gae",
  "gagpo",
  "gigpo",
  "graft",
  "graphgpo",
  "graphhca",
  "grpo",
  "hgpo",
  "leave_one_out",
  "make_batch",
  "make_credit_fn",
  "make_estimator",
  "mica",
  "parse_estimator",
  "potential_rewards",
  "register_estimator",
  "reinforce_pp",
  "reinforce_pp_baseline",
  "rewardflow",
  "rloo",
  "rtmc",
  "salt",
  "standard_errors",
  "transition_probs",
  "validate",
]
