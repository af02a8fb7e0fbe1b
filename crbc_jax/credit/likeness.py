"""Do members of a stratum that are alike meet the same? Pairs against pairs.

A Mantel test: a matrix of likeness against one of agreement, with the exact
mean and variance over permutations. Float64 NumPy on the host.
"""

import numpy as np

LARGEST = 64
"""Members of a stratum that are compared: the first so many."""

_CELLS = 1 << 20  # pairs held at once
_ROUNDING = 1e-9


def first_visits(stratum, traj, response, usable) -> np.ndarray:
  """Rows of the first visit of each rollout to a stratum: [S, G], -1 padding.

  Strata of fewer than three rollouts, or of one response, can't tell. Smaller
  strata come first.
  """
  row = np.flatnonzero(usable)
  _, first = np.unique(
    stratum[row] * (int(traj.max(initial=0)) + 1) + traj[row],
    return_index=True,  # the earliest: rows are sorted by time
  )
  row = row[first]
  if not len(row):
    return np.zeros((0, 0), int)
  start = np.flatnonzero(np.diff(stratum[row], prepend=-1))
  size = np.minimum(np.diff(np.append(start, len(row))), LARGEST)
  low = np.minimum.reduceat(response[row], start)
  high = np.maximum.reduceat(response[row], start)
  tells = (size >= 3) & (low < high)
  order = np.argsort(size[tells], kind="stable")
  start, size = start[tells][order], size[tells][order]
  if not len(start):
    return np.zeros((0, 0), int)
  column = np.arange(size.max())
  inside = column < size[:, None]
  return np.where(
    inside, row[np.minimum(start[:, None] + column, len(row) - 1)], -1
  )


def contrast(rows, response, passed) -> np.ndarray:
  """T of each stratum, its variance, its weight sum_ij (n - 1) K_ij; [3, S].

  All 0 where the histories are equally alike: nothing was compared.
  """
  pieces = 1 + len(rows) * rows.shape[1] ** 2 // _CELLS
  found = [
    _contrast_of(some[:, (some >= 0).any(axis=0)], response, passed)
    for some in np.array_split(rows, pieces)
    if len(some)
  ]
  return np.concatenate(found, axis=1)


def _contrast_of(rows, response, passed) -> np.ndarray:
  there = rows >= 0
  pairs = there[:, :, None] & there[:, None, :]
  pairs &= ~np.eye(rows.shape[1], dtype=bool)
  met = response[rows]
  alike = pairs & (met[:, :, None] == met[:, None, :])
  size = there.sum(axis=1).astype(float)
  likeness = np.where(pairs, _jaccard(passed[:, rows]), 0.0)
  own = likeness.sum(axis=2)
  contrast = (size - 1)[:, None, None] * likeness
  contrast -= (own[:, :, None] + own[:, None, :]) / 2
  contrast = np.where(pairs, contrast, 0.0)
  total = (contrast * alike).sum(axis=(1, 2))
  weight = (size - 1) * own.sum(axis=1)
  # Equally alike histories compare nothing, but for rounding.
  flat = np.abs(contrast).max(axis=(1, 2)) <= _ROUNDING * size
  variance = _permuted_variance(contrast, alike.astype(float), size)
  return np.where(flat, 0.0, (total, variance, weight))


def _permuted_variance(b, a, n) -> np.ndarray:
  """Variance of sum_ij B_ij A_ij if the rows of A are permuted; [S].

  Mantel's, for symmetric matrices with zero diagonals where sum B = 0: pairs
  of pairs share two, one or no index.
  """

  def sums(x):
    square, marginal = (x**2).sum(axis=(1, 2)), x.sum(axis=2)
    return square, (marginal**2).sum(axis=1), marginal.sum(axis=1) ** 2

  (b2, b3, b1), (a2, a3, a1) = sums(b), sums(a)
  two, three = n * (n - 1), n * (n - 1) * (n - 2)
  four = np.maximum(three * (n - 3), 1)  # no such pairs where n = 3
  variance = (
    2 * b2 * a2 / two
    + 4 * (b3 - b2) * (a3 - a2) / three
    + (b1 + 2 * b2 - 4 * b3) * (a1 + 2 * a2 - 4 * a3) / four
  )
  return np.maximum(variance, 0.0)  # rounding


def _jaccard(sets: np.ndarray) -> np.ndarray:
  """(|both| + 1) / (|either| + 1) of sets [words, S, G]; [S, G, G]."""
  left, right = sets[:, :, :, None], sets[:, :, None, :]
  both = np.bitwise_count(left & right).sum(axis=0, dtype=float)
  either = np.bitwise_count(left | right).sum(axis=0, dtype=float)
  return (both + 1) / (either + 1)
