"""Step credit in plain Python, as trainers do it: strings in, lists out."""

import collections
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from crbc_jax.types import Boundary

BETA = 0.98
OMEGA = 0.95  # of the shortest-path estimator


def _standard(values: list[float]) -> tuple[float, float]:
  """Mean and 1 / (standard deviation + eps), 0 where there is one value."""
  mean = sum(values) / len(values)
  if len(values) < 2:
    return mean, 0.0
  spread = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1))
  return mean, 1 / (spread + 1e-6)


def _trajectories(columns: dict[str, list]) -> list[tuple[int, int]]:
  """First row and one past the last of each rollout; rows are in order."""
  rollout = columns["traj_id"]
  starts = [
    i for i in range(len(rollout)) if not i or rollout[i] != rollout[i - 1]
  ]
  return list(zip(starts, [*starts[1:], len(rollout)], strict=True))


def _episode_terms(
  columns: dict[str, list], spans: list[tuple[int, int]]
) -> list[float]:
  """GRPO's advantage of each rollout."""
  group, boundary = columns["group_id"], columns["boundary"]
  scores: dict[Any, list[float]] = {}
  for start, stop in spans:
    won = float(boundary[stop - 1] == Boundary.SUCCESS)
    scores.setdefault(group[start], []).append(won)
  standard = {g: _standard(x) for g, x in scores.items()}
  terms = []
  for start, stop in spans:
    mean, scale = standard[group[start]]
    won = float(boundary[stop - 1] == Boundary.SUCCESS)
    terms.append((won - mean) * scale)
  return terms


def python_gigpo(columns: dict[str, list], gamma: float = 0.95) -> list[float]:
  """GiGPO in plain Python with dicts: linear in the rows.

  The discounted return of each step against the others at its anchor, plus
  the rollout's outcome against its group.
  """
  group, state = columns["group_id"], columns["state_key"]
  spans = _trajectories(columns)
  terms = _episode_terms(columns, spans)
  advantage = [0.0] * len(state)
  returns = [0.0] * len(state)
  anchors: dict[Any, list[int]] = collections.defaultdict(list)
  for (start, stop), term in zip(spans, terms, strict=True):
    value = float(columns["boundary"][stop - 1] == Boundary.SUCCESS)
    home = group[start]
    for i in range(stop - 1, start - 1, -1):
      returns[i] = value
      advantage[i] = term
      value *= gamma
      anchors[home, state[i]].append(i)
  for rows in anchors.values():
    if len(rows) > 1:
      mean, scale = _standard([returns[i] for i in rows])
      for i in rows:
        advantage[i] += (returns[i] - mean) * scale
  return advantage


def python_closure(
  columns: dict[str, list],
  beta: float = BETA,
  *,
  tolerance: float = 1e-6,
  solve: Callable[..., list[float]] | None = None,
  sigma_min: float = 0.1,
  w_step: float = 5.0,
) -> list[float]:
  """CRBC in plain Python: dicts and Gauss-Seidel sweeps until they settle."""
  group, state = columns["group_id"], columns["state_key"]
  action, boundary = columns["action_key"], columns["boundary"]
  spans = _trajectories(columns)
  terms = _episode_terms(columns, spans)
  number: dict[Any, int] = {}
  anchor = [
    number.setdefault(key, len(number))
    for key in zip(group, state, strict=True)
  ]
  count = [0] * len(number)
  wins = [0] * len(number)
  successors: list[dict[int, int]] = [{} for _ in number]
  for i, here in enumerate(anchor):
    count[here] += 1
    if boundary[i] == Boundary.SUCCESS:
      wins[here] += 1
    elif boundary[i] == Boundary.NONE:
      nexts = successors[here]
      nexts[anchor[i + 1]] = nexts.get(anchor[i + 1], 0) + 1
  v = (solve or _gauss_seidel)(count, wins, successors, beta, tolerance)

  pairs: dict[Any, list[float]] = collections.defaultdict(list)
  for i, here in enumerate(anchor):
    after = 0.0
    if boundary[i] == Boundary.SUCCESS:
      after = 1.0
    elif boundary[i] == Boundary.NONE:
      after = v[anchor[i + 1]]
    pairs[here, action[i]].append(beta * after)
  gaps = {key: statistics.fmean(x) - v[key[0]] for key, x in pairs.items()}
  variance = [0.0] * len(number)
  actions = [0] * len(number)
  for key, targets in pairs.items():
    variance[key[0]] += len(targets) / count[key[0]] * gaps[key] ** 2
    actions[key[0]] += 1
  advantage = []
  for (start, stop), term in zip(spans, terms, strict=True):
    for i in range(start, stop):
      here = anchor[i]
      if actions[here] < 2:
        advantage.append(term)
        continue
      sigma = max(math.sqrt(variance[here]), sigma_min)
      advantage.append(term + w_step * gaps[here, action[i]] / sigma)
  return advantage


def _gauss_seidel(count, wins, successors, beta, tolerance) -> list[float]:
  """V by sweeps from the last state seen to the first, in place."""
  v = [0.0] * len(count)
  rows = [
    (i, wins[i], count[i] / beta - successors[i].pop(i, 0), successors[i])
    for i in reversed(range(len(count)))
  ]
  rows = [(i, win, scale, list(x.items())) for i, win, scale, x in rows]
  change = 1.0
  while change > tolerance:
    change = 0.0
    for i, win, scale, following in rows:
      value = (win + sum(n * v[j] for j, n in following)) / scale
      change = max(change, abs(value - v[i]))
      v[i] = value
  return v


def python_shortest_path(columns: dict[str, list]) -> list[float]:
  """GraphGPO in plain Python: a step is worth what it gains on the goal.

  Breadth-first search from success over the merged graph of each group; the
  score omega^(distance of the successor) against the others at the anchor.
  """
  group, state = columns["group_id"], columns["state_key"]
  boundary = columns["boundary"]
  spans = _trajectories(columns)
  terms = _episode_terms(columns, spans)
  goal = ("goal",)
  before: dict[Any, set] = collections.defaultdict(set)
  following: list[Any] = []
  anchors: dict[Any, list[int]] = collections.defaultdict(list)
  for i, (home, here) in enumerate(zip(group, state, strict=True)):
    node = (home, here)
    anchors[node].append(i)
    after: Any = None
    if boundary[i] == Boundary.SUCCESS:
      after = goal
    elif boundary[i] == Boundary.NONE:
      after = (home, state[i + 1])
    following.append(after)
    if after is not None:
      before[after].add(node)
  distance = {goal: 0}
  queue = collections.deque([goal])
  while queue:
    node = queue.popleft()
    for source in before.get(node, ()):
      if source not in distance:
        distance[source] = distance[node] + 1
        queue.append(source)
  score = [
    OMEGA ** distance[after] if after in distance else 0.0
    for after in following
  ]
  advantage = [0.0] * len(state)
  for (start, stop), term in zip(spans, terms, strict=True):
    for i in range(start, stop):
      advantage[i] = term
  for rows in anchors.values():
    if len(rows) > 1:
      mean, scale = _standard([score[i] for i in rows])
      for i in rows:
        advantage[i] += (score[i] - mean) * scale
  return advantage


def scipy_closure(columns: dict[str, list]) -> list[float]:
  """CRBC with dictionaries and one sparse solve of all groups."""
  return python_closure(columns, solve=_sparse_solve)


def _sparse_solve(count, wins, successors, beta, tolerance) -> list[float]:
  """V by SciPy's sparse LU."""
  del tolerance
  rows = [i for i, following in enumerate(successors) for _ in following]
  columns = [j for following in successors for j in following]
  numbers = [n for following in successors for n in following.values()]
  visits = np.array(count, float)
  moves = scipy.sparse.csc_array(
    (np.array(numbers, float) / visits[rows], (rows, columns)),
    shape=(len(count), len(count)),
  )
  matrix = scipy.sparse.eye_array(len(count), format="csc") - beta * moves
  gain = beta * np.array(wins) / visits
  return scipy.sparse.linalg.spsolve(matrix, gain).tolist()
