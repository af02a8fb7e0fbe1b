"""Every step of a rollout gets the rollout's advantage: GRPO and its kin."""

import jax.numpy as jnp

from crbc_jax.checks import check_choice
from crbc_jax.credit import combine
from crbc_jax.credit.process import SIGNALS, check_group
from crbc_jax.types import GroupArrays, StepCredit


def grpo(
  group: GroupArrays,
  *,
  signal: str = "outcome",
  singleton: str = "zero",
  eps: float = 1e-6,
) -> StepCredit:
  """Group-relative advantage (R - mean) / (std + eps), std with ddof 1.

  Source: DeepSeekMath (arXiv 2402.03300). Statistics count each trajectory
  once, however long. Equal scores give exactly 0.

  Args:
    group: one unbatched group.
    signal: "outcome" (R = 1 on success, else 0) or "observed" (summed reward).
    singleton: advantage of a group of one: "zero", or "raw" (verl: its score).
    eps: added to the standard deviation.
  """
  return _broadcast(
    group, kind="grpo", signal=signal, singleton=singleton, eps=eps
  )


def dr_grpo(
  group: GroupArrays, *, signal: str = "outcome", singleton: str = "zero"
) -> StepCredit:
  """Group-relative advantage R - mean, without the division.

  Source: Dr. GRPO (arXiv 2503.20783), whose loss also divides by a constant:
  the learner's `aggregation="constant"`. Options as in `grpo`.
  """
  return _broadcast(group, kind="dr_grpo", signal=signal, singleton=singleton)


def rloo(
  group: GroupArrays, *, signal: str = "outcome", singleton: str = "zero"
) -> StepCredit:
  """Leave-one-out baseline: n/(n-1) (R - mean).

  Source: arXiv 2402.14740. Options as in `grpo`.
  """
  return _broadcast(group, kind="rloo", signal=signal, singleton=singleton)


def reinforce_pp(
  group: GroupArrays, *, signal: str = "outcome", eps: float = 1e-6
) -> StepCredit:
  """Return to go, whitened over all rows of the batch of groups.

  Source: REINFORCE++ (arXiv 2501.03262), without its KL reward. Groups play
  no part; one group estimated alone is a batch of its own.

  Args:
    group: one unbatched group.
    signal: "outcome" or "observed" rewards.
    eps: added to the standard deviation.
  """
  return _broadcast(group, kind="reinforce_pp", signal=signal, eps=eps)


def reinforce_pp_baseline(
  group: GroupArrays, *, signal: str = "outcome", eps: float = 1e-6
) -> StepCredit:
  """R - group mean, whitened over all rows of the batch of groups.

  Source: REINFORCE++-baseline (arXiv 2501.03262). Options as `reinforce_pp`.
  """
  return _broadcast(group, kind="reinforce_pp_baseline", signal=signal, eps=eps)


def _broadcast(group: GroupArrays, *, signal: str, **options) -> StepCredit:
  check_group(group)
  check_choice("signal", signal, SIGNALS)
  trajectory = combine.trajectory_term(group, signal=signal, **options)
  zero = jnp.zeros_like(trajectory)
  return StepCredit(
    advantage=trajectory,
    trajectory=trajectory,
    step=zero,
    q=zero,
    v=zero,
    live=jnp.zeros_like(group.mask),
    aux={},
  )
