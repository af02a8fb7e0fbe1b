"""The closure of weighted rollouts, in float64 and one row at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracle import anchor
from tests.oracles import closures
from tests.oracles.common import Group


class Weighted(NamedTuple):
  """Values of anchors and pairs that have weight, and their counts."""

  v: dict
  q: dict
  n_s: dict
  n_sa: dict


def closure(
  group: Group,
  weights,
  *,
  beta=0.98,
  signal: str = "outcome",
  truncation: str = "failure",
) -> Weighted:
  """N_w(s) V(s) = sum of w (gain + beta V(x)) over the rows at s."""
  targets = closures._targets(group, truncation)
  rows = [
    (
      float(weights[i]),
      anchor(group, i, t),
      step.action,
      targets[i][t],
      float(closures._gain(group, i, t, beta, signal)),
    )
    for i, rollout in enumerate(group)
    for t, step in enumerate(rollout.steps)
  ]
  n_s: dict = {}
  n_sa: dict = {}
  for w, s, a, _, _ in rows:
    if w > 0:
      n_s[s] = n_s.get(s, 0.0) + w
      n_sa[s, a] = n_sa.get((s, a), 0.0) + w
  number = {s: k for k, s in enumerate(n_s)}
  matrix, total = np.eye(len(n_s)), np.zeros(len(n_s))
  for w, s, _, x, gain in rows:
    if w > 0:
      total[number[s]] += w / n_s[s] * gain
      if x in number:
        matrix[number[s], number[x]] -= float(beta) * w / n_s[s]
  solved = np.linalg.solve(matrix, total)
  v = {s: solved[k] for s, k in number.items()}
  q: dict = {}
  for w, s, a, x, gain in rows:
    if w > 0:
      value = gain + float(beta) * v.get(x, 0.0)
      q[s, a] = q.get((s, a), 0.0) + w / n_sa[s, a] * value
  return Weighted(v, q, n_s, n_sa)


def rows_of(group: Group, found: Weighted) -> dict[str, list[float]]:
  """V, Q - V and whether the anchor has weight, of every step in order."""
  out: dict = {"v": [], "gap": [], "seen": []}
  for i, rollout in enumerate(group):
    for t, step in enumerate(rollout.steps):
      s = anchor(group, i, t)
      known = (s, step.action) in found.q
      out["v"].append(found.v.get(s, 0.0))
      out["gap"].append(found.q[s, step.action] - found.v[s] if known else 0.0)
      out["seen"].append(s in found.v)
  return out


def derivatives(group: Group, *, step=1e-5, **options) -> dict[str, np.ndarray]:
  """d/dw_i of V and Q - V of every row at weights 1: {name: [G, rows]}."""
  slopes: dict = {"v": [], "gap": []}
  for i in range(len(group)):
    ends = []
    for sign in (1, -1):
      weights = np.ones(len(group))
      weights[i] += sign * step
      ends.append(rows_of(group, closure(group, weights, **options)))
    for name, some in slopes.items():
      some.append(
        (np.array(ends[0][name]) - np.array(ends[1][name])) / (2 * step)
      )
  return {name: np.array(some) for name, some in slopes.items()}


def left_out(
  group: Group,
  *,
  beta=0.98,
  readout: str = "own",
  signal: str = "outcome",
  truncation: str = "failure",
) -> dict[str, list[float]]:
  """Each row by the closure of the group without its rollout."""
  shared = {"beta": beta, "signal": signal, "truncation": truncation}
  targets = closures._targets(group, truncation)
  out: dict = {"v": [], "gap": [], "seen": []}
  for i, rollout in enumerate(group):
    weights = np.ones(len(group))
    weights[i] = 0.0
    others = closure(group, weights, **shared)
    for t, first in enumerate(rollout.steps):
      s = anchor(group, i, t)
      seen = s in others.v
      q, factor = 0.0, 1.0
      for later in range(t, len(rollout.steps)):
        q += factor * float(closures._gain(group, i, later, beta, signal))
        factor *= float(beta)
        if targets[i][later] in others.v:
          q += factor * others.v[targets[i][later]]
          break
      if readout == "others":
        q = others.q.get((s, first.action), q)
      out["seen"].append(seen)
      out["v"].append(others.v[s] if seen else 0.0)
      out["gap"].append(q - others.v[s] if seen else 0.0)
  return out
