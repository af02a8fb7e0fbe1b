"""MICA: returns against the same turn, rewards against the whole group.

Source: arXiv 2603.06194, from notes on the paper (the code was not read); see
methods.md section 6. The paper's reward is the step's decrease of a potential;
`rollouts.potential.potential_rewards` makes it from a function of the state.
"""

import jax.numpy as jnp

from crbc_jax.checks import check_discount
from crbc_jax.credit import combine
from crbc_jax.credit.process import check_group, discounted_returns
from crbc_jax.types import GroupArrays, StepCredit


def mica(
  group: GroupArrays,
  *,
  gamma: float = 1.0,
  w_return: float = 0.5,
  w_reward: float = 0.5,
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group: float = 1.0,
  eps: float = 1e-6,
) -> StepCredit:
  """A = w_return z(G; same step index) + w_reward z(r; all rows).

    r_t = observed reward,  G_t = r_t + gamma G_{t+1}
    z(x; S) = (x - mean_S) / (std_S + eps), std with ddof 1, alone 0, equal 0

  States, outcomes and boundaries play no part: with all rewards 0 every
  advantage is 0. A group of one rollout compares the rewards of its own steps
  only; all-fail and all-success groups get whatever their rewards say.

  Args:
    group: one unbatched group.
    gamma: discount of returns in (0, 1].
    w_return: weight of the return term.
    w_reward: weight of the immediate reward term.
    norm: "mean_std", or "mean" to leave the divisions out.
    trajectory: trajectory term of observed rewards, "none" in the paper.
    w_group: its weight.
    eps: added to standard deviations.

  Returns:
    StepCredit; q is
    the return of the row and v the mean return at its step index, a baseline
    by time and not by state. A row is live when the group has a second row.

  Raises:
    ValueError: an option is out of its range.
  """
  check_group(group)
  check_discount("gamma", gamma)
  reward = jnp.where(group.mask, group.reward, 0.0)
  returns = discounted_returns(reward, group.traj, group.mask, discount=gamma)
  turn = jnp.where(group.mask, group.step, 0)
  by_turn = (turn, group.mask, group.step.shape[0])
  of_return = combine.centred_scores(returns, *by_turn, norm=norm, eps=eps)
  _, mean, _ = combine.segment_moments(returns, *by_turn)
  of_reward = combine.centred_scores(
    reward, jnp.zeros_like(turn), group.mask, 1, norm=norm, eps=eps
  )
  step = w_return * of_return + w_reward * of_reward
  term = combine.trajectory_term(group, kind=trajectory, signal="observed")
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=1.0),
    trajectory=term,
    step=step,
    q=returns,
    v=jnp.where(group.mask, mean[turn], 0.0),
    live=group.mask & (jnp.sum(group.mask) >= 2),
    aux={},
  )
