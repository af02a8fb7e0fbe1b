"""Clusters of equal history against tuples in plain Python."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.credit import history
from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib
from tests import kernels


def partition(labels):
  """Labels renumbered by first appearance: equal partitions, equal lists."""
  seen: dict = {}
  return [seen.setdefault(x, len(seen)) for x in labels]


def test_dense_ids_number_tuples_and_skip_masked_rows():
  left = jnp.array([5, -1, 5, 9, 5, -1])
  right = jnp.array([2, 7, 2, 2, 1, 7])
  mask = jnp.array([True, True, True, False, True, True])
  got = history.dense_ids((left, right), mask)
  # In the order of the tuples: (-1, 7), (5, 1), (5, 2).
  np.testing.assert_array_equal(got, [2, 0, 2, 0, 1, 0])
  assert got.dtype == jnp.int32


def test_previous_row_stays_inside_the_trajectory():
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]))
  group = groups_lib.one(batch.arrays)
  got = history.previous_row(group, jnp.arange(16), first=-1)
  np.testing.assert_array_equal(got[:11], [-1, 0, -1, 2, 3, -1, 5, -1, 7, 8, 9])


@pytest.mark.parametrize("length", [1, 2, 3, 9])
def test_history_ids_are_tuples_of_the_last_states(length):
  batch = kernels.mixed_batch()
  run = jax.vmap(
    functools.partial(
      lambda group, length: history.history_ids(
        group, (group.state,), length=length
      ),
      length=length,
    )
  )
  for arrays in (batch.arrays, kernels.with_garbage(batch.arrays, wild=True)):
    got = np.asarray(run(arrays))
    assert got.shape == (16, length, 64)
    for b in range(12):
      real = np.flatnonzero(batch.arrays.mask[b])
      state, step = (
        x[b, real].tolist() for x in (batch.arrays.state, batch.arrays.step)
      )
      for k in range(1, length + 1):
        want = [
          tuple(state[i - min(k - 1, step[i]) : i + 1])
          for i in range(len(real))
        ]
        assert partition(got[b, k - 1, real].tolist()) == partition(want)


@pytest.mark.parametrize("bad", [-1, 2.0, True, None, "2"])
def test_history_out_of_range_is_refused(bad):
  with pytest.raises(ValueError, match="history must be an integer >= 0"):
    history.check_history(bad, least=0)
  history.check_history(np.int32(0), least=0)
