"""Rows compared by what led to them: HGPO and SALT."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle import Absorbing, anchor, exact
from tests.oracles import common
from tests.oracles.common import Group, Number, Rows
from tests.oracles.trajectory import term

NO_ACTION = Absorbing("before the first observation")
OUTSIDE = Absorbing("a state that nobody acted from, or an unknown one")


def last_states(group: Group, i: int, t: int, count: int) -> tuple:
  """The last min(count, t + 1) states, oldest first, the current included."""
  return tuple(anchor(group, i, u) for u in range(max(0, t + 1 - count), t + 1))


def hgpo(
  group: Group,
  *,
  history: int = 2,
  alpha=1.0,
  gamma=0.95,
  weights: str = "paper",
  norm: str = "mean_std",
  trajectory: str = "none",
  w_group=1.0,
  w_step=1.0,
  success_reward=10.0,
  invalid_penalty=0.1,
  signal: str = "outcome",
  eps=1e-6,
) -> dict[str, Rows]:
  """Returns scored against rows of the same last k + 1 states, k = 0..history.

  Scores use the population deviation and are 0 in a cluster of one.

    paper  sum_k (k+1)^alpha A_k / sum_k (k+1)^alpha
    code   sum_k (k+2)^alpha A_k / the sum of (k+2)^alpha where A_k is not 0
  """
  common.one_of("weights", weights, ("paper", "code"))
  returns = common.penalised_returns(
    group,
    gamma=gamma,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
  )

  def level(k: int) -> Rows:
    return common.score_rows(
      group,
      returns,
      lambda i, t: last_states(group, i, t, k + 1),
      norm=norm,
      eps=eps,
      ddof=0,
    )

  levels = [level(k) for k in range(history + 1)]
  shift = 1 if weights == "paper" else 2
  weight = [_power(k + shift, alpha) for k in range(history + 1)]

  def blended(i: int, t: int) -> Number:
    own = [rows[i][t] for rows in levels]
    shares = [
      w if weights == "paper" or a != 0 else Fraction(0)
      for w, a in zip(weight, own, strict=True)
    ]
    if sum(shares) == 0:
      return Fraction(0)
    total = sum(w * a for w, a in zip(shares, own, strict=True))
    return total / sum(shares)

  return common.combined(
    group,
    term(group, trajectory, signal),
    common.rows(group, blended),
    w_group=w_group,
    w_step=w_step,
  )


def _power(base: int, exponent) -> Number:
  whole = exact(exponent)
  if whole.denominator == 1:
    return Fraction(base) ** whole.numerator
  return float(base) ** float(exponent)


def edge_identity(group: Group, i: int, t: int, history: int) -> tuple:
  """What makes two steps one edge of SALT's graph.

  The last `history` (action, observation) pairs up to s_t, oldest first, the
  pair of the first observation having no action; the action; and where it led:
  the anchor entered and how the rollout ended.  States that nobody acted from
  are all one.
  """
  rollout = group[i]

  def pair(u: int) -> tuple:
    action = rollout.steps[u - 1].action if u > 0 else NO_ACTION
    return action, anchor(group, i, u)

  past = tuple(pair(u) for u in range(max(0, t + 1 - history), t + 1))
  if not common.is_last(group, i, t):
    return past, rollout.steps[t].action, anchor(group, i, t + 1), "none"
  acted_from = {step.state for other in group for step in other.steps}
  final = rollout.final_state
  known = final is not None and final in acted_from
  return (
    past,
    rollout.steps[t].action,
    final if known else OUTSIDE,
    rollout.end,
  )


def salt(
  group: Group,
  *,
  history: int = 3,
  trajectory: str = "grpo",
  w_group=1.0,
  w_step=1.0,
  signal: str = "outcome",
) -> dict[str, Rows]:
  """Each edge gets the mean of the trajectory terms of the rows on it.

  step = that mean less the row's own term, so that with both weights 1 the
  advantage is the mean.  A row is live when its edge has another row.
  """
  own = term(group, trajectory, signal)

  def key(i: int, t: int) -> tuple:
    return edge_identity(group, i, t, history)

  pool = common.pools(group, own, key)

  def merged_minus_own(i: int, t: int) -> Number:
    shared = pool[key(i, t)]
    if min(shared) == max(shared):
      return Fraction(0)
    return sum(shared) / len(shared) - own[i][t]

  return common.combined(
    group,
    own,
    common.rows(group, merged_minus_own),
    w_group=w_group,
    w_step=w_step,
    live=common.rows(group, lambda i, t: len(pool[key(i, t)]) > 1),
  )
