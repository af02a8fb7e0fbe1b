"""GAGPO by hand: golden residuals and GAE, degenerate groups."""

import functools

import numpy as np
import pytest

from crbc_jax.credit.estimators.gagpo import gagpo
from tests import groups as groups_lib
from tests.credit.estimators import kernel_runs
from tests.groups import rollout
from tests.oracle import Rollout, Step

credit = functools.partial(kernel_runs.credit, gagpo)

# V: s0 .95 twice in 5 visits, s1 1 in 2, s2 1 in 4.
V = {"s0": 0.38, "s1": 0.5, "s2": 0.25}
# r + .95 V(s') - V(s), in row order: a c | a d e | b f | b e b e.
DELTA = [0.095, 0.5, 0.095, -0.2625, -0.25, -0.1425, 0.75]
DELTA = np.array([*DELTA, -0.1425, 0.111, -0.1425, -0.25])
# Backwards along each rollout with factor .9025.
GAE = [
  *(0.54625, 0.5),
  *(-0.345533, -0.488125, -0.25),
  *(0.534375, 0.75),
  *(-0.342163, -0.221233, -0.368125, -0.25),
]


def test_golden():
  got = credit(groups_lib.golden())
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  np.testing.assert_allclose(got["v"], [V[s] for s in states], atol=1e-6)
  np.testing.assert_allclose(got["q"] - got["v"], DELTA, atol=1e-6)
  gae = np.array(GAE)
  want = (gae - gae.mean()) / gae.std(ddof=1)
  np.testing.assert_allclose(got["step"], want, atol=5e-6)
  np.testing.assert_array_equal(got["advantage"], got["step"])
  assert not got["trajectory"].any() and got["live"].all()
  plain = credit(groups_lib.golden(), norm="mean")["step"]
  np.testing.assert_allclose(plain, gae - gae.mean(), atol=2e-6)


def test_golden_without_looking_ahead():
  got = credit(groups_lib.golden(), lam=0.0, norm="mean")
  # The residuals sum to .361.
  np.testing.assert_allclose(got["step"], DELTA - 0.361 / 11, atol=1e-6)


def test_lambda_one_is_return_minus_value():
  got = credit(groups_lib.golden(), lam=1.0, norm="mean")
  returns = [0.95, 1, 0, 0, 0, 0.95, 1, 0, 0, 0, 0]
  gap = np.array(returns) - got["v"]
  np.testing.assert_allclose(got["step"], gap - gap.mean(), atol=1e-6)


def test_weights_and_the_trajectory_term():
  got = credit(groups_lib.golden(), trajectory="rloo", w_group=0.5, w_step=3.0)
  term = np.repeat([2 / 3, -2 / 3, 2 / 3, -2 / 3], [2, 3, 2, 4])
  np.testing.assert_allclose(got["trajectory"], term, atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], 0.5 * term + 3 * got["step"], atol=1e-5
  )


def test_observed_rewards():
  # Returns with gamma .5: 1 + .5 * 2 = 2 and 2; then -.5.
  group = [
    Rollout((Step("s", "a", 1.0), Step("m", "c", 2.0)), "failure"),
    Rollout((Step("s", "b", -0.5),), "success"),
  ]
  got = credit(group, gamma=0.5, lam=0.5, signal="observed", norm="mean")
  # V(s) = .75, V(m) = 2: residuals 1.25, 0, -1.25, and so the GAE; mean 0.
  np.testing.assert_allclose(got["v"], [0.75, 2, 0.75], atol=1e-6)
  np.testing.assert_allclose(got["q"], [2, 2, -0.5], atol=1e-6)
  np.testing.assert_allclose(got["step"], [1.25, 0, -1.25], atol=1e-6)


def test_all_success_and_all_fail():
  # V(s) = (1 + .95) / 2 = .975: residuals .025, -.025, 0, deviation .025.
  quick = [rollout("s a", "success"), rollout("s b m c", "success")]
  lost = [rollout("s a m b", "failure"), rollout("s b s a", "truncated", "m")]
  got = credit(quick, lost)
  np.testing.assert_allclose(got["step"][:3], [0.99996, -0.99996, 0], atol=2e-5)
  assert not got["step"][3:].any()
  assert not credit(quick, gamma=1.0)["advantage"].any()


def test_without_a_shared_state_there_is_exactly_nothing():
  """Residuals are then rounding of returns, and no more."""
  rewards = (0.1, 0.7, 1 / 3, -0.2)

  def walk(length, state):
    return Rollout(
      tuple(Step(state(t), "a", rewards[t % 4]) for t in range(length)),
      "success",
    )

  lone = [[walk(n, lambda t: t)] for n in (1, 2, 21)]
  missing = [walk(n, lambda t: None) for n in (1, 5, 20)]
  for signal in ("outcome", "observed"):
    got = credit(*lone, missing, signal=signal, eps=1e-12)
    assert not got["advantage"].any() and not got["live"].any()
    assert got["v"].all()
  # Copies of one rollout share states, but agree on them.
  got = credit([walk(6, lambda t: t)] * 7, signal="observed", eps=1e-12)
  assert not got["advantage"].any() and got["live"].all()


def test_a_lone_rollout_credits_its_revisits():
  # V(s) = (.95 + 1) / 2 = .975: .95 * .975 - .975 = -.04875 and .025; GAE
  # with lam 0, mean -.011875.
  got = credit([rollout("s a s b", "success")], lam=0.0, norm="mean")
  np.testing.assert_allclose(got["step"], [-0.036875, 0.036875], atol=1e-6)


def test_truncation_counts_as_failure():
  kernel_runs.check_truncation_is_failure(gagpo)


@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_padding_and_gradients(signal):
  kernel_runs.check_padding(gagpo, signal=signal)
  kernel_runs.check_reward_gradient(
    gagpo, depends=signal == "observed", signal=signal
  )


@pytest.mark.parametrize(
  "option, value",
  [
    ("gamma", 0.0),
    ("gamma", 1.5),
    ("lam", -0.1),
    ("lam", 1.1),
    ("norm", "std"),
    ("trajectory", "ppo"),
    ("signal", "reward"),
  ],
)
def test_options_out_of_range_are_refused(option, value):
  kernel_runs.check_refused(gagpo, option, **{option: value})
