"""Helpers: runs a kernel that needs no registry entry, and abuses it."""

import functools
from collections.abc import Callable, Iterable

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Estimator, GroupArrays, StepCredit
from tests import groups as groups_lib

SHAPE = BatchShape(16, 64, 32, 32, 16, 64, 32)


@functools.lru_cache(maxsize=None, typed=True)  # 2.0 is not 2
def credit_fn(kernel: Estimator, **options) -> Callable[..., StepCredit]:
  """Batched, jitted kernel, compiled once per option set and shape."""
  return jax.jit(jax.vmap(functools.partial(kernel, **options)))


def credit(
  kernel: Estimator,
  source: StepTable | Iterable[groups_lib.Group],
  **options,
) -> dict[str, np.ndarray]:
  """Every field of the result, per row, in table order."""
  if not isinstance(source, StepTable):
    source = groups_lib.table_of(source)
  batch = make_batch(source, SHAPE)
  result = credit_fn(kernel, **options)(batch.arrays)
  return {
    f: batch.to_rows(getattr(result, f), len(source)) for f in groups_lib.FIELDS
  }


def with_garbage(arrays: GroupArrays, *, wild: bool) -> GroupArrays:
  """Other contents of padded rows; `wild` numbers lie outside every axis."""
  rng = np.random.default_rng(0)

  def fill(name, size):
    values = getattr(arrays, name)
    choices = [-7, -1, 0, size, 10**6] if wild else range(size)
    garbage = rng.choice(np.array(choices), values.shape)
    return np.where(arrays.mask, values, garbage).astype(values.dtype)

  n, m, g = (
    x.shape[1] for x in (arrays.state_mask, arrays.pair_mask, arrays.traj_mask)
  )
  shape = arrays.mask.shape
  bad = rng.choice([np.nan, np.inf, -np.inf, 1e30, 5.0], shape)
  return arrays.replace(
    state=fill("state", n),
    pair=fill("pair", m),
    next_state=fill("next_state", n + 1),
    traj=fill("traj", g),
    action=fill("action", 3),
    step=fill("step", 3),
    boundary=fill("boundary", 4),
    reward=np.where(arrays.mask, arrays.reward, bad).astype(np.float32),
    valid=np.where(arrays.mask, arrays.valid, rng.random(shape) < 0.5),
  )


def check_padding(kernel: Estimator, batch: GroupBatch, **options) -> None:
  """What padding holds changes no bit, and padded rows get exactly 0."""
  run = credit_fn(kernel, **options)
  want = run(batch.arrays)
  chex.assert_tree_all_finite(want)
  assert not batch.arrays.mask.all()
  for wild in (False, True):
    got = run(with_garbage(batch.arrays, wild=wild))
    chex.assert_trees_all_equal(got, want)
    for field in groups_lib.FIELDS:
      assert not np.asarray(getattr(got, field))[~batch.arrays.mask].any()


def check_gradients(kernel: Estimator, batch: GroupBatch, **options) -> None:
  """Gradients by reward: finite, not all 0, and 0 in garbage padding."""

  def total(reward, group):
    got = kernel(group.replace(reward=reward), **options)
    row = jnp.arange(1.0, 1.0 + reward.shape[0])  # else centring hides it
    return jnp.sum(row * (got.advantage + got.step + got.q + got.v))

  gradient = jax.jit(jax.vmap(jax.grad(total)))
  for equal in (False, True):
    rewards = np.zeros_like(batch.arrays.reward)
    arrays = batch.arrays.replace(reward=rewards) if equal else batch.arrays
    for source in (arrays, with_garbage(arrays, wild=False)):
      got = np.asarray(gradient(source.reward, source))
      assert np.isfinite(got).all()
      assert not got[~arrays.mask].any()
      assert equal or got.any()


def largest_array(function: Callable, *args) -> int:
  """Elements of the largest array that `function` computes."""

  def sizes(jaxpr: Jaxpr):
    for equation in jaxpr.eqns:
      for out in equation.outvars:
        yield int(np.prod(out.aval.shape))
      for inner in jax.tree.leaves(
        list(equation.params.values()),
        is_leaf=lambda x: isinstance(x, (Jaxpr, ClosedJaxpr)),
      ):
        if isinstance(inner, ClosedJaxpr):
          inner = inner.jaxpr
        if isinstance(inner, Jaxpr):
          yield from sizes(inner)

  return max(sizes(jax.make_jaxpr(function)(*args).jaxpr))


def check_linear_memory(kernel: Estimator, **options) -> None:
  """Nothing the kernel computes is larger than a few times the rows."""
  rows = 4096
  batch = make_batch(
    groups_lib.table_of([groups_lib.golden()]),
    BatchShape(1, rows, 512, 512, 64, rows, 8),
  )
  kernel = functools.partial(kernel, **options)
  assert largest_array(kernel, groups_lib.one(batch.arrays)) <= 16 * rows


def mixed_batch(**columns) -> GroupBatch:
  """Random groups, missing states, and one group of padding alone."""
  groups = groups_lib.random_groups(
    12, seed=7, missing=(0, 0.3), dyadic=True, max_rollouts=6, max_steps=6
  )
  return make_batch(groups_lib.table_of(groups, **columns), SHAPE)
