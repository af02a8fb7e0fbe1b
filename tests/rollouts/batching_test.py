"""Interning, canonical order, padding and the way back."""

import chex
import jax
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.rollouts import batching, interning
from crbc_jax.rollouts.batching import BatchShape, grow_shape, make_batch
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.types import Boundary
from tests import groups as groups_lib
from tests.groups import rollout

NO_STATE = 10**6  # an integer key nobody acts from


def interned(groups, **columns):
  return interning.intern_table(groups_lib.table_of(groups, **columns))


def needed(groups):
  return batching.prepare(groups_lib.table_of(groups)).needed


def test_ids_follow_the_first_appearance_in_a_group():
  got = interned([groups_lib.golden()])
  assert got.state.tolist() == [0, 1, 0, 1, 2, 0, 2, 0, 2, 0, 2]
  # (s0,a) (s1,c) (s0,a) (s1,d) (s2,e) (s0,b) (s2,f) then b e b e
  assert got.pair.tolist() == [0, 1, 0, 2, 3, 4, 5, 4, 3, 4, 3]
  assert got.next_state.tolist() == [1, -1, 1, 2, -1, 2, -1, 2, 0, 2, -1]
  assert got.traj.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3]
  assert got.step.tolist() == [0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 3]


def test_the_shape_a_table_needs():
  # 6 pairs lead one way each, but (s2,e) both to s0 and to failure; s0 and s2
  # branch, s1 goes to s2 or succeeds.
  alone = BatchShape(
    groups=1,
    rows=11,
    anchors=3,
    pairs=6,
    rollouts=4,
    transitions=7,
    branching=1,
  )
  assert needed([groups_lib.golden()]) == alone
  assert needed([groups_lib.golden()] * 2) == alone._replace(groups=2)


def test_keys_never_merge_across_groups():
  """The same keys twice give the same ids, each group from 0."""
  alone = interned([groups_lib.golden()])
  both = interned([groups_lib.golden(), groups_lib.golden()])
  for field in ("state", "pair", "next_state", "traj", "step"):
    np.testing.assert_array_equal(
      getattr(both, field), np.tile(getattr(alone, field), 2)
    )


def test_a_final_state_is_looked_up_in_its_own_group_only():
  got = interned(
    [
      [rollout("x a", "truncated", "y"), rollout("y a", "failure")],
      [rollout("x a", "truncated", "y")],
      [rollout("y a", "truncated", "y")],
    ]
  )
  assert got.next_state.tolist() == [1, -1, -1, 0]


def test_a_final_state_may_be_unknown_or_never_acted_from():
  got = interned(
    [
      [
        rollout("x a", "truncated", None),
        rollout("x a", "failure", "never"),
        rollout("x a", "success", "x"),
      ]
    ]
  )
  assert got.next_state.tolist() == [-1, -1, 0]


def test_a_trajectory_id_in_two_groups_starts_twice():
  """`validate` refuses it; interning must not glue the two together."""
  got = interned(
    [[rollout("x a", "failure")], [rollout("x a", "success")]], traj_id=[0, 0]
  )
  assert got.step.tolist() == [0, 0]


@pytest.mark.parametrize("integers", [False, True])
def test_missing_states_merge_with_nothing(integers):
  none = [rollout("s0 a s1 a s2 a", "failure"), rollout("s0 a", "success")]
  state = [1, None, None, None] if integers else ["s", None, None, None]
  got = interned([none], state_key=state, next_state_key=[None] * 4)
  assert got.state.tolist() == [0, 1, 2, 3]
  assert got.pair.tolist() == [0, 1, 2, 3]
  assert got.next_state.tolist() == [1, 2, -1, -1]


def test_equal_actions_at_two_states_are_two_pairs():
  got = interned([[rollout("x a y a x b x a", "failure")]])
  assert got.pair.tolist() == [0, 1, 2, 0]


def test_groups_come_in_order_of_their_ids():
  table = StepTable.from_columns(
    group_id=["b", "a", "b"],
    traj_id=[2, 1, 0],
    step_idx=[0, 0, 0],
    state_key=["x"] * 3,
    action_key=["a"] * 3,
    boundary=["failure"] * 3,
  )
  batch = make_batch(table)
  assert batch.group_ids == ("a", "b")
  assert batch.row_index[:, :3].tolist() == [[1, -1, -1], [2, 0, -1]]


# -- canonical order ---------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_shuffled_rows_give_bit_identical_arrays(missing):
  table = groups_lib.table_of(
    groups_lib.random_groups(60, 5, missing=(missing,))
  )
  batch = make_batch(table)
  credit = groups_lib.credit("crbc", table)
  rng = np.random.default_rng(0)
  for _ in range(3):
    shuffled = table.take(rng.permutation(len(table)))
    again = make_batch(shuffled)
    chex.assert_trees_all_equal(again.arrays, batch.arrays)
    real = batch.row_index >= 0
    np.testing.assert_array_equal(again.row_index >= 0, real)
    np.testing.assert_array_equal(
      shuffled.row_id[again.row_index[real]],
      table.row_id[batch.row_index[real]],
    )
    moved = groups_lib.credit("crbc", shuffled)
    np.testing.assert_array_equal(
      groups_lib.bits(moved["advantage"]),
      groups_lib.bits(credit["advantage"][shuffled.row_id]),
    )


def test_object_keys_and_integer_keys_give_the_same_arrays():
  groups = groups_lib.random_groups(80, 6)
  by_name = groups_lib.table_of(groups)
  code = {
    k: i * 37 % 101
    for i, k in enumerate(
      sorted({*by_name.state_key, *by_name.next_state_key} - {None})
    )
  }
  code[None] = NO_STATE
  action = {k: 7 - i for i, k in enumerate(sorted({*by_name.action_key}))}
  by_number = groups_lib.table_of(
    groups,
    state_key=np.array([code[k] for k in by_name.state_key]),
    next_state_key=np.array([code[k] for k in by_name.next_state_key]),
    action_key=np.array([action[k] for k in by_name.action_key]),
  )
  assert by_number.state_key.dtype != object
  chex.assert_trees_all_equal(
    make_batch(by_number).arrays, make_batch(by_name).arrays
  )


def test_tuple_keys_work_like_strings():
  groups = groups_lib.random_groups(40, 7)
  plain = groups_lib.table_of(groups)
  nested = groups_lib.table_of(
    groups,
    state_key=[("at", (k,)) for k in plain.state_key],
    next_state_key=[k and ("at", (k,)) for k in plain.next_state_key],
  )
  chex.assert_trees_all_equal(
    make_batch(nested).arrays, make_batch(plain).arrays
  )


# -- padding -----------------------------------------------------------------


def test_padded_arrays_hold_what_the_types_say():
  batch = make_batch(
    groups_lib.table_of(
      [groups_lib.golden(), [rollout("x a", "truncated", "x")]]
    )
  )
  a = batch.arrays
  assert batch.shape == BatchShape(2, 16, 8, 8, 4, 8, 4)
  assert a.state.shape == (2, 16) and a.pair_mask.shape == (2, 8)
  assert a.mask.sum(1).tolist() == [11, 1]
  assert a.state_mask.sum(1).tolist() == [3, 1]
  assert a.pair_mask.sum(1).tolist() == [6, 1]
  assert a.traj_mask.sum(1).tolist() == [4, 1]
  assert a.pair_state[0, :6].tolist() == [0, 1, 1, 2, 0, 2]
  assert a.next_state[0, 1] == 8  # = N: left the observed process
  assert a.next_state[1, 0] == 0
  assert a.boundary[1, 0] == Boundary.TRUNCATED  # issue 27: it survives
  for field in (
    "state",
    "pair",
    "next_state",
    "traj",
    "step",
    "boundary",
    "reward",
    "valid",
  ):
    values = getattr(a, field)
    assert not values[~a.mask].any(), field
    assert values.dtype in (np.int32, np.float32, bool), field


@pytest.mark.parametrize("axis", BatchShape._fields)
def test_a_shape_that_is_too_small_is_refused(axis):
  table = groups_lib.table_of([groups_lib.golden()])
  ready = batching.prepare(table)
  batching.pad_groups(table, ready, ready.needed)
  small = ready.needed._replace(**{axis: getattr(ready.needed, axis) - 1})
  with pytest.raises(ValueError, match="smaller than needed") as refusal:
    batching.pad_groups(table, ready, small)
  assert f"{axis}=" in str(refusal.value)


def test_a_table_without_counted_rows_is_refused():
  table = groups_lib.table_of([groups_lib.golden()], weight=[0] * 11)
  with pytest.raises(RolloutError, match="every row has weight 0"):
    make_batch(table)


@pytest.mark.parametrize(
  "n, rung", [(1, 8), (8, 8), (9, 16), (64, 64), (65, 128)]
)
def test_next_rung(n, rung):
  assert batching.next_rung(n) == rung


def test_grow_shape_never_shrinks_and_settles():
  rng = np.random.default_rng(0)
  shape, seen = None, []
  for _ in range(500):
    wanted = BatchShape(
      *(int(x) for x in rng.integers(1, [17, 400, 60, 90, 9, 90, 40]))
    )
    before, shape = shape, grow_shape(shape, wanted)
    assert batching.fits(wanted, shape)
    if before is not None:
      assert batching.fits(before, shape)
    assert grow_shape(shape, wanted) == shape
    seen.append(shape)
  assert len(set(seen)) <= 8
  assert len(set(seen[250:])) == 1
  one = BatchShape(*[1] * 7)
  assert grow_shape(None, one) == (1, 8, 8, 8, 1, 8, 4)
  odd = BatchShape(3, 100, 20, 30, 5, 40, 7)  # a caller's own shape is kept
  assert grow_shape(odd, odd._replace(rows=7)) == odd


def test_sizes_that_vary_ninefold_need_four_shapes():
  rng = np.random.default_rng(1)
  most = 0
  for _ in range(50):
    shape, seen = None, set()
    for _ in range(200):
      size = rng.uniform(1, 9)
      rows, states, pairs, merged, hubs = (
        int(size * per * rng.uniform(0.9, 1.1)) for per in (100, 30, 50, 60, 12)
      )
      wanted = BatchShape(16, rows, states, pairs, 8, merged, hubs)
      shape = grow_shape(shape, wanted)
      seen.add(shape)
    most = max(most, len(seen))
  assert most <= 4


def test_a_hundred_varying_batches_compile_a_handful_of_times():
  estimator = registry.make_estimator("crbc", depth=1)
  traces = []

  def counted(group):
    traces.append(group.state.shape)
    return estimator(group).advantage

  fn = jax.jit(jax.vmap(chex.assert_max_traces(n=8)(counted)))
  rng = np.random.default_rng(0)
  groups = groups_lib.random_groups(500, 8)
  shape, after = None, []
  for _ in range(100):
    chosen = rng.choice(len(groups), rng.integers(1, 9), replace=False)
    batch = make_batch(groups_lib.table_of([groups[i] for i in chosen]), shape)
    shape = batch.shape
    fn(batch.arrays)
    after.append(len(traces))
  assert after[-1] <= 8
  assert after[-1] == after[40], "the shape goes on growing"


# -- the way back ------------------------------------------------------------


def test_to_rows_is_the_inverse_of_padding():
  table = groups_lib.table_of(groups_lib.random_groups(30, 9))
  rng = np.random.default_rng(0)
  table = table.take(rng.permutation(len(table)))
  batch = make_batch(table)
  assert sorted(batch.row_index[batch.row_index >= 0]) == list(
    range(len(table))
  )
  np.testing.assert_array_equal(
    batch.to_rows(batch.arrays.reward, len(table)),
    table.reward.astype(np.float32),
  )
  np.testing.assert_array_equal(
    batch.to_rows(batch.arrays.boundary, len(table)), table.boundary
  )
  valid = batch.to_rows(batch.arrays.valid, len(table))
  assert valid.dtype == bool
  np.testing.assert_array_equal(valid, table.valid)


@pytest.mark.parametrize("name", sorted(registry.ESTIMATORS))
def test_rows_of_weight_zero_get_zero_and_change_nothing(name):
  """Issue 6: copies made to fill a mini-batch pollute no statistics."""
  columns = groups_lib.columns_of(groups_lib.random_groups(40, 10))
  size = len(columns["step_idx"])
  plain = groups_lib.credit(name, StepTable.from_columns(**columns))
  rng = np.random.default_rng(0)
  copied = rng.integers(0, size, 60)
  order = rng.permutation(size + 60)
  source = np.append(np.arange(size), copied)[order]
  weight = np.append(np.ones(size), np.zeros(60))[order]
  many = {n: [c[i] for i in source] for n, c in columns.items()}
  many["reward"] = np.where(weight > 0, many["reward"], 1e9)
  many["boundary"] = [
    b if w else "success" for b, w in zip(many["boundary"], weight, strict=True)
  ]
  got = groups_lib.credit(name, StepTable.from_columns(**many, weight=weight))
  for field in groups_lib.FIELDS:
    assert not got[field][weight == 0].any()
    np.testing.assert_array_equal(
      got[field][weight > 0], plain[field][source[weight > 0]]
    )
