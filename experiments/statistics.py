"""Numbers of learning curves over seeds, with bootstrap intervals."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

from crbc_jax.learner import records

RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Curve:
  """Held-out success of one run."""

  env_steps: np.ndarray  # [E] int, 0 first
  success: np.ndarray  # [E] in [0, 1]

  @classmethod
  def read(cls, run_dir: pathlib.Path, metric: str) -> "Curve":
    """The curve of `metric`, e.g. "success_sampled", of a run folder."""
    rows = records.read_metrics(run_dir, "eval")
    return cls(
      np.array([r["env_steps"] for r in rows]),
      np.array([r[metric] for r in rows]),
    )

  def at(self, env_steps: float) -> float:
    """Success after `env_steps`, linear between evaluations."""
    return float(np.interp(env_steps, self.env_steps, self.success))

  def area(self, budget: float) -> float:
    """Mean height of the curve over [0, budget]."""
    inside = self.env_steps < budget
    x = np.append(self.env_steps[inside], budget)
    y = np.append(self.success[inside], self.at(budget))
    return float(np.trapezoid(y, x) / budget)

  def steps_to(self, success: float) -> float:
    """First env step at which the curve reaches `success`; inf if never."""
    above = np.flatnonzero(self.success >= success)
    if not len(above):
      return np.inf
    i = above[0]
    if i == 0:
      return float(self.env_steps[0])
    return float(
      np.interp(
        success, self.success[i - 1 : i + 1], self.env_steps[i - 1 : i + 1]
      )
    )


def credit_share(run_dir: pathlib.Path) -> tuple[float, float]:
  """Share of step credit in the training time of a run.

  Training time is rollout, credit and update, evaluation and files left out.

  Returns:
    (median over updates, share of the whole run with its compilations).
  """
  rows = records.read_metrics(run_dir, "train")
  parts = np.array(
    [[r[f"seconds_{p}"] for p in ("credit", "rollout", "update")] for r in rows]
  )
  whole = parts.sum(axis=0)
  return (
    float(np.median(parts[:, 0] / parts.sum(axis=1))),
    float(whole[0] / whole.sum()),
  )


class Interval(NamedTuple):
  """A mean with its 95 % bootstrap interval; a list in JSON."""

  mean: float
  low: float
  high: float

  def __str__(self) -> str:
    if self.low == self.high:  # one value, or equal ones
      return f"{self.mean:.3f}"
    return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interval(values: Sequence[float] | np.ndarray) -> Interval:
  """Mean and 95 % percentile bootstrap interval (fixed seed), to 4 digits.

  With few values of one sign such an interval cannot reach 0: also report how
  many there are.
  """
  values = np.asarray(values, float)
  low = high = values.mean()
  if np.ptp(values) > 0:
    found = scipy.stats.bootstrap(
      (values,),
      np.mean,
      n_resamples=RESAMPLES,
      method="percentile",
      rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = found.low, found.high
  return Interval(*(round(float(x), 4) for x in (values.mean(), low, high)))
