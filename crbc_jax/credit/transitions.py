"""What several estimators read off the observed transitions of a group."""

import chex
import jax
import jax.numpy as jnp

from crbc_jax.credit import combine
from crbc_jax.types import Boundary, GroupArrays

RESIDUE = 1e-5
"""Share of the numbers it was computed from below which a difference is
rounding: a dense float32 solve at beta = .99 leaves 1e-6."""


def value_of_next(
  group: GroupArrays, values: chex.Array, *, success: float = 0.0
) -> chex.Array:
  """Worth of what each row led to.

    V(s')     the rollout went on to s'
    success   it succeeded
    0         it failed or was truncated, whatever it showed last

  Args:
    group: one unbatched group.
    values: [N], a value of each anchor.
    success: worth of the absorbing success.

  Returns:
    [R], 0 on padding.
  """
  goes_on = group.mask & (group.boundary == Boundary.NONE)
  succeeded = group.mask & (group.boundary == Boundary.SUCCESS)
  # Read only where it counts: elsewhere `next_state` may point anywhere.
  following = values[jnp.where(goes_on, group.next_state, 0)]
  return jnp.where(goes_on, following, jnp.where(succeeded, success, 0.0))


def visit_counts(group: GroupArrays, counted: chex.Array) -> chex.Array:
  """Number of rows with `counted` [R] true at each anchor; [N] float32."""
  return jax.ops.segment_sum(
    counted.astype(jnp.float32), group.state, group.state_mask.shape[0]
  )


def visit_means(group: GroupArrays, values: chex.Array) -> chex.Array:
  """Mean of `values` [R] over the visits to each anchor; [N], 0 unvisited.

  The mean of equal values is that value, bit for bit.
  """
  num_states = group.state_mask.shape[0]
  count = visit_counts(group, group.mask)
  lowest = jax.ops.segment_min(
    jnp.where(group.mask, values, jnp.inf), group.state, num_states
  )
  # The mean does not depend on what it is measured from.
  base = jax.lax.stop_gradient(jnp.where(count > 0, lowest, 0.0))
  excess = jnp.where(
    group.mask, jnp.where(group.mask, values, 0.0) - base[group.state], 0.0
  )
  total = jax.ops.segment_sum(excess, group.state, num_states)
  return base + total / jnp.maximum(count, 1.0)


def steps_to_success(group: GroupArrays, usable: chex.Array) -> chex.Array:
  """Fewest observed steps from each anchor to success over usable rows.

    d(s) = 1 + min over usable rows s -> s' of d(s'),  d(success) = 0

  Failure and truncation lead nowhere, also where the state shown last is an
  anchor of the group (unlike `graphgpo.distances_to_success`).

  Args:
    group: one unbatched group.
    usable: [R] bool, the rows that count as edges.

  Returns:
    [N] distances, inf where success is out of reach.
  """
  num_states = group.state_mask.shape[0]
  usable = usable & group.mask
  wins = usable & (group.boundary == Boundary.SUCCESS)
  goes_on = usable & (group.boundary == Boundary.NONE)
  successor = jnp.where(goes_on, group.next_state, 0)

  def relax(carry):
    distance, _ = carry
    ahead = jnp.where(goes_on, distance[successor], jnp.inf)
    through = 1.0 + jnp.where(wins, 0.0, ahead)
    shorter = jax.ops.segment_min(through, group.state, num_states)
    return shorter, jnp.any(shorter < distance)

  distance, _ = jax.lax.while_loop(
    lambda carry: carry[1],
    relax,
    (jnp.full((num_states,), jnp.inf), jnp.asarray(True)),
  )
  return distance


def discounted_distance(distance: chex.Array, discount: float) -> chex.Array:
  """discount^d, and 0 at infinite distance (also for discount 1); [N]."""
  reachable = jnp.isfinite(distance)
  power = jnp.where(reachable, distance, 0.0)
  return jnp.where(reachable, discount**power, 0.0)


def scores_beyond_rounding(
  values: chex.Array,
  segment: chex.Array,
  mask: chex.Array,
  num_segments: int,
  *,
  size: chex.Array,
  norm: str,
  eps: float,
) -> chex.Array:
  """`combine.centred_scores` for values that are differences of others.

  Differences that are equal on paper differ by the rounding of what they were
  computed from, however small they are. A segment whose values spread over no
  more than `RESIDUE` times the largest `size` in it gets exactly 0.

  Args:
    values, segment, mask, num_segments, norm, eps: as
      `combine.centred_scores`.
    size: [R] magnitude of the numbers each value was computed from.

  Returns:
    [R] scores, 0 where masked and in segments of one.
  """
  chex.assert_equal_shape([values, segment, mask, size])
  scores = combine.centred_scores(
    values, segment, mask, num_segments, norm=norm, eps=eps
  )

  def largest(x):
    return jax.ops.segment_max(
      jnp.where(mask, x, -jnp.inf), segment, num_segments
    )

  # Not high - low: it is inf - inf in an empty segment.
  floor = RESIDUE * jnp.maximum(largest(size), 0.0)
  differs = largest(values) > -largest(-values) + floor
  return jnp.where(differs[segment] & mask, scores, 0.0)
