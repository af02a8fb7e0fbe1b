"""CRBC with its later options, and its anchored and lambda relatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from fractions import Fraction

from tests import oracle
from tests.oracle import SUCCESS, anchor, exact
from tests.oracles import common
from tests.oracles.common import Group, Number, Rows
from tests.oracles.trajectory import term

NEGLIGIBLE = Fraction(1, 100_000)


def crbc(
  group: Group,
  *,
  beta=0.98,
  depth=math.inf,
  sigma_min=0.1,
  kappa=0.0,
  readout: str = "action",
  w_group=1.0,
  w_step=5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> dict[str, Rows]:
  """`oracle.crbc` with kappa, the state read-out and the zero rule.

  readout "action"  gap = Q(s,a) - V(s), gate on two actions at s
  readout "state"   gap = gain + beta V(s') - V(s) of the row, gate on two
                    distinct successors at s: states, or kinds of end. At
                    depth K >= 1 V(s') is that of depth K - 1, at depth 0
                    the gap is the row's return less V(s).
  """
  common.one_of("readout", readout, ("action", "state"))
  shared = {"beta": beta, "signal": signal, "truncation": truncation}
  if math.isinf(depth):
    v, q = oracle.closure(group, **shared)
  else:
    v, q = oracle.finite_depth(group, int(depth), **shared)
  if readout == "action":
    gaps = _gaps(group, v, q)
    kinds = _kind_of_action(group)
  else:
    if depth == 0:
      gaps = _return_gaps(group, v, beta=beta, signal=signal)
    elif math.isinf(depth):
      gaps = _state_gaps(group, v, v, **shared)
    else:
      before, _ = oracle.finite_depth(group, int(depth) - 1, **shared)
      gaps = _state_gaps(group, v, before, **shared)
    kinds = _kind_of_successor(group, truncation)
  return _read_out(
    group,
    gaps,
    kinds,
    v,
    q if readout == "action" else None,
    sigma_min=sigma_min,
    kappa=kappa,
    w_group=w_group,
    w_step=w_step,
    beta=beta,
    signal=signal,
    trajectory=trajectory,
  )


def crbc_anchored(
  group: Group,
  *,
  beta=0.98,
  anchor_weight=0.3,
  sigma_min=0.1,
  kappa=0.0,
  readout: str = "action",
  w_group=1.0,
  w_step=5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> dict[str, Rows]:
  """V = (1-w) T V + w V0 and Q = (1-w) B V + w Q0, read out as in CRBC."""
  w = exact(anchor_weight)
  shared = {"beta": beta, "signal": signal, "truncation": truncation}
  v0, q0 = oracle.finite_depth(group, 0, **shared)
  step_to = _targets(group, truncation)
  states = list(v0)
  count = dict.fromkeys(states, 0)
  system = {s: {x: Fraction(0) for x in states} for s in states}
  payoff = {s: Fraction(0) for s in states}
  for i, rollout in enumerate(group):
    for t in range(len(rollout.steps)):
      s, x = anchor(group, i, t), step_to[i][t]
      count[s] += 1
      payoff[s] += _gain(group, i, t, beta, signal)
      if x in system:
        system[s][x] += 1
  matrix = [
    [(s == x) - (1 - w) * exact(beta) * system[s][x] / count[s] for x in states]
    for s in states
  ]
  rhs = [(1 - w) * payoff[s] / count[s] + w * v0[s] for s in states]
  v = dict(zip(states, common.solve(matrix, rhs), strict=True))

  backed_up: dict = {}
  for i, rollout in enumerate(group):
    for t, step in enumerate(rollout.steps):
      value = _gain(group, i, t, beta, signal) + exact(beta) * v.get(
        step_to[i][t], Fraction(0)
      )
      backed_up.setdefault((anchor(group, i, t), step.action), []).append(value)
  q = {
    sa: (1 - w) * common.mean(values) + w * q0[sa]
    for sa, values in backed_up.items()
  }
  gaps, kinds = _gaps(group, v, q), _kind_of_action(group)
  if readout == "state":
    one_step = _state_gaps(group, v, v, **shared)
    whole = _return_gaps(group, v, beta=beta, signal=signal)
    gaps = common.rows(
      group, lambda i, t: (1 - w) * one_step[i][t] + w * whole[i][t]
    )
    kinds = _kind_of_successor(group, truncation)
  return _read_out(
    group,
    gaps,
    kinds,
    v,
    q if readout == "action" else None,
    sigma_min=sigma_min,
    kappa=kappa,
    w_group=w_group,
    w_step=w_step,
    beta=beta,
    signal=signal,
    trajectory=trajectory,
  )


def crbc_lambda(
  group: Group,
  *,
  beta=0.98,
  lam=0.8,
  sigma_min=0.1,
  kappa=0.0,
  readout: str = "action",
  w_group=1.0,
  w_step=5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> dict[str, Rows]:
  """V and Q are means of lambda-returns that bootstrap on that very V.

    G_t = gain_t + beta ((1 - lam) V(s_{t+1}) + lam G_{t+1}),   G = 0 at the end

  A bootstrapped truncation enters through V(s_{t+1}) alone: the rollout has no
  G behind its last step, so that lam = 1 stays visit averaging.
  """
  beta_, lam_ = exact(beta), exact(lam)
  step_to = _targets(group, truncation)
  states = list(
    dict.fromkeys(
      anchor(group, i, t)
      for i, rollout in enumerate(group)
      for t in range(len(rollout.steps))
    )
  )
  # G of each row as a constant and a coefficient of each unknown V(s).
  constant = common.rows(group, lambda i, t: Fraction(0))
  coefficient = common.rows(group, lambda i, t: {})
  for i, rollout in enumerate(group):
    for t in reversed(range(len(rollout.steps))):
      constant[i][t] = _gain(group, i, t, beta, signal)
      mine: dict = {}
      x = step_to[i][t]
      if x in states:
        mine[x] = beta_ * (1 - lam_)
      if not common.is_last(group, i, t):
        constant[i][t] += beta_ * lam_ * constant[i][t + 1]
        for s, c in coefficient[i][t + 1].items():
          mine[s] = mine.get(s, Fraction(0)) + beta_ * lam_ * c
      coefficient[i][t] = mine

  key = common.at_anchor(group)
  constants = common.pools(group, constant, key)
  coefficients = common.pools(group, coefficient, key)
  matrix = [
    [
      (s == x) - common.mean([c.get(x, Fraction(0)) for c in coefficients[s]])
      for x in states
    ]
    for s in states
  ]
  rhs = [common.mean(constants[s]) for s in states]
  v = dict(zip(states, common.solve(matrix, rhs), strict=True))
  returns = common.rows(
    group,
    lambda i, t: (
      constant[i][t]
      + sum(
        (c * v[s] for s, c in coefficient[i][t].items()),
        Fraction(0),
      )
    ),
  )
  q = common.means(
    common.pools(
      group,
      returns,
      lambda i, t: (anchor(group, i, t), group[i].steps[t].action),
    )
  )
  gaps, kinds = _gaps(group, v, q), _kind_of_action(group)
  if readout == "state":
    gaps = common.rows(group, lambda i, t: returns[i][t] - v[key(i, t)])
    kinds = _kind_of_successor(group, truncation)
  return _read_out(
    group,
    gaps,
    kinds,
    v,
    q if readout == "action" else None,
    sigma_min=sigma_min,
    kappa=kappa,
    w_group=w_group,
    w_step=w_step,
    beta=beta,
    signal=signal,
    trajectory=trajectory,
  )


def _targets(group: Group, truncation: str) -> Rows:
  """Successor of every row; a bootstrapped truncation may stay inside."""
  common.one_of("truncation", truncation, ("failure", "bootstrap"))
  acted_from = {step.state for rollout in group for step in rollout.steps}

  def target(i: int, t: int) -> Hashable:
    rollout = group[i]
    if (
      truncation == "bootstrap"
      and rollout.end == "truncated"
      and common.is_last(group, i, t)
      and rollout.final_state is not None
      and rollout.final_state in acted_from
    ):
      return rollout.final_state
    return common.successor(group, i, t)

  return common.rows(group, target)


def _gain(group: Group, i: int, t: int, beta, signal: str) -> Fraction:
  common.one_of("signal", signal, ("outcome", "observed"))
  if signal == "observed":
    return exact(group[i].steps[t].reward)
  won = common.successor(group, i, t) == SUCCESS
  return exact(beta) if won else Fraction(0)


def _gaps(group: Group, v: dict, q: dict) -> Rows:
  def gap(i: int, t: int) -> Fraction:
    s = anchor(group, i, t)
    return q[s, group[i].steps[t].action] - v[s]

  return common.rows(group, gap)


def _return_gaps(group: Group, v: dict, *, beta, signal: str) -> Rows:
  def gain(i: int, t: int) -> Fraction:
    return _gain(group, i, t, beta, signal)

  returns = [
    common.discounted([gain(i, t) for t in range(len(r.steps))], exact(beta))
    for i, r in enumerate(group)
  ]
  return common.rows(group, lambda i, t: returns[i][t] - v[anchor(group, i, t)])


def _state_gaps(
  group: Group, v: dict, following: dict, *, beta, signal, truncation
) -> Rows:
  step_to = _targets(group, truncation)
  return common.rows(
    group,
    lambda i, t: (
      _gain(group, i, t, beta, signal)
      + exact(beta) * following.get(step_to[i][t], Fraction(0))
      - v[anchor(group, i, t)]
    ),
  )


def _kind_of_action(group: Group) -> Callable[[int, int], Hashable]:
  return lambda i, t: group[i].steps[t].action


def _kind_of_successor(
  group: Group, truncation: str
) -> Callable[[int, int], Hashable]:
  step_to = _targets(group, truncation)

  def kind(i: int, t: int) -> Hashable:
    if isinstance(step_to[i][t], oracle.Absorbing):
      return "ended in", group[i].end
    return "went to", step_to[i][t]

  return kind


def _read_out(
  group: Group,
  gaps: Rows,
  kind: Callable[[int, int], Hashable],
  v: dict,
  q: dict | None,
  *,
  sigma_min,
  kappa,
  w_group,
  w_step,
  beta,
  signal: str,
  trajectory: str,
) -> dict[str, Rows]:
  """gap / max(sigma, sigma_min) N(s,a) / (N(s,a) + kappa), gated.

  sigma is the root mean square of the gaps of the visits to s, taken before
  kappa shrinks anything.  No row of a group gets credit when its largest gap
  is below 1e-5 of the reward scale: 1, or the largest |return|.
  """
  key = common.at_anchor(group)
  seen = {
    s: set(k)
    for s, k in common.pools(group, common.rows(group, kind), key).items()
  }
  square = common.means(
    common.pools(group, [[g**2 for g in row] for row in gaps], key)
  )
  visits: dict = {}
  for i, rollout in enumerate(group):
    for t, step in enumerate(rollout.steps):
      sa = (anchor(group, i, t), step.action)
      visits[sa] = visits.get(sa, 0) + 1

  scale = Fraction(1)
  if signal == "observed":
    scale = max(
      abs(g)
      for r in group
      for g in common.discounted(common.step_rewards(r, signal), exact(beta))
    )
  silent = max(abs(g) for row in gaps for g in row) < NEGLIGIBLE * scale

  def credit(i: int, t: int) -> Number:
    s, gap = key(i, t), gaps[i][t]
    if silent or len(seen[s]) < 2 or gap == 0:
      return Fraction(0)
    n = visits[s, group[i].steps[t].action]
    shrink = n / (n + exact(kappa))
    if square[s] <= exact(sigma_min) ** 2:
      return shrink * gap / exact(sigma_min)
    return float(shrink * gap) / math.sqrt(square[s])

  fields = {
    "v": common.rows(group, lambda i, t: v[key(i, t)]),
    "live": common.rows(group, lambda i, t: len(seen[key(i, t)]) >= 2),
  }
  if q is not None:
    fields["q"] = common.rows(
      group, lambda i, t: q[key(i, t), group[i].steps[t].action]
    )
  return common.combined(
    group,
    term(group, trajectory, signal),
    common.rows(group, credit),
    w_group=w_group,
    w_step=w_step,
    **fields,
  )
