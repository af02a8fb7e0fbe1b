"""MICA: numbers worked by hand, and what it does not look at."""

import numpy as np
import pytest

from crbc_jax.credit.estimators.mica import mica
from tests import groups as groups_lib
from tests import kernels
from tests.groups import rollout

ROOT = 0.5**0.5


def two(first=(1, 2), second=(0, 1, 3), ends=("success", "failure"), **options):
  """Credit of two rollouts with these rewards; no state is seen twice."""
  group = [rollout("p a " * len(first), ends[0])]
  group.append(rollout("q a " * len(second), ends[1]))
  table = groups_lib.table_of([group], reward=[*first, *second])
  return kernels.credit(mica, table, **options)


# Rewards 1 2 0 1 3: mean 1.4, variance (ddof 1) 1.3.
REWARD_SCORES = np.array([-0.4, 0.6, -1.4, -0.4, 1.6]) / 1.3**0.5


def test_hand_worked():
  got = two()
  # Returns 3 2 and 4 4 3: each pair of turns differs, the third is alone.
  by_turn = np.array([-ROOT, -ROOT, ROOT, ROOT, 0])
  np.testing.assert_allclose(
    got["advantage"], 0.5 * by_turn + 0.5 * REWARD_SCORES, atol=2e-6
  )
  np.testing.assert_allclose(
    got["advantage"],
    [-0.528965, -0.090436, -0.260387, 0.178142, 0.701647],
    atol=2e-6,
  )
  np.testing.assert_array_equal(got["step"], got["advantage"])
  assert not got["trajectory"].any()
  np.testing.assert_allclose(got["q"], [3, 2, 4, 4, 3])
  np.testing.assert_allclose(got["v"], [3.5, 3, 3.5, 3, 3])
  assert got["live"].all()


def test_discount_weights_and_norm():
  got = two(gamma=0.5, w_return=2.0, w_reward=3.0, norm="mean")
  # Returns 2 2 and 1.25 2.5 3.
  np.testing.assert_allclose(
    got["advantage"],
    2 * np.array([0.375, -0.25, -0.375, 0.25, 0])
    + 3 * np.array([-0.4, 0.6, -1.4, -0.4, 1.6]),
    atol=2e-6,
  )
  only = two(w_return=0.0, w_reward=1.0)["advantage"]
  np.testing.assert_allclose(only, REWARD_SCORES, atol=2e-6)


def test_eps_is_added_to_both_deviations():
  got = two(eps=1.0)["advantage"]
  by_turn = np.array([-0.5 / (ROOT + 1), -1 / (2 * ROOT + 1)])
  reward = np.array([-0.4, 0.6, -1.4, -0.4, 1.6]) / (1.3**0.5 + 1)
  np.testing.assert_allclose(
    got, 0.5 * np.array([*by_turn, *-by_turn, 0]) + 0.5 * reward, atol=2e-6
  )


def test_states_and_outcomes_do_not_matter():
  want = two()["advantage"]
  for ends in (("failure", "failure"), ("truncated", "success")):
    np.testing.assert_array_equal(two(ends=ends)["advantage"], want)
  group = [
    rollout("s a s b", "success"),
    groups_lib.Rollout(
      tuple(groups_lib.Step(None, "x", valid=False) for _ in range(3)),
      "failure",
    ),
  ]
  table = groups_lib.table_of([group], reward=[1, 2, 0, 1, 3])
  np.testing.assert_array_equal(kernels.credit(mica, table)["advantage"], want)


def test_degenerate_groups():
  groups = [
    [rollout("s a", "success")],  # one row
    [rollout("s a t a", "success")],  # one rollout: its own rewards only
    [rollout("s a t a", "failure"), rollout("s b", "failure")],  # all 0
    [rollout("s a", "success"), rollout("s b", "success")],  # one step each
  ]
  table = groups_lib.table_of(groups, reward=[5, 1, 3, 0, 0, 0, 1, 2])
  got = kernels.credit(mica, table)
  np.testing.assert_allclose(
    got["advantage"],
    [0, -ROOT / 2, ROOT / 2, 0, 0, 0, -ROOT, ROOT],
    atol=2e-6,
  )
  assert not got["advantage"][[0, 3, 4, 5]].any()
  np.testing.assert_array_equal(got["live"], [0, 1, 1, 1, 1, 1, 1, 1])


def test_equal_rewards_that_round_give_exactly_zero():
  group = [rollout("s a t a u a", "failure")] * 7
  table = groups_lib.table_of([group], reward=[0.1] * 21)
  for gamma in (1.0, 0.9):
    assert not kernels.credit(mica, table, gamma=gamma)["advantage"].any()


CASES = [{}, {"gamma": 0.9, "norm": "mean"}]


@pytest.mark.parametrize("options", CASES)
def test_padding_does_not_matter(options):
  kernels.check_padding(mica, kernels.mixed_batch(), **options)


@pytest.mark.parametrize("options", CASES)
def test_gradients_by_reward(options):
  kernels.check_gradients(mica, kernels.mixed_batch(), **options)


def test_memory_is_linear_in_the_rows():
  kernels.check_linear_memory(mica)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"gamma": 0.0}, r"gamma must be in \(0, 1\], got 0"),
    ({"gamma": 1.5}, r"gamma must be in \(0, 1\]"),
    ({"norm": "max"}, "norm must be one of"),
  ],
)
def test_options_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    two(**options)
