"""GiGPO: groups of steps at the same anchor, compared by discounted return.

Source: arXiv 2505.10978 and the conventions of its code (verl-agent); where
paper and code differ the choice is an option and the code is the default.
"""

import jax
import jax.numpy as jnp

from crbc_jax.credit import combine
from crbc_jax.credit.process import (
  SIGNALS,
  check_choice,
  check_discount,
  check_group,
  discounted_returns,
)
from crbc_jax.types import Boundary, GroupArrays, StepCredit

STATISTICS = ("row", "trajectory")


def gigpo(
  group: GroupArrays,
  *,
  gamma: float = 0.95,
  norm: str = "mean_std",
  statistics: str = "row",
  step_weight: float = 1.0,
  success_reward: float = 10.0,
  invalid_penalty: float = 0.1,
  signal: str = "outcome",
  singleton: str = "raw",
  eps: float = 1e-6,
) -> StepCredit:
  """A^E + w A^S, both centred scores of rewards.

  A^S compares the discounted return of a step with the other steps taken at
  its anchor; a step alone at its anchor gets 0. A^E compares the episode
  reward (less the penalty of an invalid row) inside the group.

  Args:
    group: one unbatched group.
    gamma: discount of step returns in (0, 1].
    norm: "mean_std" divides by std (ddof 1) + eps; "mean" does not.
    statistics: A^E statistics over every "row" (the code's default, so long
      episodes weigh more) or once per "trajectory".
    step_weight: weight of A^S.
    success_reward: reward of success under signal "outcome".
    invalid_penalty: taken off the reward of a step whose action was invalid.
    signal: "outcome" or "observed" rewards.
    singleton: A^E where the statistics have one entry: "raw" (the code: the
      score itself) or "zero".
    eps: added to standard deviations.

  Returns:
    StepCredit; q is the return of the row and v its anchor's mean return.
  """
  check_group(group)
  check_discount("gamma", gamma)
  reward = penalised_reward(
    group,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
  )
  returns = discounted_returns(reward, group.traj, group.mask, discount=gamma)
  num_states = group.state_mask.shape[0]
  step = combine.centred_scores(
    returns, group.state, group.mask, num_states, norm=norm, eps=eps
  )
  visits = jax.ops.segment_sum(
    group.mask.astype(jnp.float32), group.state, num_states
  )
  mean = jax.ops.segment_sum(returns, group.state, num_states) / jnp.maximum(
    visits, 1.0
  )
  episode = episode_term(
    group,
    norm=norm,
    statistics=statistics,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
    singleton=singleton,
    eps=eps,
  )
  return StepCredit(
    advantage=episode + step_weight * step,
    trajectory=episode,
    step=step,
    q=returns,
    v=jnp.where(group.mask, mean[group.state], 0.0),
    live=group.mask & (visits >= 2)[group.state],
    aux={},
  )


def episode_term(
  group: GroupArrays,
  *,
  norm: str,
  statistics: str,
  success_reward: float,
  invalid_penalty: float,
  signal: str,
  singleton: str,
  eps: float,
) -> jax.Array:
  """A^E of each row [R]; the episode term GiGPO and GraphGPO share."""
  check_choice("statistics", statistics, STATISTICS)
  score = combine.trajectory_scores(group, signal=signal)
  if signal == "outcome":
    score = success_reward * score
  penalty = jnp.where(group.valid, 0.0, invalid_penalty)
  row_score = jnp.where(group.mask, score[group.traj] - penalty, 0.0)
  one_segment = jnp.zeros_like(group.traj)
  if statistics == "row":
    return combine.centred_scores(
      row_score,
      one_segment,
      group.mask,
      1,
      norm=norm,
      eps=eps,
      singleton=singleton,
    )
  # Statistics of unpenalised episode rewards; each row adds its own penalty.
  count, mean, std = combine.segment_moments(
    score, jnp.zeros_like(group.traj_mask, jnp.int32), group.traj_mask, 1
  )
  centred = jnp.where(std > 0, score - mean, 0.0)  # equal: exactly 0
  term = centred[group.traj] - penalty
  if norm == "mean_std":
    term = jnp.where(std > 0, term / jnp.where(std > 0, std + eps, 1.0), 0.0)
  term = jnp.where(count == 1, row_score if singleton == "raw" else 0.0, term)
  return jnp.where(group.mask, term, 0.0)


def penalised_reward(
  group: GroupArrays,
  *,
  success_reward: float,
  invalid_penalty: float,
  signal: str,
) -> jax.Array:
  """Reward of each row [R] less the penalty of an invalid action."""
  check_choice("signal", signal, SIGNALS)
  success = (group.boundary == Boundary.SUCCESS).astype(jnp.float32)
  reward = success_reward * success if signal == "outcome" else group.reward
  penalty = jnp.where(group.valid, 0.0, invalid_penalty)
  return jnp.where(group.mask, reward - penalty, 0.0)
