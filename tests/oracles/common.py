"""What the oracles of the newer estimators share: pools, targets, sums.

Same conventions as tests/oracle.py, whose data types these oracles take: rows
are lists over rollouts of lists over steps, numbers are `Fraction`s until a
square root or a logarithm forces a float, and a float option is the decimal
it prints as.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

from tests import oracle
from tests.oracle import FAILURE, SUCCESS, Rollout, anchor, exact

Group = Sequence[Rollout]
Number = Fraction | float
Rows = list[list]

rows = oracle._rows
one_of = oracle._one_of
mean = oracle._mean
discounted = oracle._discounted
step_rewards = oracle._step_rewards
scores = oracle._scores
episode_term = oracle._episode_term
solve = oracle._solve


def successor(group: Group, i: int, t: int) -> Hashable:
  """Where step (i, t) led, truncation counting as failure."""
  if t + 1 < len(group[i].steps):
    return anchor(group, i, t + 1)
  return SUCCESS if group[i].end == "success" else FAILURE


def is_last(group: Group, i: int, t: int) -> bool:
  return t + 1 == len(group[i].steps)


def pools(
  group: Group,
  values: Rows,
  key: Callable[[int, int], Hashable],
  counted: Callable[[int, int], bool] = lambda i, t: True,
) -> dict:
  """Key -> the values of its rows."""
  out: dict = {}
  for i, rollout in enumerate(group):
    for t in range(len(rollout.steps)):
      if counted(i, t):
        out.setdefault(key(i, t), []).append(values[i][t])
  return out


def score(
  value: Number,
  pool: Sequence[Number],
  *,
  norm: str = "mean_std",
  eps=1e-6,
  ddof: int = 1,
) -> Number:
  """(value - mean) / (std + eps); exactly 0 without spread or company."""
  one_of("norm", norm, ("mean_std", "mean"))
  if len(pool) == 1 or min(pool) == max(pool):
    return Fraction(0)
  centre = sum(pool) / len(pool)
  if norm == "mean":
    return value - centre
  variance = sum((x - centre) ** 2 for x in pool) / (len(pool) - ddof)
  return float(value - centre) / (math.sqrt(variance) + float(eps))


def score_rows(
  group: Group,
  values: Rows,
  key: Callable[[int, int], Hashable],
  *,
  norm: str,
  eps,
  ddof: int = 1,
) -> Rows:
  """Every row's score against the rows of the same key."""
  pool = pools(group, values, key)
  return rows(
    group,
    lambda i, t: score(
      values[i][t], pool[key(i, t)], norm=norm, eps=eps, ddof=ddof
    ),
  )


def at_anchor(group: Group) -> Callable[[int, int], Hashable]:
  """The key that compares rows of one source state."""
  return lambda i, t: anchor(group, i, t)


def everywhere(i: int, t: int) -> Hashable:
  """The key that compares all rows of the group."""
  return "all rows"


def means(pool: dict) -> dict:
  return {key: mean(values) for key, values in pool.items()}


def penalised_returns(
  group: Group, *, gamma, success_reward, invalid_penalty, signal: str
) -> Rows:
  """Discounted rewards to go, an invalid step's reward less the penalty."""
  out = []
  for rollout in group:
    rewards = list(step_rewards(rollout, signal, success_reward))
    for t, step in enumerate(rollout.steps):
      if not step.valid:
        rewards[t] -= exact(invalid_penalty)
    out.append(discounted(rewards, exact(gamma)))
  return out


def combined(
  group: Group, trajectory: Rows, step: Rows, *, w_group, w_step, **fields
) -> dict[str, Rows]:
  """advantage = w_group * trajectory + w_step * step, and the fields given."""
  w_group, w_step = exact(w_group), exact(w_step)
  return {
    "advantage": rows(
      group, lambda i, t: w_group * trajectory[i][t] + w_step * step[i][t]
    ),
    "trajectory": trajectory,
    "step": step,
    **fields,
  }
