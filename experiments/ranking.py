"""Areas under the ROC curve, with bootstrap intervals over clusters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.statistics import RESAMPLES, Interval

_DIGITS = 5  # scores that agree so far tie: the rest is rounding


class Pairs(NamedTuple):
  """Pairs of a positive of one cluster and a negative of another.

  The area over any choice of clusters is a ratio of sums of these, so that a
  bootstrap over clusters never ranks anything again.
  """

  ahead: np.ndarray  # [C, C] pairs with the positive ahead; a tie is half
  count: np.ndarray  # [C, C] all of them


def count_pairs(
  score: np.ndarray, positive: np.ndarray, cluster: np.ndarray, clusters: int
) -> Pairs:
  """Compares every positive with every negative.

  Args:
    score: [S].
    positive: [S] bool.
    cluster: [S] int, in [0, clusters).
    clusters: C.
  """
  score = np.round(np.asarray(score, float), _DIGITS)
  of_positive, high = cluster[positive], score[positive]
  ahead = np.zeros((clusters, clusters))
  for other in range(clusters):
    low = np.sort(score[~positive & (cluster == other)])
    passed = np.searchsorted(low, high, "left")
    passed = (passed + np.searchsorted(low, high, "right")) / 2
    ahead[:, other] = np.bincount(of_positive, passed, clusters)
  positives = np.bincount(of_positive, minlength=clusters)
  negatives = np.bincount(cluster[~positive], minlength=clusters)
  return Pairs(ahead, np.outer(positives, negatives))


def areas(pairs: Pairs, weight: np.ndarray) -> np.ndarray:
  """Area under the ROC curve [...] of clusters taken `weight` [..., C] times.

  nan where there is no pair to compare.
  """
  ahead, count = (((weight @ p) * weight).sum(axis=-1) for p in pairs)
  nothing = np.full(count.shape, np.nan)
  return np.divide(ahead, count, out=nothing, where=count > 0)


def area_samples(regroupings: Sequence[Pairs]) -> np.ndarray:
  """The area as it is, then of each bootstrap sample; [1 + RESAMPLES].

  Mean over regroupings of the same clusters. The samples are the same for
  equal numbers of clusters, so differences of two results are paired.
  """
  clusters = len(regroupings[0].count)
  drawn = np.random.default_rng(0).multinomial(
    clusters, np.full(clusters, 1 / clusters), size=RESAMPLES
  )
  weight = np.vstack([np.ones(clusters), drawn])
  return np.mean([areas(pairs, weight) for pairs in regroupings], axis=0)


def summary(samples: np.ndarray) -> Interval:
  """A number and its 95 % percentile interval, from `area_samples`."""
  low, high = np.nanpercentile(samples[1:], (2.5, 97.5))
  return Interval(*(round(float(x), 4) for x in (samples[0], low, high)))
