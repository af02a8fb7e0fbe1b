"""Each rollout by the closure of the others."""

import functools

import jax
import numpy as np
import pytest

from crbc_jax.credit import leave_one_out as loo_lib
from crbc_jax.credit.estimators.loo import crbc_loo
from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib
from tests import kernels, oracle
from tests.groups import rollout
from tests.oracles import weighted

COUNT, MOST = 24, 6
SHAPE = BatchShape(COUNT, 48, 24, 32, MOST, 48, 16)


@functools.cache
def crowd():
  groups = groups_lib.random_groups(
    COUNT - 4, 84, missing=(0, 0.2), dyadic=True, max_rollouts=MOST, max_steps=6
  )
  groups += [
    groups_lib.golden(),
    [rollout("s a s a s b", "success")],
    [rollout("s a m b", "failure"), rollout("s b", "truncated", "s")],
    [rollout("s a", "success"), rollout("s b", "success")] * 3,
  ]
  return groups, make_batch(groups_lib.table_of(groups), SHAPE)


@functools.cache
def left_out_fn(**options):
  return jax.jit(jax.vmap(functools.partial(loo_lib.leave_one_out, **options)))


@pytest.mark.parametrize(
  "readout, signal, truncation",
  [  # each value twice
    ("own", "outcome", "failure"),
    ("own", "observed", "bootstrap"),
    ("others", "outcome", "bootstrap"),
    ("others", "observed", "failure"),
  ],
)
def test_equals_the_closure_refitted_without_the_rollout(
  readout, signal, truncation
):
  groups, batch = crowd()
  options = {"readout": readout, "signal": signal, "truncation": truncation}
  got = left_out_fn(beta=0.9, **options)(batch.arrays)
  credited = 0
  for b, group in enumerate(groups):
    want = weighted.left_out(group, beta=0.9, **options)
    size = len(want["v"])
    for name in ("v", "gap"):
      rows = np.asarray(getattr(got, name))[b]
      np.testing.assert_allclose(rows[:size], want[name], atol=3e-6)
      assert not rows[size:].any()
    np.testing.assert_array_equal(np.asarray(got.seen)[b, :size], want["seen"])
    credited += sum(want["seen"])
  assert credited > 100


def test_values_are_exactly_those_of_a_smaller_group():
  """Against the exact closure of the rollouts that are left."""
  groups, batch = crowd()
  without = functools.partial(loo_lib.values_without, beta=0.9)
  process, values = jax.jit(jax.vmap(without))(batch.arrays)
  for b, group in enumerate(groups):
    if any(s.state is None for s in groups_lib.steps(group)):
      continue  # an own anchor is named by the number of its rollout
    for i in range(len(group)):
      left = [r for j, r in enumerate(group) if j != i]
      want = oracle.closure(left, beta=0.9)[0] if left else {}
      for row, step in enumerate(groups_lib.steps(group)):
        s = batch.arrays.state[b, row]
        np.testing.assert_allclose(
          values.v[b, i, s], float(want.get(step.state, 0)), atol=2e-6
        )
        assert (process.state_count[b, i, s] > 0) == (step.state in want)


def golden_rows(**options):
  return groups_lib.credit("crbc_loo", [groups_lib.golden()], **options)


def test_golden_without_the_third_rollout_by_hand():
  """Left: s0 a a b b, s1 c d, s2 e e e (dead, s0, dead); beta = .9.

  V2 = .3 V0, V1 = .45 + .45 V2, V0 = .45 (V1 + V2)
  so V0 = .2025 / (1 - .45 * 1.45 * .3) = .2025 / .80425.
  """
  got = golden_rows(beta=0.9)
  v0 = 0.2025 / 0.80425
  np.testing.assert_allclose(got["v"][5:7], [v0, 0.3 * v0], rtol=1e-6)
  np.testing.assert_allclose(got["q"][5:7], [0.9 * 0.3 * v0, 0.9], rtol=1e-6)
  # Nobody else took f at s2: the others know no more of it.
  others = golden_rows(beta=0.9, readout="others")
  np.testing.assert_allclose(others["q"][6], 0.9, rtol=1e-6)


def test_the_own_path_counts_until_it_meets_the_others():
  group = [
    rollout("s a p x q y m z", "success"),  # p and q are its own
    rollout("s b m c", "failure"),
    rollout("s b m d", "success"),
  ]
  got = groups_lib.credit("crbc_loo", [group], beta=0.5)
  v_m = 0.5 / 2  # c and d
  np.testing.assert_allclose(got["v"][0], 0.5 * v_m, rtol=1e-6)
  np.testing.assert_allclose(got["q"][0], 0.5**3 * v_m, rtol=1e-6)
  np.testing.assert_array_equal(got["live"][:4], [True, False, False, True])
  assert not got["step"][1:3].any()
  np.testing.assert_allclose(got["q"][3] - got["v"][3], 0.5 - v_m, rtol=1e-6)


def test_a_row_has_no_say_in_its_baseline():
  """Whatever a rollout does, its V stays; in the plain closure it moves."""
  rest = [rollout("s a", "failure"), rollout("s b", "success")]
  groups = [
    [rollout(f"s {a}", end), *rest] for a in "ab" for end in oracle.ENDS
  ]
  got = groups_lib.credit("crbc_loo", groups)["v"].reshape(-1, 3)[:, 0]
  np.testing.assert_allclose(got, 0.49, rtol=1e-6)
  plain = groups_lib.credit("crbc", groups)["v"].reshape(-1, 3)[:, 0]
  assert np.ptp(plain) > 0.3


def test_expected_credit_of_the_policy_gradient_is_unbiased():
  """One anchor, two actions: the mean over all groups is the true gradient.

  pi(a) = p with success rates r_a, r_b: grad J = p (1-p) (q_a - q_b). Every
  group of 3 has its probability; the plain closure loses a third of it.
  """
  p, rate, beta, size = 0.3, {"a": 0.8, "b": 0.25}, 0.9, 3
  kinds = [
    (a, end, (p if a == "a" else 1 - p) * chance)
    for a, r in rate.items()
    for end, chance in (("success", r), ("failure", 1 - r))
  ]
  groups, chances, score = [], [], []
  for index in np.ndindex(*[len(kinds)] * size):
    chosen = [kinds[k] for k in index]
    groups.append([rollout(f"s {a}", end) for a, end, _ in chosen])
    chances.append(np.prod([c for *_, c in chosen]))
    score.append([(a == "a") - p for a, *_ in chosen])
  true = p * (1 - p) * beta * (rate["a"] - rate["b"])

  def expected(name, **options):
    got = groups_lib.credit(name, groups, beta=beta, **options)
    gap = (got["q"] - got["v"]).reshape(-1, size).astype(float)
    return (np.array(chances) * (np.array(score) * gap).mean(axis=1)).sum()

  np.testing.assert_allclose(expected("crbc_loo"), true, rtol=1e-5)
  np.testing.assert_allclose(
    expected("crbc"), true * (size - 1) / size, rtol=1e-5
  )


def test_step_credit_is_the_gap_over_its_root_mean_square():
  got = golden_rows(beta=0.9)
  gap = got["q"] - got["v"]
  states = [s.state for s in groups_lib.steps(groups_lib.golden())]
  for state in set(states):
    at = np.array([s == state for s in states])
    sigma = max(np.sqrt((gap[at] ** 2).mean()), 0.1)
    np.testing.assert_allclose(got["step"][at], gap[at] / sigma, rtol=1e-5)
  assert (np.abs(got["step"]) <= np.sqrt(len(states))).all()


@pytest.mark.parametrize(
  "group",
  [
    [rollout("s a s b", "success")],
    [rollout("s a m b", "failure"), rollout("s b m a", "truncated", "s")],
    [rollout("s a", "success"), rollout("m b", "failure")],
  ],
)
def test_no_other_no_success_no_meeting_is_no_step_credit(group):
  got = groups_lib.credit("crbc_loo", [group])
  assert not got["step"].any()


def test_padding_and_gradients():
  batch = kernels.mixed_batch()
  kernels.check_padding(crbc_loo, batch)
  kernels.check_gradients(crbc_loo, batch, signal="observed")
