"""The contracted solve against a dense float64 one, and both ways to finish."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.credit import closure, contraction, solvers
from crbc_jax.credit.process import build_process
from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib
from tests.rollouts import loops

DISCOUNTS = (1.0, 0.9)


@functools.cache
def processes():
  """[B] processes: every kind of loop, then random groups."""
  groups = loops.every_kind() + groups_lib.random_groups(
    25, 91, missing=(0, 0.2), max_rollouts=8, max_steps=10
  )
  arrays = make_batch(groups_lib.table_of(groups)).arrays
  return jax.jit(jax.vmap(functools.partial(build_process, beta=1.0)))(arrays)


@functools.cache
def signed_totals():
  """Payoffs of both signs; whatever they are, nobody visits padding."""
  visits = np.asarray(processes().state_count)
  drawn = np.random.default_rng(0).normal(size=visits.shape)
  return np.where(visits > 0, drawn, 0).astype(np.float32)


def system(process, discount):
  """diag(N) - discount F in float64, and whether anybody was there."""
  visits = np.asarray(process.state_count, np.float64)
  flow = np.zeros((len(visits), len(visits) + 1))
  np.add.at(flow, (process.state, process.next_state), process.count)
  return np.diag(visits) - discount * flow[:, :-1], visits > 0


def dense(process, discount, total):
  matrix, seen = system(process, discount)
  values = np.zeros(len(seen))
  values[seen] = np.linalg.solve(
    matrix[np.ix_(seen, seen)], np.asarray(total, np.float64)[seen]
  )
  return values


def batched(function=contraction.solve):
  """A new program: what a monkeypatch changes is read while tracing."""

  def solve(process, discount, total):
    return function(process, discount=discount, total=total)

  return jax.jit(jax.vmap(solve, (0, None, 0)))


def check_values(got, discount, totals):
  for g, total in enumerate(totals):
    process = groups_lib.one(processes(), g)
    want = dense(process, discount, total)
    # Of what the values are sums of: signs may cancel.
    size = dense(process, discount, np.abs(total))
    assert (np.abs(got[g] - want) <= 3e-6 * size).all(), g


@pytest.mark.parametrize("limit", [512, 0])
def test_solve_is_the_dense_solve(limit, monkeypatch):
  """Under vmap and jit, densely and (limit 0) sparsely on the host."""
  monkeypatch.setattr(contraction, "DENSE_LIMIT", limit)
  calls = []
  on_host = solvers._solve_on_host
  monkeypatch.setattr(
    solvers, "_solve_on_host", lambda *a: calls.append(1) or on_host(*a)
  )
  solve = batched()
  for discount in DISCOUNTS:
    for totals in (signed_totals(), np.abs(signed_totals())):
      check_values(
        np.asarray(solve(processes(), discount, totals)), discount, totals
      )
  assert bool(calls) == (limit == 0)


def test_sparse_is_dense_without_vmap_or_jit(monkeypatch):
  for index in (3, 9, 20):
    process = groups_lib.one(processes(), index)
    total = jnp.asarray(signed_totals()[index])
    want = contraction.solve(process, discount=0.9, total=total)
    with monkeypatch.context() as patch:
      patch.setattr(contraction, "DENSE_LIMIT", 0)
      got = contraction.solve(process, discount=0.9, total=total)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert np.asarray(want).any()


def test_values_of_one_sign_are_accurate_relatively():
  """Nothing is subtracted: also where a value is tiny."""
  totals = np.zeros_like(signed_totals())
  for g, total in enumerate(totals):  # one payoff, where a rollout ended
    process = groups_lib.one(processes(), g)
    ends = (process.count > 0) & (process.next_state == len(total))
    if ends.any():  # not a group of padding
      total[process.state[np.flatnonzero(ends)[0]]] = 1.0
  got = np.asarray(batched()(processes(), 0.25, totals))
  tiny = 0
  for g, total in enumerate(totals):
    want = dense(groups_lib.one(processes(), g), 0.25, total)
    want[want < 1e-30] = 0  # flushed to 0 in float32, or LU's residue
    kept = want > 0
    np.testing.assert_allclose(got[g][kept], want[kept], rtol=1e-5)
    tiny += (want[kept] < 1e-8).sum()
  assert tiny > 10


def test_discount_zero_follows_nothing():
  got = np.asarray(batched()(processes(), 0.0, signed_totals()))
  visits = np.maximum(processes().state_count, 1.0)
  np.testing.assert_allclose(got, signed_totals() / visits, rtol=1e-6)


# -- the dense solver by itself ----------------------------------------------


def systems(size, count=6):
  """Flows, leaks (some of them tiny) and right-hand sides >= 0."""
  rng = np.random.default_rng(size)
  flow = rng.exponential(size=(count, size, size))
  flow *= rng.random((count, size, size)) < 0.4
  leak = rng.exponential(size=(count, size)) * 10.0 ** rng.integers(
    -5, 1, (count, size)
  )
  rhs = rng.exponential(size=(count, size))
  return tuple(x.astype(np.float32) for x in (flow, leak, rhs))


def exact(flow, leak, rhs):
  flow = flow.astype(np.float64) * (1 - np.eye(len(leak)))
  return np.linalg.solve(np.diag(flow.sum(1) + leak) - flow, rhs)


def in_bfloat16(left, right):
  """What a TPU makes of a float32 product unless told otherwise."""
  return jnp.matmul(
    left.astype(jnp.bfloat16),
    right.astype(jnp.bfloat16),
    preferred_element_type=jnp.float32,
  )


def relative_error(arrays, **options):
  solve = jax.jit(jax.vmap(functools.partial(solvers.solve_dense, **options)))
  got = np.asarray(solve(*arrays))
  want = np.stack([exact(*one) for one in zip(*arrays, strict=True)])
  return np.abs(got / want - 1).max()


@pytest.mark.parametrize("size", [*range(1, 13), 16, 17, 23, 31, 32, 33, 40])
def test_dense_solver(size):
  assert relative_error(systems(size)) <= 1e-5


@pytest.mark.parametrize("size", [8, 20, 40])
def test_dense_solver_with_coarse_products(size):
  error = relative_error(systems(size), product=in_bfloat16)
  assert 1e-5 < error <= 1e-2


def test_dense_solver_gives_padding_its_right_hand_side():
  flow, leak, rhs = (x[0] for x in systems(5, 1))
  padded = np.zeros((12, 12), np.float32)
  padded[:5, :5] = flow
  leaks, sides = np.zeros(12, np.float32), np.full(12, 7, np.float32)
  leaks[:5], sides[:5] = leak, rhs
  got = solvers.solve_dense(padded, leaks, sides)
  np.testing.assert_allclose(got[:5], exact(flow, leak, rhs), rtol=1e-5)
  np.testing.assert_array_equal(got[5:], 7)


# -- gradients ---------------------------------------------------------------


@functools.cache
def gradients():
  """d sum(weights V) by (discount, total), of the public `closure.solve`."""

  def weighted(discount, total, process, weights):
    return weights @ closure.solve(process, discount=discount, total=total)

  gradient = jax.grad(weighted, (0, 1))
  return jax.jit(jax.vmap(gradient, (None, 0, 0, 0)))


def test_gradients_are_finite_differences():
  totals = signed_totals()
  weights = np.random.default_rng(1).normal(size=totals.shape)
  by_discount, by_total = gradients()(
    0.9, totals, processes(), weights.astype(np.float32)
  )
  rng, step = np.random.default_rng(2), 1e-4
  for g, total in enumerate(totals):
    process, weight = groups_lib.one(processes(), g), weights[g]
    seen = np.asarray(process.state_count) > 0

    def value(discount, total, process=process, weight=weight):
      return weight @ dense(process, discount, total)

    slope = (value(0.9 + step, total) - value(0.9 - step, total)) / (2 * step)
    np.testing.assert_allclose(by_discount[g], slope, rtol=1e-4, atol=1e-4)
    direction = rng.normal(size=total.shape) * seen
    # Linear in the totals: a difference of any length is the slope.
    along = value(0.9, total + direction) - value(0.9, total)
    np.testing.assert_allclose(
      direction @ by_total[g], along, rtol=1e-4, atol=1e-4
    )
    assert not np.asarray(by_total[g])[~seen].any()


def test_lambda_returns_have_gradients():
  """Sweeps to a fixed point, differentiated as the system they solve."""
  groups = groups_lib.random_groups(1, 93, max_rollouts=6, max_steps=6)
  batch = make_batch(groups_lib.table_of(groups))
  group = jax.tree.map(jnp.asarray, groups_lib.one(batch.arrays))

  @jax.jit
  def total(reward, beta):
    process = build_process(
      group.replace(reward=reward), beta=beta, signal="observed"
    )
    values = closure.lambda_values(process, group.traj, beta=beta, lam=0.5)
    return jnp.sum(values.v * jnp.cos(jnp.arange(values.v.size)))

  by_reward, by_beta = jax.grad(total, (0, 1))(group.reward, 0.9)
  assert np.isfinite(by_reward).all() and by_reward.any()
  assert not np.asarray(by_reward)[~np.asarray(group.mask)].any()
  direction = np.cos(np.arange(group.mask.size)) * group.mask
  along = total(group.reward + direction, 0.9) - total(group.reward, 0.9)
  np.testing.assert_allclose(by_reward @ direction, along, rtol=1e-3, atol=1e-4)
  slope = (total(group.reward, 0.91) - total(group.reward, 0.89)) / 0.02
  np.testing.assert_allclose(by_beta, slope, rtol=5e-3)
