"""GraphGPO: shortest observed distance to success on the merged graph.

Source: arXiv 2605.26684 and its code; exponent conventions differ between the
two and are named options.
"""

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount
from crbc_jax.credit.episode import episode_term, scores_at_anchors
from crbc_jax.credit.process import SIGNALS, check_group
from crbc_jax.types import Boundary, GroupArrays, StepCredit

EXPONENTS = ("code", "paper", "normalized")


def graphgpo(
  group: GroupArrays,
  *,
  omega: float = 0.8,
  exponent: str = "code",
  norm: str = "mean_std",
  statistics: str = "row",
  graph_weight: float = 1.0,
  episode_weight: float = 1.0,
  success_reward: float = 10.0,
  invalid_penalty: float = 0.1,
  signal: str = "outcome",
  singleton: str = "raw",
  trajectory: str = "episode",
  eps: float = 1e-6,
) -> StepCredit:
  """beta^E A^E + beta^G A^G with A^G from distances of successors.

  Each step s -> s' scores by its successor's distance d to success:

    code        success_reward * omega^d(s')            (default)
    paper       success_reward * omega^(d(s') + 1)
    normalized  success_reward * omega^(d(s') - d(s) + 1)

  less the penalty of an invalid action, standardised over the steps taken at
  the same anchor (alone there: 0). Anchors that cannot reach success count as
  one further than the furthest that can; without any success A^G is 0 up to
  penalties. Failed and truncated rollouts keep their real last successor where
  one was recorded; otherwise it is a dead end.

  Args:
    group: one unbatched group.
    omega: base in (0, 1]; the paper uses .1 ALFWorld, .2 WebShop, .8 Sokoban.
    exponent: "code", "paper" or "normalized", as above.
    norm: "mean_std" or "mean".
    statistics: of A^E, "row" or "trajectory"; see `gigpo`.
    graph_weight, episode_weight: the two weights, 1 and 1 in the paper.
    success_reward: reward of success.
    invalid_penalty: taken off for an invalid action.
    signal: "outcome" or "observed"; of the episode term only, distances use
      success alone.
    singleton: A^E where the statistics have one entry, "raw" or "zero".
    trajectory: "episode" (A^E) or another trajectory term in its place; see
      `combine.trajectory_term`.
    eps: added to standard deviations.

  Returns:
    StepCredit; q is the row's graph reward and v its anchor's mean of them. A
    row is live when its anchor was visited at least twice.
  """
  check_group(group)
  check_discount("omega", omega)
  check_choice("exponent", exponent, EXPONENTS)
  check_choice("signal", signal, SIGNALS)
  distance, row_distance = distances_to_success(group)
  power = row_distance
  if exponent == "paper":
    power = row_distance + 1
  elif exponent == "normalized":
    power = row_distance - distance[group.state] + 1
  penalty = jnp.where(group.valid, 0.0, invalid_penalty)
  reward = jnp.where(group.mask, success_reward * omega**power - penalty, 0.0)
  step, mean, live = scores_at_anchors(group, reward, norm=norm, eps=eps)
  episode = episode_term(
    group,
    kind=trajectory,
    norm=norm,
    statistics=statistics,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
    singleton=singleton,
    eps=eps,
  )
  return StepCredit(
    advantage=episode_weight * episode + graph_weight * step,
    trajectory=episode,
    step=step,
    q=reward,
    v=mean,
    live=live,
    aux={},
  )


def distances_to_success(group: GroupArrays) -> tuple[jax.Array, jax.Array]:
  """Fewest observed steps from an anchor to success, unit cost per step.

    d(success) = 0,  d(s) = 1 + min over observed steps s -> s' of d(s')

  Anchors without a path get 1 + the largest finite distance (success counts
  as 0, so 1 where nothing succeeded).

  Returns:
    (distance of each anchor [N], distance of each row's successor [R]).
  """
  num_states = group.state_mask.shape[0]
  success = group.boundary == Boundary.SUCCESS
  far = jnp.asarray(jnp.inf)

  def of_successor(distance):
    return jnp.where(success, 0.0, jnp.append(distance, far)[group.next_state])

  def relax(carry):
    distance, _ = carry
    through = jnp.where(group.mask, 1.0 + of_successor(distance), far)
    shorter = jax.ops.segment_min(through, group.state, num_states)
    return shorter, jnp.any(shorter < distance)

  distance, _ = jax.lax.while_loop(
    lambda carry: carry[1],
    relax,
    (jnp.full((num_states,), far), jnp.asarray(True)),
  )
  row = of_successor(distance)
  finite = jnp.isfinite(distance) & group.state_mask
  unreachable = 1.0 + jnp.max(jnp.where(finite, distance, 0.0))
  return (
    jnp.where(finite, distance, unreachable),
    jnp.where(jnp.isfinite(row), row, unreachable),
  )
