"""Values of states read out per transition: GRAFT, GraphHCA, RewardFlow."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests import oracle
from tests.oracle import FAILURE, SUCCESS, anchor, exact
from tests.oracles import common
from tests.oracles.common import Group, Number, Rows, successor
from tests.oracles.trajectory import term


def graft(
  group: Group,
  *,
  beta=0.99,
  lam=0.0,
  hops: int = 8,
  norm: str = "mean_std",
  singleton: str = "sign",
  trajectory: str = "none",
  w_group=1.0,
  w_step=1.0,
  signal: str = "outcome",
  eps=1e-6,
) -> dict[str, Rows]:
  """Temporal differences of the exact closure, Graph-GAE, z per state.

    delta_i = gain_i + beta V(s'_i) - V(s_i)
    A_i = delta_i + sum over k = 1..hops of
          (beta lam)^k mean{delta_j : j leaves a state k hops behind row i}

  A row alone at its state gets A / (|A| + eps) under "sign" whatever `norm`
  says, and 0 under "zero".  The states k hops behind are a set, their rows
  count with multiplicity, and absorbed hops end.
  """
  common.one_of("singleton", singleton, ("sign", "zero"))
  v, delta = _differences(group, beta=beta, signal=signal)
  carry = exact(beta) * exact(lam)

  def accumulated(i: int, t: int) -> Number:
    total = delta[i][t]
    behind = {successor(group, i, t)} - {SUCCESS, FAILURE}
    for k in range(1, hops + 1):
      leaving = [
        (j, u)
        for j, rollout in enumerate(group)
        for u in range(len(rollout.steps))
        if anchor(group, j, u) in behind
      ]
      if not leaving:
        break
      total += carry**k * common.mean([delta[j][u] for j, u in leaving])
      behind = {successor(group, j, u) for j, u in leaving} - {SUCCESS, FAILURE}
    return total

  value = common.rows(group, accumulated) if exact(lam) else delta
  key = common.at_anchor(group)
  pool = common.pools(group, value, key)

  def scored(i: int, t: int) -> Number:
    own = pool[key(i, t)]
    if len(own) > 1:
      return common.score(value[i][t], own, norm=norm, eps=eps)
    if singleton == "zero" or own[0] == 0:
      return Fraction(0)
    return float(own[0]) / (abs(float(own[0])) + float(eps))

  return common.combined(
    group,
    term(group, trajectory, signal),
    common.rows(group, scored),
    w_group=w_group,
    w_step=w_step,
    q=common.rows(group, lambda i, t: delta[i][t] + v[anchor(group, i, t)]),
    v=common.rows(group, lambda i, t: v[anchor(group, i, t)]),
    live=common.rows(group, lambda i, t: len(pool[key(i, t)]) > 1),
  )


def _differences(group: Group, *, beta, signal: str) -> tuple[dict, Rows]:
  v, _ = oracle.closure(group, beta=beta, signal=signal)

  def delta(i: int, t: int) -> Fraction:
    x = successor(group, i, t)
    if signal == "observed":
      gain = exact(group[i].steps[t].reward)
    else:
      gain = exact(beta) if x == SUCCESS else Fraction(0)
    return gain + exact(beta) * v.get(x, 0) - v[anchor(group, i, t)]

  return v, common.rows(group, delta)


def distances(
  group: Group,
  enters: Callable[[int, int], object],
  counted: Callable[[int, int], bool] = lambda i, t: True,
) -> dict:
  """Fewest counted steps to SUCCESS of the states that can reach it."""
  found: dict = {SUCCESS: 0}
  for length in range(1, 2 + sum(len(r.steps) for r in group)):
    for i, rollout in enumerate(group):
      for t in range(len(rollout.steps)):
        s = anchor(group, i, t)
        if (
          counted(i, t)
          and s not in found
          and found.get(enters(i, t)) == length - 1
        ):
          found[s] = length
  return found


def graphhca(
  group: Group,
  *,
  beta=0.95,
  floor=1e-2,
  power=1.0,
  norm: str = "mean_std",
  trajectory: str = "grpo",
  w_group=1.0,
  w_step=1.0,
  eps=1e-6,
) -> dict[str, Rows]:
  """z per state of ln max(V(s'), floor) - ln max(V(s), floor).

  power 1: V is the closure.  power inf: V = beta^d, d the fewest observed
  steps to success; V = 0 without a path.  Success is worth 1, and the last
  step of any other rollout leads nowhere, whatever it showed.
  """
  if power == 1:
    v, _ = oracle.closure(group, beta=beta)
  elif power == math.inf:
    found = distances(group, lambda i, t: successor(group, i, t))
    v = {s: exact(beta) ** d for s, d in found.items()}
  else:
    raise ValueError(f"power is {power!r}, expected 1 or inf")
  v |= {SUCCESS: Fraction(1), FAILURE: Fraction(0)}

  def height(state) -> float:
    return math.log(max(v.get(state, Fraction(0)), exact(floor)))

  value = common.rows(
    group,
    lambda i, t: height(successor(group, i, t)) - height(anchor(group, i, t)),
  )
  return common.combined(
    group,
    term(group, trajectory),
    common.score_rows(
      group, value, common.at_anchor(group), norm=norm, eps=eps
    ),
    w_group=w_group,
    w_step=w_step,
  )


def rewardflow(
  group: Group,
  *,
  gamma=0.9,
  norm: str = "mean_std",
  trajectory: str = "grpo",
  w_group=1.0,
  w_step=1.0,
  signal: str = "outcome",
  eps=1e-6,
) -> dict[str, Rows]:
  """z per state of V(s') - V(s), V = gamma^distance over valid steps.

  A last step is worth the environment's reward instead.  Invalid steps are no
  edges, count in no statistics and get 0.
  """

  def valid(i: int, t: int) -> bool:
    return group[i].steps[t].valid

  found = distances(group, lambda i, t: successor(group, i, t), valid)

  def potential(state) -> Fraction:
    return exact(gamma) ** found[state] if state in found else Fraction(0)

  def worth(i: int, t: int) -> Fraction:
    if common.is_last(group, i, t):
      return common.step_rewards(group[i], signal)[t]
    return potential(successor(group, i, t)) - potential(anchor(group, i, t))

  value = common.rows(group, worth)
  key = common.at_anchor(group)
  pool = common.pools(group, value, key, valid)
  step = common.rows(
    group,
    lambda i, t: (
      common.score(value[i][t], pool[key(i, t)], norm=norm, eps=eps)
      if valid(i, t)
      else Fraction(0)
    ),
  )
  return common.combined(
    group,
    term(group, trajectory, signal),
    step,
    w_group=w_group,
    w_step=w_step,
  )
