"""HGPO: GiGPO's step groups at several depths of history, averaged.

Source: arXiv 2602.22817 and its code; the two weight the levels differently,
which is a named option.
"""

import math

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount, is_number
from crbc_jax.credit import combine
from crbc_jax.credit.episode import penalised_reward
from crbc_jax.credit.history import check_history, history_ids
from crbc_jax.credit.process import check_group, discounted_returns
from crbc_jax.types import GroupArrays, StepCredit

WEIGHTS = ("paper", "code")


def hgpo(
  group: GroupArrays,
  *,
  history: int = 2,
  alpha: float = 1.0,
  gamma: float = 0.95,
  weights: str = "paper",
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group: float = 1.0,
  w_step: float = 1.0,
  success_reward: float = 10.0,
  invalid_penalty: float = 0.1,
  signal: str = "outcome",
  eps: float = 1e-6,
) -> StepCredit:
  """w_G A^G + w_S sum_k w_k A_k, clusters of equal history k = 0..history.

    A_k = (G - mean) / (std + eps)  over rows whose last k + 1 states agree

  with G the discounted return and std over the population (ddof 0). A row
  that is too early for k + 1 states shares a cluster with rows that have
  equally few and the same. A cluster of one gives 0. `history=0` is the step
  term of `gigpo`, up to sqrt(n / (n - 1)) in each cluster of n.

  Level weights:
    paper  (k + 1)^alpha / sum_k (k + 1)^alpha: a cluster of one gives 0 and
           keeps its weight
    code   (k + 2)^alpha, divided by the sum over those levels alone where the
           row's A_k is not 0: a return right at the mean (up to rounding)
           counts as no evidence too

  Every step term is 0 in a group of one rollout that never repeats a state,
  and in an all-fail group up to the penalty of invalid actions; an all-success
  group prefers what succeeds sooner.

  Args:
    group: one unbatched group.
    history: static, states before the current one that the finest level
      compares, >= 0 (2 or 4 in the paper).
    alpha: >= 0; 0 weighs all levels alike.
    gamma: discount of returns in (0, 1].
    weights: "paper" or "code", as above.
    norm: "mean_std", or "mean" to leave the division out.
    trajectory: trajectory term, "none" in the paper.
    w_group: weight w_G of the trajectory term.
    w_step: weight w_S of the step term.
    success_reward: reward of success under signal "outcome".
    invalid_penalty: taken off the reward of a step whose action was invalid.
    signal: "outcome" or "observed" rewards.
    eps: added to standard deviations.

  Returns:
    StepCredit; q is the return of the row and v its anchor's mean return. A
    row is live when its anchor was visited at least twice.

  Raises:
    ValueError: an option is out of its range.
  """
  check_group(group)
  check_history(history, least=0)
  check_discount("gamma", gamma)
  check_choice("weights", weights, WEIGHTS)
  check_choice("norm", norm, combine.NORMS)
  if is_number(alpha) and not 0 <= alpha < math.inf:
    raise ValueError(f"alpha must be >= 0 and finite, got {alpha}")
  reward = penalised_reward(
    group,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
  )
  returns = discounted_returns(reward, group.traj, group.mask, discount=gamma)
  clusters = history_ids(group, (group.state,), length=history + 1)
  scores, off_mean = jax.vmap(
    lambda cluster: _population_scores(
      returns, cluster, group.mask, norm=norm, eps=eps
    )
  )(clusters)

  # Powers as a softmax of logarithms: no alpha overflows.
  first = 1.0 if weights == "paper" else 2.0
  log_weight = alpha * jnp.log(first + jnp.arange(history + 1.0))
  log_weight = jnp.broadcast_to(log_weight[:, None], scores.shape)
  if weights == "code":
    scores = jnp.where(off_mean, scores, 0.0)
    any_level = jnp.any(off_mean, axis=0, keepdims=True)
    log_weight = jnp.where(off_mean | ~any_level, log_weight, -jnp.inf)
  step = jnp.sum(jax.nn.softmax(log_weight, axis=0) * scores, axis=0)

  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  visits, mean, _ = combine.segment_moments(
    returns, group.state, group.mask, group.state_mask.shape[0]
  )
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=returns,
    v=jnp.where(group.mask, mean[group.state], 0.0),
    live=group.mask & (visits >= 2)[group.state],
    aux={},
  )


def _population_scores(
  values: jax.Array,
  cluster: jax.Array,
  mask: jax.Array,
  *,
  norm: str,
  eps: float,
) -> tuple[jax.Array, jax.Array]:
  """(x - mean) / (std + eps) in each cluster, std with ddof 0.

  Returns:
    (scores [R], exactly 0 in clusters of one and where all values are equal up
    to rounding; [R] bool, the value differs from its cluster's mean by more
    than rounding).
  """
  rows = values.shape[0]
  count, mean, std = combine.segment_moments(values, cluster, mask, rows)
  differs = mask & (std > 0)[cluster]
  safe = jnp.where(mask, values, 0.0)
  scores = jnp.where(differs, safe - mean[cluster], 0.0)
  size = jax.ops.segment_max(jnp.abs(safe), cluster, rows)
  off_mean = jnp.abs(scores) > combine.ROUNDING * size[cluster]
  if norm == "mean_std":
    population = std * jnp.sqrt((count - 1) / jnp.maximum(count, 1.0))
    scores = scores / jnp.where(differs, population[cluster] + eps, 1.0)
  return scores, off_mean
