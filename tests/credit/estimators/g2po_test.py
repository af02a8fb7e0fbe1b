"""G2PO by hand: golden values, anchor and edge terms, degenerate groups."""

import functools

import numpy as np
import pytest

from crbc_jax.credit.estimators.g2po import g2po
from tests import groups as groups_lib
from tests.credit.estimators import kernel_runs
from tests.groups import rollout
from tests.oracle import Rollout, Step

credit = functools.partial(kernel_runs.credit, g2po)

# V: s0 (9.025 twice in 5 visits), s1 (9.5 in 2), s2 (9.5 in 4).
V = {"s0": 3.61, "s1": 4.75, "s2": 2.375}
# V(s') or the end, in row order: a c | a d e | b f | b e b e.
U = np.array([4.75, 10, 4.75, 2.375, 0, 2.375, 10, 2.375, 3.61, 2.375, 0])
EDGE = [1.14, 5.25, 1.14, -2.375, -2.375, -1.235, 7.625, -1.235, 1.235]
EDGE = np.array([*EDGE, -1.235, -2.375])  # U - V
# s0: 4.75 twice and 2.375 three times, mean 3.325, deviation 1.300841.
# s1: 10 and 2.375. s2: 0, 10, 3.61, 0, mean 3.4025, deviation 4.716075.
ANCHOR = [
  *(1.095445, 0.707107),
  *(1.095445, -0.707107, -0.721469),
  *(-0.730296, 1.398939),
  *(-0.730296, 0.043999, -0.730296, -0.721469),
]
EPISODE = np.repeat([1.261312, -0.720750, 1.261312, -0.720750], [2, 3, 2, 4])


def test_golden():
  got = credit(groups_lib.golden())
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  np.testing.assert_allclose(got["v"], [V[s] for s in states], atol=2e-6)
  np.testing.assert_allclose(got["q"], U, atol=2e-6)
  # Sum of EDGE 5.56, of its squares 111.3251: over the 11 rows mean .505455
  # and deviation sqrt((111.3251 - 5.56 * .505455) / 10) = 3.294158.
  along = (EDGE - 0.505455) / 3.294158
  np.testing.assert_allclose(got["step"], ANCHOR + along, atol=4e-6)
  np.testing.assert_allclose(got["trajectory"], EPISODE, atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], got["step"] + got["trajectory"], atol=1e-6
  )


def test_golden_weights():
  options = {"episode_weight": 0.5, "edge_weight": 0.0, "anchor_weight": 3.0}
  got = credit(groups_lib.golden(), **options)
  np.testing.assert_allclose(got["step"], 3 * np.array(ANCHOR), atol=6e-6)
  np.testing.assert_allclose(
    got["advantage"], 3 * np.array(ANCHOR) + 0.5 * EPISODE, atol=6e-6
  )
  got = credit(groups_lib.golden(), norm="mean", anchor_weight=0.0)
  np.testing.assert_allclose(got["step"], EDGE - 5.56 / 11, atol=3e-6)


def test_invalid_rows_lose_at_the_anchor_and_in_the_episode_term_only():
  # V(s) = (9.5 + 0 + 0) / 3; x and c both fail, x with an invalid action.
  group = [
    rollout("s a", "success"),
    Rollout((Step("s", "x", 0, False),), "failure"),
    rollout("s c", "failure"),
  ]
  anchor = credit(group, norm="mean", edge_weight=0.0)
  # 10, -.1, 0: mean 3.3.
  np.testing.assert_allclose(anchor["step"], [6.7, -3.4, -3.3], atol=1e-5)
  np.testing.assert_allclose(anchor["trajectory"], anchor["step"], atol=1e-5)
  np.testing.assert_allclose(anchor["q"], [10, -0.1, 0], atol=1e-6)
  edge = credit(group, norm="mean", anchor_weight=0.0)
  # 10 - V, -V, -V: the penalty does not enter.
  np.testing.assert_allclose(
    edge["step"], np.array([20, -10, -10]) / 3, atol=1e-5
  )
  # All fail, one of them invalid: the penalty alone is left.
  got = credit(group[1:], edge_weight=0.0)
  np.testing.assert_allclose(got["step"], [-0.707097, 0.707097], atol=2e-6)


def test_observed_rewards():
  # E: 1 - 3 = -2 over two steps, and 4 over one; success is worth 10 as u.
  group = [
    Rollout((Step("s", "a", 1.0), Step("m", "b", -3.0)), "failure"),
    Rollout((Step("s", "c", 4.0),), "success"),
  ]
  got = credit(
    group, signal="observed", gamma=0.5, norm="mean", episode_weight=2.0
  )
  # V(s) = (.25 * -2 + .5 * 4) / 2 = .75, V(m) = .5 * -2 = -1.
  np.testing.assert_allclose(got["v"], [0.75, -1, 0.75], atol=1e-6)
  np.testing.assert_allclose(got["q"], [-1, 0, 10], atol=1e-6)
  # At s: -1 and 10, mean 4.5. Edges: -1.75, 1, 9.25, mean 17/6.
  np.testing.assert_allclose(
    got["step"],
    [-5.5 - 1.75 - 17 / 6, 1 - 17 / 6, 5.5 + 9.25 - 17 / 6],
    atol=1e-5,
  )
  # Rows -2, -2, 4: mean 0.
  np.testing.assert_allclose(got["trajectory"], [-2, -2, 4], atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], got["step"] + 2 * got["trajectory"], atol=1e-5
  )
  own = credit(
    group, signal="observed", norm="mean", statistics="trajectory"
  )  # once per trajectory: mean 1
  np.testing.assert_allclose(own["trajectory"], [-3, -3, 3], atol=1e-6)


def test_a_lone_rollout():
  # V 9.025, 9.5; edges .475 and .5: a deviation of .025 / sqrt 2.
  got = credit([rollout("s a m b", "success")])
  np.testing.assert_allclose(got["step"], [-0.707067, 0.707067], atol=2e-5)
  # Two rows of the same score: equal, so no singleton of the statistics.
  assert not got["trajectory"].any() and got["live"].all()
  # One row: nothing to compare, but "raw" passes the episode's score on.
  for singleton, score in (("raw", 10.0), ("zero", 0.0)):
    got = credit([rollout("s a", "success")], singleton=singleton)
    np.testing.assert_array_equal(got["advantage"], [score])
    assert not got["step"].any() and not got["live"].any()
  lost = [rollout("s a", "failure")]
  assert not credit(lost)["advantage"].any()


def test_all_fail_and_all_success():
  lost = [rollout("s a m b", "failure"), rollout("s b s a", "truncated", "m")]
  assert not credit(lost)["advantage"].any()
  quick = [rollout("s a", "success"), rollout("s b m c", "success")]
  got = credit(quick, norm="mean", edge_weight=0.0)
  # 10 against V(m) = 9.5.
  np.testing.assert_allclose(got["advantage"], [0.25, -0.25, 0], atol=1e-6)
  np.testing.assert_array_equal(got["live"], [True, True, False])
  got = credit(quick, norm="mean", anchor_weight=0.0)
  # V(s) = (9.5 + 9.025) / 2 = 9.2625: edges .7375, .2375, .5, mean .491667.
  np.testing.assert_allclose(
    got["step"], [0.245833, -0.254167, 0.008333], atol=2e-6
  )


def test_successors_equal_on_paper_give_exactly_zero():
  """V(m) = 0 up to rounding and V(k) = 0: no reason to rank a over b."""
  groups = kernel_runs.cancelling()
  got = credit(*groups, signal="observed", edge_weight=0.0, eps=1e-12)
  assert not got["step"].any()  # all ends at m are failures, too
  assert got["q"].any()  # there was rounding


def test_edges_equal_on_paper_give_exactly_zero():
  """Undiscounted success: every difference is rounding of V, and no more."""
  group = [
    rollout(" ".join(f"s{i % 5} a" for i in range(n)), "success")
    for n in (7, 1, 4, 6, 3, 7, 5)
  ]
  for reward in (0.7, 1 / 3, 10.0):
    got = credit(group, gamma=1.0, success_reward=reward, eps=1e-12)
    assert not got["advantage"].any()


def test_missing_states_meet_in_the_edge_term_only():
  group = [
    Rollout((Step(None, "a"), Step(None, "b")), end)
    for end in ("success", "failure")
  ]
  got = credit(group, edge_weight=0.0)
  assert not got["step"].any() and not got["live"].any()
  got = credit(group, norm="mean")
  # Edges .475, .5, 0, 0: mean .24375.
  np.testing.assert_allclose(
    got["step"], [0.23125, 0.25625, -0.24375, -0.24375], atol=2e-6
  )


def test_truncation_counts_as_failure():
  kernel_runs.check_truncation_is_failure(g2po)


@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_padding_and_gradients(signal):
  kernel_runs.check_padding(g2po, signal=signal)
  kernel_runs.check_reward_gradient(
    g2po, depends=signal == "observed", signal=signal
  )


@pytest.mark.parametrize(
  "option, value",
  [
    ("gamma", 0.0),
    ("gamma", 1.5),
    ("norm", "std"),
    ("statistics", "step"),
    ("signal", "reward"),
    ("singleton", "sign"),
  ],
)
def test_options_out_of_range_are_refused(option, value):
  kernel_runs.check_refused(g2po, option, **{option: value})
