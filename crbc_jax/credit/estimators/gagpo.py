"""GAGPO: generalised advantages along a rollout, values from visit averages.

Source: arXiv 2605.13217, known from notes only; see methods.md section 6.
"""

import jax.numpy as jnp

from crbc_jax.checks import check_discount, check_share
from crbc_jax.credit import combine
from crbc_jax.credit.episode import penalised_reward
from crbc_jax.credit.process import check_group, discounted_returns
from crbc_jax.credit.transitions import (
  scores_beyond_rounding,
  value_of_next,
  visit_counts,
  visit_means,
)
from crbc_jax.types import GroupArrays, StepCredit


def gagpo(
  group: GroupArrays,
  *,
  gamma: float = 0.95,
  lam: float = 0.95,
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group: float = 1.0,
  w_step: float = 1.0,
  signal: str = "outcome",
  eps: float = 1e-6,
) -> StepCredit:
  """w_G A^G + w_S z(GAE), z over all rows of the group.

    V(s)    = mean over the visits to s of the discounted return
    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)     V = 0 after the last row
    GAE_t   = delta_t + gamma lam GAE_{t+1}       along the row's own rollout

  The last step's reward is not discounted. Where no anchor is visited twice V
  is the return itself, every delta is 0 and so is the credit: that covers a
  group of one rollout without revisits. An all-fail group gets exactly 0. In
  an all-success group faster rollouts are preferred while gamma < 1.

  Args:
    group: one unbatched group.
    gamma: discount in (0, 1].
    lam: in [0, 1]; 0 is one-step residuals, 1 is return minus V.
    norm: "mean_std" (z with ddof 1) or "mean".
    trajectory: trajectory term; see `combine.trajectory_term`.
    w_group, w_step: weights of the two terms.
    signal: rewards: "outcome" (1 on success) or "observed".
    eps: added to the standard deviation.

  Returns:
    StepCredit with q - v = delta and v = V(s). Rows are live where some
    anchor of the group was visited at least twice.

  Raises:
    ValueError: an option is out of range.
  """
  check_group(group)
  check_discount("gamma", gamma)
  check_share("lam", lam)
  reward = penalised_reward(
    group, success_reward=1.0, invalid_penalty=0.0, signal=signal
  )

  def along_rollout(rows, discount):
    return discounted_returns(rows, group.traj, group.mask, discount=discount)

  v = visit_means(group, along_rollout(reward, gamma))
  here = jnp.where(group.mask, v[group.state], 0.0)
  q = reward + gamma * value_of_next(group, v)
  advantage = along_rollout(q - here, gamma * lam)
  step = scores_beyond_rounding(
    advantage,
    jnp.zeros_like(group.traj),
    group.mask,
    1,
    size=along_rollout(jnp.abs(reward), gamma),
    norm=norm,
    eps=eps,
  )
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  merged = jnp.any(visit_counts(group, group.mask) >= 2)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=q,
    v=here,
    live=group.mask & merged,
    aux={},
  )
