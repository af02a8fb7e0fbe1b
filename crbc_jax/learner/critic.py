"""The learned critic of PPO: its values, and its step in a minibatch.

The critic is a network of its own with an optimiser of its own: nothing of it
reaches the policy but the values its estimator (`gae`) reads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from crbc_jax.envs.sokoban import Level
from crbc_jax.learner import losses
from crbc_jax.policies.grid import ValueFn

MEANS = ("value_loss", "value_clip_share")
"""Metrics of `critic_step` that are means over the rows."""
NORM = "critic_grad_norm"
"""And the gradient norm before the optimiser's clip."""


class Critic(NamedTuple):
  """What training a critic needs; static."""

  value_fn: ValueFn
  optimizer: optax.GradientTransformation
  clip: float  # of the value loss, in units of the values


def make_values_fn(
  value_fn: ValueFn,
) -> Callable[[Any, Level, Any], chex.Array]:
  """Returns jitted `values(params, levels, states) -> [P, G, T]`.

  `levels` holds P levels, `states` leaves [P, G, T, ...] of them. One level
  goes at a time, so memory grows with the steps of a level only.
  """

  def values(params, levels, states):
    def of_level(at):
      level, of_states = at
      on_rollouts = jax.vmap(
        jax.vmap(value_fn, (None, None, 0)), (None, None, 0)
      )
      return on_rollouts(params, level, of_states)

    return jax.lax.map(of_level, (levels, states))

  return jax.jit(values)


def critic_step(
  critic: Critic,
  params: Any,
  opt_state: Any,
  levels: Level,
  rows: dict[str, Any],
  weight: chex.Array,
) -> tuple[Any, Any, dict[str, chex.Array]]:
  """One gradient step on the clipped value loss of a minibatch.

  Args:
    critic: static.
    params: of the value network.
    opt_state: of its optimiser.
    levels: leaves [R, ...], the level of each row.
    rows: "state" (leaves [R, ...]), "value" [R] of the critic that credited
      the rows, "return" [R] to regress on.
    weight: [R] share of each row, 0 where masked.

  Returns:
    (params, optimiser state, metrics by the names of MEANS and NORM).
  """

  def loss_fn(params):
    value = jax.vmap(lambda level, state: critic.value_fn(params, level, state))
    return losses.clipped_value_loss(
      value(levels, rows["state"]),
      rows["value"],
      rows["return"],
      weight,
      clip=critic.clip,
    )

  (loss, larger), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
  changes, opt_state = critic.optimizer.update(grads, opt_state, params)
  metrics = dict(zip(MEANS, (loss, larger), strict=True))
  metrics[NORM] = optax.tree.norm(grads)
  return optax.apply_updates(params, changes), opt_state, metrics


def explained_variance(
  value: chex.Array, target: chex.Array, mask: chex.Array
) -> chex.Array:
  """1 - var(R - V) / var(R) over a batch of any shape; 0 if R is constant."""
  count = jnp.maximum(jnp.sum(mask), 1)

  def variance(x):
    x = jnp.where(mask, x, 0.0)
    centred = jnp.where(mask, x - jnp.sum(x) / count, 0.0)
    return jnp.sum(centred**2) / count

  total = variance(target)
  size = jnp.max(jnp.where(mask, jnp.abs(target), 0.0))
  varies = total > (1e-5 * size) ** 2
  ratio = variance(target - value) / jnp.where(varies, total, 1.0)
  return jnp.where(varies, 1.0 - ratio, 0.0)
