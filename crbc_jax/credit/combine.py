"""Normalising, gating and combining: from values and scores to advantages."""

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice
from crbc_jax.credit.process import discounted_returns
from crbc_jax.types import Boundary, GroupArrays

NORMS = ("mean_std", "mean")
ROUNDING = 1e-6  # relative spread (8 float32 ulp) that counts as equal
SINGLETONS = ("zero", "raw")
TRAJECTORY_TERMS = (
  "none",
  "grpo",
  "dr_grpo",
  "rloo",
  "reinforce_pp",
  "reinforce_pp_baseline",
)
BATCH_TERMS = TRAJECTORY_TERMS[-2:]
"""Those that compare a group with all others of its batch."""

BATCH_AXIS = "groups"
"""Name of the axis that batched estimators map over."""


def centred_scores(
  values: chex.Array,
  segment: chex.Array,
  mask: chex.Array,
  num_segments: int,
  *,
  norm: str = "mean_std",
  eps: float = 1e-6,
  singleton: str = "zero",
) -> chex.Array:
  """(x - mean) / (std + eps) inside each segment, std with ddof 1.

  Values that are all equal in a segment give exactly 0, whatever rounding
  does to their mean.

  Args:
    values: [R] scores.
    segment: [R] int32 segment of each score, in [0, num_segments).
    mask: [R] False where a score counts for nothing.
    num_segments: static.
    norm: "mean_std", or "mean" to leave the division out.
    eps: added to the standard deviation.
    singleton: what a segment of one gets: "zero", or "raw" (its score as it
      is, as in verl's GRPO).

  Returns:
    [R] scores, 0 where masked.
  """
  check_choice("norm", norm, NORMS)
  check_choice("singleton", singleton, SINGLETONS)
  count, mean, std = segment_moments(values, segment, mask, num_segments)
  differs = (std > 0)[segment] & mask
  safe = jnp.where(mask, values, 0.0)
  scores = jnp.where(differs, safe - mean[segment], 0.0)
  if norm == "mean_std":
    scores = scores / jnp.where(differs, std[segment] + eps, 1.0)
  if singleton == "raw":
    scores = jnp.where((count[segment] == 1) & mask, safe, scores)
  return scores


def segment_moments(
  values: chex.Array, segment: chex.Array, mask: chex.Array, num_segments: int
) -> tuple[chex.Array, chex.Array, chex.Array]:
  """Count, mean and standard deviation (ddof 1) of each segment.

  The deviation is exactly 0 where there is only one value or all are equal up
  to rounding (equal returns summed in another order differ in the last bits),
  and its gradient is finite there.

  Args:
    values: [R]; segment: [R] int32; mask: [R]; num_segments: static S.

  Returns:
    (count [S], mean [S], std [S]).
  """
  chex.assert_equal_shape([values, segment, mask])
  safe = jnp.where(mask, values, 0.0)

  def total(x):
    return jax.ops.segment_sum(x, segment, num_segments)

  count = total(mask.astype(jnp.float32))
  mean = total(safe) / jnp.maximum(count, 1.0)
  low = jax.ops.segment_min(
    jnp.where(mask, values, jnp.inf), segment, num_segments
  )
  high = jax.ops.segment_max(
    jnp.where(mask, values, -jnp.inf), segment, num_segments
  )
  centred = jnp.where(mask, safe - mean[segment], 0.0)
  variance = total(centred**2) / jnp.maximum(count - 1.0, 1.0)
  size = jnp.maximum(jnp.abs(high), jnp.abs(low))
  # Not `high - low`: it is inf - inf in an empty segment.
  differs = (high > low + ROUNDING * size) & (variance > 0)
  std = jnp.where(differs, jnp.sqrt(jnp.where(differs, variance, 1.0)), 0.0)
  return count, mean, std


def trajectory_scores(group: GroupArrays, *, signal: str) -> chex.Array:
  """Score of each trajectory [G]: success as 1/0, or its summed reward."""
  success = (group.boundary == Boundary.SUCCESS).astype(jnp.float32)
  row = success if signal == "outcome" else group.reward
  return jax.ops.segment_sum(
    jnp.where(group.mask, row, 0.0), group.traj, group.traj_mask.shape[0]
  )


def trajectory_term(
  group: GroupArrays,
  *,
  kind: str = "grpo",
  signal: str = "outcome",
  singleton: str = "zero",
  eps: float = 1e-6,
) -> chex.Array:
  """A^G of each row [R]: its trajectory's score against the group's.

    none                   0
    grpo                   (R - mean) / (std + eps), std with ddof 1, once per
                           trajectory
    dr_grpo                R - mean
    rloo                   n/(n-1) (R - mean): R against the mean of the others
    reinforce_pp           return to go, whitened over the rows of the batch
    reinforce_pp_baseline  R - mean, whitened over the rows of the batch

  Whitening subtracts the mean and divides by the standard deviation (ddof 1)
  plus eps over all rows of all groups of the batch; a group that is estimated
  alone is a batch of its own.

  Args:
    group: one unbatched group.
    kind: as above. Sources: arXiv 2402.03300 (GRPO), 2503.20783 (Dr. GRPO),
      2402.14740 (RLOO), 2501.03262 (REINFORCE++).
    signal: "outcome" or "observed".
    singleton: "zero" (default) or "raw" for a group of one rollout; the terms
      whitened over the batch have other groups to compare with.
    eps: added to standard deviations.
  """
  check_choice("trajectory term", kind, TRAJECTORY_TERMS)
  if kind == "none":
    return jnp.zeros(group.mask.shape)
  scores = trajectory_scores(group, signal=signal)
  if kind == "reinforce_pp":
    to_go = scores[group.traj]
    if signal == "observed":
      to_go = discounted_returns(
        group.reward, group.traj, group.mask, discount=1.0
      )
    return _whitened(jnp.where(group.mask, to_go, 0.0), group.mask, eps=eps)
  centred = centred_scores(
    scores,
    jnp.zeros_like(group.traj_mask, jnp.int32),
    group.traj_mask,
    1,
    norm="mean_std" if kind == "grpo" else "mean",
    eps=eps,
    singleton=singleton,
  )
  if kind == "rloo":
    count = jnp.sum(group.traj_mask.astype(jnp.float32))
    centred = centred * jnp.where(
      count > 1, count / jnp.maximum(count - 1, 1), 1.0
    )
  term = jnp.where(group.mask, centred[group.traj], 0.0)
  if kind == "reinforce_pp_baseline":
    return _whitened(term, group.mask, eps=eps)
  return term


def _whitened(
  values: chex.Array, mask: chex.Array, *, eps: float
) -> chex.Array:
  """(x - mean) / (std + eps) over the rows of the whole batch, ddof 1."""

  def over_batch(combine, x):
    try:
      return combine(x, BATCH_AXIS)
    except NameError:  # not mapped over: this group is the batch
      return x

  def total(x):
    return over_batch(jax.lax.psum, jnp.sum(x))

  count = total(mask.astype(jnp.float32))
  mean = total(values) / jnp.maximum(count, 1.0)
  centred = jnp.where(mask, values - mean, 0.0)
  variance = total(centred**2) / jnp.maximum(count - 1.0, 1.0)
  # The extremes only decide; `pmax` has no derivative.
  fixed = jax.lax.stop_gradient(values)
  high = over_batch(jax.lax.pmax, jnp.max(jnp.where(mask, fixed, -jnp.inf)))
  low = over_batch(jax.lax.pmin, jnp.min(jnp.where(mask, fixed, jnp.inf)))
  size = jnp.maximum(jnp.abs(high), jnp.abs(low))
  differs = (high > low + ROUNDING * size) & (variance > 0)
  std = jnp.sqrt(jnp.where(differs, variance, 1.0))
  return jnp.where(differs, centred / (std + eps), 0.0)


def combine(
  trajectory: chex.Array, step: chex.Array, *, w_group: float, w_step: float
) -> chex.Array:
  """A = w_G A^G + w_S A^S, per row."""
  return w_group * trajectory + w_step * step
