"""Groups that break careless solvers, and what their values really are.

The reference works in count space and in long double, by the subtraction-free
elimination of Grassmann, Taksar and Heyman (Operations Research 33, 1985): it
shares no code with the kernels and reads tables, not padded arrays.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

WON, LOST, CUT = Boundary.SUCCESS, Boundary.FAILURE, Boundary.TRUNCATED

BETAS = (1.0, 0.98, 0.95)


# -- tables ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rollouts:
  """One group: states of all steps one after the other, and its rollouts."""

  state: np.ndarray  # [S] int
  length: np.ndarray  # [G] int, steps of each rollout
  end: np.ndarray  # [G] int, a `Boundary`


def table_of(groups: Sequence[Rollouts], *, actions: int = 3) -> StepTable:
  """Groups as one table; group ids 0, 1, ... and random actions (seeded).

  Nothing follows the last step of a rollout (key -1 is acted from nowhere).
  """
  rng = np.random.default_rng(len(groups))
  steps = [len(g.state) for g in groups]
  length = np.concatenate([g.length for g in groups])
  traj = np.repeat(np.arange(len(length)), length)
  first = np.cumsum(length) - length
  last = first + length - 1
  state = np.concatenate([g.state for g in groups]).astype(np.int64)
  boundary = np.zeros(len(state), np.int8)
  boundary[last] = np.concatenate([g.end for g in groups])
  following = np.append(state[1:], -1)
  following[last] = -1
  return StepTable.from_columns(
    group_id=np.repeat(np.arange(len(groups)), steps),
    traj_id=traj,
    step_idx=np.arange(len(state)) - first[traj],
    state_key=state,
    action_key=rng.integers(actions, size=len(state)),
    next_state_key=following,
    boundary=boundary,
  )


def _rollouts(paths: Sequence, ends: Sequence[int]) -> Rollouts:
  return Rollouts(
    state=np.concatenate([np.atleast_1d(p) for p in paths]),
    length=np.array([np.size(p) for p in paths]),
    end=np.array(ends),
  )


def _euler_rollouts(
  edges: Sequence[tuple[int, int, int]],
  exits: Sequence[tuple[int, int, int]],
  *,
  seed: int = 0,
) -> Rollouts:
  """Rollouts that take every transition exactly as often as asked.

  Args:
    edges: (state, next state, times).
    exits: (state, `Boundary`, times).
    seed: of the order in which a state uses its transitions.

  A rollout starts wherever more transitions leave than enter.
  """
  source = np.repeat([e[0] for e in edges], [e[2] for e in edges])
  target = np.repeat([e[1] for e in edges], [e[2] for e in edges])
  last = np.repeat([e[0] for e in exits], [e[2] for e in exits])
  kind = np.repeat([e[1] for e in exits], [e[2] for e in exits])
  outside = int(max(source.max(initial=0), last.max())) + 1
  left = np.bincount(source, minlength=outside) + np.bincount(
    last, minlength=outside
  )
  missing = left - np.bincount(target, minlength=outside)
  assert (missing >= 0).all(), "more transitions enter a state than leave it"
  starts = np.repeat(np.arange(outside), missing)
  assert len(starts) == len(last)

  tail = np.concatenate([source, last, np.full(len(starts), outside)])
  head = np.concatenate([target, np.full(len(last), outside), starts])
  order = np.random.default_rng(seed).permutation(len(tail))
  unused: list[list[int]] = [[] for _ in range(outside + 1)]
  for edge in order.tolist():
    unused[tail[edge]].append(edge)
  # Hierholzer's circuit from outside and back, as edges in reverse.
  heads, stack, circuit = head.tolist(), [(outside, -1)], []
  while stack:
    node, edge = stack[-1]
    if unused[node]:
      following = unused[node].pop()
      stack.append((heads[following], following))
    else:
      stack.pop()
      circuit.append(edge)
  walk = np.array(circuit[-2::-1])
  assert len(walk) == len(tail), "the transitions are not connected"
  inside = walk[tail[walk] != outside]
  ended = np.flatnonzero(head[inside] == outside)
  return Rollouts(
    state=tail[inside],
    length=np.diff(ended, prepend=-1),
    end=kind[inside[ended] - len(source)],
  )


# -- the groups --------------------------------------------------------------


def single_state() -> Rollouts:
  """One state, left at once: three successes, two failures, one time-out."""
  return _rollouts([0] * 6, [WON, WON, LOST, WON, LOST, CUT])


def _random_walks(end: int) -> Rollouts:
  rng = np.random.default_rng(end)
  return Rollouts(
    state=rng.integers(5, size=8 * 50),
    length=np.full(8, 50),
    end=np.full(8, end),
  )


def all_fail() -> Rollouts:
  """Random walks that all fail: every value is exactly 0."""
  return _random_walks(LOST)


def all_success_loops() -> Rollouts:
  """Random walks that all succeed: at beta 1 every value is exactly 1."""
  return _random_walks(WON)


def self_loop(loops: int, wins: int, losses: int) -> Rollouts:
  """A start, then one state that repeats `loops` times over all rollouts."""
  exits = wins + losses
  assert loops % exits == 0
  path = np.append(0, np.ones(loops // exits + 1, int))
  return _rollouts([path] * exits, [WON] * wins + [LOST] * losses)


def ping_pong(times: int) -> Rollouts:
  """A <-> B, left from A by success and from B by failure, once each.

  Both states are chains (one live successor), so the chain is a cycle.
  """
  return _euler_rollouts(
    [(0, 1, times), (1, 0, times)], [(0, WON, 1), (1, LOST, 1)]
  )


def two_cliques(size: int, times: int) -> Rollouts:
  """Two cliques, every inner edge `times` times, crossed once each way."""
  inner = [
    (base + i, base + j, times)
    for base in (0, size)
    for i in range(size)
    for j in range(size)
    if i != j
  ]
  return _euler_rollouts(
    [*inner, (0, size, 1), (size, 0, 1)],
    [(1, WON, 1), (size + 1, LOST, 1), (2, LOST, 1)],
  )


def ring(size: int, rounds: int) -> Rollouts:
  """A cycle without a branching state, left at two places for good."""
  edges = [(i, (i + 1) % size, rounds) for i in range(size)]
  return _euler_rollouts(edges, [(size // 3, WON, 1), (size - 1, LOST, 2)])


def ruin(goal: int, *, up: int = 1, down: int = 1, times: int = 1) -> Rollouts:
  """Gambler's ruin on 1 .. goal - 1 with exact odds up : down.

  V(i) = (1 - (down/up)^i) / (1 - (down/up)^goal) at beta 1, i / goal if fair.
  """
  up, down, top = up * times, down * times, goal - 2  # states count from 0
  edges = [(i, i + 1, up) for i in range(top)]
  edges += [(i + 1, i, down) for i in range(top)]
  return _euler_rollouts(edges, [(top, WON, up), (0, LOST, down)])


def decades(length: int) -> Rollouts:
  """A ladder on which 9 of 10 fall off at each rung: V = 10^-rungs left.

  Each rung also repeats itself as often as it is passed.
  """
  up = np.repeat(np.arange(length), 2)
  falls = [np.full(2, i) for i in range(length) for _ in range(9)]
  return _rollouts([up, *falls], [WON] + [LOST] * len(falls))


NAMED: dict[str, Callable[[], Rollouts]] = {
  "single state": single_state,
  "all fail": all_fail,
  "all-success loops": all_success_loops,
  "self-loop x500": functools.partial(self_loop, 500, 1, 1),
  "self-loop x20,000, rare success": functools.partial(
    self_loop, 20_000, 1, 19
  ),
  "ping-pong x5,000": functools.partial(ping_pong, 5_000),
  "two 20-cliques": functools.partial(two_cliques, 20, 26),
  "ring of 500": functools.partial(ring, 500, 3),
  "fair ruin, 60": functools.partial(ruin, 60),
  "fair ruin, 200": functools.partial(ruin, 200),
  "biased ruin": functools.partial(ruin, 30, up=2, down=3),
  "V spanning decades": functools.partial(decades, 14),
}
"""The suite of the numerics notes."""

EXTRA: dict[str, Callable[[], Rollouts]] = {
  # Pointer doubling maps each state of a cycle of length 2^k to itself.
  "ring of 512": functools.partial(ring, 512, 3),
  "ring of 4": functools.partial(ring, 4, 700),
  "ruin with many visits": functools.partial(ruin, 40, up=3, down=4, times=20),
  "decades down to 1e-30": functools.partial(decades, 30),
}

BATCHES: dict[str, tuple[str, ...]] = {
  "few states": (
    "single state",
    "all fail",
    "all-success loops",
    "self-loop x500",
    "self-loop x20,000, rare success",
    "ping-pong x5,000",
    "two 20-cliques",
    "ring of 4",
    "ruin with many visits",
  ),
  "many states": (
    "ring of 500",
    "ring of 512",
    "fair ruin, 60",
    "fair ruin, 200",
    "biased ruin",
    "V spanning decades",
    "decades down to 1e-30",
  ),
}
"""All named groups in two shapes, so that each discount compiles twice."""


@functools.cache
def batch_table(name: str) -> StepTable:
  """The table of one of `BATCHES`; group i is its i-th group."""
  makers = NAMED | EXTRA
  return table_of([makers[group]() for group in BATCHES[name]])


@functools.cache
def random_table(count: int = 1_000, seed: int = 0) -> StepTable:
  """Random groups of 1 to 8 rollouts, 1 to 20 steps, 1 to 10 states.

  A third of them repeat a state nine times out of ten.
  """
  rng = np.random.default_rng(seed)
  groups = []
  for number in range(count):
    length = rng.integers(1, 21, size=rng.integers(1, 9))
    states = rng.integers(1, 11)
    state = rng.integers(states, size=length.sum())
    if number % 3 == 0:
      changes = rng.random(len(state)) < 0.1
      changes[0] = True
      state = state[changes][np.cumsum(changes) - 1]
    end = rng.choice([WON, LOST, CUT], size=len(length))
    groups.append(Rollouts(state, length, end))
  return table_of(groups)


# -- the reference -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Counts:
  """What one group observed, as whole numbers."""

  go: np.ndarray  # [N, N] int64, transitions between states
  win: np.ndarray  # [N] int64, steps that succeeded
  lose: np.ndarray  # [N] int64, steps that failed or were cut


def exact_beta(beta: float) -> Fraction:
  """The discount a float32 kernel really uses."""
  return Fraction(float(np.float32(beta)))


def group_rows(table: StepTable) -> list[slice]:
  """Rows of each group of a table in (group, rollout, step) order."""
  edges = np.flatnonzero(np.diff(table.group_id, prepend=-1, append=-1))
  return [slice(a, b) for a, b in itertools.pairwise(edges.tolist())]


def count_group(
  table: StepTable, rows: slice
) -> tuple[Counts, np.ndarray, np.ndarray, np.ndarray]:
  """Counts of one group, and (state, next, pair) of its rows; N = absorbed."""
  keys, state = np.unique(table.state_key[rows], return_inverse=True)
  boundary, count = table.boundary[rows], len(keys)
  following = np.where(boundary == 0, np.append(state[1:], 0), count)
  go = np.zeros((count, count + 1), np.int64)
  np.add.at(go, (state, following), 1)
  win = np.bincount(state[boundary == WON], minlength=count)
  action = np.unique(table.action_key[rows], return_inverse=True)[1]
  pair = np.unique(state * (action.max() + 1) + action, return_inverse=True)[1]
  counts = Counts(go=go[:, :-1], win=win, lose=go[:, -1] - win)
  return counts, state, following, pair


def reference_values(counts: Counts, beta: float) -> np.ndarray:
  """V [N] in long double, each to a few units in the last place.

    D V = sum_{s' != s} beta n(s,s') V(s') + beta n(s,success)
    D   = sum_{s' != s} beta n(s,s') + leak,
    leak = (1 - beta) N_interior(s) + n(s,success) + n(s,failure)

  Only sums and products of numbers >= 0: nothing cancels (GTH).
  """
  b = np.longdouble(float(exact_beta(beta)))
  size = len(counts.win)
  k = b * counts.go.astype(np.longdouble)
  leak = (1 - b) * counts.go.sum(axis=1).astype(np.longdouble)
  leak = leak + counts.win + counts.lose
  c = b * counts.win.astype(np.longdouble)
  for i in range(size):
    pivot = k[i, i + 1 :].sum() + leak[i]
    k[i, i + 1 :] /= pivot
    leak[i] /= pivot
    c[i] /= pivot
    weight = k[i + 1 :, i].copy()
    k[i + 1 :, i + 1 :] += weight[:, None] * k[i, i + 1 :]
    leak[i + 1 :] += weight * leak[i]
    c[i + 1 :] += weight * c[i]
  v = np.zeros(size, np.longdouble)
  for i in reversed(range(size)):
    v[i] = c[i] + k[i, i + 1 :] @ v[i + 1 :]
  return v


def fraction_values(counts: Counts, beta: float) -> list[Fraction]:
  """V [N] in exact arithmetic, by ordinary elimination; for few states."""
  b, size = exact_beta(beta), len(counts.win)
  go, win = counts.go.tolist(), counts.win.tolist()
  total = (counts.go.sum(axis=1) + counts.win + counts.lose).tolist()
  rows = [
    [Fraction(total[i] * (i == j)) - b * go[i][j] for j in range(size)]
    + [b * win[i]]
    for i in range(size)
  ]
  for i in range(size):
    pivot = rows[i][i]  # > 0: diagonal dominance survives elimination
    rows[i] = [x / pivot for x in rows[i]]
    for j in range(size):
      factor = rows[j][i]
      if j != i and factor:
        rows[j] = [
          x - factor * y if y else x
          for x, y in zip(rows[j], rows[i], strict=True)
        ]
  return [row[-1] for row in rows]


@dataclasses.dataclass(frozen=True)
class Reference:
  """The truth per row of a table, in its order, in long double."""

  v: np.ndarray  # [S] value of the row's state
  gap: np.ndarray  # [S] Q - V of the row's (state, action): raw credit


@functools.cache
def reference(table: StepTable, beta: float) -> Reference:
  """Values and raw credit of every row of a table, group by group.

  gap(s,a) = mean over its rows of [payoff + beta V(s') - V(s)]
  """
  b = np.longdouble(float(exact_beta(beta)))
  v = np.zeros(len(table), np.longdouble)
  gap = np.zeros(len(table), np.longdouble)
  for rows in group_rows(table):
    counts, state, following, pair = count_group(table, rows)
    values = reference_values(counts, beta)
    # Success is worth 1, so its payoff is beta times that.
    after = np.append(values, np.longdouble(0))[following]
    after = np.where(table.boundary[rows] == WON, np.longdouble(1), after)
    total = np.zeros(pair.max() + 1, np.longdouble)
    np.add.at(total, pair, b * after - values[state])
    v[rows] = values[state]
    gap[rows] = (total / np.bincount(pair))[pair]
  return Reference(v=v, gap=gap)
