"""Error bars for the closure: what other rollouts could have said.

Source: ours. The Bayesian bootstrap is Rubin's (Annals of Statistics 9, 1981),
the infinitesimal jackknife Jaeckel's (Bell Laboratories memorandum, 1972).
Rollouts are what is drawn independently, so rollouts are what is reweighted:
the rows of one rollout count together.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_count
from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process, divisor
from crbc_jax.types import EmpiricalProcess, GroupArrays, Values

CORRECTIONS = ("sample", "bayes")
_SMALLEST = 2.0**-24  # an exponential draw may round to 0


class RowValues(NamedTuple):
  """A statistic of V, Q and Q - V for each row; 0 on padding."""

  v: chex.Array  # [..., R]
  q: chex.Array  # [..., R]
  gap: chex.Array  # [..., R], raw step credit


class Posterior(NamedTuple):
  """What the draws of the Bayesian bootstrap say of each row."""

  mean: RowValues  # [R]
  sd: RowValues  # [R]
  quantiles: RowValues  # [L, R], in the order of the levels asked for


def closure_posterior(
  group: GroupArrays,
  key: chex.PRNGKey,
  *,
  draws: int = 200,
  levels: tuple[float, ...] = (0.025, 0.5, 0.975),
  beta: float = 0.98,
  signal: str = "outcome",
  truncation: str = "failure",
) -> Posterior:
  """The Bayesian bootstrap over rollouts of the exact closure.

    w ~ G Dirichlet(1, ..., 1),   N_w(s,a,x) = sum of w over the rows (s,a,x)

  and each draw solves the closure of its counts N_w. A rollout keeps its
  weights whatever the group is padded to; another numbering of the rollouts
  gives other draws, so that this is a reference and no estimator: see
  `standard_errors`.

  Args:
    group: one unbatched group.
    key: of the draws.
    draws: static, memory is that of `draws` processes.
    levels: static L quantiles in [0, 1].
    beta, signal, truncation: as `build_process`.

  Returns:
    Posterior; sd is over the draws (ddof 0).

  Raises:
    ValueError: an option out of its range.
  """
  check_count("draws", draws)
  weights = rollout_weights(key, group.traj_mask, draws=draws)

  def one(weight):
    process = build_process(
      group, beta=beta, signal=signal, truncation=truncation, weight=weight
    )
    return of_rows(group, closure.exact_values(process, beta=beta))

  drawn = jax.vmap(one)(weights)
  return Posterior(
    mean=_over(lambda x: jnp.mean(x, axis=0), drawn),
    sd=_over(lambda x: jnp.std(x, axis=0), drawn),
    quantiles=_over(
      lambda x: jnp.quantile(x, jnp.asarray(levels), axis=0), drawn
    ),
  )


def rollout_weights(
  key: chex.PRNGKey, traj_mask: chex.Array, *, draws: int
) -> chex.Array:
  """Draws of w ~ G Dirichlet(1, ..., 1) over the G real rollouts.

  Args:
    key: of the draws.
    traj_mask: [G] the real rollouts; the others get 0.
    draws: static.

  Returns:
    [draws, G] float32, rows of mean 1 over the real rollouts.
  """
  numbers = jnp.arange(len(traj_mask))
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
  drawn = jax.vmap(lambda k: jax.random.exponential(k, (draws,)))(keys).T
  drawn = jnp.where(traj_mask[None], jnp.maximum(drawn, _SMALLEST), 0.0)
  count = jnp.sum(traj_mask.astype(jnp.float32))
  return count * drawn / divisor(jnp.sum(drawn, axis=1, keepdims=True))


def influences(
  process: EmpiricalProcess,
  values: Values,
  traj: chex.Array,
  num_rollouts: int,
  *,
  beta: chex.Numeric,
) -> tuple[chex.Array, chex.Array]:
  """Derivatives of V and Q - V by the weight of each rollout, at weights 1.

  With d = payoff + beta V(x) - V(s) of a row,

    N(s) dV_i(s) = sum of d over the rows of i at s + beta sum_x N(s,x) dV_i(x)
    d(Q - V)_i(s,a) = (sum over the rows of i at (s,a) of d - gap) / N(s,a)
                      + mean over (s,a) of beta dV_i(x) - dV_i(s)

  (differentiate the count equation): the system of the closure itself with
  another right-hand side for each rollout. Both sum to 0 over the rollouts.

  Args:
    process, values: one unbatched group and its exact closure.
    traj: [R] rollout of each row.
    num_rollouts: static G, padding included.
    beta: the discount of the process.

  Returns:
    (dV [G, N], dgap [G, M]); 0 of padded rollouts.
  """
  num_states, num_pairs = len(process.state_count), len(process.pair_count)
  mask, row_pair = process.row_mask, process.row_pair
  traj, state, pair = (
    jnp.where(mask, x, 0) for x in (traj, process.row_state, row_pair)
  )

  def sums(rows, column, columns):  # [G, columns]
    total = jax.ops.segment_sum(
      jnp.where(mask, rows, 0.0),
      traj * columns + column,
      num_rollouts * columns,
    )
    return total.reshape(num_rollouts, columns)

  error = process.row_weight * values.row_gap
  surprise = sums(error, state, num_states)
  dv = jax.vmap(lambda x: closure.solve(process, discount=beta, total=x))(
    surprise
  )
  own = sums(
    process.row_weight * (values.row_gap - values.gap[pair]), pair, num_pairs
  )

  def further(dv):
    after = jnp.append(dv, 0.0)[process.next_state]
    moved = beta * after - dv[process.state]
    return jax.ops.segment_sum(process.count * moved, process.pair, num_pairs)

  dgap = (own + jax.vmap(further)(dv)) / divisor(process.pair_count)[None]
  return dv, dgap


def standard_errors(
  group: GroupArrays,
  process: EmpiricalProcess,
  values: Values,
  *,
  beta: chex.Numeric,
  correction: str = "sample",
) -> RowValues:
  """Standard errors of V, Q and Q - V by the infinitesimal jackknife.

    sd^2 = c sum_i (dtheta / dw_i)^2,   c = G/(G-1) or G/(G+1)

  To first order this is the spread of the Bayesian bootstrap (c = G/(G+1):
  the variance of G Dirichlet weights on derivatives that sum to 0) without a
  draw, hence without an order of the rollouts. "sample" makes it the unbiased
  variance where theta is a mean over rollouts, s^2 / G.

  It is blind where a single rollout was: whatever nobody did differently has
  no spread. A group of one rollout gets 0 everywhere.

  Args:
    group, process, values: one unbatched group and its exact closure.
    beta: the discount of the process.
    correction: "sample" or "bayes".

  Returns:
    RowValues [R].
  """
  check_choice("correction", correction, CORRECTIONS)
  dv, dgap = influences(
    process, values, group.traj, group.traj_mask.shape[0], beta=beta
  )
  count = jnp.sum(group.traj_mask.astype(jnp.float32))
  scale = count / (
    jnp.maximum(count - 1.0, 1.0) if correction == "sample" else count + 1.0
  )
  scale = jnp.where(count > 1, scale, 0.0)

  def error(derivatives):
    variance = scale * jnp.sum(derivatives**2, axis=0)
    some = variance > 0  # the root has no derivative at 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1.0)), 0.0)

  state = jnp.where(group.mask, group.state, 0)
  pair = jnp.where(group.mask, group.pair, 0)
  found = RowValues(
    v=error(dv)[state],
    q=error(dgap + dv[:, process.pair_state])[pair],
    gap=error(dgap)[pair],
  )
  return _over(lambda x: jnp.where(group.mask, x, 0.0), found)


def of_rows(group: GroupArrays, values: Values) -> RowValues:
  """V, Q and Q - V of each row [R]."""
  state = jnp.where(group.mask, group.state, 0)
  pair = jnp.where(group.mask, group.pair, 0)
  v = jnp.where(group.mask, values.v[state], 0.0)
  gap = jnp.where(group.mask, values.gap[pair], 0.0)
  return RowValues(v=v, q=v + gap, gap=gap)


def _over(function, rows: RowValues) -> RowValues:
  return RowValues(*(function(x) for x in rows))
