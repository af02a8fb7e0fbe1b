"""Short masked losses of policy-gradient learning; every argument is [R].

`weight` is the share of each row (0 on padding) and the caller owns the
normaliser, so a sum over minibatches equals the loss of the whole batch.
"""

import chex
import jax.numpy as jnp

_LOG_RATIO_LIMIT = 20.0


def clipped_surrogate(
  log_prob: chex.Array,
  old_log_prob: chex.Array,
  advantage: chex.Array,
  weight: chex.Array,
  *,
  clip: float,
  clip_low_extra: chex.Array | None = None,
) -> tuple[chex.Array, chex.Array]:
  """PPO's clipped objective, to be minimised.

    sum_i w_i max(-A_i rho_i, -A_i clip(rho_i, 1 - clip - x_i, 1 + clip))

  Advantages are constants; x_i is `clip_low_extra`, 0 when not given. Source:
  arXiv 1707.06347, eq. 7.

  Returns:
    (loss [], weighted share of rows whose ratio was clipped []).
  """
  chex.assert_equal_shape([log_prob, old_log_prob, advantage, weight])
  live = weight > 0
  log_ratio = jnp.where(live, log_prob - old_log_prob, 0.0)
  ratio = jnp.exp(jnp.clip(log_ratio, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))
  constant = jnp.where(live, advantage, 0.0)
  if clip_low_extra is None:
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    is_outside = jnp.abs(ratio - 1.0) > clip
  else:
    low = 1.0 - clip - jnp.where(live, clip_low_extra, 0.0)
    bounded = jnp.clip(ratio, low, 1.0 + clip)
    is_outside = (ratio < low) | (ratio > 1.0 + clip)
  loss = jnp.maximum(-constant * ratio, -constant * bounded)
  outside = is_outside.astype(jnp.float32)
  return jnp.sum(weight * loss), jnp.sum(weight * outside)


def clipped_value_loss(
  value: chex.Array,
  old_value: chex.Array,
  target: chex.Array,
  weight: chex.Array,
  *,
  clip: float,
) -> tuple[chex.Array, chex.Array]:
  """PPO's value loss: a value gains nothing by moving beyond `clip`.

    sum_i w_i / 2 max((V_i - R_i)^2, (C_i - R_i)^2)
    C_i = clip(V_i, V_old_i - clip, V_old_i + clip)

  Targets R and old values are constants. The clip is absolute, in units of the
  values; infinity switches it off. It is not in the PPO paper but in its code
  (OpenAI baselines "ppo2"); arXiv 2006.05990 compares it with plain squares.

  Returns:
    (loss [], weighted share of rows whose clipped square is the larger []).
  """
  chex.assert_equal_shape([value, old_value, target, weight])
  live = weight > 0
  value, old_value, target = (
    jnp.where(live, x, 0.0) for x in (value, old_value, target)
  )
  bounded = jnp.clip(value, old_value - clip, old_value + clip)
  plain, pessimistic = (value - target) ** 2, (bounded - target) ** 2
  loss = 0.5 * jnp.maximum(plain, pessimistic)
  larger = (pessimistic > plain).astype(jnp.float32)
  return jnp.sum(weight * loss), jnp.sum(weight * larger)


def kl_k3(
  log_prob: chex.Array, reference_log_prob: chex.Array, weight: chex.Array
) -> chex.Array:
  """The non-negative "k3" estimate of KL(policy || reference), a scalar.

  d = log p_ref - log p,   e^d - d - 1
  """
  chex.assert_equal_shape([log_prob, reference_log_prob, weight])
  d = jnp.where(weight > 0, reference_log_prob - log_prob, 0.0)
  d = jnp.clip(d, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
  return jnp.sum(weight * (jnp.expm1(d) - d))


def entropy(log_probs: chex.Array, weight: chex.Array) -> chex.Array:
  """Weighted entropy in nats; log_probs [R, A], weight [R]."""
  chex.assert_rank([log_probs, weight], [2, 1])
  # Masked before use: a NaN would come back in the gradient.
  log_probs = jnp.where(weight[:, None] > 0, log_probs, 0.0)
  return jnp.sum(-weight * jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1))
