"""Runs a kernel that need not be registered, and checks any kernel owes.

Groups are padded to one shape, so that each option set compiles once.
"""

import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.types import GroupArrays, StepCredit
from tests import groups as groups_lib
from tests.groups import Group, rollout
from tests.oracle import Rollout, Step

SHAPE = BatchShape(8, 64, 32, 32, 8, 64, 32)


@functools.cache
def compiled(kernel, **options) -> Callable[[GroupArrays], StepCredit]:
  return jax.jit(jax.vmap(functools.partial(kernel, **options)))


def credit(kernel, *groups: Group, **options) -> dict[str, np.ndarray]:
  """Every field of the result, per row, in the order group, rollout, step."""
  table = groups_lib.table_of(groups)
  batch = make_batch(table, SHAPE)
  result = compiled(kernel, **options)(batch.arrays)
  return {
    f: batch.to_rows(getattr(result, f), len(table)) for f in groups_lib.FIELDS
  }


def degenerate_groups() -> list[Group]:
  """The smallest and the most uniform groups, and one with every end."""
  walk = rollout("s a m b k c", "success")
  invalid = Rollout((Step("s", "<invalid>", -0.1, False),), "truncated", "s")
  return [
    [rollout("s a", "success")],
    [rollout("s a s a s b", "failure")],
    [walk] * 4,
    [invalid] * 3,
    [Rollout(tuple(Step(None, "a", 0.7) for _ in range(4)), "success")] * 2,
    [rollout(" ".join(["s a"] * 20), "truncated", "s")] * 2,
    groups_lib.golden(),
    [
      rollout("s a m b", "truncated", "s"),
      Rollout((Step("s", "b", -1.3), Step("m", "c", 0.4, False)), "success"),
      rollout("m d s b", "failure", "m"),
      Rollout((Step("m", "b", 0.6),), "success"),
    ],
  ]


def cancelling() -> list[Group]:
  """From s by a to m, whose rewards cancel, or by b to k without any."""
  groups = []
  for first, second in ((0.1, 0.6), (0.3, 0.4), (0.6, 0.7), (1.1, 2.2)):
    rewards = (first, second, -(first + second))
    ends = [("a", "m", reward) for reward in rewards] + [("b", "k", 0.0)]
    groups.append(
      [
        Rollout((Step("s", action), Step(state, "x", reward)), "failure")
        for action, state, reward in ends
      ]
    )
  return groups


def degenerate_batch() -> GroupBatch:
  table = groups_lib.table_of(degenerate_groups())
  rewards = table.reward + 0.3 * (np.arange(len(table)) % 4 - 1)
  return make_batch(
    groups_lib.table_of(degenerate_groups(), reward=rewards), SHAPE
  )


def with_garbage(arrays: GroupArrays, seed: int) -> GroupArrays:
  """Padded rows hold NaN or infinite rewards and any number inside an axis."""
  rng = np.random.default_rng(seed)
  n, m, g = SHAPE.anchors, SHAPE.pairs, SHAPE.rollouts
  limits = {"state": n, "pair": m, "next_state": n + 1, "traj": g, "step": 9}
  limits["boundary"] = 4

  def rows(values, garbage):
    return np.where(arrays.mask, values, garbage).astype(values.dtype)

  shape = arrays.mask.shape
  return arrays.replace(
    reward=rows(arrays.reward, rng.choice([np.nan, np.inf, -np.inf], shape)),
    valid=rows(arrays.valid, rng.integers(0, 2, shape) > 0),
    **{
      name: rows(getattr(arrays, name), rng.integers(0, limit, shape))
      for name, limit in limits.items()
    },
  )


def check_padding(kernel, **options) -> None:
  """What padding holds changes no bit, and padding gets exactly 0."""
  batch = degenerate_batch()
  want = compiled(kernel, **options)(batch.arrays)
  for seed in range(3):
    got = compiled(kernel, **options)(with_garbage(batch.arrays, seed))
    for field in groups_lib.FIELDS:
      values = np.asarray(getattr(got, field))
      np.testing.assert_array_equal(values, getattr(want, field), field)
      assert np.isfinite(values).all(), field
      assert not values[~batch.arrays.mask].any(), field
  assert np.asarray(want.advantage).any()


def check_reward_gradient(kernel, *, depends: bool, **options) -> None:
  """The gradient by reward is finite, and 0 in padding full of NaN.

  Args:
    kernel: the estimator.
    depends: whether the credit depends on the rewards under these options.
    **options: of the estimator.
  """
  arrays = with_garbage(degenerate_batch().arrays, 7)
  weights = np.random.default_rng(8).normal(size=arrays.mask.shape)
  weights = jnp.asarray(weights, jnp.float32)

  def total(reward):
    # Values in padding times NaN would hide in a sum: they must be 0.
    result = compiled(kernel, **options)(arrays.replace(reward=reward))
    return jnp.sum(weights * (result.advantage + result.q + result.v))

  gradient = np.asarray(jax.grad(total)(jnp.asarray(arrays.reward)))
  assert np.isfinite(gradient).all()
  assert not gradient[~arrays.mask].any()
  assert gradient.any() == depends


def check_refused(kernel, message: str, **options) -> None:
  """Tracing on an option out of range raises ValueError with `message`."""
  group = groups_lib.one(degenerate_batch().arrays)
  with pytest.raises(ValueError, match=message):
    jax.eval_shape(functools.partial(kernel, **options), group)


def check_truncation_is_failure(kernel, **options) -> None:
  """A known state after a truncated or failed rollout is worth nothing."""

  def group(end: str, final_state) -> Iterable[Rollout]:
    return [
      rollout("s a", end, final_state),
      rollout("s b m c", "success"),
      rollout("s b m d", end, "s" if final_state else None),
    ]

  want = credit(kernel, group("failure", None), **options)
  assert want["step"].any()
  for end, final_state in (
    ("failure", "m"),
    ("truncated", "m"),
    ("truncated", None),
  ):
    got = credit(kernel, group(end, final_state), **options)
    # A closure eliminates in another order where a last state is known.
    for field in groups_lib.FIELDS:
      np.testing.assert_allclose(
        got[field], want[field], rtol=1e-6, atol=1e-6, err_msg=field
      )
