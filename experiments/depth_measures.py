"""Step credit at every depth on one batch: its error, and its gap to closure.

Shared by the parts of `experiments.depth_ablation`. All depths see the same
rollouts in one jitted program.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.credit import closure
from crbc_jax.credit.estimators.crbc import crbc_depths
from crbc_jax.credit.process import build_process
from crbc_jax.types import GroupArrays
from experiments.credit_measures import metrics
from experiments.statistics import Interval, interval

DEPTHS = (0, 1, 2, 4, 8, 16, math.inf)
NAMES = tuple(f"{depth:g}" for depth in DEPTHS)
METRICS = ("corr", "sign", "rmse")


class AtDepths(NamedTuple):
  """Credit of one group at D depths, or of B groups with a leading [B]."""

  advantage: chex.Array  # [D, R]
  raw: chex.Array  # [D, R], Q - V
  live: chex.Array  # [R]
  gap: chex.Array  # [D], largest |A^inf - A^K| of a pair
  bound: chex.Array  # [D], what theory allows it to be


@functools.cache
def make_depths_fn(*, beta: float, w_step: float):
  """Returns jitted `at_depths(arrays) -> AtDepths` of B groups."""

  def on_group(group: GroupArrays) -> AtDepths:
    credit = crbc_depths(group, depths=DEPTHS, beta=beta, w_step=w_step)
    process = build_process(group, beta=beta)
    values = closure.values_at(process, beta=beta, depths=DEPTHS)
    distance = jnp.abs(values.gap - values.gap[-1:])
    seen = process.pair_count > 0
    return AtDepths(
      advantage=credit.advantage,
      raw=credit.q - credit.v,
      live=credit.live[-1],
      gap=jnp.max(jnp.where(seen[None], distance, 0.0), axis=1),
      bound=closure.depth_bound(process, beta=beta, depths=DEPTHS),
    )

  return jax.jit(jax.vmap(on_group))


def errors(
  raw: np.ndarray, exact: np.ndarray, live: np.ndarray
) -> list[dict[str, float]]:
  """`credit_measures.metrics` of each depth, on live rows.

  Args:
    raw: [D, ...] credit at each depth.
    exact: [...] the truth.
    live: [...] bool, the rows that count.
  """
  return [metrics(at[live], exact[live], same_unit=True) for at in raw]


def gaps(found: AtDepths) -> dict[str, list[float]]:
  """Gap to the closure, its bound, and the size of the credit.

  Means over groups whose credit is not 0, all in units of the group's largest
  closure credit: a gap of 1 is as large as that credit.
  """
  pairs = np.asarray(found.raw, np.float64)[:, -1]
  scale = np.abs(pairs).max(axis=1)
  some = scale > 1e-6
  share = 1.0 / scale[some, None]
  gap = (np.asarray(found.gap, np.float64)[some] * share).mean(axis=0)
  bound = (np.asarray(found.bound, np.float64)[some] * share).mean(axis=0)
  return {
    "gap": [float(x) for x in gap],
    "bound": [float(x) if np.isfinite(x) else None for x in bound],
  }


def mean_gaps(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """`gaps` of several batches; a bound that is infinite in one is None."""
  return {
    name: [
      None if None in column else round(float(np.mean(column)), 6)
      for column in zip(*(batch[name] for batch in batches), strict=True)
    ]
    for name in ("gap", "bound")
  }


def per_metric(
  batches: Sequence[Sequence[Mapping[str, float]]],
) -> dict[str, list[Interval]]:
  """{metric: interval at each depth} of measures [batch][depth]."""
  return {
    metric: [
      interval([batch[d][metric] for batch in batches])
      for d in range(len(DEPTHS))
    ]
    for metric in METRICS
  }


def pays_until(
  batches: Sequence[Sequence[Mapping[str, float]]], metric: str = "corr"
) -> str:
  """The depth from which on deeper is not clearly better, batches paired.

  The smallest depth with no deeper one whose mean lead has a 95 % interval
  above 0 and is larger than .005.
  """
  values = np.array([[at[metric] for at in batch] for batch in batches])
  for d in range(len(DEPTHS)):
    leads = [
      interval(values[:, e] - values[:, d]) for e in range(d, len(NAMES))
    ]
    if not any(lead.low > 0 and lead.mean > 0.005 for lead in leads):
      return NAMES[d]
  return NAMES[-1]


def by_row(batch: Any, values: np.ndarray) -> np.ndarray:
  """Per-row results [B, D, R] as [D, P, G, T], 0 where masked."""
  values = np.moveaxis(np.asarray(values), 1, 0)
  return np.stack([batch.to_steps(at) for at in values])
