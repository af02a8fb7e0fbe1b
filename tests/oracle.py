"""Slow, exact reference for step-credit estimators.

Plain dicts and `fractions.Fraction`; no arrays.  Written from
shared/design/methods.md (cited below as "§n") and from nothing else, so that
it can disagree with the kernels.

Conventions shared by every function:

* A group is a list of `Rollout`s.  The successor of step t is the state of
  step t+1; what follows the last step depends on the estimator.
* Results that belong to steps are "rows": a list over rollouts of a list over
  steps.
* Numbers are exact `Fraction`s until a square root is needed, and floats
  after it.  A float given as an option or a reward is read as the decimal it
  prints as, so 0.1 means one tenth.
* A step whose state is None gets an anchor of its own (§1.6): it never merges.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

ENDS = ("success", "failure", "truncated")


class Step(NamedTuple):
  """One environment step: anchor, semantic action, observed reward."""

  state: Hashable
  action: Hashable
  reward: Fraction | int | float = 0
  valid: bool = True


class Rollout(NamedTuple):
  """One trajectory; `final_state` None is a dead end nobody else reaches."""

  steps: tuple[Step, ...]
  end: str
  final_state: Hashable = None


@dataclass(frozen=True)
class Absorbing:
  """An absorbing boundary; distinct from every state a caller can name."""

  name: str


@dataclass(frozen=True)
class Unmerged:
  """Stands for a state that is unknown, hence equal to no other state."""

  rollout: int
  step: int


SUCCESS = Absorbing("z+")
FAILURE = Absorbing("z-")
UNKNOWN = Absorbing("z?")  # bootstrapped truncation with nothing to look up


class Process(NamedTuple):
  """Empirical process of a group (§1.1); all fields are dicts."""

  n_s: dict  # s -> N(s)
  n_sa: dict  # (s, a) -> N(s, a)
  n_sax: dict  # (s, a, x) -> N(s, a, x)
  mu: dict  # (s, a) -> N(s, a) / N(s)
  p: dict  # (s, a, x) -> N(s, a, x) / N(s, a)
  reward: dict  # (s, a) -> mean observed reward


# -- helpers -----------------------------------------------------------------


def exact(value) -> Fraction:
  """The Fraction a number is written as; floats go through their decimal."""
  if isinstance(value, (int, Fraction)):
    return Fraction(value)
  return Fraction(repr(float(value)))


def _one_of(name: str, value, allowed: Sequence) -> None:
  if value not in allowed:
    raise ValueError(f"{name} is {value!r}, expected one of {allowed}")


def _check_group(group: Sequence[Rollout]) -> None:
  if not group:
    raise ValueError("a group needs at least one rollout")
  for rollout in group:
    _one_of("end", rollout.end, ENDS)
    if not rollout.steps:
      raise ValueError("a rollout needs at least one step")


def _check_beta(beta, truncation: str) -> Fraction:
  beta = exact(beta)
  if not 0 < beta <= 1:
    raise ValueError("beta must lie in (0, 1]")
  if truncation == "bootstrap" and beta == 1:
    raise ValueError("bootstrapped truncation needs beta < 1")
  return beta


def anchor(group: Sequence[Rollout], i: int, t: int) -> Hashable:
  """Key of step (i, t): its state, or a private key if the state is None."""
  state = group[i].steps[t].state
  return Unmerged(i, t) if state is None else state


def _rows(
  group: Sequence[Rollout], cell: Callable[[int, int], Any]
) -> list[list]:
  return [
    [cell(i, t) for t in range(len(rollout.steps))]
    for i, rollout in enumerate(group)
  ]


def _mean(values: Sequence[Fraction]) -> Fraction:
  return sum(values, Fraction(0)) / len(values)


def _standardise(
  score: Fraction,
  pool: Sequence[Fraction],
  *,
  norm: str = "mean_std",
  eps: float = 1e-6,
  singleton: str = "zero",
) -> Fraction | float:
  """(score - mean) / (std + eps) over `pool`, ddof 1 (§3.2, §4.1, §5).

  A pool of one gives the score itself ("raw") or 0 ("zero").  A pool without
  spread gives exactly 0 when a division by the spread is asked for.
  """
  if len(pool) == 1:
    return score if singleton == "raw" else Fraction(0)
  mean = _mean(pool)
  if norm == "mean":
    return score - mean
  variance = sum((x - mean) ** 2 for x in pool) / (len(pool) - 1)
  if variance == 0:
    return Fraction(0)
  return float(score - mean) / (math.sqrt(variance) + float(eps))


def _observed(rollout: Rollout) -> list[Fraction]:
  return [exact(step.reward) for step in rollout.steps]


def _outcome(rollout: Rollout, reward=1) -> list[Fraction]:
  """Zero everywhere except `reward` on the last step of a success."""
  rewards = [Fraction(0)] * len(rollout.steps)
  if rollout.end == "success":
    rewards[-1] = exact(reward)
  return rewards


def _step_rewards(rollout: Rollout, signal: str, reward=1) -> list[Fraction]:
  _one_of("signal", signal, ("outcome", "observed"))
  if signal == "observed":
    return _observed(rollout)
  return _outcome(rollout, reward)


def _discounted(rewards: Sequence[Fraction], gamma: Fraction) -> list[Fraction]:
  """R_t = sum over k >= t of gamma^(k-t) r_k, straight from the definition."""
  return [
    sum(
      (gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))),
      Fraction(0),
    )
    for t in range(len(rewards))
  ]


def _scores(group: Sequence[Rollout], signal: str) -> list[Fraction]:
  """One score per trajectory: 1/0, or the sum of its observed rewards."""
  return [sum(_step_rewards(rollout, signal)) for rollout in group]


# -- CRBC, §1 ----------------------------------------------------------------


def process(
  group: Sequence[Rollout], *, truncation: str = "failure"
) -> Process:
  """Occurrence counts, mu(a|s) and P(x|s,a) of §1.1.

  The last step of a success leads to SUCCESS and that of a failure to
  FAILURE.  A truncated one leads to FAILURE too, or under "bootstrap" to its
  final state when some step of the group starts there, else to UNKNOWN.
  """
  _check_group(group)
  _one_of("truncation", truncation, ("failure", "bootstrap"))
  interior = {
    anchor(group, i, t)
    for i, rollout in enumerate(group)
    for t in range(len(rollout.steps))
  }

  n_s: dict = {}
  n_sa: dict = {}
  n_sax: dict = {}
  reward_sum: dict = {}
  for i, rollout in enumerate(group):
    for t, step in enumerate(rollout.steps):
      s = anchor(group, i, t)
      if t + 1 < len(rollout.steps):
        x = anchor(group, i, t + 1)
      elif rollout.end == "success":
        x = SUCCESS
      elif rollout.end == "failure" or truncation == "failure":
        x = FAILURE
      elif rollout.final_state is not None and rollout.final_state in interior:
        x = rollout.final_state
      else:
        x = UNKNOWN
      sa = (s, step.action)
      n_s[s] = n_s.get(s, 0) + 1
      n_sa[sa] = n_sa.get(sa, 0) + 1
      n_sax[(*sa, x)] = n_sax.get((*sa, x), 0) + 1
      reward_sum[sa] = reward_sum.get(sa, Fraction(0)) + exact(step.reward)

  return Process(
    n_s,
    n_sa,
    n_sax,
    {(s, a): Fraction(n, n_s[s]) for (s, a), n in n_sa.items()},
    {(s, a, x): Fraction(n, n_sa[s, a]) for (s, a, x), n in n_sax.items()},
    {sa: total / n_sa[sa] for sa, total in reward_sum.items()},
  )


def _boundary(signal: str) -> dict:
  """Values of the absorbing states: V(z+) = 1 for outcomes only."""
  won = Fraction(1 if signal == "outcome" else 0)
  return {SUCCESS: won, FAILURE: Fraction(0), UNKNOWN: Fraction(0)}


def _backup_q(proc: Process, v: dict, beta: Fraction, signal: str) -> dict:
  """(B V)(s,a) of §1.2; observed rewards are added in front."""
  value = {**v, **_boundary(signal)}
  q = {
    sa: proc.reward[sa] if signal == "observed" else Fraction(0)
    for sa in proc.n_sa
  }
  for (s, a, x), p in proc.p.items():
    q[s, a] += beta * p * value[x]
  return q


def _average(proc: Process, q: dict) -> dict:
  """V(s) = sum over a of mu(a|s) Q(s,a)."""
  v = {s: Fraction(0) for s in proc.n_s}
  for (s, a), m in proc.mu.items():
    v[s] += m * q[s, a]
  return v


def _solve(matrix: list[list[Fraction]], rhs: list[Fraction]) -> list[Fraction]:
  """Gauss-Jordan elimination; exact, so any non-zero pivot will do."""
  n = len(rhs)
  rows = [[*matrix[i], rhs[i]] for i in range(n)]
  for col in range(n):
    pivot = next((r for r in range(col, n) if rows[r][col] != 0), None)
    if pivot is None:
      raise ValueError("singular system")
    rows[col], rows[pivot] = rows[pivot], rows[col]
    scale = rows[col][col]
    rows[col] = [x / scale for x in rows[col]]
    for r in range(n):
      factor = rows[r][col]
      if r != col and factor != 0:
        rows[r] = [
          x - factor * y for x, y in zip(rows[r], rows[col], strict=True)
        ]
  return [row[n] for row in rows]


def closure(
  group: Sequence[Rollout],
  *,
  beta,
  signal: str = "outcome",
  truncation: str = "failure",
) -> tuple[dict, dict]:
  """Solves (I - beta M) V = b, then Q = B V (§1.2).  Returns (V, Q).

  M(s,x) = sum_a mu(a|s) P(x|s,a).  For outcomes b(s) = beta M(s,z+); for
  observed rewards b(s) is the mean reward of the visits to s.
  """
  _one_of("signal", signal, ("outcome", "observed"))
  beta = _check_beta(beta, truncation)
  proc = process(group, truncation=truncation)
  states = list(proc.n_s)
  index = {s: k for k, s in enumerate(states)}

  system = [
    [Fraction(int(i == j)) for j in range(len(states))]
    for i in range(len(states))
  ]
  b = [Fraction(0)] * len(states)
  for (s, a, x), p in proc.p.items():
    flow = beta * proc.mu[s, a] * p
    if x in index:
      system[index[s]][index[x]] -= flow
    elif signal == "outcome" and x == SUCCESS:
      b[index[s]] += flow
  if signal == "observed":
    for (s, a), m in proc.mu.items():
      b[index[s]] += m * proc.reward[s, a]

  v = dict(zip(states, _solve(system, b), strict=True))
  return v, _backup_q(proc, v, beta, signal)


def finite_depth(
  group: Sequence[Rollout],
  depth: int,
  *,
  beta,
  signal: str = "outcome",
  truncation: str = "failure",
) -> tuple[dict, dict]:
  """V^K = T^K V^0 and Q^K = B V^(K-1), Q^0 the visit means (§1.2).

  Per-visit returns never bootstrap: beta^(T-t+1) R for outcomes (t from 1),
  the discounted sum of the remaining rewards for observed ones.
  """
  if depth < 0:
    raise ValueError("depth must not be negative")
  _one_of("signal", signal, ("outcome", "observed"))
  beta = _check_beta(beta, truncation)
  proc = process(group, truncation=truncation)

  at_state: dict = {}
  at_pair: dict = {}
  for i, rollout in enumerate(group):
    returns = _discounted(_step_rewards(rollout, signal), beta)
    for t, step in enumerate(rollout.steps):
      # An outcome is reached one step after the last action: one more beta.
      g = beta * returns[t] if signal == "outcome" else returns[t]
      s = anchor(group, i, t)
      at_state.setdefault(s, []).append(g)
      at_pair.setdefault((s, step.action), []).append(g)

  v = {s: _mean(returns) for s, returns in at_state.items()}
  q = {sa: _mean(returns) for sa, returns in at_pair.items()}
  for _ in range(depth):
    q = _backup_q(proc, v, beta, signal)
    v = _average(proc, q)
  return v, q


def crbc(
  group: Sequence[Rollout],
  *,
  beta,
  depth: int | None = None,
  sigma_min=0.1,
  w_group=1,
  w_step=5,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> dict[str, list[list]]:
  """A = w_G A^G + w_S A^S of §1.2; `depth` None is the linear solve.

  A^S = [>= 2 actions seen at s] (Q - V) / max(sigma, sigma_min), with sigma
  the mu-weighted population deviation.  Where sigma and sigma_min are both
  zero so is every Q - V, and A^S is 0.  A group without a |Q - V| of 1e-5 of
  its rewards (1 with outcomes, else the largest return) has A^S = 0.
  """
  _one_of("trajectory", trajectory, ("grpo", "rloo"))
  if depth is None:
    v, q = closure(group, beta=beta, signal=signal, truncation=truncation)
  else:
    v, q = finite_depth(
      group, depth, beta=beta, signal=signal, truncation=truncation
    )
  proc = process(group, truncation=truncation)

  actions: dict = {s: set() for s in proc.n_s}
  variance = {s: Fraction(0) for s in proc.n_s}
  for (s, a), m in proc.mu.items():
    actions[s].add(a)
    variance[s] += m * (q[s, a] - v[s]) ** 2

  scale = Fraction(1)
  if signal == "observed":
    returns = [
      _discounted(_step_rewards(r, signal), exact(beta)) for r in group
    ]
    scale = max(abs(x) for some in returns for x in some)
  largest = max(abs(q[s, a] - v[s]) for s, a in proc.n_sa)
  silent = largest < scale / 100_000

  sigma_min = exact(sigma_min)
  credit: dict = {}
  for s, a in proc.n_sa:
    gain = q[s, a] - v[s]
    if silent or len(actions[s]) < 2 or gain == 0:
      credit[s, a] = Fraction(0)
    elif variance[s] <= sigma_min**2:
      credit[s, a] = gain / sigma_min
    else:
      credit[s, a] = float(gain) / math.sqrt(variance[s])

  def pair(i, t):
    return anchor(group, i, t), group[i].steps[t].action

  whole = (grpo if trajectory == "grpo" else rloo)(group, signal=signal)
  step = _rows(group, lambda i, t: credit[pair(i, t)])
  w_group, w_step = exact(w_group), exact(w_step)
  return {
    "advantage": _rows(
      group, lambda i, t: w_group * whole[i][t] + w_step * step[i][t]
    ),
    "step": step,
    "trajectory": whole,
    "q": _rows(group, lambda i, t: q[pair(i, t)]),
    "v": _rows(group, lambda i, t: v[anchor(group, i, t)]),
    "live": _rows(group, lambda i, t: len(actions[anchor(group, i, t)]) >= 2),
  }


# -- trajectory baselines, §5 ------------------------------------------------


def grpo(
  group: Sequence[Rollout],
  *,
  signal: str = "outcome",
  singleton: str = "zero",
  eps: float = 1e-6,
) -> list[list]:
  """(R - mean) / (std + eps), ddof 1, each trajectory counted once (§5)."""
  _check_group(group)
  _one_of("singleton", singleton, ("zero", "raw"))
  scores = _scores(group, signal)
  return _rows(
    group,
    lambda i, t: _standardise(scores[i], scores, eps=eps, singleton=singleton),
  )


def rloo(
  group: Sequence[Rollout],
  *,
  signal: str = "outcome",
  singleton: str = "zero",
) -> list[list]:
  """n / (n - 1) (R - mean), each trajectory counted once (§5)."""
  _check_group(group)
  _one_of("singleton", singleton, ("zero", "raw"))
  scores = _scores(group, signal)
  n = len(scores)

  def advantage(i, t):
    if n == 1:
      return scores[i] if singleton == "raw" else Fraction(0)
    return Fraction(n, n - 1) * (scores[i] - _mean(scores))

  return _rows(group, advantage)


# -- GiGPO, §4 ---------------------------------------------------------------


def _episode_term(
  group: Sequence[Rollout],
  *,
  norm: str,
  statistics: str,
  success_reward,
  invalid_penalty,
  signal: str,
  eps: float,
  singleton: str,
) -> list[list]:
  """A^E of §4.1, item 3.

  A row's score is its episode reward, less the penalty if that very row is
  invalid.  "row" takes mean and std over all row scores; "trajectory" takes
  them over the unpenalised episode rewards, one per rollout.
  """
  _one_of("norm", norm, ("mean_std", "mean"))
  _one_of("statistics", statistics, ("row", "trajectory"))
  _one_of("singleton", singleton, ("raw", "zero"))
  penalty = exact(invalid_penalty)
  episode = [
    sum(_step_rewards(rollout, signal, success_reward)) for rollout in group
  ]
  score = _rows(
    group,
    lambda i, t: episode[i] - (0 if group[i].steps[t].valid else penalty),
  )
  if statistics == "row":
    pool = [x for row in score for x in row]
  else:
    pool = episode
  return _rows(
    group,
    lambda i, t: _standardise(
      score[i][t], pool, norm=norm, eps=eps, singleton=singleton
    ),
  )


def gigpo(
  group: Sequence[Rollout],
  *,
  gamma=Fraction(95, 100),
  norm: str = "mean_std",
  statistics: str = "row",
  success_reward=10,
  invalid_penalty=Fraction(1, 10),
  step_weight=1,
  signal: str = "outcome",
  eps: float = 1e-6,
  singleton: str = "raw",
) -> list[list]:
  """A = A^E + step_weight A^S of §4.1; `singleton` is about A^E only.

  A^S compares the discounted returns of the visits to one anchor.  Invalid
  steps lower their own step reward, hence also the returns before them.
  """
  _check_group(group)
  gamma, penalty = exact(gamma), exact(invalid_penalty)
  step_weight = exact(step_weight)

  returns = []
  for rollout in group:
    rewards = _step_rewards(rollout, signal, success_reward)
    for t, step in enumerate(rollout.steps):
      if not step.valid:
        rewards[t] -= penalty
    returns.append(_discounted(rewards, gamma))
  visits: dict = {}
  for i, rollout in enumerate(group):
    for t in range(len(rollout.steps)):
      visits.setdefault(anchor(group, i, t), []).append(returns[i][t])

  episode = _episode_term(
    group,
    norm=norm,
    statistics=statistics,
    success_reward=success_reward,
    invalid_penalty=penalty,
    signal=signal,
    eps=eps,
    singleton=singleton,
  )
  return _rows(
    group,
    lambda i, t: (
      episode[i][t]
      + step_weight
      * _standardise(
        returns[i][t], visits[anchor(group, i, t)], norm=norm, eps=eps
      )
    ),
  )


# -- GraphGPO, §3 ------------------------------------------------------------


def graph_targets(group: Sequence[Rollout]) -> list[list]:
  """Node entered by every step (§3.1).

  Successes enter SUCCESS; other rollouts their real final state, or a node of
  their own when it is unknown.
  """

  def target(i, t):
    rollout = group[i]
    if t + 1 < len(rollout.steps):
      return anchor(group, i, t + 1)
    if rollout.end == "success":
      return SUCCESS
    if rollout.final_state is None:
      return Unmerged(i, t + 1)
    return rollout.final_state

  return _rows(group, target)


def graph_distances(group: Sequence[Rollout]) -> dict:
  """Unit-cost distance to SUCCESS of every node (§3.1).

  Nodes that cannot reach it get one more than the largest finite distance,
  SUCCESS itself counting as 0: without any success that is 1 everywhere.
  """
  target = graph_targets(group)
  edges = {
    (anchor(group, i, t), target[i][t])
    for i, rollout in enumerate(group)
    for t in range(len(rollout.steps))
  }
  distance: dict = {SUCCESS: 0}
  frontier = [SUCCESS]
  while frontier:
    entered = []
    for source, node in edges:
      if node in frontier and source not in distance:
        distance[source] = distance[node] + 1
        entered.append(source)
    frontier = entered
  unreachable = max(distance.values()) + 1
  for edge in edges:
    for node in edge:
      distance.setdefault(node, unreachable)
  return distance


def graphgpo(
  group: Sequence[Rollout],
  *,
  omega,
  exponent: str = "code",
  success_reward=10,
  invalid_penalty=Fraction(1, 10),
  statistics: str = "row",
  eps: float = 1e-6,
  graph_weight=1,
  signal: str = "outcome",
  singleton: str = "raw",
) -> list[list]:
  """A = A^E + graph_weight A^G of §3.2, A^E as in GiGPO with mean and std.

  The edge s -> s' is worth success_reward omega^e, less the penalty if the
  step is invalid, with e = d(s') ("code"), d(s') + 1 ("paper") or
  d(s') - d(s) + 1 ("normalized").  `signal` matters to A^E only: the graph
  knows success from `end`.
  """
  _check_group(group)
  _one_of("exponent", exponent, ("code", "paper", "normalized"))
  omega, penalty = exact(omega), exact(invalid_penalty)
  graph_weight = exact(graph_weight)
  target = graph_targets(group)
  distance = graph_distances(group)

  def edge_value(i, t):
    power = distance[target[i][t]]
    if exponent == "paper":
      power += 1
    elif exponent == "normalized":
      power += 1 - distance[anchor(group, i, t)]
    value = exact(success_reward) * omega**power
    return value if group[i].steps[t].valid else value - penalty

  value = _rows(group, edge_value)
  leaving: dict = {}
  for i, rollout in enumerate(group):
    for t in range(len(rollout.steps)):
      leaving.setdefault(anchor(group, i, t), []).append(value[i][t])

  episode = _episode_term(
    group,
    norm="mean_std",
    statistics=statistics,
    success_reward=success_reward,
    invalid_penalty=penalty,
    signal=signal,
    eps=eps,
    singleton=singleton,
  )
  return _rows(
    group,
    lambda i, t: (
      episode[i][t]
      + graph_weight
      * _standardise(value[i][t], leaving[anchor(group, i, t)], eps=eps)
    ),
  )


# -- RTMC, §2 ----------------------------------------------------------------


def rtmc(
  group: Sequence[Rollout],
  *,
  gamma=Fraction(99, 100),
  n_prior=2,
  prior: str = "success_rate",
  visits: str = "first",
  signal: str = "outcome",
) -> list[list]:
  """A = Q(s,a) - V'(s) of §2.1, V' the mean over s shrunk to a prior.

  V'(s) = (N(s) V(s) + n_prior V_prior) / (N(s) + n_prior).  With "first" a
  rollout gives each (s,a) its return at the first occurrence only, and N
  counts those; with "every" all occurrences enter.  Every row gets the
  advantage of its (s,a), repeats included.
  """
  _check_group(group)
  _one_of("prior", prior, ("success_rate", "discounted"))
  _one_of("visits", visits, ("first", "every"))
  gamma, n_prior = exact(gamma), exact(n_prior)
  returns = [
    _discounted(_step_rewards(rollout, signal), gamma) for rollout in group
  ]
  if prior == "success_rate":
    v_prior = _mean(_scores(group, signal))
  else:
    v_prior = _mean([r[0] for r in returns])

  samples: dict = {}
  for i, rollout in enumerate(group):
    seen = set()
    for t, step in enumerate(rollout.steps):
      sa = (anchor(group, i, t), step.action)
      if visits == "every" or sa not in seen:
        samples.setdefault(sa, []).append(returns[i][t])
      seen.add(sa)

  q = {sa: _mean(values) for sa, values in samples.items()}
  count: dict = {}
  total: dict = {}
  for (s, a), values in samples.items():
    count[s] = count.get(s, 0) + len(values)
    total[s] = total.get(s, Fraction(0)) + len(values) * q[s, a]
  smoothed = {
    s: (total[s] + n_prior * v_prior) / (count[s] + n_prior) for s in count
  }

  def advantage(i, t):
    s = anchor(group, i, t)
    return q[s, group[i].steps[t].action] - smoothed[s]

  return _rows(group, advantage)


# -- groups to try things on -------------------------------------------------


def golden_group() -> list[Rollout]:
  """The four rollouts of the worked example in §10."""

  def rollout(path: str, end: str) -> Rollout:
    words = path.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return Rollout(tuple(Step(s, a) for s, a in pairs), end)

  return [
    rollout("s0 a s1 c", "success"),
    rollout("s0 a s1 d s2 e", "failure"),
    rollout("s0 b s2 f", "success"),
    rollout("s0 b s2 e s0 b s2 e", "failure"),
  ]


def random_group(
  rng: random.Random,
  *,
  max_rollouts: int = 8,
  max_steps: int = 12,
  max_states: int = 6,
  max_actions: int = 3,
  missing: float = 0.0,
) -> list[Rollout]:
  """A small, messy group; each call first draws what kind of mess.

  Kinds vary in how rollouts end, how long they are, whether the environment
  is a table or a free walk, how rewards look, and how often a step is
  invalid or a whole rollout repeats an earlier one.  `missing` is the chance
  that a step has no state at all.
  """
  states = [f"s{k}" for k in range(rng.randint(1, max_states))]
  actions = [f"a{k}" for k in range(rng.randint(1, max_actions))]
  n = 1 if rng.random() < 0.1 else rng.randint(1, max_rollouts)
  ends = rng.choice([ENDS, ENDS, ENDS, ENDS[:1], ENDS[1:2], ENDS[2:], ENDS[:2]])
  longest = 1 if rng.random() < 0.1 else rng.randint(1, max_steps)
  table = {(s, a): rng.choice(states) for s in states for a in actions}
  tidy = rng.random() < 0.5
  reward_kind = rng.choice(["none", "constant", "sparse", "fractional"])
  constant = Fraction(rng.randint(-5, 5), 10)
  invalid = rng.choice([0, 0, 0.1, 0.5])
  repeat = rng.choice([0, 0, 0.3])
  start = rng.choice(states)

  def reward() -> Fraction:
    if reward_kind == "none":
      return Fraction(0)
    if reward_kind == "constant":
      return constant
    if reward_kind == "sparse" and rng.random() < 0.7:
      return Fraction(0)
    return Fraction(rng.randint(-12, 12), rng.choice([1, 2, 3, 4, 5, 7, 10]))

  def final_state(visited: list) -> Hashable:
    return rng.choice(
      [
        None,
        "never-acted-from",
        f"edge{rng.randint(0, 1)}",
        rng.choice(states),
        rng.choice(visited),
      ]
    )

  group: list[Rollout] = []
  for _ in range(n):
    if group and rng.random() < repeat:
      group.append(rng.choice(group))
      continue
    state = start if rng.random() < 0.8 else rng.choice(states)
    visited, steps = [], []
    for _ in range(rng.randint(1, longest)):
      visited.append(state)
      bad = rng.random() < invalid
      action = rng.choice(actions)
      if bad and rng.random() < 0.5:
        action = "<invalid>"
      seen = None if rng.random() < missing else state
      steps.append(Step(seen, action, reward(), not bad))
      if bad and rng.random() < 0.7:
        pass  # the environment did not move
      elif tidy and action in actions:
        state = table[state, action]
      else:
        state = rng.choice(states)
    group.append(Rollout(tuple(steps), rng.choice(ends), final_state(visited)))
  return group
