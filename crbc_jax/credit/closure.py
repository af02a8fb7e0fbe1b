"""The Bellman closure: exact, and its finite-depth family.

Source: CRBC (arXiv 2609.35082), value equations. Values carry no gradient
meaning: advantages are constants of the policy loss.
"""

import math

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import is_number
from crbc_jax.credit import solvers
from crbc_jax.types import EmpiricalProcess, Values

EXACT = math.inf
"""The depth of the exact closure."""


def exact_values(process: EmpiricalProcess, *, beta: float) -> Values:
  """V and Q of the behaviour policy on the merged process.

    (I - beta M) V = gain,   Q = B V

  beta = 1 is allowed: every anchor starts an observed suffix that ends in an
  absorbing state, so I - M is invertible. Padding adds identity rows.

  Args:
    process: one unbatched process.
    beta: discount in (0, 1], the one the process was built with.

  Returns:
    Values with v [N] and q [M].
  """
  identity = jnp.eye(process.matrix.shape[0], dtype=process.matrix.dtype)
  v = solvers.solve_dense(identity - beta * process.matrix, process.gain)
  return Values(v=v, q=backup(process, v, beta=beta))


def finite_values(
  process: EmpiricalProcess, *, beta: float, depths: tuple[int, ...]
) -> Values:
  """V^K and Q^K for several finite depths from one scan.

    Q^0 = mean return over the visits to (s,a),  V^0 = the same over s
    V^K = T^K V^0,                               Q^K = B V^{K-1}  for K >= 1

  Args:
    process: one unbatched process.
    beta: discount in (0, 1].
    depths: static tuple of D whole numbers >= 0.

  Returns:
    Values with v [D, N] and q [D, M], in the order of `depths`.
  """
  for depth in depths:
    check_depth(depth)
    if math.isinf(depth):
      raise ValueError("finite_values takes finite depths; use exact_values")
  v0, q0 = _visit_means(process)

  def operator(v, _):
    following = process.gain + beta * solvers.matvec(process.matrix, v)
    return following, v

  _, levels = jax.lax.scan(operator, v0, None, length=max(depths) + 1)
  index = jnp.asarray(depths)
  previous = levels[jnp.maximum(index - 1, 0)]
  q = jax.vmap(lambda v: backup(process, v, beta=beta))(previous)
  return Values(
    v=levels[index], q=jnp.where((index == 0)[:, None], q0[None], q)
  )


def values_at(
  process: EmpiricalProcess, *, beta: float, depth: float
) -> Values:
  """Values at one depth: 0, 1, 2, ... or `EXACT` (infinity)."""
  check_depth(depth)
  if math.isinf(depth):
    return exact_values(process, beta=beta)
  levels = finite_values(process, beta=beta, depths=(int(depth),))
  return Values(v=levels.v[0], q=levels.q[0])


def backup(
  process: EmpiricalProcess, v: chex.Array, *, beta: float
) -> chex.Array:
  """(B V)(s,a): mean over observed transitions of payoff + beta V(x); [M]."""
  target = process.row_gain + beta * _value_of_next(process, v)
  return _pair_mean(process, target)


def bellman_residual(
  process: EmpiricalProcess, v: chex.Array, *, beta: float
) -> chex.Array:
  """max_s |gain + beta M V - V|: how well the solve closed; a scalar."""
  following = process.gain + beta * solvers.matvec(process.matrix, v)
  return jnp.max(jnp.abs(following - v))


def check_depth(depth: float) -> None:
  """Raises ValueError unless depth is a whole number >= 0 or infinity."""
  whole = (
    is_number(depth)
    and depth >= 0
    and (math.isinf(depth) or depth == int(depth))
  )
  if not whole:
    raise ValueError(f"depth must be 0, 1, 2, ... or inf, got {depth!r}")


def _value_of_next(process: EmpiricalProcess, v: chex.Array) -> chex.Array:
  """V at each row's interior successor, 0 where it was absorbed; [R]."""
  return jnp.append(v, 0.0)[process.row_next]


def _pair_mean(process: EmpiricalProcess, rows: chex.Array) -> chex.Array:
  total = jax.ops.segment_sum(
    jnp.where(process.row_mask, rows, 0.0),
    process.row_pair,
    process.pair_count.shape[0],
  )
  return total / jnp.maximum(process.pair_count, 1.0)


def _visit_means(process: EmpiricalProcess):
  q0 = _pair_mean(process, process.row_return)
  total = jax.ops.segment_sum(
    process.row_return, process.row_state, process.state_count.shape[0]
  )
  return total / jnp.maximum(process.state_count, 1.0), q0
