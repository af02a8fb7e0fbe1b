"""Rewards and the episode term, as GiGPO's code has them; shared by others."""

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice
from crbc_jax.credit import combine
from crbc_jax.credit.process import SIGNALS
from crbc_jax.types import Boundary, GroupArrays

STATISTICS = ("row", "trajectory")
EPISODE = "episode"


def scores_at_anchors(
  group: GroupArrays, values: jax.Array, *, norm: str, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Scores of the rows of each anchor against each other.

  Args:
    group: one unbatched group.
    values: [R], a return or a reward of each row.
    norm: "mean_std" or "mean"; see `combine.centred_scores`.
    eps: added to standard deviations.

  Returns:
    (score [R], mean at the row's anchor [R], anchor visited twice [R] bool).
  """
  segments = (values, group.state, group.mask, group.state_mask.shape[0])
  scores = combine.centred_scores(*segments, norm=norm, eps=eps)
  visits, mean, _ = combine.segment_moments(*segments)
  return (
    scores,
    jnp.where(group.mask, mean[group.state], 0.0),
    group.mask & (visits >= 2)[group.state],
  )


def episode_term(
  group: GroupArrays,
  *,
  kind: str,
  norm: str,
  statistics: str,
  success_reward: float,
  invalid_penalty: float,
  signal: str,
  singleton: str,
  eps: float,
) -> jax.Array:
  """A^E of each row [R]; the "episode" term that GiGPO's relatives share.

  Any other kind is that of `combine.trajectory_term`, which takes signal,
  singleton and eps.
  """
  check_choice("statistics", statistics, STATISTICS)
  check_choice("trajectory", kind, (EPISODE, *combine.TRAJECTORY_TERMS))
  if kind != EPISODE:
    return combine.trajectory_term(
      group, kind=kind, signal=signal, singleton=singleton, eps=eps
    )
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
