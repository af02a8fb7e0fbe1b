"""GraphHCA: log-ratios of the values before and after a step.

Source: arXiv 2609.35084, known from notes only; see methods.md section 1b.
"""

import math

import jax.numpy as jnp

from crbc_jax.checks import check_discount, is_number
from crbc_jax.credit import closure, combine
from crbc_jax.credit.process import build_process, check_group
from crbc_jax.credit.transitions import (
  discounted_distance,
  scores_beyond_rounding,
  steps_to_success,
  value_of_next,
  visit_counts,
)
from crbc_jax.types import GroupArrays, StepCredit


def graphhca(
  group: GroupArrays,
  *,
  beta: float = 0.95,
  floor: float = 1e-2,
  power: float = 1.0,
  norm: str = "mean_std",
  trajectory: str = "grpo",
  w_group: float = 1.0,
  w_step: float = 1.0,
  eps: float = 1e-6,
) -> StepCredit:
  """w_G A^G + w_S z(x), z over the rows that left the same anchor.

    x = ln max(V(s'), floor) - ln max(V(s), floor)

  with V(success) = 1 and V = 0 after failure and truncation. V is a power mean
  over the observed steps, of which two members are here: the mean (the exact
  closure of outcomes) and the maximum, beta^(fewest steps to success), 0 where
  success is out of reach. In both, truncation leads nowhere even if the state
  shown last is an anchor of the group.

  A group of one rollout has A^G = 0 and credits its own revisits only. An
  all-fail group gets exactly 0. In an all-success group A^G = 0 and x prefers
  faster routes while beta < 1.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    floor: values below it count as it, in (0, 1].
    power: exponent of the power mean, 1 or inf; static.
    norm: "mean_std" (z with ddof 1) or "mean".
    trajectory: trajectory term; see `combine.trajectory_term`.
    w_group, w_step: weights of the two terms.
    eps: added to standard deviations.

  Returns:
    StepCredit; q is V(s') and v is V(s), before floor and logarithm. A row is
    live when its anchor was visited at least twice.

  Raises:
    ValueError: an option is out of range.
  """
  check_group(group)
  check_discount("beta", beta)
  if is_number(floor) and not 0 < floor <= 1:
    raise ValueError(f"floor must be in (0, 1], got {floor}")
  if not (is_number(power) and (power == 1 or power == math.inf)):
    raise ValueError(f"power must be 1 or inf, got {power!r}")
  if power == 1:
    process = build_process(group, beta=beta)
    v = closure.exact_values(process, beta=beta).v
  else:
    v = discounted_distance(steps_to_success(group, group.mask), beta)
  following = value_of_next(group, v, success=1.0)
  # ln max(V(s), floor) is the same for all rows that left s and drops out.
  # Logarithms carry the relative error of the values: their size is 1.
  target = jnp.log(jnp.maximum(following, floor))
  step = scores_beyond_rounding(
    target,
    group.state,
    group.mask,
    group.state_mask.shape[0],
    size=jnp.ones_like(target),
    norm=norm,
    eps=eps,
  )
  term = combine.trajectory_term(group, kind=trajectory, signal="outcome")
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=following,
    v=jnp.where(group.mask, v[group.state], 0.0),
    live=group.mask & (visit_counts(group, group.mask) >= 2)[group.state],
    aux={},
  )
