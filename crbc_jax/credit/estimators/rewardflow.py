"""RewardFlow: how much of the value propagated back from success a step gains.

Source: arXiv 2603.18859 and its code.
"""

import jax.numpy as jnp

from crbc_jax.checks import check_discount
from crbc_jax.credit import combine
from crbc_jax.credit.episode import penalised_reward
from crbc_jax.credit.process import check_group
from crbc_jax.credit.transitions import (
  discounted_distance,
  scores_beyond_rounding,
  steps_to_success,
  value_of_next,
  visit_counts,
)
from crbc_jax.types import Boundary, GroupArrays, StepCredit


def rewardflow(
  group: GroupArrays,
  *,
  gamma: float = 0.9,
  norm: str = "mean_std",
  trajectory: str = "grpo",
  w_group: float = 1.0,
  w_step: float = 1.0,
  signal: str = "outcome",
  eps: float = 1e-6,
) -> StepCredit:
  """w_G A^G + w_S z(x), z over the valid rows that left the same anchor.

    V(s) = gamma^(fewest valid steps from s to success), 0 out of reach
    x    = V(s') - V(s)              while the rollout goes on
           reward of the step        on its last row

  Rows with an invalid action are no edges, enter no statistics and get step
  credit 0. A truncated rollout's last row leads nowhere.

  A group of one rollout has A^G = 0 and credits its own revisits only. An
  all-fail group gets exactly 0. In an all-success group A^G = 0; x prefers
  steps that shorten the way, and any last step over any other, since the one
  is worth 1 and the other a difference of values.

  Args:
    group: one unbatched group.
    gamma: discount per step in (0, 1].
    norm: "mean_std" (z with ddof 1) or "mean".
    trajectory: trajectory term; see `combine.trajectory_term`.
    w_group, w_step: weights of the two terms.
    signal: the reward of last rows (and of the trajectory term) is the
      "outcome", 1 or 0, or the "observed" reward. Values use success alone.
    eps: added to standard deviations.

  Returns:
    StepCredit; v is V(s), q is V(s') or, on the last row, its reward (0 on
    invalid rows). A row is live when it is valid and its anchor was left by at
    least two valid rows.

  Raises:
    ValueError: an option is out of range.
  """
  check_group(group)
  check_discount("gamma", gamma)
  counted = group.mask & group.valid
  v = discounted_distance(steps_to_success(group, counted), gamma)
  here = jnp.where(group.mask, v[group.state], 0.0)
  reward = penalised_reward(
    group, success_reward=1.0, invalid_penalty=0.0, signal=signal
  )
  ends = group.boundary != Boundary.NONE
  following = jnp.where(ends, reward, value_of_next(group, v))
  gained = jnp.where(ends, following, following - here)
  step = scores_beyond_rounding(
    gained,
    group.state,
    counted,
    group.state_mask.shape[0],
    size=jnp.maximum(jnp.abs(following), here),
    norm=norm,
    eps=eps,
  )
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=jnp.where(counted, following, 0.0),
    v=here,
    live=counted & (visit_counts(group, counted) >= 2)[group.state],
    aux={},
  )
