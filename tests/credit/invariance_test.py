"""What every registered estimator owes, whatever it computes.

Parametrised over the registry: a new estimator is held to all of this by
being registered.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import GroupArrays
from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout
from tests.oracle import Rollout, Step

NAMES = sorted(registry.ESTIMATORS)
SHAPE = BatchShape(64, 64, 32, 32, 16, 64, 32)

# A sum in another order differs by a few ulp, and a deviation of .03 (the
# invalid-action penalty) divides ulps of 10: see estimators_test.COARSE.
REORDERED = 1e-4


def cases():
  """Every estimator with its defaults, and with observed rewards."""
  for name in NAMES:
    yield pytest.param(name, {}, id=name)
    if "signal" in registry.estimator_options(name):
      yield pytest.param(name, {"signal": "observed"}, id=f"{name}-observed")


CASES = list(cases())
# Whitened over the batch: the other groups matter, by definition.
OVER_BATCH = ("reinforce_pp", "reinforce_pp_baseline")
every_case = pytest.mark.parametrize("name, options", CASES)
every_estimator = pytest.mark.parametrize("name", NAMES)
core_first = pytest.mark.parametrize("name", groups_lib.core_first(NAMES))


@functools.cache
def crowd() -> tuple[list, StepTable, GroupBatch]:
  groups = groups_lib.random_groups(64, 51, missing=(0, 0, 0, 0.2), dyadic=True)
  table = groups_lib.table_of(groups)
  return groups, table, make_batch(table, SHAPE)


def run(name, batch, **options):
  return groups_lib.credit_fn(name, **options)(batch)


def in_table_order(name, table, **options):
  batch = make_batch(table, SHAPE)
  result = run(name, batch.arrays, **options)
  return {
    f: batch.to_rows(getattr(result, f), len(table)) for f in groups_lib.FIELDS
  }


def degenerate_groups() -> list[list[Rollout]]:
  """The smallest and the most uniform groups there are."""
  one = rollout("s a", "success")
  lost = rollout("s a", "failure")
  walk = rollout("s a m b k c", "success")
  invalid = Rollout((Step("s", "<invalid>", -0.1, False),), "truncated", "s")
  return [
    [one],
    [lost],
    [invalid],
    [walk],
    [rollout("s a s a s b", "failure")],
    [one] * 4,
    [lost] * 4,
    [walk] * 4,
    [invalid] * 4,
    [one, lost],
    [one, rollout("s b", "success")],
    [walk, rollout("s b m b k d", "success")],
    [lost, rollout("s b m a", "truncated", "s")],
    [Rollout(tuple(Step(None, "a") for _ in range(4)), "success")] * 2,
    [rollout(" ".join(["s a"] * 20), "truncated", "s")] * 2,
    groups_lib.golden(),
  ]


def degenerate_batch(**columns) -> GroupBatch:
  """Degenerate groups, then groups of padding alone."""
  return make_batch(groups_lib.table_of(degenerate_groups(), **columns), SHAPE)


# -- order and names ---------------------------------------------------------


@every_case
def test_permuting_the_rollouts_changes_nothing(name, options):
  _, table, _ = crowd()
  want = in_table_order(name, table, **options)
  rng = np.random.default_rng(0)
  number = table.traj_id.astype(int)
  for _ in range(2):
    moved = rng.permutation(number.max() + 1)[number]
    got = in_table_order(
      name, groups_lib.table_of(crowd()[0], traj_id=moved), **options
    )
    for field in groups_lib.FIELDS:
      np.testing.assert_allclose(
        got[field], want[field], atol=REORDERED, rtol=1e-5, err_msg=field
      )


@every_estimator
def test_renaming_keys_and_ids_changes_no_bit(name):
  groups, table, _ = crowd()
  rng = np.random.default_rng(1)

  def renamed(keys):
    distinct = sorted({k for k in keys if k is not None})
    new = dict(
      zip(distinct, rng.permutation(len(distinct)).tolist(), strict=True)
    )
    return new

  state = renamed([*table.state_key, *table.next_state_key])
  action = renamed(table.action_key)
  other = groups_lib.table_of(
    groups,
    state_key=[k if k is None else ("S", state[k]) for k in table.state_key],
    next_state_key=[
      k if k is None else ("S", state[k]) for k in table.next_state_key
    ],
    action_key=[f"A{action[k]}" for k in table.action_key],
    group_id=[f"task{g:06}" for g in table.group_id],
    traj_id=[("rollout", int(i)) for i in table.traj_id],
  )
  want, got = in_table_order(name, table), in_table_order(name, other)
  for field in groups_lib.FIELDS:
    np.testing.assert_array_equal(got[field], want[field], err_msg=field)


def renumbered(arrays: GroupArrays, rng) -> GroupArrays:
  """Other numbers for everything that has one, padding included."""
  b = arrays.mask.shape[0]
  rows = np.arange(b)[:, None]
  merged = arrays.transitions

  def shuffled(size):
    return np.stack([rng.permutation(size) for _ in range(b)]).astype(np.int32)

  state, pair, traj, transition, slot = (
    shuffled(x.shape[1])
    for x in (
      arrays.state_mask,
      arrays.pair_mask,
      arrays.traj_mask,
      merged.count,
      merged.slot_mask,
    )
  )
  action = rng.permutation(arrays.action.max() + 1).astype(np.int32)

  def with_outside(numbers):  # one past the end stays where it is
    size = np.full((b, 1), numbers.shape[1], np.int32)
    return np.concatenate([numbers, size], 1)

  next_state, next_slot = with_outside(state), with_outside(slot)

  def moved(values, to):
    out = np.zeros_like(values)
    out[rows, to] = values
    return out

  return arrays.replace(
    state=state[rows, arrays.state],
    pair=pair[rows, arrays.pair],
    action=action[arrays.action],
    next_state=next_state[rows, arrays.next_state],
    traj=traj[rows, arrays.traj],
    pair_state=moved(state[rows, arrays.pair_state], pair),
    pair_mask=moved(arrays.pair_mask, pair),
    state_mask=moved(arrays.state_mask, state),
    traj_mask=moved(arrays.traj_mask, traj),
    transitions=merged.replace(
      row=transition[rows, merged.row],
      pair=moved(pair[rows, merged.pair], transition),
      next_state=moved(next_state[rows, merged.next_state], transition),
      boundary=moved(merged.boundary, transition),
      count=moved(merged.count, transition),
      hop=moved(state[rows, merged.hop], state),
      slot=moved(next_slot[rows, merged.slot], state),
      slot_mask=moved(merged.slot_mask, slot),
    ),
  )


@every_case
def test_renumbering_ids_changes_nothing(name, options):
  """Kernels may not lean on first-appearance order, nor on ids < count."""
  batch = crowd()[2]
  want = run(name, batch.arrays, **options)
  got = run(name, renumbered(batch.arrays, np.random.default_rng(2)), **options)
  for field in groups_lib.FIELDS:
    np.testing.assert_allclose(
      getattr(got, field),
      getattr(want, field),
      atol=REORDERED,
      rtol=1e-5,
      err_msg=field,
    )


# -- duplication -------------------------------------------------------------

# What doubling all rollouts does to each estimator: options for the group and
# for its double, and the fields that agree then.
MEAN = {"norm": "mean"}
BY_TRAJECTORY = MEAN | {"statistics": "trajectory"}
DOUBLED = {
  # Ratios of counts: nothing moves (§1.7 no. 11). A^G does, by its ddof.
  "crbc": ({}, {}, ("q", "v", "step", "live")),
  "crbc_anchored": ({}, {}, ("q", "v", "step", "live")),
  "crbc_lambda": ({}, {}, ("q", "v", "step", "live")),
  # Twice the rollouts, half the variance: it shrinks less.
  "crbc_shrunk": ({}, {}, ("q", "v", "live")),
  # The prior's weight must double with the visits.
  "rtmc": ({"n_prior": 2.0}, {"n_prior": 4.0}, ("q", "v", "advantage")),
  # Means stay; a lone visit gets a companion, itself, so it stays 0.
  "dr_grpo": ({}, {}, ("advantage",)),
  "g2po": (BY_TRAJECTORY, BY_TRAJECTORY, ("q", "v", "step")),
  "gagpo": (MEAN, MEAN, ("q", "v", "step")),
  "gigpo": (
    BY_TRAJECTORY | {"singleton": "zero"},
    BY_TRAJECTORY | {"singleton": "zero"},
    ("q", "v", "step"),
  ),
  "graft": (MEAN, MEAN, ("q", "v", "step")),
  "graphgpo": (BY_TRAJECTORY, BY_TRAJECTORY, ("q", "v", "step")),
  "graphhca": (MEAN, MEAN, ("q", "v", "step")),
  "mica": (MEAN, MEAN, ("q", "v", "step")),
  "rewardflow": (MEAN, MEAN, ("q", "v", "step")),
  "salt": (
    {"trajectory": "dr_grpo"},
    {"trajectory": "dr_grpo"},
    ("trajectory", "step"),
  ),
  # Deviations of the population (ddof 0).
  "hgpo": ({}, {}, ("q", "v", "advantage")),
  # Rollouts are not compared at all.
  "gae": ({}, {}, ("q", "v", "advantage")),
}
# These change by a ddof; see below.
BY_DDOF = {"grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline"}
# A copy of each rollout is among the others.
NOT_DOUBLED = BY_DDOF | {"crbc_loo"}


def test_doubling_is_known_of_every_estimator():
  assert set(DOUBLED) | NOT_DOUBLED == set(NAMES)


def doubled(groups):
  return [[*g, *g] for g in groups]


def halves(values, groups):
  """Rows of the first and of the second copy in a doubled table."""
  first, second, start = [], [], 0
  for group in groups:
    size = len(groups_lib.steps(group))
    first.append(values[start : start + size])
    second.append(values[start + size : start + 2 * size])
    start += 2 * size
  return np.concatenate(first), np.concatenate(second)


def small_groups():
  """Merging groups without missing states: two None never meet, even twice."""
  return groups_lib.random_groups(50, 52, max_rollouts=6, max_steps=4)


@every_estimator
def test_copies_of_a_rollout_get_the_same_credit(name):
  groups = small_groups()
  got = in_table_order(name, groups_lib.table_of(doubled(groups)))
  for field in groups_lib.FIELDS:
    first, second = halves(got[field], groups)
    np.testing.assert_allclose(first, second, atol=1e-5, err_msg=field)


@pytest.mark.parametrize("name", sorted(DOUBLED))
def test_doubling_the_group(name):
  before, after, fields = DOUBLED[name]
  groups = small_groups()
  want = in_table_order(name, groups_lib.table_of(groups), **before)
  got = in_table_order(name, groups_lib.table_of(doubled(groups)), **after)
  for field in fields:
    np.testing.assert_allclose(
      halves(got[field], groups)[0], want[field], atol=2e-5, err_msg=field
    )


def test_doubling_changes_trajectory_terms_by_their_ddof_only():
  groups = [g for g in small_groups() if len(g) > 1]
  n = np.array([len(g) for g in groups for _ in groups_lib.steps(g)])
  for name, ratio in (
    ("grpo", np.sqrt((2 * n - 1) / (2 * n - 2))),
    ("rloo", 2 * (n - 1) / (2 * n - 1)),
    # Rows of the whole batch.
    ("reinforce_pp", np.sqrt((2 * len(n) - 1) / (2 * len(n) - 2))),
    ("reinforce_pp_baseline", np.sqrt((2 * len(n) - 1) / (2 * len(n) - 2))),
  ):
    want = in_table_order(name, groups_lib.table_of(groups))["advantage"]
    got = in_table_order(name, groups_lib.table_of(doubled(groups)))
    np.testing.assert_allclose(
      halves(got["advantage"], groups)[0], want * ratio, atol=1e-5
    )


def test_rtmc_smoothing_is_not_invariant_to_doubling():
  groups = small_groups()
  want = in_table_order("rtmc", groups_lib.table_of(groups))["advantage"]
  got = in_table_order("rtmc", groups_lib.table_of(doubled(groups)))
  assert np.abs(halves(got["advantage"], groups)[0] - want).max() > 0.01


# -- padding -----------------------------------------------------------------


@core_first
def test_padding_to_larger_shapes_changes_nothing(name):
  """Up to rounding: a longer scan or solve adds in another order."""
  _, table, batch = crowd()
  want = run(name, batch.arrays)
  larger = make_batch(table, BatchShape(70, 150, 50, 77, 40, 90, 50))
  got = run(name, larger.arrays)
  for field in groups_lib.FIELDS:
    np.testing.assert_allclose(
      larger.to_rows(getattr(got, field), len(table)),
      batch.to_rows(getattr(want, field), len(table)),
      atol=REORDERED,
      rtol=1e-5,
      err_msg=field,
    )


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_padding_changes_no_bit_of_trajectory_estimators(name):
  _, table, batch = crowd()
  larger = make_batch(table, BatchShape(70, 150, 50, 77, 40, 90, 50))
  np.testing.assert_array_equal(
    groups_lib.bits(
      larger.to_rows(run(name, larger.arrays).advantage, len(table))
    ),
    groups_lib.bits(
      batch.to_rows(run(name, batch.arrays).advantage, len(table))
    ),
  )


def with_garbage(arrays: GroupArrays, rng, *, wild: bool) -> GroupArrays:
  """Fills all padding; `wild` uses numbers outside every axis."""
  b, r = arrays.mask.shape
  merged = arrays.transitions
  n, m, g, e, a = (
    x.shape[1]
    for x in (
      arrays.state_mask,
      arrays.pair_mask,
      arrays.traj_mask,
      merged.count,
      merged.slot_mask,
    )
  )

  def ids(size, width):
    if wild:
      return rng.choice([-7, -1, 0, size, 10**6], (b, width)).astype(np.int32)
    return rng.integers(0, size, (b, width), np.int32)

  def numbers(width):
    return rng.choice([np.nan, np.inf, -np.inf, 1e30, 5.0], (b, width))

  def filled(mask, values, garbage):
    return np.where(mask, values, garbage).astype(values.dtype)

  def rows(values, garbage):
    return filled(arrays.mask, values, garbage)

  def unseen(values, garbage):
    return filled(merged.count > 0, values, garbage)

  return arrays.replace(
    state=rows(arrays.state, ids(n, r)),
    pair=rows(arrays.pair, ids(m, r)),
    action=rows(arrays.action, ids(3, r)),
    next_state=rows(arrays.next_state, ids(n + 1, r)),
    traj=rows(arrays.traj, ids(g, r)),
    step=rows(arrays.step, ids(3, r)),
    boundary=rows(arrays.boundary, rng.integers(0, 4, (b, r))),
    reward=rows(arrays.reward, numbers(r)),
    value=rows(arrays.value, numbers(r)),
    valid=rows(arrays.valid, rng.integers(0, 2, (b, r)) > 0),
    pair_state=filled(arrays.pair_mask, arrays.pair_state, ids(n, m)),
    transitions=merged.replace(
      row=rows(merged.row, ids(e, r)),
      pair=unseen(merged.pair, ids(m, e)),
      next_state=unseen(merged.next_state, ids(n + 1, e)),
      boundary=unseen(merged.boundary, rng.integers(0, 4, (b, e))),
      hop=filled(arrays.state_mask, merged.hop, ids(n, n)),
      slot=filled(arrays.state_mask, merged.slot, ids(a + 1, n)),
    ),
  )


def test_garbage_fills_every_array_that_is_padded():
  arrays = crowd()[2].arrays
  filled = with_garbage(arrays, np.random.default_rng(3), wild=False)
  masks = ("mask", "pair_mask", "state_mask", "traj_mask")
  for kept, got in ((arrays, filled), (arrays.transitions, filled.transitions)):
    for field in dataclasses.fields(kept):
      before, after = getattr(kept, field.name), getattr(got, field.name)
      if field.name in (*masks, "slot_mask", "count", "transitions"):
        continue
      assert (before != after).any(), field.name


@pytest.mark.parametrize("wild", [False, True])
@every_case
def test_what_padding_holds_changes_no_bit(name, options, wild):
  batch = crowd()[2]
  want = run(name, batch.arrays, **options)
  rng = np.random.default_rng(3)
  for _ in range(2):
    got = run(name, with_garbage(batch.arrays, rng, wild=wild), **options)
    chex.assert_trees_all_equal(got, want)


@every_case
def test_padded_rows_get_exactly_zero(name, options):
  for batch in (crowd()[2], degenerate_batch()):
    got = run(
      name,
      with_garbage(batch.arrays, np.random.default_rng(4), wild=False),
      **options,
    )
    for field in groups_lib.FIELDS:
      assert not np.asarray(getattr(got, field))[~batch.arrays.mask].any(), (
        field
      )


# -- batches and compilation -------------------------------------------------


@pytest.mark.parametrize(
  "name, options", [c for c in CASES if c.values[0] not in OVER_BATCH]
)
def test_other_groups_of_the_batch_do_not_matter(name, options):
  """Other companions in the same batch: no bit moves."""
  batch = crowd()[2]
  want = run(name, batch.arrays, **options)
  kept = np.arange(64) % 3 == 0
  companions = make_batch(
    groups_lib.table_of(groups_lib.random_groups(64, 99, max_steps=8)), SHAPE
  ).arrays
  mixed = jax.tree.map(
    lambda a, c: np.where(kept.reshape(-1, *[1] * (a.ndim - 1)), a, c),
    batch.arrays,
    companions,
  )
  got = run(name, mixed, **options)
  chex.assert_trees_all_equal(
    jax.tree.map(lambda x: np.asarray(x)[kept], got),
    jax.tree.map(lambda x: np.asarray(x)[kept], want),
  )


@pytest.mark.parametrize("name", OVER_BATCH)
def test_whitened_terms_have_the_moments_of_the_batch(name):
  """And so they change with the other groups."""
  arrays = crowd()[2].arrays
  got = np.asarray(run(name, arrays).advantage)[arrays.mask]
  assert abs(got.mean()) < 1e-5
  assert got.std(ddof=1) == pytest.approx(1.0, abs=1e-4)
  fewer = jax.tree.map(lambda x: np.array(x), arrays)
  fewer.mask[32:] = False
  half = np.asarray(run(name, fewer).advantage)[:32]
  assert (
    np.abs(half - np.asarray(run(name, arrays).advantage)[:32]).max() > 0.01
  )
  np.testing.assert_allclose(half[arrays.mask[:32]].mean(), 0, atol=1e-5)


@core_first
def test_one_group_without_vmap_and_without_jit(name):
  """The batched, jitted program is the plain function of one group."""
  batch = crowd()[2]
  for index in (0, 7):
    whole = batch.arrays
    if name in OVER_BATCH:  # alone it is a batch of its own
      whole = jax.tree.map(lambda x, i=index: x[i : i + 1], whole)
    want = groups_lib.one(run(name, whole), 0 if name in OVER_BATCH else index)
    group = jax.tree.map(jnp.asarray, groups_lib.one(batch.arrays, index))
    chex.assert_trees_all_close(
      registry.make_estimator(name)(group), want, atol=REORDERED, rtol=1e-5
    )


# -- degenerate groups -------------------------------------------------------


@every_case
def test_results_are_finite_on_degenerate_groups(name, options):
  rewards = [
    (-1) ** i * 0.7 * (i % 3)
    for i in range(sum(len(groups_lib.steps(g)) for g in degenerate_groups()))
  ]
  for batch in (degenerate_batch(), degenerate_batch(reward=rewards)):
    assert not batch.arrays.mask[-1].any()  # one of padding alone
    chex.assert_tree_all_finite(run(name, batch.arrays, **options))


def reward_gradient(name, **options):
  estimator = registry.make_estimator(name, signal="observed", **options)

  def total(reward, group):
    got = estimator(group.replace(reward=reward))
    row = jnp.arange(1.0, 1.0 + reward.shape[0])  # else centring hides it
    return jnp.sum(row * (got.advantage + got.step + got.q + got.v))

  return jax.jit(jax.vmap(jax.grad(total)))


@pytest.mark.parametrize(
  "name",
  groups_lib.core_first(
    n for n in NAMES if "signal" in registry.estimator_options(n)
  ),
)
def test_gradients_by_reward_are_finite_and_zero_in_the_padding(name):
  """Also with NaN in the padding: masks act before the arithmetic."""
  gradient = reward_gradient(name)
  steps = sum(len(groups_lib.steps(g)) for g in degenerate_groups())
  for reward in (np.zeros(steps), np.arange(steps) % 5 / 4):
    arrays = degenerate_batch(reward=reward).arrays
    for source in (
      arrays,
      with_garbage(arrays, np.random.default_rng(5), wild=False),
    ):
      got = np.asarray(gradient(source.reward, source))
      assert np.isfinite(got).all()
      assert not got[~arrays.mask].any()
  assert got.any()  # of unequal rewards


@pytest.mark.parametrize(
  "name, options",
  [
    ("rtmc", {"scale": "std"}),
    ("gigpo", {"norm": "mean", "statistics": "trajectory"}),
    ("crbc", {"depth": 0}),
    ("crbc", {"depth": 2, "truncation": "bootstrap"}),
  ],
)
def test_gradients_by_reward_of_other_options(name, options):
  arrays = degenerate_batch().arrays
  got = np.asarray(reward_gradient(name, **options)(arrays.reward, arrays))
  assert np.isfinite(got).all()
  assert not got[~arrays.mask].any()


@pytest.mark.parametrize(
  "depth, signal",
  [(0, "outcome"), (1, "outcome"), (3, "observed"), (float("inf"), "outcome")],
)
def test_gradients_by_beta_are_finite(depth, signal):
  estimator = registry.lookup("crbc").function

  def total(beta, group):
    got = estimator(group, beta=beta, depth=depth, signal=signal)
    return jnp.sum(got.advantage + got.q + got.v)

  gradient = jax.jit(jax.vmap(jax.grad(total), (None, 0)))
  batch = degenerate_batch()
  for beta in (0.5, 0.98, 1.0):
    got = np.asarray(gradient(beta, batch.arrays))
    assert np.isfinite(got).all()
    assert not got[len(degenerate_groups()) :].any()


def test_gradient_by_beta_is_the_slope():
  """dV/dbeta of the golden group by finite differences of exact values."""
  group = groups_lib.golden()
  low, high = (
    np.array(groups_lib.flat([oracle.crbc(group, beta=b)["v"]])).sum()
    for b in (0.899, 0.901)
  )
  batch = make_batch(groups_lib.table_of([group]))
  arrays = jax.tree.map(jnp.asarray, groups_lib.one(batch.arrays))
  crbc = registry.lookup("crbc").function
  slope = jax.jit(jax.grad(lambda beta: jnp.sum(crbc(arrays, beta=beta).v)))(
    0.9
  )
  assert slope == pytest.approx((high - low) / 0.002, rel=1e-3)
