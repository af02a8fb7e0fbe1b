"""Means over visits and over turns: G2PO, GAGPO, MICA."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle import SUCCESS, anchor, exact
from tests.oracles import common
from tests.oracles.common import Group, Rows, successor
from tests.oracles.trajectory import term


def g2po(
  group: Group,
  *,
  gamma=0.95,
  success_reward=10.0,
  invalid_penalty=0.1,
  norm: str = "mean_std",
  statistics: str = "row",
  anchor_weight=1.0,
  edge_weight=1.0,
  episode_weight=1.0,
  signal: str = "outcome",
  singleton: str = "raw",
  trajectory: str = "episode",
  eps=1e-6,
) -> dict[str, Rows]:
  """Value of the node entered, of the edge taken, and the episode.

    V(s) = mean over its visits of gamma^(T - t) E      t from 0, T steps
    u    = V(s'), success_reward on success, 0 after another end
    step = anchor_weight z(u - penalty [invalid]; same source state)
         + edge_weight z(u - V(s); all rows)

  The trajectory term is GiGPO's A^E; its weight is episode_weight, the step
  term's is 1 because its own weights are inside it.
  """
  gamma, win = exact(gamma), exact(success_reward)
  episode = [
    sum(common.step_rewards(r, signal, success_reward), Fraction(0))
    for r in group
  ]
  reached = common.rows(
    group, lambda i, t: gamma ** (len(group[i].steps) - t) * episode[i]
  )
  key = common.at_anchor(group)
  v = common.means(common.pools(group, reached, key))

  def entered(i: int, t: int) -> Fraction:
    x = successor(group, i, t)
    return win if x == SUCCESS else v.get(x, Fraction(0))

  node = common.rows(
    group,
    lambda i, t: (
      entered(i, t) - (0 if group[i].steps[t].valid else exact(invalid_penalty))
    ),
  )
  edge = common.rows(group, lambda i, t: entered(i, t) - v[key(i, t)])
  at_node = common.score_rows(group, node, key, norm=norm, eps=eps)
  at_edge = common.score_rows(
    group, edge, common.everywhere, norm=norm, eps=eps
  )
  return common.combined(
    group,
    common.episode_term(
      group,
      norm=norm,
      statistics=statistics,
      success_reward=success_reward,
      invalid_penalty=invalid_penalty,
      signal=signal,
      eps=eps,
      singleton=singleton,
    )
    if trajectory == "episode"
    else term(group, trajectory, signal),
    common.rows(
      group,
      lambda i, t: (
        exact(anchor_weight) * at_node[i][t]
        + exact(edge_weight) * at_edge[i][t]
      ),
    ),
    w_group=episode_weight,
    w_step=1,
  )


def gagpo(
  group: Group,
  *,
  gamma=0.95,
  lam=0.95,
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group=1.0,
  w_step=1.0,
  signal: str = "outcome",
  eps=1e-6,
) -> dict[str, Rows]:
  """GAE along the row's own rollout on visit means, z over the group.

  V(s)  = mean over its visits of sum_k gamma^k r_{t+k}
  delta = r + gamma V(s') - V(s),   V = 0 after the last step
  A_t   = sum_k (gamma lam)^k delta_{t+k}
  """
  gamma = exact(gamma)
  rewards = [common.step_rewards(r, signal) for r in group]
  returns = [common.discounted(r, gamma) for r in rewards]
  v = common.means(common.pools(group, returns, common.at_anchor(group)))

  def delta(i: int, t: int) -> Fraction:
    after = v.get(successor(group, i, t), Fraction(0))
    return rewards[i][t] + gamma * after - v[anchor(group, i, t)]

  gae = [
    common.discounted(row, gamma * exact(lam))
    for row in common.rows(group, delta)
  ]
  return common.combined(
    group,
    term(group, trajectory, signal),
    common.score_rows(group, gae, common.everywhere, norm=norm, eps=eps),
    w_group=w_group,
    w_step=w_step,
  )


def mica(
  group: Group,
  *,
  gamma=1.0,
  w_return=0.5,
  w_reward=0.5,
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group=1.0,
  eps=1e-6,
) -> dict[str, Rows]:
  """w_return z(G; same turn) + w_reward z(r; all rows), observed rewards."""
  rewards = [common.step_rewards(r, "observed") for r in group]
  returns = [common.discounted(r, exact(gamma)) for r in rewards]
  by_turn = common.score_rows(
    group, returns, lambda i, t: t, norm=norm, eps=eps
  )
  by_group = common.score_rows(
    group, rewards, common.everywhere, norm=norm, eps=eps
  )
  return common.combined(
    group,
    term(group, trajectory, "observed"),
    common.rows(
      group,
      lambda i, t: (
        exact(w_return) * by_turn[i][t] + exact(w_reward) * by_group[i][t]
      ),
    ),
    w_group=w_group,
    w_step=1,
  )
