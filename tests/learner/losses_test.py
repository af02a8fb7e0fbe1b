import functools

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import optax
import pytest

from crbc_jax.learner import losses

CLIP = 0.2


@pytest.fixture
def rows():
  """log pi, log pi_old, advantage and log p [R, A] of 32 steps."""
  rng = np.random.default_rng(0)
  log_prob, old, advantage = rng.normal(size=(3, 32)).astype(np.float32)
  every = jax.nn.log_softmax(rng.normal(size=(32, 4)).astype(np.float32))
  return 0.3 * log_prob - 1, 0.3 * old - 1, advantage, every


def test_clipped_surrogate_equals_rlax(rows):
  log_prob, old, advantage, _ = rows
  loss, share = losses.clipped_surrogate(
    log_prob, old, advantage, np.full(32, 1 / 32, np.float32), clip=CLIP
  )
  ratio = np.exp(log_prob - old)
  rlax = pytest.importorskip("rlax", reason="an oracle of [dev]")
  wanted = rlax.clipped_surrogate_pg_loss(ratio, advantage, CLIP)
  np.testing.assert_allclose(loss, wanted, rtol=1e-5)
  np.testing.assert_allclose(share, (abs(ratio - 1) > CLIP).mean(), rtol=1e-5)
  assert 0.2 < share < 0.8


@pytest.mark.parametrize(
  "ratio, advantage, loss, slope",  # slope: of the loss in log pi
  [
    (1.0, 2.0, -2.0, -2.0),
    (1.5, 2.0, -2.4, 0.0),  # good enough already
    (0.5, 2.0, -1.0, -1.0),
    (1.5, -2.0, 3.0, 3.0),  # likelier although bad: no bound
    (0.5, -2.0, 1.6, 0.0),
  ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, loss, slope):
  def of(log_prob):
    return losses.clipped_surrogate(
      log_prob,
      jnp.array([-1.0]),
      jnp.array([advantage]),
      jnp.array([1.0]),
      clip=CLIP,
    )[0]

  got, gradient = jax.value_and_grad(of)(jnp.array([-1.0 + np.log(ratio)]))
  np.testing.assert_allclose(got, loss, rtol=1e-5)
  np.testing.assert_allclose(gradient, [slope], rtol=1e-5)


def test_a_far_ratio_stays_finite():
  value, gradient = jax.value_and_grad(
    lambda x: losses.clipped_surrogate(
      x, jnp.zeros(2), -jnp.ones(2), jnp.ones(2), clip=CLIP
    )[0]
  )(jnp.array([-1e4, 1e4]))
  assert np.isfinite(value) and np.isfinite(gradient).all()


def test_k3_by_hand_and_never_negative(rows):
  log_prob, reference, _, _ = rows
  d = np.array([0.0, np.log(2.0), -np.log(2.0)], np.float32)
  got = [
    losses.kl_k3(jnp.zeros(1), jnp.full(1, x), jnp.ones(1)).item() for x in d
  ]
  np.testing.assert_allclose(
    got, [0, 1 - np.log(2), np.log(2) - 0.5], rtol=1e-5, atol=1e-7
  )
  for i in range(32):
    one = slice(i, i + 1)
    assert losses.kl_k3(log_prob[one], reference[one], np.ones(1)) >= 0


def test_k3_averages_to_the_kl_divergence(rows):
  policy, reference = rows[-1][0], rows[-1][1]
  got = losses.kl_k3(policy, reference, jnp.exp(policy))
  wanted = jnp.sum(jnp.exp(policy) * (policy - reference))
  np.testing.assert_allclose(got, wanted, rtol=1e-5)
  # The other direction is another number: the order of arguments matters.
  other = jnp.sum(jnp.exp(reference) * (reference - policy))
  assert abs(other - wanted) > 1e-3


def test_entropy_equals_rlax_and_hand_values(rows):
  every = rows[-1]
  weight = np.linspace(0, 1, 32, dtype=np.float32)
  got = losses.entropy(every, weight)
  rlax = pytest.importorskip("rlax", reason="an oracle of [dev]")
  wanted = -32 * rlax.entropy_loss(every, weight)
  np.testing.assert_allclose(got, wanted, rtol=1e-5)
  half = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
  by_hand = 2 * np.log(2) - 3 * (0.25 * np.log(0.25) + 0.75 * np.log(0.75))
  np.testing.assert_allclose(
    losses.entropy(half, jnp.array([2.0, 3.0])), by_hand, rtol=1e-6
  )


@pytest.mark.parametrize(
  "value, loss, slope, larger",  # old value 1; slope: of the loss in the value
  [
    (1.1, 1.62, -1.8, 0),  # target 2.9: inside the clip, 1.8^2 / 2
    (1.5, 1.445, 0.0, 1),  # moved far enough: counts as 1.2
    (0.5, 2.88, -2.4, 0),  # away from the target: no bound
    (5.0, 2.205, 2.1, 0),  # too far beyond it: the plain square is larger
    (4.0, 1.445, 0.0, 1),
    (1.0, 1.805, -1.9, 0),
  ],
)
def test_clipped_value_loss_by_hand(value, loss, slope, larger):
  def of(value):
    return losses.clipped_value_loss(
      value, jnp.ones(1), jnp.full(1, 2.9), jnp.ones(1), clip=CLIP
    )

  (got, share), gradient = jax.value_and_grad(of, has_aux=True)(
    jnp.array([value])
  )
  np.testing.assert_allclose(got, loss, rtol=1e-5)
  np.testing.assert_allclose(gradient, [slope], rtol=1e-5, atol=1e-7)
  assert share == larger


def test_value_loss_without_a_clip_equals_optax(rows):
  value, old, target, _ = rows
  weight = np.linspace(0, 1, 32, dtype=np.float32)
  wanted = np.sum(weight * optax.l2_loss(value, target))
  got, larger = losses.clipped_value_loss(
    value, old, target, weight, clip=np.inf
  )
  np.testing.assert_allclose(got, wanted, rtol=1e-6)
  assert larger == 0
  clipped, larger = losses.clipped_value_loss(
    value, old, target, weight, clip=CLIP
  )
  assert clipped > got and 0 < larger < weight.sum()


def test_gradients_equal_finite_differences(rows):
  log_prob, old, advantage, every = (jnp.asarray(x[:6]) for x in rows)
  weight = jnp.linspace(0.1, 1, 6)
  surrogate = functools.partial(losses.clipped_surrogate, clip=CLIP)
  for function, at in (
    (lambda x: surrogate(x, old, advantage, weight)[0], log_prob),
    (lambda x: losses.kl_k3(x, old, weight), log_prob),
    (lambda x: losses.entropy(x, weight), every),
    (
      lambda x: losses.clipped_value_loss(x, old, advantage, weight, clip=CLIP)[
        0
      ],
      log_prob,
    ),
  ):
    jax.test_util.check_grads(
      function, (at,), order=1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-3
    )


LOSSES = {
  "clipped_surrogate": lambda log_prob, old, advantage, every, weight: (
    losses.clipped_surrogate(log_prob, old, advantage, weight, clip=CLIP)[0]
  ),
  "clip_share": lambda log_prob, old, advantage, every, weight: (
    losses.clipped_surrogate(log_prob, old, advantage, weight, clip=CLIP)[1]
  ),
  "kl_k3": lambda log_prob, old, advantage, every, weight: losses.kl_k3(
    log_prob, old, weight
  ),
  "entropy": lambda log_prob, old, advantage, every, weight: losses.entropy(
    every, weight
  ),
  "clipped_value_loss": lambda value, old, target, every, weight: (
    losses.clipped_value_loss(value, old, target, weight, clip=CLIP)[0]
  ),
  "value_clip_share": lambda value, old, target, every, weight: (
    losses.clipped_value_loss(value, old, target, weight, clip=CLIP)[1]
  ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30])
def test_masked_rows_change_nothing(rows, name, garbage):
  live = np.arange(32) % 3 > 0
  weight = np.where(live, np.linspace(0.5, 1, 32), 0).astype(np.float32)
  filled = [
    np.where(live.reshape((-1,) + (1,) * (np.ndim(x) - 1)), x, garbage)
    for x in rows
  ]
  wanted = LOSSES[name](*(x[live] for x in rows), weight[live])
  got, gradients = jax.value_and_grad(LOSSES[name], argnums=(0, 3))(
    *map(jnp.asarray, filled), jnp.asarray(weight)
  )
  np.testing.assert_allclose(got, wanted, rtol=1e-6)
  for gradient in gradients:
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient)[~live].any()


@pytest.mark.parametrize("name", LOSSES)
def test_weights_are_linear_and_the_caller_normalises(rows, name):
  one, other = np.random.default_rng(1).uniform(size=(2, 32)).astype("f4")
  parts = LOSSES[name](*rows, one) + LOSSES[name](*rows, other)
  np.testing.assert_allclose(LOSSES[name](*rows, one + other), parts, rtol=1e-5)
  assert LOSSES[name](*rows, np.zeros(32, np.float32)) == 0
