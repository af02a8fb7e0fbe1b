"""GRAFT by hand: golden residuals, Graph-GAE on its own, degenerate groups."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.credit.estimators.graft import graft, residuals_ahead
from crbc_jax.credit.process import build_process
from tests import groups as groups_lib
from tests.credit.estimators import kernel_runs
from tests.groups import rollout
from tests.oracle import Rollout, Step

credit = functools.partial(kernel_runs.credit, graft)

# Rows of the golden group: a c | a d e(dead) | b f | b e(to s0) b e(dead).
RESIDUALS = [
  *(0.150784, 0.310278),
  *(0.150784, -0.310278, -0.310492),
  *(-0.100523, 0.589508),
  *(-0.100523, 0.031477, -0.100523, -0.310492),
]
Z = [
  *(1.095437, 0.707106),
  *(1.095437, -0.707106, -0.730942),
  *(-0.730291, 1.387783),
  *(-0.730291, 0.074101, -0.730291, -0.730942),
]


def test_golden_residuals_and_scores():
  got = credit(groups_lib.golden(), beta=0.9)
  np.testing.assert_allclose(got["q"] - got["v"], RESIDUALS, atol=1e-6)
  v = {"s0": 0.379966, "s1": 0.589722, "s2": 0.310492}
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  np.testing.assert_allclose(got["v"], [v[s] for s in states], atol=1e-6)
  np.testing.assert_allclose(got["step"], Z, atol=2e-6)
  np.testing.assert_array_equal(got["advantage"], got["step"])
  assert not got["trajectory"].any() and got["live"].all()


def test_without_deviation_the_scores_are_the_residuals():
  got = credit(groups_lib.golden(), beta=0.9, norm="mean")
  # Residuals of an anchor sum to 0, so centring takes nothing away.
  np.testing.assert_allclose(got["step"], RESIDUALS, atol=1e-6)


def test_weights_and_the_trajectory_term():
  got = credit(
    groups_lib.golden(), beta=0.9, trajectory="grpo", w_group=0.5, w_step=3.0
  )
  term = np.repeat([0.866024, -0.866024, 0.866024, -0.866024], [2, 3, 2, 4])
  np.testing.assert_allclose(got["trajectory"], term, atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], 0.5 * term + 3 * np.array(Z), atol=1e-5
  )


def test_observed_rewards():
  # V(m) = 2, V(s) = (1 + .5 * 2 - .5) / 2 = .75; residuals 1.25 and -1.25.
  group = [
    Rollout((Step("s", "a", 1.0), Step("m", "c", 2.0)), "failure"),
    Rollout((Step("s", "b", -0.5),), "success"),
  ]
  got = credit(group, beta=0.5, signal="observed", norm="mean")
  np.testing.assert_allclose(got["q"], [2, 2, -0.5], atol=1e-6)
  np.testing.assert_allclose(got["v"], [0.75, 2, 0.75], atol=1e-6)
  np.testing.assert_allclose(got["step"], [1.25, 0, -1.25], atol=1e-6)


def test_all_success_prefers_the_faster_route():
  # V(m) = .9, V(s) = (.9 + .81) / 2; residuals .045 and -.045, deviation
  # .045 sqrt 2. The row alone at m has residual .9 - .9 = 0.
  group = [rollout("s a", "success"), rollout("s b m c", "success")]
  for singleton in ("sign", "zero"):
    got = credit(group, beta=0.9, singleton=singleton)
    np.testing.assert_allclose(got["step"], [0.707096, -0.707096, 0], atol=2e-6)
    assert not got["step"][2]
    np.testing.assert_array_equal(got["live"], [True, True, False])


def test_all_fail_and_lone_rows_get_exactly_nothing():
  lost = [rollout("s a m b", "failure"), rollout("s b s a", "truncated", "m")]
  lone = [rollout("s a m b k c", "success")]
  lone_loss = [rollout("s a", "failure")]
  observed = [
    Rollout(tuple(Step(i, "a", 0.1 * i) for i in range(20)), "success")
  ]
  for options in ({}, {"lam": 0.9}):
    got = credit(lost, lone, lone_loss, **options)
    assert not got["advantage"].any()
    assert got["v"][4] > 0.9  # the lone success is valued all the same
    got = credit(observed, signal="observed", **options)
    assert not got["advantage"].any() and got["q"].any()


def test_a_lone_rollout_credits_its_revisits():
  # s: one step stays, one succeeds. V = (.9 V + .9) / 2 = .9 / 1.1 = .818182.
  got = credit([rollout("s a s b", "success")], beta=0.9, norm="mean")
  np.testing.assert_allclose(got["v"], 0.818182, atol=1e-6)
  # .9 * .818182 - .818182 and .9 - .818182.
  np.testing.assert_allclose(got["step"], [-0.081818, 0.081818], atol=1e-6)


def test_missing_states_share_nothing():
  group = [
    Rollout((Step(None, "a"), Step(None, "b")), "success"),
    Rollout((Step(None, "a"), Step(None, "b")), "failure"),
  ]
  got = credit(group)
  assert not got["step"].any() and not got["live"].any()
  np.testing.assert_allclose(got["v"], [0.99**2, 0.99, 0, 0], atol=1e-6)


def test_truncation_counts_as_failure():
  kernel_runs.check_truncation_is_failure(graft)


def test_successors_equal_on_paper_give_exactly_zero():
  """V(m) = 0 up to rounding and V(k) = 0: no reason to rank a over b."""
  got = credit(*kernel_runs.cancelling(), signal="observed", eps=1e-12)
  step, q = (got[f].reshape(-1, 4, 2) for f in ("step", "q"))
  assert not step[:, :, 0].any()
  assert step[:, :3, 1].all()
  assert q[:, :, 0].any()  # there was rounding


# -- Graph-GAE ---------------------------------------------------------------


def ahead(group, delta, *, discount, hops):
  """`residuals_ahead` of each anchor, by the name of the state."""
  batch = kernel_runs.make_batch(
    groups_lib.table_of([group]), kernel_runs.SHAPE
  )
  arrays = groups_lib.one(batch.arrays)
  process = build_process(jax.tree.map(jnp.asarray, arrays), beta=0.9)
  rows = np.zeros(kernel_runs.SHAPE.rows, np.float32)
  rows[: len(delta)] = delta
  got = jax.jit(residuals_ahead, static_argnames="hops")(
    process, rows, discount=discount, hops=hops
  )
  assert got.shape == (kernel_runs.SHAPE.anchors + 1,) and not got[-1]
  states = [s.state for s in groups_lib.steps(group)]
  return {s: float(got[arrays.state[i]]) for i, s in enumerate(states)}


def test_residuals_ahead_of_a_chain():
  # s -> m (residual 1), m -> end (2), m -> k (4), k -> end (8).
  group = [rollout("s a m c", "failure"), rollout("m d k e", "success")]
  got = ahead(group, [1, 2, 4, 8], discount=0.5, hops=8)
  # From k: 8/2. From m: (2+4)/2 /2 + 8/4. From s: 1/2 + 3/4 + 8/8.
  assert got == {"k": 4.0, "m": 3.5, "s": 2.25}
  got = ahead(group, [1, 2, 4, 8], discount=0.5, hops=2)
  assert got == {"k": 4.0, "m": 3.5, "s": 1.25}  # s no longer sees k
  got = ahead(group, [1, 2, 4, 8], discount=0.5, hops=1)
  assert got == {"k": 4.0, "m": 1.5, "s": 0.5}


def test_residuals_ahead_count_rows_and_not_paths():
  # s -> m twice and s -> k once: the set after one hop is {m, k} all the same;
  # two rows leave m and one leaves k.
  group = [
    rollout("s a m b", "failure"),
    rollout("s a m b", "failure"),
    rollout("s c k b", "failure"),
  ]
  got = ahead(group, [0, 3, 0, 5, 0, 10], discount=1.0, hops=2)
  assert got == {"m": 4.0, "k": 10.0, "s": 6.0}  # (3 + 5 + 10) / 3


def test_residuals_ahead_go_round_a_loop():
  # s -> s (residual 2), s -> end (4): at s again after any number of hops.
  got = ahead([rollout("s a s b", "success")], [2, 4], discount=0.5, hops=3)
  assert got == {"s": 3 * (1 / 2 + 1 / 4 + 1 / 8)}


def test_graph_gae_has_nothing_to_add_at_the_fixed_point():
  """Residuals of all rows that leave an anchor sum to 0."""
  for signal in ("outcome", "observed"):
    for group in kernel_runs.degenerate_groups():
      plain = credit(group, lam=0.0, signal=signal)
      got = credit(group, lam=1.0, signal=signal)
      np.testing.assert_allclose(got["step"], plain["step"], atol=2e-5)


# -- what every kernel owes --------------------------------------------------


@pytest.mark.parametrize(
  "options",
  [
    {},
    {"lam": 0.8},
    {"signal": "observed", "lam": 0.8},
    {"signal": "observed", "singleton": "zero", "trajectory": "rloo"},
  ],
)
def test_padding_and_gradients(options):
  kernel_runs.check_padding(graft, **options)
  kernel_runs.check_reward_gradient(
    graft, depends=options.get("signal") == "observed", **options
  )


@pytest.mark.parametrize(
  "option, value",
  [
    ("beta", 0.0),
    ("beta", 1.01),
    ("lam", -0.1),
    ("lam", 1.1),
    ("lam", "1"),
    ("hops", 0),
    ("hops", 2.0),
    ("hops", True),
    ("norm", "std"),
    ("singleton", "raw"),
    ("trajectory", "ppo"),
    ("signal", "reward"),
  ],
)
def test_options_out_of_range_are_refused(option, value):
  kernel_runs.check_refused(graft, option, **{option: value})
