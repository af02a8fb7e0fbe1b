"""The built-in estimators, and what a reader of a table wants to know of them.

`singleton`, `all_fail` and `all_success` say what a group of one rollout
without revisits, one where every rollout fails, and one where every rollout
succeeds get with default options, outcome rewards and valid actions:

  zero     exactly 0
  uniform  the same on every step of a rollout
  speed    steps that lead to success sooner get more
  rewards  whatever the observed rewards say
  batch    compared with the other groups of the batch
  critic   whatever the learned critic says
  prior    below zero, by the smoothing towards the group's success rate
  raw      a rollout of one step keeps its score; the steps of a longer one are
           compared with each other, and equal ones get 0
  edges    raw, and of a success steps get more the later they are
  branches whatever the extra rollouts say

A test holds each entry to its word.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from crbc_jax.credit.estimators.anchored import crbc_anchored, crbc_lambda
from crbc_jax.credit.estimators.crbc import crbc
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


@dataclasses.dataclass(frozen=True)
class Entry:
  """An estimator and what it needs of a log."""

  function: Callable[..., Any]  # an `Estimator`, or what makes a branch
  needs: str  # beyond outcomes: keys, rewards, a critic
  source: str  # paper, or who made it
  singleton: str = "zero"
  all_fail: str = "zero"
  all_success: str = "zero"
  needs_critic: bool = False  # the column `value`


_ACTIONS = "states, actions"
_STATES = "states"

BUILT_IN = {
  "crbc": Entry(crbc, _ACTIONS, "arXiv 2609.35082", all_success="speed"),
  "crbc_anchored": Entry(
    crbc_anchored, _ACTIONS, "crbc_jax", all_success="speed"
  ),
  "crbc_lambda": Entry(crbc_lambda, _ACTIONS, "crbc_jax", all_success="speed"),
  "crbc_loo": Entry(crbc_loo, _ACTIONS, "crbc_jax", all_success="speed"),
  "crbc_shrunk": Entry(crbc_shrunk, _ACTIONS, "crbc_jax", all_success="speed"),
  "dr_grpo": Entry(dr_grpo, "outcomes", "arXiv 2503.20783"),
  "g2po": Entry(
    g2po, _STATES, "arXiv 2606.22995", singleton="edges", all_success="speed"
  ),
  "gae": Entry(
    gae,
    "critic",
    "arXiv 1506.02438",
    singleton="critic",
    all_fail="critic",
    all_success="critic",
    needs_critic=True,
  ),
  "gagpo": Entry(gagpo, _STATES, "arXiv 2605.13217", all_success="speed"),
  "gigpo": Entry(
    gigpo, _STATES, "arXiv 2505.10978", singleton="raw", all_success="speed"
  ),
  "graft": Entry(graft, _STATES, "arXiv 2609.28963", all_success="speed"),
  "graphgpo": Entry(
    graphgpo, _STATES, "arXiv 2605.26684", singleton="raw", all_success="speed"
  ),
  "graphhca": Entry(graphhca, _STATES, "arXiv 2609.35084", all_success="speed"),
  "grpo": Entry(grpo, "outcomes", "arXiv 2402.03300"),
  "hgpo": Entry(hgpo, _STATES, "arXiv 2602.22817", all_success="speed"),
  "mica": Entry(
    mica,
    "rewards",
    "arXiv 2603.06194",
    singleton="rewards",
    all_fail="rewards",
    all_success="rewards",
  ),
  "reinforce_pp": Entry(
    reinforce_pp,
    "outcomes",
    "arXiv 2501.03262",
    singleton="batch",
    all_fail="batch",
    all_success="batch",
  ),
  "reinforce_pp_baseline": Entry(
    reinforce_pp_baseline,
    "outcomes",
    "arXiv 2501.03262",
    singleton="batch",
    all_fail="batch",
    all_success="batch",
  ),
  "rewardflow": Entry(
    rewardflow, _STATES, "arXiv 2603.18859", all_success="speed"
  ),
  "rloo": Entry(rloo, "outcomes", "arXiv 2402.14740"),
  "rtmc": Entry(
    rtmc,
    _ACTIONS,
    "arXiv 2604.11037",
    singleton="prior",
    all_success="prior",
  ),
  "salt": Entry(salt, _ACTIONS, "arXiv 2510.20022"),
}
