"""The Bellman closure: exact, at finite depth, and anchored.

Source: CRBC (arXiv 2609.35082), value equations; the anchored closures are
ours. Advantages are constants of the policy loss, but everything here is
differentiable all the same.
"""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.checks import is_number
from crbc_jax.credit import contraction
from crbc_jax.credit.process import discounted_returns, divisor
from crbc_jax.types import EmpiricalProcess, Values

EXACT = math.inf
"""The depth of the exact closure."""

RESIDUAL_LIMIT = 1e-4
"""Largest Bellman residual, in units of the rewards, of a solve to trust."""

_SWEEPS = 2_000
_SETTLED = 1e-7  # relative change of a value that ends the sweeps


def exact_values(process: EmpiricalProcess, *, beta: chex.Numeric) -> Values:
  """V and Q of the behaviour policy on the merged process.

    (I - beta M) V = gain,   Q = B V

  beta = 1 is allowed: every anchor starts an observed suffix that ends in an
  absorbing state, so I - M is invertible.

  Args:
    process: one unbatched process.
    beta: discount in (0, 1], the one the process was built with.

  Returns:
    Values with v [N], q and gap [M].
  """
  v = solve(process, discount=beta, total=payoffs(process))
  return _values(process, v, v, beta=beta)


def finite_values(
  process: EmpiricalProcess, *, beta: chex.Numeric, depths: tuple[int, ...]
) -> Values:
  """V^K and Q^K for several finite depths from one scan.

    Q^0 = mean return over the visits to (s,a),  V^0 = the same over s
    V^K = T^K V^0,                               Q^K = B V^{K-1}  for K >= 1

  Args:
    process: one unbatched process.
    beta: discount in (0, 1].
    depths: static tuple of D whole numbers >= 0.

  Returns:
    Values with v [D, N], q and gap [D, M], in the order of `depths`.
  """
  for depth in depths:
    check_depth(depth)
    if math.isinf(depth):
      raise ValueError("finite_values takes finite depths; use exact_values")
  visit = visit_values(process)
  gain = payoffs(process)
  per_visit = 1.0 / divisor(process.state_count)

  def operator(v, _):
    return (gain + beta * _followed(process, v)) * per_visit, v

  _, levels = jax.lax.scan(operator, visit.v, None, length=max(depths) + 1)
  index = jnp.asarray(depths)
  deep = jax.vmap(functools.partial(_values, process, beta=beta))(
    levels[index], levels[jnp.maximum(index - 1, 0)]
  )
  return jax.tree.map(
    lambda at_zero, deeper: jnp.where(
      (index == 0)[:, None], at_zero[None], deeper
    ),
    visit,
    deep,
  )


def values_at(
  process: EmpiricalProcess, *, beta: chex.Numeric, depths: tuple[float, ...]
) -> Values:
  """Values at several depths: 0, 1, 2, ... or `EXACT`, in their order.

  Returns:
    Values with v [D, N], q and gap [D, M].
  """
  for depth in depths:
    check_depth(depth)
  is_exact = np.array([math.isinf(d) for d in depths])
  finite = tuple(0 if math.isinf(d) else int(d) for d in depths)
  if not is_exact.any():
    return finite_values(process, beta=beta, depths=finite)
  exact = exact_values(process, beta=beta)
  if is_exact.all():
    return jax.tree.map(lambda x: jnp.stack([x] * len(depths)), exact)
  return jax.tree.map(
    lambda level, closed: jnp.where(is_exact[:, None], closed[None], level),
    finite_values(process, beta=beta, depths=finite),
    exact,
  )


def depth_bound(
  process: EmpiricalProcess, *, beta: chex.Numeric, depths: tuple[float, ...]
) -> chex.Array:
  """How far the credit of depth K can be from that of the closure; [D].

    max_(s,a) |A^inf - A^K| <= 2 beta^K / (1 - beta) max_s |T V^0 - V^0|

  Source: CRBC (arXiv 2609.35082), bound of the finite-depth family. It speaks
  of K >= 1: depth 0 credits with returns, not with T, and gets infinity, as
  does every finite depth at beta = 1.

  Args:
    process: one unbatched process.
    beta: discount in (0, 1].
    depths: 0, 1, 2, ... or `EXACT`, in any order.
  """
  for depth in depths:
    check_depth(depth)
  v = finite_values(process, beta=beta, depths=(0, 1)).v
  moved = jnp.max(jnp.abs(v[1] - v[0]))
  exponent = jnp.asarray(depths)
  bound = 2.0 * beta**exponent * moved / (1.0 - beta)
  settled = (moved == 0) | jnp.isinf(exponent)
  return jnp.where(exponent == 0, jnp.inf, jnp.where(settled, 0.0, bound))


def visit_values(process: EmpiricalProcess) -> Values:
  """Depth 0: mean return over the visits to s, and to (s,a)."""
  v = _state_mean_of_rows(process, process.row_return)
  return _values_of_rows(process, v, process.row_return)


def anchored_values(
  process: EmpiricalProcess,
  *,
  beta: chex.Numeric,
  anchor_weight: chex.Numeric,
) -> Values:
  """The closure held by visit averages: soft depth.

    V = (1 - w) T V + w V^0,    Q = (1 - w) B V + w Q^0

  Unrolled, V = sum_k w (1 - w)^k T^k V^0: a geometric mixture of all finite
  depths, of mean depth (1 - w) / w. w = 0 is the closure, w = 1 visit
  averaging.

  Args:
    process: one unbatched process.
    beta: discount in (0, 1].
    anchor_weight: w in [0, 1].

  Returns:
    Values with v [N], q and gap [M].
  """
  visit, deep = visit_values(process), 1.0 - anchor_weight
  held = anchor_weight * process.state_count * visit.v
  v = solve(process, discount=deep * beta, total=deep * payoffs(process) + held)
  one_step = _values(process, v, v, beta=beta)
  from_visits = _values_of_rows(process, v, process.row_return)
  gap, row_gap = (
    deep * getattr(one_step, name) + anchor_weight * getattr(from_visits, name)
    for name in ("gap", "row_gap")
  )
  return Values(v=v, q=v[process.pair_state] + gap, gap=gap, row_gap=row_gap)


def lambda_values(
  process: EmpiricalProcess, group_traj: chex.Array, *, beta, lam
) -> Values:
  """The fixed point of averaged lambda-returns (tabular LSTD(lambda)).

    G_t = payoff + beta ((1 - lam) V(s_{t+1}) + lam G_{t+1})
    V(s) = mean over the visits to s of G,   Q(s,a) = mean over (s,a)

  lam = 0 is the closure, lam = 1 visit averaging. Found by sweeps until no
  value changes by 1e-7 of the largest, at most 2,000: each sweep shrinks the
  error by beta (1 - lam) / (1 - beta lam). Differentiable, as `solve`.

  Args:
    process: one unbatched process.
    group_traj: [R] trajectory of each row.
    beta: discount in (0, 1].
    lam: in [0, 1].
  """

  def returns(v, payoff):
    bootstrapped = beta * (1.0 - lam) * value_of_next(process, v)
    return discounted_returns(
      payoff + bootstrapped,
      group_traj,
      process.row_mask,
      discount=beta * lam,
    )

  def following(v):
    later = returns(v, jnp.zeros_like(process.row_gain))
    return _state_mean_of_rows(process, later)

  def swept(_, rhs):
    def sweep(carry):
      v, _, sweeps = carry
      new = rhs + following(v)
      moved = jnp.max(jnp.abs(new - v))
      settled = moved <= _SETTLED * jnp.max(jnp.abs(new))
      return new, settled, sweeps + 1

    def unsettled(carry):
      return ~carry[1] & (carry[2] < _SWEEPS)

    start = (visit_values(process).v, jnp.asarray(False), jnp.asarray(0))
    return jax.lax.while_loop(unsettled, sweep, start)[0]

  own = _state_mean_of_rows(
    process, returns(jnp.zeros_like(process.state_count), process.row_gain)
  )
  v = jax.lax.custom_linear_solve(
    lambda v: v - following(v),
    own,
    swept,
    functools.partial(_transposed, process),
  )
  return _values_of_rows(process, v, returns(v, process.row_gain))


def solve(
  process: EmpiricalProcess, *, discount: chex.Numeric, total: chex.Array
) -> chex.Array:
  """V [N] of `N(s) V(s) = total(s) + discount sum_x N(s,x) V(x)`.

  By contraction and an elimination without subtractions: see `contraction`
  and `solvers`. Differentiable; the reverse derivative builds a dense [N, N].

  Args:
    process: one unbatched process.
    discount: in [0, 1].
    total: [N].
  """

  def apply(v):
    return process.state_count * v - discount * _followed(process, v)

  def contracted(_, rhs):
    return contraction.solve(process, discount=discount, total=rhs)

  return jax.lax.custom_linear_solve(
    apply, total, contracted, functools.partial(_transposed, process)
  )


def _transposed(process: EmpiricalProcess, vecmat, rhs):
  """Solves the transposed system of a gradient; dense [N, N]."""
  unvisited = process.state_count == 0
  matrix = jax.vmap(vecmat)(jnp.eye(len(rhs))).T
  matrix = jnp.where(jnp.diag(unvisited), 1.0, matrix)
  with jax.default_matmul_precision("highest"):
    return jnp.linalg.solve(matrix, jnp.where(unvisited, 0.0, rhs))


def payoffs(process: EmpiricalProcess) -> chex.Array:
  """Total immediate payoff over the visits to each anchor; [N]."""
  return _at_state(process, process.count * process.gain)


def centring_residual(process: EmpiricalProcess, values: Values) -> chex.Array:
  """max_s |sum_a mu(a|s) (Q(s,a) - V(s))|, 0 where V is the mean of Q."""
  weighted = jnp.where(
    process.pair_count > 0, process.behaviour * values.gap, 0.0
  )
  state = jnp.where(process.pair_count > 0, process.pair_state, 0)
  num_states = process.state_count.shape[0]
  return jnp.max(jnp.abs(jax.ops.segment_sum(weighted, state, num_states)))


def value_of_next(process: EmpiricalProcess, v: chex.Array) -> chex.Array:
  """V at each row's interior successor, 0 where it was absorbed; [R]."""
  return jnp.append(v, 0.0)[process.row_next]


def check_depth(depth: float) -> None:
  """Raises ValueError unless depth is a whole number >= 0 or infinity."""
  whole = (
    is_number(depth)
    and depth >= 0
    and (math.isinf(depth) or depth == int(depth))
  )
  if not whole:
    raise ValueError(f"depth must be 0, 1, 2, ... or inf, got {depth!r}")


def _values(process, v, following, *, beta) -> Values:
  """Q = B following, and its differences from V."""
  differences = _differences(process, v, following, beta=beta)
  gap = _pair_mean(process, differences)
  # Observed rewards may vary between the rows of one transition.
  own = process.row_gain - process.gain[process.row_transition]
  row_gap = jnp.where(
    process.row_mask, differences[process.row_transition] + own, 0.0
  )
  return Values(v=v, q=v[process.pair_state] + gap, gap=gap, row_gap=row_gap)


def _values_of_rows(process, v, returns) -> Values:
  """Q and gaps from one return of each row [R]."""
  row_gap = jnp.where(process.row_mask, returns - v[process.row_state], 0.0)
  gap = _pair_mean_of_rows(process, row_gap)
  return Values(v=v, q=v[process.pair_state] + gap, gap=gap, row_gap=row_gap)


def _differences(process, v, following, *, beta) -> chex.Array:
  """Payoff + beta following(x) - V(s) of each transition [E]."""
  after = jnp.append(following, 0.0)[process.next_state]
  # Near beta = 1 and between like states both parts are small and exact.
  step = (after - v[process.state]) - (1.0 - beta) * after
  return jnp.where(process.count > 0, process.gain + step, 0.0)


def _followed(process: EmpiricalProcess, v: chex.Array) -> chex.Array:
  """sum_x N(s,x) V(x) over interior successors; [N]."""
  after = jnp.append(v, 0.0)[process.next_state]
  return _at_state(process, process.count * after)


def _at_state(process: EmpiricalProcess, of_transition) -> chex.Array:
  num_states = process.state_count.shape[0]
  return jax.ops.segment_sum(of_transition, process.state, num_states)


def _pair_mean(process: EmpiricalProcess, of_transition) -> chex.Array:
  total = jax.ops.segment_sum(
    process.count * of_transition, process.pair, process.pair_count.shape[0]
  )
  return total / divisor(process.pair_count)


def _pair_mean_of_rows(process: EmpiricalProcess, rows) -> chex.Array:
  total = jax.ops.segment_sum(
    process.row_weight * rows, process.row_pair, process.pair_count.shape[0]
  )
  return total / divisor(process.pair_count)


def _state_mean_of_rows(process: EmpiricalProcess, rows) -> chex.Array:
  total = jax.ops.segment_sum(
    process.row_weight * rows, process.row_state, process.state_count.shape[0]
  )
  return total / divisor(process.state_count)
