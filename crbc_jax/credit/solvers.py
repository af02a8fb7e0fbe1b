"""Solves of the Bellman system that no device precision can spoil.

A Bellman system in count form says how often a state was followed by each
other state and how much of its weight leaks out:

  (sum_j K_ij + leak_i) x_i - sum_j K_ij x_j = rhs_i,   K_ij, leak_i >= 0

Nothing is subtracted to form it, and the elimination of Grassmann, Taksar and
Heyman (Operations Research 33, 1985) subtracts nothing to solve it: pivots are
sums of what leads elsewhere. Every number keeps its relative accuracy however
badly the system is conditioned; with products in bfloat16 it loses digits in
proportion, where LU loses everything.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg

Product = Callable[[chex.Array, chex.Array], chex.Array]
"""`product(left, right)`: a matrix product, which tests can degrade."""


_GOLDEN_RATIO = 0.6180339887498949


def matmul(left: chex.Array, right: chex.Array) -> chex.Array:
  """`left @ right` in full float32.

  TPUs multiply float32 matrices in bfloat16 and recent GPUs in TF32 unless
  told otherwise; every product of this package goes through here.
  """
  return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def solve_dense(
  flow: chex.Array,
  leak: chex.Array,
  rhs: chex.Array,
  *,
  product: Product = matmul,
) -> chex.Array:
  """Solves the Bellman system without a subtraction, block by block.

  Halves the system recursively: the first half is eliminated as one block,
  which adds paths through it to the second half (products of non-negative
  matrices), and so on down to small blocks that are inverted pivot by pivot.

  Args:
    flow: [A, A] K, >= 0; the diagonal is ignored.
    leak: [A] weight that leaves the system, >= 0. A state with neither flow
      nor leak (padding) gets its right-hand side back.
    rhs: [A].
    product: matrix product; full float32 by default.

  Returns:
    [A] float32.
  """
  chex.assert_rank([flow, leak, rhs], [2, 1, 1])
  chex.assert_equal_shape([leak, rhs, flow[0]])
  # Rows may be scaled at will. Equal rows would round alike, and the errors of
  # hundreds of equal factors would add up; of different multiples they cancel.
  multiple = 1.0 + (_GOLDEN_RATIO * jnp.arange(len(leak))) % 1.0
  multiple = jnp.where((leak > 0) | (flow > 0).any(axis=1), multiple, 1.0)
  flow = flow * multiple[:, None]
  rest = jnp.stack([leak, rhs], axis=1) * multiple[:, None]
  # Small blocks run fastest, but every block is compiled.
  smallest = min(max(8, len(leak) // 8), 32)
  return _eliminate(flow, rest[:, 0], rest[:, 1:], smallest, product)[:, 0]


def _eliminate(flow, leak, rhs, smallest: int, product: Product):
  """The system for several right-hand sides [n, k]."""
  size = flow.shape[0]
  if size <= smallest:
    return product(_inverse(flow, leak), rhs)
  half = (size + 1) // 2
  ahead = flow[:half, half:]
  # What one visit to the first half leads to: states of the second, the
  # outside, or a share of the right-hand sides.
  wanted = jnp.concatenate([ahead, leak[:half, None], rhs[:half]], axis=1)
  through = _eliminate(
    flow[:half, :half],
    leak[:half] + jnp.sum(ahead, axis=1),
    wanted,
    smallest,
    product,
  )
  detour = product(flow[half:, :half], through)
  rest = size - half
  second = _eliminate(
    flow[half:, half:] + detour[:, :rest],
    leak[half:] + detour[:, rest],
    rhs[half:] + detour[:, rest + 1 :],
    smallest,
    product,
  )
  first = through[:, rest + 1 :] + product(through[:, :rest], second)
  return jnp.concatenate([first, second])


def _inverse(flow: chex.Array, leak: chex.Array) -> chex.Array:
  """Inverse [n, n] (non-negative) of a small system, one pivot at a time."""
  size = flow.shape[0]
  index = jnp.arange(size)

  def eliminate(k, carry):
    flow, leak, inverse = carry
    later = index > k
    pivot = jnp.sum(jnp.where(later, flow[k], 0.0)) + leak[k]
    pivot = jnp.where(pivot > 0, pivot, 1.0)
    onward = jnp.where(later, flow[k], 0.0) / pivot
    out, row = leak[k] / pivot, inverse[k] / pivot
    into = jnp.where(index != k, flow[:, k], 0.0)
    # Rows before k are already of the form x_i = sum_j flow_ij x_j + ...
    flow = flow + into[:, None] * onward[None, :]
    leak = leak + jnp.where(later, into, 0.0) * out
    inverse = inverse + into[:, None] * row[None, :]
    return flow.at[k].set(onward), leak, inverse.at[k].set(row)

  start = (flow, leak, jnp.eye(size, dtype=flow.dtype))
  return jax.lax.fori_loop(0, size, eliminate, start)[2]


def solve_sparse(
  source: chex.Array,
  target: chex.Array,
  weight: chex.Array,
  leak: chex.Array,
  rhs: chex.Array,
) -> chex.Array:
  """Solves the Bellman system on the host with SciPy's sparse LU, in float64.

  For systems too large to be dense, such as random walks on a lattice.

  Args:
    source, target: [E] int32, entries of K; those outside [0, A) are ignored.
    weight: [E] their weights, added up where an entry repeats.
    leak, rhs: [A], as in `solve_dense`.

  Returns:
    [A] float32.
  """
  return jax.pure_callback(
    _solve_on_host,
    jax.ShapeDtypeStruct(leak.shape, jnp.float32),
    source,
    target,
    weight,
    leak,
    rhs,
    vmap_method="broadcast_all",
  )


def _solve_on_host(*arrays) -> np.ndarray:
  """One system, or several along a leading axis."""
  arrays = tuple(np.asarray(x) for x in arrays)
  if arrays[-1].ndim == 1:
    return _splu(*arrays)
  return np.stack([_solve_on_host(*one) for one in zip(*arrays, strict=True)])


def _splu(source, target, weight, leak, rhs) -> np.ndarray:
  size = len(leak)
  kept = ((source >= 0) & (source < size) & (target >= 0) & (target < size)) & (
    source != target
  )
  source, target = source[kept], target[kept]
  weight = weight[kept].astype(np.float64)
  diagonal = np.bincount(source, weight, size) + leak
  diagonal[diagonal == 0] = 1.0  # padding
  every = np.arange(size)
  matrix = scipy.sparse.csc_array(
    (
      np.concatenate([-weight, diagonal]),
      (np.concatenate([source, every]), np.concatenate([target, every])),
    ),
    shape=(size, size),
  )
  # COLAMD on the pattern is best for the nearly symmetric graphs of walks;
  # diagonal pivots are safe because the matrix is diagonally dominant.
  factors = scipy.sparse.linalg.splu(
    matrix,
    permc_spec="MMD_AT_PLUS_A",
    diag_pivot_thresh=0.0,
    options={"SymmetricMode": True},
  )
  return factors.solve(rhs.astype(np.float64)).astype(np.float32)
