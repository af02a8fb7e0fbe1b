"""Pairs against pairs: the statistic and its variance by permutation."""

import itertools

import numpy as np
import pytest

from crbc_jax.credit import likeness


def oracle(sets, met):
  """T of members with these sets and responses, by its definition."""
  size, total = len(met), 0.0
  for i, j in itertools.permutations(range(size), 2):
    both, either = len(sets[i] & sets[j]), len(sets[i] | sets[j])
    agreed = sum(met[i] == met[k] for k in range(size) if k != i)
    alike = (size - 1) * (met[i] == met[j]) - agreed
    total += (both + 1) / (either + 1) * alike
  return total


def words(sets):
  """[2, members], a bit for each of 128 numbers."""
  return np.array(
    [
      [sum(1 << (x - 64 * w) for x in s if x // 64 == w) for s in sets]
      for w in range(2)
    ],
    np.uint64,
  )


def drawn(seed, size):
  rng = np.random.default_rng(seed)
  sets = [
    set(rng.choice(128, rng.integers(0, 9)).tolist()) for _ in range(size)
  ]
  return sets, rng.integers(0, 3, size)


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_mean_and_variance_are_those_of_all_permutations(size):
  sets, met = drawn(size, size)
  met[:2] = 0, 1
  every = [
    oracle(sets, met[list(p)]) for p in itertools.permutations(range(size))
  ]
  rows = np.arange(size)[None]
  total, variance, _ = likeness.contrast(rows, met, words(sets))[:, 0]
  np.testing.assert_allclose(total, oracle(sets, met))
  np.testing.assert_allclose(np.mean(every), 0.0, atol=1e-9)
  np.testing.assert_allclose(variance, np.var(every))


def test_many_strata_in_pieces_are_those_one_by_one(monkeypatch):
  sets, met = drawn(0, 200)
  stratum = np.repeat(np.arange(30), 7)[:200]
  rows = likeness.first_visits(stratum, np.arange(200), met, np.ones(200, bool))
  expected = likeness.contrast(rows, met, words(sets))
  monkeypatch.setattr(likeness, "_CELLS", 100)
  np.testing.assert_array_equal(
    likeness.contrast(rows, met, words(sets)), expected
  )
  for row, total in zip(rows, expected[0], strict=True):
    own = row[row >= 0]
    want = oracle([sets[i] for i in own], met[own])
    np.testing.assert_allclose(total, want, atol=1e-9)


def test_equal_histories_compare_nothing():
  found = likeness.contrast(
    np.arange(4)[None], np.array([0, 1, 0, 1]), words([{1, 2}] * 4)
  )
  np.testing.assert_array_equal(found, 0.0)


def test_first_visits():
  stratum = np.array([7, 7, 5, 7, 5, 7, 5])
  traj = np.array([0, 0, 0, 1, 1, 2, 2])
  met = np.array([1, 2, 3, 2, 3, 2, 3])  # all the same at 5
  usable = np.ones(7, bool)
  found = likeness.first_visits(stratum, traj, met, usable)
  np.testing.assert_array_equal(found, [[0, 3, 5]])
  usable[0] = False  # the second visit takes its place, and all agree
  assert not likeness.first_visits(stratum, traj, met, usable).size
  usable[:] = [1, 1, 1, 1, 1, 0, 1]  # two are too few
  assert not likeness.first_visits(stratum, traj, met, usable).size
  assert not likeness.first_visits(stratum, traj, met, usable & False).size


def test_large_strata_are_cut():
  size = 3 * likeness.LARGEST
  met = np.arange(size) % 2
  rows = likeness.first_visits(
    np.zeros(size, int), np.arange(size), met, np.ones(size, bool)
  )
  np.testing.assert_array_equal(rows, [np.arange(likeness.LARGEST)])
