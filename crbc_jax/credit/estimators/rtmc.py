"""RTMC: first-visit Monte Carlo over state-action signatures, with a prior.

Source: arXiv 2604.11037, as restated in GRAFT's appendix (the full paper was
not read); see methods.md section 2 for what is certain and what is not.
"""

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount, is_number
from crbc_jax.credit import combine
from crbc_jax.credit.episode import penalised_reward
from crbc_jax.credit.process import check_group, discounted_returns
from crbc_jax.types import GroupArrays, StepCredit

VISITS = ("first", "every")
PRIORS = ("success_rate", "discounted")
SCALES = ("none", "std")


def rtmc(
  group: GroupArrays,
  *,
  gamma: float = 0.99,
  n_prior: float = 2.0,
  prior: str = "success_rate",
  visits: str = "first",
  scale: str = "none",
  trajectory: str = "none",
  w_group: float = 1.0,
  w_step: float = 1.0,
  signal: str = "outcome",
  eps: float = 1e-6,
) -> StepCredit:
  """Q(s,a) - V'(s), V' shrunk towards the group's success rate.

    Q(s,a) = mean over rollouts of the return at their first visit to (s,a)
    V(s)   = sum_a N(s,a) Q(s,a) / N(s)
    V'(s)  = (N(s) V(s) + n_prior V_prior) / (N(s) + n_prior)

  The last step of a success has return 1 (no discount on it). Smoothing V but
  not Q leaves the credit uncentred unless V = V_prior: a singleton gets
  2/3 (return - V_prior), and an all-success group is pushed down slightly.

  Args:
    group: one unbatched group.
    gamma: discount per step in (0, 1].
    n_prior: weight of the prior, in visits, >= 0.
    prior: V_prior is the undiscounted mean score of the group
      ("success_rate", default) or the mean return from the first step
      ("discounted"), which removes the bias against early steps.
    visits: "first" visit of (s,a) in each rollout (default) or "every".
    scale: "none", or "std" to divide by the group's standard deviation of
      credit (over rows, population) without recentring.
    trajectory: trajectory term, "none" in the paper.
    w_group, w_step: weights of the two terms.
    signal: "outcome" (1/0) or "observed" rewards.
    eps: added to the standard deviation of `scale`.

  Returns:
    StepCredit; v is V'. A row is live when its credit
    is not 0: the prior lets even a lone visit have credit.
  """
  check_group(group)
  check_discount("gamma", gamma)
  check_choice("prior", prior, PRIORS)
  check_choice("visits", visits, VISITS)
  check_choice("scale", scale, SCALES)
  if is_number(n_prior) and n_prior < 0:
    raise ValueError(f"n_prior must be >= 0, got {n_prior}")
  num_states, num_pairs = group.state_mask.shape[0], group.pair_mask.shape[0]
  reward = penalised_reward(
    group, success_reward=1.0, invalid_penalty=0.0, signal=signal
  )
  returns = discounted_returns(reward, group.traj, group.mask, discount=gamma)
  counted = group.mask & (first_visits(group) if visits == "first" else True)
  weight = counted.astype(jnp.float32)
  pair_count = jax.ops.segment_sum(weight, group.pair, num_pairs)
  pair_total = jax.ops.segment_sum(weight * returns, group.pair, num_pairs)
  q = pair_total / jnp.maximum(pair_count, 1.0)
  state_count = jax.ops.segment_sum(pair_count, group.pair_state, num_states)
  state_total = jax.ops.segment_sum(pair_total, group.pair_state, num_states)

  starts = group.mask & (group.step == 0)
  rollouts = jnp.maximum(jnp.sum(starts), 1)
  if prior == "success_rate":
    v_prior = jnp.sum(reward) / rollouts
  else:
    v_prior = jnp.sum(jnp.where(starts, returns, 0.0)) / rollouts
  v = (state_total + n_prior * v_prior) / jnp.maximum(
    state_count + n_prior, 1e-9
  )
  credit = jnp.where(group.mask, q[group.pair] - v[group.state], 0.0)
  if scale == "std":
    rows = jnp.maximum(jnp.sum(group.mask), 1)
    _, _, std = combine.segment_moments(
      credit, jnp.zeros_like(group.traj), group.mask, 1
    )
    population = std[0] * jnp.sqrt((rows - 1) / rows)
    credit = jnp.where(std[0] > 0, credit / (population + eps), credit)
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return StepCredit(
    advantage=combine.combine(term, credit, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=credit,
    q=jnp.where(group.mask, q[group.pair], 0.0),
    v=jnp.where(group.mask, v[group.state], 0.0),
    live=group.mask & (credit != 0),
    aux={},
  )


def first_visits(group: GroupArrays) -> jax.Array:
  """Marks the first row [R] of each (trajectory, state, action)."""
  num_pairs, g = group.pair_mask.shape[0], group.traj_mask.shape[0]
  visit = group.traj * num_pairs + group.pair
  row = jnp.arange(group.state.shape[0])
  earliest = jax.ops.segment_min(
    jnp.where(group.mask, row, row.shape[0]), visit, g * num_pairs
  )
  return group.mask & (earliest[visit] == row)
