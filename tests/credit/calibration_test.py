"""Root calibration: by hand, at beta = 1, and its interval."""

import math

import numpy as np
import pytest

from crbc_jax.credit.calibration import root_calibration
from tests import groups
from tests.groups import rollout

# Some walked from s to the door by way of the key, some without: merged, one
# in two seems to pass the door.
SHORTCUT = [
  rollout("s a k a s b d a", "success"),
  rollout("s b d a", "failure"),
]


def calibration(source, *, beta, depth=math.inf):
  batch = groups.make_batch(groups.table_of(source))
  v = groups.credit_fn("crbc", beta=beta, depth=depth)(batch.arrays).v
  return root_calibration(batch.arrays, v, beta=beta)


def test_by_hand():
  beta = 0.5
  # V(s) = beta (1/3 V(k) + 2/3 V(d)), V(k) = beta V(s), V(d) = beta / 2.
  v = beta * (2 / 3) * (beta / 2) / (1 - beta**2 / 3)
  found = calibration([SHORTCUT], beta=beta)
  np.testing.assert_allclose(found.ratio, 2 * v / beta**4, rtol=1e-5)
  assert (found.low, found.high) == (-math.inf, math.inf)  # of one group
  assert not found.alarms


def test_the_interval_is_a_jackknife():
  # A group without a choice earns what it promises; five groups of each.
  plain = [rollout("s a", "success"), rollout("s a", "success")]
  source = [SHORTCUT, plain] * 5
  found = calibration(source, beta=0.9)
  one = calibration([SHORTCUT, plain], beta=0.9)
  np.testing.assert_allclose(found.ratio, one.ratio, rtol=1e-5)
  without = [
    calibration(source[:i] + source[i + 1 :], beta=0.9).ratio for i in range(10)
  ]
  spread = math.sqrt(9 * np.var(without))
  np.testing.assert_allclose(found.high - found.low, 3.92 * spread, rtol=1e-3)
  assert calibration([SHORTCUT] * 5, beta=0.5).alarms  # no spread at all


def test_at_beta_1_the_promise_is_kept():
  found = calibration([SHORTCUT] * 3, beta=1.0)
  np.testing.assert_allclose(found.ratio, 1.0, rtol=1e-5)
  assert not found.alarms


def test_visit_averages_promise_what_was_earned():
  other = [rollout("s a t b", "success"), rollout("s b t a t a", "success")]
  found = calibration([SHORTCUT[1:] + other] * 2, beta=0.9, depth=0)
  np.testing.assert_allclose(found.ratio, 1.0, rtol=1e-5)


def test_without_success_there_is_nothing_to_compare():
  found = calibration([[rollout("s a", "failure")] * 2] * 2, beta=0.9)
  assert math.isnan(found.ratio) and not found.alarms


def test_padding_does_not_count():
  batch = groups.make_batch(groups.table_of([SHORTCUT, SHORTCUT, SHORTCUT]))
  v = np.asarray(groups.credit_fn("crbc", beta=0.5)(batch.arrays).v)
  expected = root_calibration(batch.arrays, v, beta=0.5)
  assert batch.shape.groups == 4  # one of them is padding
  wild = np.where(batch.arrays.mask, v, np.nan)
  assert root_calibration(batch.arrays, wild, beta=0.5) == expected


def test_beta_is_checked():
  batch = groups.make_batch(groups.table_of([SHORTCUT]))
  with pytest.raises(ValueError, match="beta"):
    root_calibration(batch.arrays, batch.arrays.reward, beta=1.5)
