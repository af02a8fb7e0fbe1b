"""GAE: worked numbers, a slow loop, rlax, and the column `value`."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.credit.table_credit import credit_table
from crbc_jax.rollouts.batching import make_batch
from crbc_jax.rollouts.table import RolloutError
from crbc_jax.types import Boundary
from tests import groups as groups_lib
from tests.groups import rollout
from tests.oracle import Rollout, Step

OPTIONS = [
  {},
  {"gamma": 0.9, "lam": 0.5},
  {"gamma": 1.0, "lam": 1.0},
  {"gamma": 0.7, "lam": 0.0},
  {"gamma": 0.9, "lam": 0.5, "signal": "observed"},
]


def crowd(seed=0, count=40):
  """A table of random groups with random values, and its batch."""
  groups = groups_lib.random_groups(count, 61 + seed, missing=(0, 0, 0.2))
  size = sum(len(groups_lib.steps(g)) for g in groups)
  value = np.random.default_rng(seed).normal(size=size).astype(np.float32)
  table = groups_lib.table_of(groups, value=value)
  return table, make_batch(table)


def rows_of_rollouts(table):
  """Index of the rows of each rollout, in the order of its steps."""
  for traj in np.unique(table.traj_id.astype(int)):
    rows = np.flatnonzero(table.traj_id == traj)
    yield rows[np.argsort(table.step_idx[rows])]


def rewards(table, signal):
  if signal == "observed":
    return table.reward
  return (table.boundary == Boundary.SUCCESS).astype(float)


def slow_gae(table, *, gamma=0.99, lam=0.95, signal="outcome"):
  """One step at a time, backwards, in float64."""
  reward, out = rewards(table, signal), np.zeros(len(table))
  for rows in rows_of_rollouts(table):
    following, later = 0.0, 0.0
    for i in rows[::-1]:
      delta = reward[i] + gamma * following - table.value[i]
      later = delta + gamma * lam * later
      out[i], following = later, table.value[i]
  return out


def test_worked_numbers():
  group = [
    rollout("x a y b z c", "success"),
    rollout("x a y b", "truncated", "x"),  # x is worth .5, but not here
    rollout("z c", "failure"),
  ]
  table = groups_lib.table_of([group], value=[0.5, 0.25, 0.5, 0.5, 0.5, 0.75])
  got = groups_lib.credit("gae", table, gamma=0.5, lam=0.5)
  # delta: .5 * .25 - .5, .5 * .5 - .25, 1 - .5 | .25 - .5, -.5 | -.75
  want = [-0.34375, 0.125, 0.5, -0.375, -0.5, -0.75]
  np.testing.assert_array_equal(got["advantage"], np.float32(want))
  np.testing.assert_array_equal(got["step"], got["advantage"])
  np.testing.assert_array_equal(got["v"], np.float32(table.value))
  np.testing.assert_array_equal(
    got["q"], np.float32([0.15625, 0.375, 1.0, 0.125, 0.0, 0.0])
  )
  assert not got["trajectory"].any()
  assert got["live"].all()


def test_observed_rewards():
  group = [
    Rollout((Step("x", "a", 2), Step("y", "b", -1)), "failure"),
    Rollout((Step("x", "a", 0.5),), "success"),
  ]
  table = groups_lib.table_of([group], value=[1.0, 0.5, 0.25])
  options = {"gamma": 0.5, "lam": 0.5, "signal": "observed"}
  got = groups_lib.credit("gae", table, **options)["advantage"]
  # delta: 2 + .25 - 1, -1 - .5 | .5 - .25
  np.testing.assert_array_equal(got, np.float32([0.875, -1.5, 0.25]))


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_a_slow_loop(options):
  table, batch = crowd()
  got = batch.to_rows(
    groups_lib.credit_fn("gae", **options)(batch.arrays).advantage, len(table)
  )
  np.testing.assert_allclose(got, slow_gae(table, **options), atol=2e-6)
  assert np.abs(got).max() > 1


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_rlax(options):
  rlax = pytest.importorskip("rlax", reason="an oracle of [dev]")
  options = {"gamma": 0.99, "lam": 0.95, "signal": "outcome"} | options
  table, batch = crowd(1, count=8)
  got = batch.to_rows(
    groups_lib.credit_fn("gae", **options)(batch.arrays).advantage, len(table)
  )
  reward = rewards(table, options["signal"]).astype(np.float32)
  value = table.value.astype(np.float32)
  for rows in rows_of_rollouts(table):
    wanted = rlax.truncated_generalized_advantage_estimation(
      jnp.asarray(reward[rows]),
      jnp.full(len(rows), options["gamma"]),
      options["lam"],
      jnp.asarray(np.append(value[rows], np.float32(0))),
    )
    np.testing.assert_allclose(got[rows], wanted, atol=2e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_lam_one_is_the_return_less_the_value(gamma):
  table, _ = crowd(2)
  got = groups_lib.credit("gae", table, gamma=gamma, lam=1.0)
  # GiGPO's q is the discounted return of a row.
  returns = groups_lib.credit(
    "gigpo", table, gamma=gamma, success_reward=1.0, invalid_penalty=0.0
  )["q"]
  np.testing.assert_allclose(got["advantage"], returns - table.value, atol=2e-6)
  np.testing.assert_allclose(got["q"], returns, atol=2e-6)
  other = groups_lib.credit("gae", table, gamma=gamma, lam=0.9)
  assert np.abs(other["q"] - returns).max() > 0.1


def test_true_values_of_a_certain_walk_leave_no_advantage():
  walk = [rollout("a r b r c r d r", "success")]
  value = 0.5 ** np.arange(3, -1, -1)
  for lam in (0.0, 0.3, 1.0):
    table = groups_lib.table_of([walk], value=value)
    got = groups_lib.credit("gae", table, gamma=0.5, lam=lam)
    assert not got["advantage"].any()
    np.testing.assert_array_equal(got["q"], value.astype(np.float32))


def test_rollouts_are_never_compared():
  table, batch = crowd(3)
  want = batch.to_rows(
    groups_lib.credit_fn("gae")(batch.arrays).advantage, len(table)
  )
  for rows in list(rows_of_rollouts(table))[:20]:
    alone = groups_lib.credit("gae", table.take(rows))["advantage"]
    np.testing.assert_allclose(alone, want[rows], atol=1e-6)


def test_gradients_are_finite_and_zero_in_the_padding():
  _, batch = crowd(4, count=6)
  arrays = batch.arrays
  padding = ~arrays.mask
  assert padding.any()
  dirty = arrays.replace(
    value=np.where(padding, np.nan, arrays.value),
    reward=np.where(padding, np.inf, arrays.reward),
    traj=np.where(padding, 0, arrays.traj),
  )
  estimator = registry.make_estimator("gae", signal="observed")

  def total(parts, group):
    got = estimator(group.replace(**parts))
    row = jnp.arange(1.0, 1.0 + group.value.shape[0])
    return jnp.sum(row * (got.advantage + got.v + got.q))

  gradient = jax.jit(jax.vmap(jax.grad(total)))
  clean, got = (
    gradient({"value": x.value, "reward": x.reward}, x) for x in (arrays, dirty)
  )
  for name, found in got.items():
    assert np.isfinite(found).all(), name
    assert not np.asarray(found)[padding].any(), name
    assert np.asarray(found)[~padding].any(), name
    np.testing.assert_array_equal(found, clean[name])


def test_gradient_by_reward_is_the_discounted_weight():
  """dA_0/dr_k = (gamma lam)^k inside the rollout, 0 outside."""
  group = [rollout("x a y b z c", "failure"), rollout("x a y b", "failure")]
  arrays = groups_lib.one(make_batch(groups_lib.table_of([group])).arrays)
  estimator = registry.make_estimator(
    "gae", gamma=0.8, lam=0.5, signal="observed"
  )
  got = jax.grad(lambda r: estimator(arrays.replace(reward=r)).advantage[0])(
    jnp.asarray(arrays.reward)
  )
  np.testing.assert_allclose(got[:5], [1, 0.4, 0.16, 0, 0], rtol=1e-6)


class TestCreditTable:
  def test_a_table_without_values_is_refused(self):
    columns = groups_lib.columns_of([groups_lib.golden()])
    del columns["value"]
    table = groups_lib.StepTable.from_columns(**columns)
    for text in ("gae", "gae(lam=0.5)"):
      with pytest.raises(RolloutError) as refusal:
        credit_table(table, text)
      message = str(refusal.value)
      assert "'gae' needs a critic" in message and "'value'" in message
      assert "\n" not in message
    assert credit_table(table, "grpo").advantage.any()

  def test_values_come_from_the_column(self):
    table, _ = crowd(5, count=3)
    order = np.random.default_rng(0).permutation(len(table))
    got = credit_table(table.take(order), "gae(gamma=0.9)", lam=0.5)
    wanted = slow_gae(table, gamma=0.9, lam=0.5)[order]
    np.testing.assert_allclose(got.advantage, wanted, atol=2e-6)
    np.testing.assert_array_equal(got.v, table.value[order].astype("f4"))

  def test_a_table_without_values_has_zeros(self):
    """`catalogue_test` shows that nobody else reads them."""
    columns = groups_lib.columns_of(groups_lib.random_groups(10, 7))
    with_values = groups_lib.StepTable.from_columns(**columns)
    del columns["value"]
    without = groups_lib.StepTable.from_columns(**columns)
    arrays = make_batch(without).arrays
    assert not arrays.value.any()
    chex.assert_trees_all_equal(
      make_batch(with_values).arrays.replace(value=arrays.value), arrays
    )
    for name in ("crbc(depth=0)", "gigpo"):
      np.testing.assert_array_equal(
        groups_lib.bits(credit_table(with_values, name).advantage),
        groups_lib.bits(credit_table(without, name).advantage),
      )
