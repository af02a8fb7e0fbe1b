"""Measures step credit against exact advantages; see `credit_accuracy`."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from crbc_jax.credit import combine, registry
from crbc_jax.credit.estimators.crbc import crbc_depths
from crbc_jax.learner import branching, collect, task, training_step, truth
from crbc_jax.learner.accuracy import widest_shape
from crbc_jax.types import Boundary, GroupArrays
from experiments.statistics import interval

BETA = 0.98
DEPTHS = (0, 1, 2, 4, 8, 16, math.inf)
DEPTH_NAMES = tuple(f"crbc {depth:g}" for depth in DEPTHS)
EXACT = DEPTH_NAMES[-1]
# Each with its own defaults; ".98" has the discount of the truth instead.
OTHERS = {
  "graphgpo": "graphgpo(omega=0.8)",
  "graphgpo paper": "graphgpo(omega=0.8, exponent='paper')",
  "graphgpo .98": "graphgpo(omega=0.98)",
  "gigpo": "gigpo(norm='mean_std')",
  "gigpo mean": "gigpo(norm='mean')",
  "gigpo .98": "gigpo(gamma=0.98)",
  "rtmc": "rtmc",
  "rtmc .98": "rtmc(gamma=0.98)",
  "grpo": "grpo",
  "rloo": "rloo",
  "dr_grpo": "dr_grpo",
  "reinforce_pp": "reinforce_pp",
  "anchored": "crbc_anchored",
  "lambda": "crbc_lambda",
  "by state": "crbc(readout='state')",
  "graft .98": "graft(beta=0.98)",
  "graphhca": "graphhca",
  "rewardflow": "rewardflow",
  "g2po": "g2po",
  "gagpo": "gagpo",
  "hgpo": "hgpo",
  "salt": "salt",
  "mica": "mica",
}
# These play rollouts of their own from the states of the rollouts.
BRANCHES = {"vineppo": "vineppo(samples=4)", "elpo": "elpo"}
NAMES = (*DEPTH_NAMES, *OTHERS, *BRANCHES)
WITHOUT_VALUES = ("grpo", "rloo", "dr_grpo", "reinforce_pp", "salt", *BRANCHES)
IN_UNITS_OF_TRUTH = (
  *DEPTH_NAMES,
  "rtmc",
  "rtmc .98",
  "anchored",
  "lambda",
  "by state",
  "graft .98",
  "vineppo",
)
KINDS = ("raw", "advantage")
ROWS = ("live", "all")

SMALL = 1e-3  # truth below this has no sign to get right
ZERO = 1e-5  # credit below this share of the largest is rounding

Samples = dict[tuple[str, str, str, str], np.ndarray]
"""(estimator, kind, rows, metric) -> one value for each batch."""


CreditFn = Callable[[GroupArrays], tuple[dict[str, dict[str, Any]], Any]]


def make_credit_fn() -> CreditFn:
  """Returns jitted `credit(arrays) -> ({name: {kind: [B, R]}}, live [B, R])`.

  All estimators in one program; `live` is CRBC's.
  """
  others = {}
  for name, text in OTHERS.items():
    estimator, options = registry.parse_estimator(text)
    others[name] = registry.make_estimator(estimator, **options)

  def on_group(group):
    depths = crbc_depths(group, depths=DEPTHS, beta=BETA)
    found = {
      name: jax.tree.map(lambda x, i=i: x[i], depths)
      for i, name in enumerate(DEPTH_NAMES)
    }
    found |= {name: estimator(group) for name, estimator in others.items()}
    credit = {
      name: {
        "raw": x.advantage if name in WITHOUT_VALUES else x.q - x.v,
        "advantage": x.advantage,
      }
      for name, x in found.items()
    }
    return credit, found[EXACT].live

  return jax.jit(jax.vmap(on_group, axis_name=combine.BATCH_AXIS))


def make_measure_fn(
  current: task.Task,
  credit_fn: CreditFn,
  *,
  levels: int = 64,
  group_size: int = 8,
):
  """Returns `measure(params, *, seed, batches) -> (Samples, facts)`.

  Batch b has the same levels and the same random keys at every stage.
  """
  env, train_set = current.env, current.train
  collect_fn = collect.make_collect_fn(
    env, current.logits_fn, group_size=group_size
  )
  true_values_fn = truth.make_true_values_fn(env, current.logits_fn, beta=BETA)
  branches = {}
  for name, text in BRANCHES.items():
    method, options = registry.parse_estimator(text)
    branches[name] = branching.make_branch_fn(
      method, env, current.logits_fn, **options
    )

  def one_batch(params, drawn, key):
    rollouts = collect_fn(params, drawn.as_levels(), key)
    mask = np.asarray(rollouts.mask)
    exact = true_values_fn(params, drawn, rollouts).advantage[mask]
    credit, live = credit_steps(rollouts, credit_fn, actions=env.num_actions)
    extra = {}
    for i, (name, branch) in enumerate(branches.items()):
      own_key = jax.random.fold_in(key, 1 + i)
      grown, cost = branch(params, drawn.as_levels(), rollouts, own_key)
      credit[name] = dict.fromkeys(KINDS, np.asarray(grown.advantage))
      extra[f"extra_steps_{name}"] = int(cost)
    live = live[mask]
    chosen = {"live": live, "all": np.ones_like(live)}
    values = {
      (name, kind, rows, metric): value
      for name, kinds in credit.items()
      for kind, steps in kinds.items()
      for rows in ROWS
      for metric, value in metrics(
        steps[mask][chosen[rows]],
        exact[chosen[rows]],
        same_unit=kind == "raw" and name in IN_UNITS_OF_TRUTH,
      ).items()
    }
    won = (np.asarray(rollouts.boundary) == Boundary.SUCCESS).any(axis=2)
    facts = {
      "success": won.mean(),
      "groups_without_success": (~won.any(axis=1)).mean(),
      "rows": mask.sum(),
      "live_share": live.mean(),
      "truth_rms": np.sqrt((exact[live] ** 2).mean()),
      **extra,
    }
    return values, facts

  def measure(params, *, seed, batches):
    found = []
    for b in range(batches):
      drawn = task.levels_at(
        b * levels, levels, num_levels=len(train_set), seed=seed + 1
      )
      key = jax.random.fold_in(jax.random.key(seed), b)
      found.append(one_batch(params, train_set.take(drawn), key))
    values, facts = zip(*found, strict=True)
    return (
      {k: np.array([batch[k] for batch in values]) for k in values[0]},
      {k: round(float(np.mean([f[k] for f in facts])), 4) for k in facts[0]},
    )

  return measure


def credit_steps(
  rollouts: collect.Rollouts, credit_fn: CreditFn, *, actions: int
):
  """What `credit_fn` returns, as [P, G, T] arrays with 0 where masked."""
  shape = widest_shape(rollouts.mask.shape)
  batch = training_step.batch_rollouts(rollouts, actions=actions, shape=shape)
  return jax.tree.map(batch.to_steps, jax.device_get(credit_fn(batch.arrays)))


def metrics(
  credit: np.ndarray, exact: np.ndarray, *, same_unit: bool
) -> dict[str, float]:
  """The metrics of the module's docstring, of rows [n]."""
  credit = credit.astype(np.float64)
  size, norm = (math.sqrt((x**2).mean()) for x in (exact, credit))
  cosine = (credit * exact).mean() / (norm * size) if norm > 0 else 0.0
  varies = credit.std() > 0
  clear = np.abs(exact) > SMALL
  signed = clear & (np.abs(credit) > ZERO * np.abs(credit).max())
  right = np.sign(credit) == np.sign(exact)
  found = {
    "corr": np.corrcoef(credit, exact)[0, 1] if varies else 0.0,
    "sign": right[signed].mean() if signed.any() else math.nan,
    "signed": signed.sum() / clear.sum(),
    "error": math.sqrt(max(0.0, 1 - cosine**2)),
    "cosine": cosine,
  }
  if same_unit:
    found["rmse"] = math.sqrt(((credit - exact) ** 2).mean()) / size
  return found


def summarise(samples: Samples) -> dict[str, Any]:
  """Intervals of every metric and of differences, which are paired by batch.

  Returns:
    "estimators": {name: {kind: {rows: {metric: interval}}}};
    "deeper": {kind: {rows: {"crbc 1 - crbc 0": interval, ...}}}, of corr;
    "exact_minus": {kind: {rows: {name: {corr and sign: interval}}}}.
  """

  def gap(deep, shallow, *rest):
    values = samples[deep, *rest] - samples[shallow, *rest]
    return interval(values)

  estimators: dict[str, Any] = {}
  for (name, kind, rows, metric), values in samples.items():
    kinds = estimators.setdefault(name, {})
    part = kinds.setdefault(kind, {}).setdefault(rows, {})
    part[metric] = interval(values)
  return {
    "estimators": estimators,
    "deeper": {
      kind: {
        rows: {
          f"{b} - {a}": gap(b, a, kind, rows, "corr")
          for a, b in itertools.pairwise(DEPTH_NAMES)
        }
        for rows in ROWS
      }
      for kind in KINDS
    },
    "exact_minus": {
      kind: {
        rows: {
          name: {m: gap(EXACT, name, kind, rows, m) for m in ("corr", "sign")}
          for name in NAMES
          if name != EXACT
        }
        for rows in ROWS
      }
      for kind in KINDS
    },
  }
