"""RewardFlow by hand: golden gains, invalid rows, degenerate groups."""

import functools

import numpy as np
import pytest

from crbc_jax.credit.estimators.rewardflow import rewardflow
from tests import groups as groups_lib
from tests.credit.estimators import kernel_runs
from tests.groups import rollout
from tests.oracle import Rollout, Step

credit = functools.partial(kernel_runs.credit, rewardflow)


def test_golden():
  got = credit(groups_lib.golden())
  v = {"s0": 0.81, "s1": 0.9, "s2": 0.9}
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  np.testing.assert_allclose(got["v"], [v[s] for s in states], atol=1e-6)
  # s0: all rows gain .9 - .81: exactly 0. s1: 1 (last step) and .9 - .9.
  # s2: 1, .81 - .9 = -.09, twice 0: mean .2275, deviation .516745.
  f, loop, dead = 1.494936, -0.614423, -0.440256
  step = [0, 0.707106, 0, -0.707106, dead, 0, f, 0, loop, 0, dead]
  np.testing.assert_allclose(got["step"], step, atol=3e-6)
  assert not got["step"][[0, 2, 5, 7, 9]].any() and got["live"].all()
  term = np.repeat([0.866024, -0.866024, 0.866024, -0.866024], [2, 3, 2, 4])
  np.testing.assert_allclose(got["advantage"], term + step, atol=4e-6)


def test_observed_rewards_on_last_steps():
  # V(s) = .81 by a m; the observed rewards of m's rows are .5 and -.25, and
  # the reward 9 before the end counts in the trajectory term alone.
  group = [
    Rollout((Step("s", "a", 9.0), Step("m", "c", 0.5)), "success"),
    Rollout((Step("m", "d", -0.25),), "failure"),
    Rollout((Step("s", "b", 0.25),), "truncated", "m"),
  ]
  got = credit(
    group, signal="observed", norm="mean", trajectory="rloo", w_step=2.0
  )
  # s: .9 - .81 = .09 and .25, mean .17.
  np.testing.assert_allclose(
    got["step"], [-0.08, 0.375, -0.375, 0.08], atol=1e-6
  )
  # Sums 9.5, -.25, .25 with mean 19/6; times 3/2.
  np.testing.assert_allclose(
    got["trajectory"], [9.5, 9.5, -5.125, -4.375], atol=1e-5
  )
  np.testing.assert_allclose(
    got["advantage"], got["trajectory"] + 2 * got["step"], atol=1e-5
  )


def test_invalid_rows_are_no_edges_and_enter_no_statistics():
  def invalid(path, end):
    only = rollout(path, end)
    return only._replace(
      steps=tuple(s._replace(valid=False) for s in only.steps)
    )

  group = [
    invalid("s x", "success"),  # would be the short way
    rollout("s a m b", "success"),
    rollout("s c", "failure"),
    invalid("s x s x", "truncated"),
    rollout("k a", "failure"),
    invalid("k x", "success"),
  ]
  got = credit(group, norm="mean", trajectory="none")
  # V(s) = .81, not .9: a gains .9 - .81 = .09, c ends with 0, mean .045.
  # k cannot reach success on a valid row.
  np.testing.assert_allclose(
    got["v"], [0.81, 0.81, 0.9, 0.81, 0.81, 0.81, 0, 0], atol=1e-6
  )
  np.testing.assert_allclose(
    got["step"], [0, 0.045, 0, -0.045, 0, 0, 0, 0], atol=1e-6
  )
  np.testing.assert_array_equal(got["live"], [0, 1, 0, 1, 0, 0, 0, 0])
  assert not got["step"][[0, 4, 5, 7]].any()


def test_longer_detours_and_ties():
  # d: s 2, m 1, k 2 (k -> m). From s: to m .9 - .81, to k .81 - .81 = 0.
  group = [
    rollout("s a m c", "success"),
    rollout("s b k c m c", "success"),
  ]
  got = credit(group, norm="mean")
  np.testing.assert_allclose(
    got["advantage"], [0.045, 0, -0.045, 0, 0], atol=1e-6
  )
  assert not got["step"][[1, 4]].any()  # m, twice the same: exactly 0


def test_degenerate_groups():
  lost = [rollout("s a m b", "failure"), rollout("s b s a", "truncated", "m")]
  lone = [rollout("s a m b k c", "success")]
  one_step = [rollout("s a", "failure")]
  got = credit(lost, lone, one_step)
  assert not got["advantage"].any()
  np.testing.assert_allclose(
    got["v"], [0] * 4 + [0.729, 0.81, 0.9, 0], atol=1e-6
  )
  # All succeed: the last step counts 1, the step to m .9 - .9.
  quick = [rollout("s a", "success"), rollout("s b m c", "success")]
  got = credit(quick, norm="mean")
  np.testing.assert_allclose(got["advantage"], [0.5, -0.5, 0], atol=1e-6)
  assert not got["trajectory"].any()
  got = credit(quick, lost, gamma=1.0, norm="mean")
  np.testing.assert_array_equal(got["v"], [1] * 3 + [0] * 4)


def test_missing_states_share_nothing():
  group = [
    Rollout((Step(None, "a"), Step(None, "b")), end)
    for end in ("success", "failure")
  ]
  got = credit(group)
  assert not got["step"].any() and not got["live"].any()


def test_truncation_counts_as_failure():
  kernel_runs.check_truncation_is_failure(rewardflow)


@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_padding_and_gradients(signal):
  kernel_runs.check_padding(rewardflow, signal=signal)
  kernel_runs.check_reward_gradient(
    rewardflow, depends=signal == "observed", signal=signal
  )


@pytest.mark.parametrize(
  "option, value",
  [
    ("gamma", 0.0),
    ("gamma", 1.5),
    ("norm", "std"),
    ("trajectory", "ppo"),
    ("signal", "reward"),
  ],
)
def test_options_out_of_range_are_refused(option, value):
  kernel_runs.check_refused(rewardflow, option, **{option: value})
