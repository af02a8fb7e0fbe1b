"""G2PO: visit-averaged outcomes, compared at an anchor and along edges.

Source: arXiv 2606.22995 and its code. The code takes a rollout for a success
when its reward equals 10; here the typed boundary says so.
"""

import functools

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount, is_number
from crbc_jax.credit import combine
from crbc_jax.credit.episode import episode_term
from crbc_jax.credit.process import SIGNALS, check_group
from crbc_jax.credit.transitions import (
  scores_beyond_rounding,
  value_of_next,
  visit_counts,
  visit_means,
)
from crbc_jax.types import GroupArrays, StepCredit


def g2po(
  group: GroupArrays,
  *,
  gamma: float = 0.95,
  success_reward: float = 10.0,
  invalid_penalty: float = 0.1,
  norm: str = "mean_std",
  statistics: str = "row",
  anchor_weight: float = 1.0,
  edge_weight: float = 1.0,
  episode_weight: float = 1.0,
  signal: str = "outcome",
  singleton: str = "raw",
  trajectory: str = "episode",
  eps: float = 1e-6,
) -> StepCredit:
  """Scores of successors at the anchor, of edges in the group, of the episode.

    V(s) = mean over the visits (t, i) to s of gamma^(T_i - t) E_i,  t from 0
    u    = V(s') inside, success_reward on success, 0 after any other end
    A    = anchor_weight  z(u - invalid_penalty [invalid]; rows at s)
         + edge_weight    z(u - V(s); all rows of the group)
         + episode_weight A^E

  E is the episode's reward, z has ddof 1 and A^E is GiGPO's episode term. The
  edge term reaches rows alone at their anchor: along a lone success u - V grows
  towards the end, so even a group of one rollout has an edge term, and its raw
  score as A^E. An all-fail group without invalid rows gets exactly 0. In an
  all-success group the step terms prefer faster routes while gamma < 1, and
  A^E of outcomes is 0 without invalid rows.

  Args:
    group: one unbatched group.
    gamma: discount in (0, 1], also on the last step of an episode.
    success_reward: E under signal "outcome", and u on success under both.
    invalid_penalty: taken off at the anchor and in A^E for an invalid action.
    norm: "mean_std" or "mean", of all three terms.
    statistics: of A^E, "row" or "trajectory"; see `gigpo`.
    anchor_weight, edge_weight, episode_weight: the three weights.
    signal: E is the "outcome" or the summed "observed" reward.
    singleton: A^E where its statistics have one entry, "raw" or "zero".
    trajectory: "episode" (A^E) or another trajectory term in its place; see
      `combine.trajectory_term`.
    eps: added to standard deviations.

  Returns:
    StepCredit; `step` holds the first two terms with their weights, so the
    advantage is step + episode_weight trajectory. q is u less the penalty and
    v is V(s). A row is live when its anchor was visited at least twice or,
    unless edge_weight is 0, when the group has at least two rows.

  Raises:
    ValueError: an option is out of range.
  """
  check_group(group)
  check_discount("gamma", gamma)
  check_choice("signal", signal, SIGNALS)
  everyone = jnp.zeros_like(group.traj)
  reward = combine.trajectory_scores(group, signal=signal)
  if signal == "outcome":
    reward = success_reward * reward
  length = jax.ops.segment_sum(
    group.mask.astype(jnp.float32), group.traj, group.traj_mask.shape[0]
  )
  left = jnp.where(group.mask, length[group.traj] - group.step, 0.0)
  outcome = jnp.where(group.mask, gamma**left * reward[group.traj], 0.0)
  v = visit_means(group, outcome)
  here = jnp.where(group.mask, v[group.state], 0.0)
  after = value_of_next(group, v, success=success_reward)
  score = jnp.where(group.mask & ~group.valid, after - invalid_penalty, after)

  # Sizes of the numbers that V sums: rewards of both signs may cancel in it.
  typical = visit_means(group, jnp.abs(outcome))
  size_here = jnp.where(group.mask, typical[group.state], 0.0)
  size_after = jnp.abs(value_of_next(group, typical, success=success_reward))
  scores = functools.partial(scores_beyond_rounding, norm=norm, eps=eps)
  at_anchor = scores(
    score,
    group.state,
    group.mask,
    group.state_mask.shape[0],
    size=size_after,
  )
  along_edge = scores(
    after - here,
    everyone,
    group.mask,
    1,
    size=jnp.maximum(size_after, size_here),
  )
  step = anchor_weight * at_anchor + edge_weight * along_edge
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
  peers = visit_counts(group, group.mask)[group.state]
  if not (is_number(edge_weight) and edge_weight == 0):
    peers = jnp.full_like(after, jnp.sum(group.mask))
  return StepCredit(
    advantage=episode_weight * episode + step,
    trajectory=episode,
    step=step,
    q=score,
    v=here,
    live=group.mask & (peers >= 2),
    aux={},
  )
