"""Value solves behind one signature, at explicit matmul precision.

TPUs multiply float32 matrices in bfloat16 and recent GPUs in TF32 unless told
otherwise; every solve and every product of this package goes through here.
"""

import chex
import jax
import jax.numpy as jnp


def solve_dense(matrix: chex.Array, rhs: chex.Array) -> chex.Array:
  """Solves `matrix @ x = rhs` by LU with partial pivoting.

  Args:
    matrix: [N, N] float32, nonsingular.
    rhs: [N] float32.

  Returns:
    [N] float32.
  """
  chex.assert_rank([matrix, rhs], [2, 1])
  with jax.default_matmul_precision("highest"):
    return jnp.linalg.solve(matrix, rhs)


def matvec(matrix: chex.Array, vector: chex.Array) -> chex.Array:
  """`matrix @ vector` in full float32; matrix [N, N], vector [N]."""
  return jnp.matmul(matrix, vector, precision=jax.lax.Precision.HIGHEST)
