"""GraphHCA by hand: golden log-ratios, both powers, degenerate groups."""

import functools
import math

import numpy as np
import pytest

from crbc_jax.credit.estimators.graphhca import graphhca
from tests import groups as groups_lib
from tests.credit.estimators import kernel_runs
from tests.groups import rollout
from tests.oracle import Rollout, Step

credit = functools.partial(kernel_runs.credit, graphhca)
LONGEST = math.inf  # the power at which only the shortest way counts


def test_golden():
  # ln V: s1 -.528, s2 -1.170, s0 -.968, success 0, failure ln .01 = -4.605.
  got = credit(groups_lib.golden(), beta=0.9)
  step = [
    *(1.095442, 0.707106),
    *(1.095442, -0.707106, -0.854330),
    *(-0.730295, 1.054924),
    *(-0.730295, 0.653737, -0.730295, -0.854330),
  ]
  np.testing.assert_allclose(got["step"], step, atol=2e-6)
  term = np.repeat([0.866024, -0.866024, 0.866024, -0.866024], [2, 3, 2, 4])
  np.testing.assert_allclose(got["trajectory"], term, atol=1e-6)
  np.testing.assert_allclose(got["advantage"], term + step, atol=3e-6)
  np.testing.assert_allclose(got["v"][:2], [0.379966, 0.589722], atol=1e-6)
  np.testing.assert_allclose(got["q"][:2], [0.589722, 1], atol=1e-6)


def test_golden_without_deviation():
  got = credit(
    groups_lib.golden(),
    beta=0.9,
    norm="mean",
    trajectory="none",
    w_step=2.0,
  )
  # s1: ln 1 = 0 against ln .310492 = -1.169597, mean -.584799.
  # s2: 0, ln .379966 = -.967673 and twice -4.605170, mean -2.544503.
  np.testing.assert_allclose(got["step"][[1, 3]], [0.584799, -0.584799], 3e-6)
  np.testing.assert_allclose(
    got["step"][[6, 8, 4, 10]],
    [2.544503, 1.576830, -2.060667, -2.060667],
    atol=3e-6,
  )
  assert not got["trajectory"].any()
  np.testing.assert_array_equal(got["advantage"], 2 * got["step"])


def test_golden_at_infinite_power():
  got = credit(groups_lib.golden(), beta=0.9, power=LONGEST)
  v = {"s0": 0.81, "s1": 0.9, "s2": 0.9}
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  np.testing.assert_allclose(got["v"], [v[s] for s in states], atol=1e-6)
  # Both successors of s0 are one step away: exactly 0. s1: 0 and ln .9.
  # s2: 0, ln .81 = -.210721, twice -4.605170: mean -2.355265, dev. 2.599390.
  f, loop, dead = 0.906084, 0.825018, -0.865551
  np.testing.assert_allclose(
    got["step"],
    [0, 0.707098, 0, -0.707098, dead, 0, f, 0, loop, 0, dead],
    atol=3e-6,
  )
  assert not got["step"][[0, 2, 5, 7, 9]].any()


def test_infinite_power_looks_at_the_shortest_way_alone():
  # Eight rows leave m and one of them wins.
  group = [
    rollout("s a m w", "success"),
    rollout("s b m l", "failure"),
    *[rollout("m l", "failure")] * 6,
  ]
  mean = credit(group, beta=0.9, norm="mean")
  best = credit(group, beta=0.9, norm="mean", power=LONGEST)
  np.testing.assert_allclose(mean["v"][1], 0.9 / 8, atol=1e-6)
  np.testing.assert_allclose(best["v"][:2], [0.81, 0.9], atol=1e-6)


def test_values_below_the_floor_are_the_floor():
  # From s: to m (V = .9 / 3 = .3, or .9 at infinite power) or to failure.
  group = [
    rollout("s a m w", "success"),
    rollout("s b", "failure"),
    *[rollout("m l", "failure")] * 2,
  ]
  options = {"beta": 0.9, "norm": "mean"}
  got = credit(group, floor=0.1, **options)["step"]
  half = math.log(3) / 2  # ln .3 - ln .1
  np.testing.assert_allclose(got[[0, 2]], [half, -half], atol=1e-6)
  got = credit(group, floor=0.5, **options)["step"]
  assert not got[[0, 2]].any()
  # At m success stands against the floor twice: 2/3 and -1/3 of ln 2.
  np.testing.assert_allclose(
    got[[1, 3, 4]], np.log(2) * np.array([2, -1, -1]) / 3, atol=1e-6
  )
  got = credit(group, floor=0.5, power=LONGEST, **options)["step"]
  np.testing.assert_allclose(got[0] - got[2], math.log(1.8), atol=1e-6)


@pytest.mark.parametrize("power", [1.0, LONGEST])
def test_degenerate_groups(power):
  lost = [rollout("s a m b", "failure"), rollout("s b s a", "truncated", "m")]
  lone = [rollout("s a m b k c", "success")]
  got = credit(lost, lone, [rollout("s a", "failure")], power=power)
  assert not got["advantage"].any()
  np.testing.assert_allclose(
    got["v"], [0] * 4 + [0.95**3, 0.95**2, 0.95, 0], atol=1e-6
  )
  np.testing.assert_array_equal(got["live"], [1, 0, 1, 1] + [0] * 4)
  # All succeed, at once or by way of m: ln 1 against ln .95, no A^G.
  quick = [rollout("s a", "success"), rollout("s b m c", "success")]
  got = credit(quick, power=power, norm="mean")
  half = -math.log(0.95) / 2
  np.testing.assert_allclose(got["advantage"], [half, -half, 0], atol=1e-6)
  assert not got["trajectory"].any() and not got["step"][2]


def test_nothing_is_discounted_at_beta_one():
  quick = [rollout("s a", "success"), rollout("s b m c", "success")]
  lost = [rollout("s a", "failure"), rollout("s b m c", "failure")]
  for power in (1.0, LONGEST):
    got = credit(quick, lost, beta=1.0, power=power)
    assert not got["advantage"].any()
    np.testing.assert_allclose(got["v"], [1] * 3 + [0] * 3, atol=1e-6)


def test_missing_states_share_nothing():
  group = [
    Rollout((Step(None, "a"), Step(None, "b")), end)
    for end in ("success", "failure")
  ]
  got = credit(group)
  assert not got["step"].any() and not got["live"].any()
  np.testing.assert_array_equal(got["advantage"], got["trajectory"])


@pytest.mark.parametrize("power", [1.0, LONGEST])
def test_truncation_counts_as_failure(power):
  kernel_runs.check_truncation_is_failure(graphhca, power=power)


@pytest.mark.parametrize("power", [1.0, LONGEST])
def test_padding_and_gradients(power):
  kernel_runs.check_padding(graphhca, power=power)
  kernel_runs.check_reward_gradient(graphhca, depends=False, power=power)


@pytest.mark.parametrize(
  "option, value",
  [
    ("beta", 0.0),
    ("floor", 0.0),
    ("floor", 1.5),
    ("power", 2.0),
    ("power", -math.inf),
    ("power", math.nan),
    ("power", "inf"),
    ("norm", "std"),
    ("trajectory", "ppo"),
  ],
)
def test_options_out_of_range_are_refused(option, value):
  kernel_runs.check_refused(graphhca, option, **{option: value})
