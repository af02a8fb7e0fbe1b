"""Aggregates over settings and seeds, by rliable (arXiv 2108.13264).

Scores are [runs, tasks]: one row for each seed, one column for each setting,
each a final success or an area under a curve, never the best checkpoint.
Intervals are 95 % stratified bootstrap intervals: seeds are drawn anew within
each setting. With few seeds they are narrow for what they claim; the number
of seeds stands beside them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.statistics import Interval

RESAMPLES = 2_000
FEWER = 500  # of what rliable takes a millisecond a setting for
Scores = Mapping[str, np.ndarray]
"""Label -> [runs, tasks]."""


def iqm(scores: Scores) -> dict[str, Interval]:
  """Interquartile mean of each label: the mean of the middle half."""
  library, metrics = _rliable()
  with _seeded():
    found = library.get_interval_estimates(
      dict(scores),
      lambda x: np.array([metrics.aggregate_iqm(x)]),
      reps=RESAMPLES,
    )
  return _intervals(*found)


def improvement(scores: Scores, ours: str) -> dict[str, Interval]:
  """Probability that `ours` is ahead of each other label.

  Of a random run against a random run on a random setting; ties count half.
  """
  library, metrics = _rliable()
  pairs = {
    label: (scores[ours], other)
    for label, other in scores.items()
    if label != ours
  }
  with _seeded():
    found = library.get_interval_estimates(
      pairs, metrics.probability_of_improvement, reps=FEWER
    )
  return _intervals(*found)


def profiles(
  scores: Scores, levels: Sequence[float]
) -> dict[str, list[Interval]]:
  """Share of runs above each level: the performance profile of a label."""
  library, _ = _rliable()
  with _seeded():
    shares, intervals = library.create_performance_profile(
      dict(scores), np.asarray(levels), reps=FEWER
    )
  return {
    label: [
      Interval(*(round(float(x), 4) for x in at))
      for at in zip(share, *intervals[label], strict=True)
    ]
    for label, share in shares.items()
  }


def _intervals(points, intervals) -> dict[str, Interval]:
  found = {}
  for label, point in points.items():
    low, high = np.ravel(intervals[label])
    values = (float(np.ravel(point)[0]), float(low), float(high))
    found[label] = Interval(*(round(x, 4) for x in values))
  return found


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
  """The same intervals each time: rliable draws from NumPy's global state."""
  before = np.random.get_state()  # noqa: NPY002
  np.random.seed(0)  # noqa: NPY002
  try:
    yield
  finally:
    np.random.set_state(before)  # noqa: NPY002


def _rliable():
  try:
    from rliable import library, metrics
  except ImportError as error:
    raise ImportError(
      "these statistics need rliable: pip install 'crbc_jax[statistics]'"
    ) from error
  return library, metrics
