"""Weighted rollouts, the bootstrap over them, and its first order."""

import functools

import chex
import jax
import numpy as np
import pytest

from crbc_jax.credit import closure, posterior
from crbc_jax.credit.estimators.shrunk import crbc_shrunk
from crbc_jax.credit.process import build_process
from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib
from tests import kernels
from tests.groups import rollout
from tests.oracles import weighted

COUNT, MOST = 24, 6
SHAPE = BatchShape(COUNT, 48, 24, 32, MOST, 48, 16)
OPTIONS = (
  {"signal": "outcome", "truncation": "failure"},
  {"signal": "observed", "truncation": "bootstrap"},
)
every_option = pytest.mark.parametrize("options", OPTIONS)


@functools.cache
def crowd():
  groups = groups_lib.random_groups(
    COUNT - 3, 83, missing=(0, 0.2), dyadic=True, max_rollouts=MOST, max_steps=6
  )
  groups += [
    groups_lib.golden(),
    [rollout("s a s a s b", "failure")],
    [rollout("s a", "success"), rollout("s b", "success")] * 3,
  ]
  return groups, make_batch(groups_lib.table_of(groups), SHAPE)


@functools.cache
def solve_fn(weighted_rollouts, signal, truncation):
  def solve(group, weight):
    process = build_process(
      group,
      beta=0.9,
      signal=signal,
      truncation=truncation,
      weight=weight if weighted_rollouts else None,
    )
    return process, posterior.of_rows(
      group, closure.exact_values(process, beta=0.9)
    )

  return jax.jit(jax.vmap(solve))


def random_weights(kind):
  rng = np.random.default_rng(1)
  shape = (COUNT, MOST)
  return {
    "ones": np.ones(shape),
    "real": rng.exponential(size=shape),
    "tiny": 10.0 ** rng.uniform(-12, 0, shape),
    "zero": rng.integers(0, 2, shape).astype(float),
  }[kind].astype(np.float32)


def per_group(rows, groups):
  """[B, R] or [B, ..., R] rows of each group alone, padding left out."""
  for values, group in zip(np.asarray(rows), groups, strict=True):
    yield values[..., : len(groups_lib.steps(group))]


@every_option
def test_weights_of_one_change_no_bit(options):
  _, batch = crowd()
  ones = random_weights("ones")
  plain = solve_fn(False, *options.values())(batch.arrays, ones)
  got = solve_fn(True, *options.values())(batch.arrays, ones)
  chex.assert_trees_all_equal(got, plain)


@every_option
@pytest.mark.parametrize("kind", ["real", "tiny", "zero"])
def test_weighted_values_are_those_of_the_oracle(kind, options):
  groups, batch = crowd()
  weights = random_weights(kind)
  process, got = solve_fn(True, *options.values())(batch.arrays, weights)
  chex.assert_tree_all_finite((process, got))
  for b, group in enumerate(groups):
    found = weighted.closure(group, weights[b], beta=0.9, **options)
    want = weighted.rows_of(group, found)
    size = len(want["v"])
    for name in ("v", "gap"):
      rows = np.asarray(getattr(got, name))[b]
      np.testing.assert_allclose(rows[:size], want[name], atol=3e-6)
      assert not rows[size:].any()


def test_golden_weights_by_hand():
  """w = (2, 1, 1, 0): s1 is c, c, d; s2 is e, f; s0 is a, a, a, b.

  V(s2) = .9 / 2, V(s1) = (2 * .9 + .9 V(s2)) / 3,
  V(s0) = .9 (3 V(s1) + V(s2)) / 4.
  """
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]), SHAPE)
  weights = np.zeros((COUNT, MOST), np.float32)
  weights[0, :4] = 2, 1, 1, 0
  _, got = solve_fn(True, "outcome", "failure")(batch.arrays, weights)
  v = {"s0": 0.597375, "s1": 0.735, "s2": 0.45}
  gap = {"s0a": 0.064125, "s0b": -0.192375, "s1c": 0.165, "s1d": -0.33}
  gap |= {"s2e": -0.45, "s2f": 0.45}
  steps = groups_lib.steps(groups_lib.golden())
  for row, step in enumerate(steps):
    np.testing.assert_allclose(got.v[0, row], v[step.state], rtol=1e-6)
    np.testing.assert_allclose(
      got.gap[0, row], gap[step.state + step.action], rtol=2e-6
    )


# -- derivatives and standard errors -----------------------------------------


@functools.cache
def error_fn(signal, truncation):
  def of_group(group):
    process = build_process(
      group, beta=0.9, signal=signal, truncation=truncation
    )
    values = closure.exact_values(process, beta=0.9)
    dv, dgap = posterior.influences(process, values, group.traj, MOST, beta=0.9)
    errors = {
      c: posterior.standard_errors(
        group, process, values, beta=0.9, correction=c
      )
      for c in posterior.CORRECTIONS
    }
    return dv[:, group.state], dgap[:, group.pair], errors

  return jax.jit(jax.vmap(of_group))


@every_option
def test_influences_are_derivatives_by_weight(options):
  groups, batch = crowd()
  dv, dgap, _ = error_fn(*options.values())(batch.arrays)
  for b, group in enumerate(groups):
    want = weighted.derivatives(group, beta=0.9, **options)
    size, count = want["v"].shape[1], len(group)
    for got, slopes in ((dv, want["v"]), (dgap, want["gap"])):
      rows = np.asarray(got)[b][:, :size]
      np.testing.assert_allclose(rows[:count], slopes, atol=5e-6)
      assert not rows[count:].any()
      np.testing.assert_allclose(rows.sum(axis=0), 0, atol=5e-6)


def test_standard_errors_are_sums_of_squared_influences():
  groups, batch = crowd()
  _, _, errors = error_fn("outcome", "failure")(batch.arrays)
  chex.assert_tree_all_finite(errors)
  for b, group in enumerate(groups):
    slopes, count = weighted.derivatives(group, beta=0.9), len(group)
    slopes["q"] = slopes["v"] + slopes["gap"]
    for correction, scale in (
      ("sample", count / (count - 1) if count > 1 else 0),
      ("bayes", count / (count + 1)),
    ):
      for name, some in slopes.items():
        got = np.asarray(getattr(errors[correction], name))[b]
        want = np.sqrt(scale * (some**2).sum(axis=0))
        np.testing.assert_allclose(got[: len(want)], want, atol=5e-6)
        assert not got[len(want) :].any()


def test_of_a_mean_of_outcomes_it_is_the_textbook_error():
  """Three of four succeed at once, beta .9: sd^2 = .81 s^2 / 4 = .81 / 16."""
  group = [rollout("s a", "success")] * 3 + [rollout("s a", "failure")]
  batch = make_batch(groups_lib.table_of([group]), SHAPE)
  _, _, errors = error_fn("outcome", "failure")(batch.arrays)
  np.testing.assert_allclose(errors["sample"].v[0, :4], 0.9 / 4, rtol=1e-6)
  # A single action: its credit is 0 whatever the weights.
  np.testing.assert_allclose(errors["sample"].gap[0], 0, atol=1e-7)


def test_one_rollout_has_no_error():
  batch = make_batch(
    groups_lib.table_of([[rollout("s a s b", "success")]]), SHAPE
  )
  _, _, errors = error_fn("outcome", "failure")(batch.arrays)
  assert not any(np.asarray(x).any() for x in jax.tree.leaves(errors))


def test_unknown_corrections_are_refused():
  with pytest.raises(ValueError, match="one of sample, bayes"):
    posterior.standard_errors(None, None, None, beta=0.9, correction="none")


# -- the bootstrap -----------------------------------------------------------


def test_weights_are_those_of_the_dirichlet_and_ignore_padding():
  key, mask = jax.random.key(3), np.arange(8) < 5
  drawn = np.asarray(posterior.rollout_weights(key, mask, draws=4000))
  assert not drawn[:, 5:].any() and (drawn[:, :5] > 0).all()
  np.testing.assert_allclose(drawn.sum(axis=1), 5, rtol=1e-5)
  np.testing.assert_allclose(drawn[:, :5].mean(axis=0), 1, atol=0.06)
  want = (np.eye(5) * 5 - 1) / 6  # of 5 Dirichlet(1, ..., 1)
  np.testing.assert_allclose(np.cov(drawn[:, :5].T), want, atol=0.08)
  longer = posterior.rollout_weights(key, np.arange(16) < 5, draws=4000)
  np.testing.assert_array_equal(np.asarray(longer)[:, :5], drawn[:, :5])
  assert not np.asarray(
    posterior.rollout_weights(key, np.zeros(4, bool), draws=2)
  ).any()


@functools.cache
def many_goldens():
  """The golden group eight times over: its bootstrap is nearly linear."""
  batch = make_batch(groups_lib.table_of([groups_lib.golden() * 8]))
  group = groups_lib.one(batch.arrays)

  def both(group, key):
    process = build_process(group, beta=0.9)
    values = closure.exact_values(process, beta=0.9)
    return (
      posterior.of_rows(group, values),
      posterior.standard_errors(
        group, process, values, beta=0.9, correction="bayes"
      ),
      posterior.closure_posterior(group, key, draws=1000, beta=0.9),
    )

  return group, jax.jit(both)(group, jax.random.key(0))


def test_the_bootstrap_has_the_spread_of_its_first_order():
  group, (values, errors, drawn) = many_goldens()
  mask = np.asarray(group.mask)
  for name in ("v", "q", "gap"):
    sd = np.asarray(getattr(drawn.sd, name))
    np.testing.assert_allclose(
      sd, np.asarray(getattr(errors, name)), rtol=0.12, atol=1e-6
    )
    varies = sd > 1e-6  # .9 is what success pays, whatever the weights
    assert varies.sum() > 50 and not varies[~mask].any()
    assert not np.asarray(getattr(drawn.mean, name))[~mask].any()
    centre = getattr(drawn.mean, name) - getattr(values, name)
    assert (np.abs(np.asarray(centre)) <= 0.3 * sd + 1e-6).all()
    low, middle, high = np.asarray(getattr(drawn.quantiles, name))
    assert ((low < middle) & (middle < high))[varies].all()
    np.testing.assert_allclose(
      (high - low)[varies], 3.92 * sd[varies], rtol=0.2
    )


def test_draws_are_counted():
  with pytest.raises(ValueError, match="draws must be a whole number"):
    posterior.closure_posterior(None, None, draws=0)


# -- the estimator -----------------------------------------------------------


@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_strength_zero_is_the_closure(signal):
  groups, _ = crowd()
  table = groups_lib.table_of(groups)
  want = groups_lib.credit("crbc", table, signal=signal)
  got = groups_lib.credit("crbc_shrunk", table, signal=signal, strength=0.0)
  for field in groups_lib.FIELDS:
    np.testing.assert_allclose(got[field], want[field], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", ["pair", "anchor"])
def test_credit_shrinks_as_the_oracle_says(level):
  groups, _ = crowd()
  options = {"beta": 0.9, "strength": 0.5}
  plain = groups_lib.credit("crbc", groups, beta=0.9)
  got = groups_lib.credit("crbc_shrunk", groups, level=level, **options)
  share, start = [], 0
  for group in groups:
    count = len(group)
    slopes = weighted.derivatives(group, beta=0.9)["gap"]
    scale = count / (count - 1) if count > 1 else 0
    noise = scale * (slopes**2).sum(axis=0)
    part = slice(start, start + slopes.shape[1])
    start = part.stop
    signals = (plain["q"] - plain["v"])[part].astype(float) ** 2
    if level == "anchor":
      keys = [
        (i, t) if s.state is None else s.state
        for i, r in enumerate(group)
        for t, s in enumerate(r.steps)
      ]
      signals, noise = (
        np.array([x[[k == own for k in keys]].mean() for own in keys])
        for x in (signals, noise)
      )
    share.append(signals / np.maximum(signals + 0.5 * noise, 1e-30))
  want = np.concatenate(share) * plain["step"]
  np.testing.assert_allclose(got["step"], want, atol=2e-4)
  assert (np.abs(got["step"]) <= np.abs(plain["step"]) + 1e-6).all()
  assert (np.abs(got["step"]) < 0.9 * np.abs(plain["step"])).any()


def test_padding_and_gradients_of_the_estimator():
  batch = kernels.mixed_batch()
  kernels.check_padding(crbc_shrunk, batch)
  kernels.check_gradients(crbc_shrunk, batch, signal="observed")
