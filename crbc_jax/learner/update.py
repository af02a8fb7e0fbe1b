"""One policy update: PPO epochs over the rows of a batch, one compilation."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from crbc_jax.checks import check_choice
from crbc_jax.learner import critic as critic_lib
from crbc_jax.learner.collect import Rollouts
from crbc_jax.learner.row_losses import MEANS, RowLoss

ADVANTAGE_SCALES = ("none", "rms", "standardise")
AGGREGATIONS = ("step", "trajectory", "constant")


@chex.dataclass(frozen=True)
class LearnerState:
  """Everything that learning changes."""

  params: Any
  opt_state: Any
  reference: Any  # params of the reference policy, or () without a KL term
  key: chex.PRNGKey  # base key of the run; every draw folds counters into it
  critic_params: Any = ()  # () without a critic, as is its optimiser's state
  critic_opt_state: Any = ()


def make_optimizer(
  *, learning_rate: float, max_grad_norm: float
) -> optax.GradientTransformation:
  """Adam behind a clip of the global gradient norm."""
  return optax.chain(
    optax.clip_by_global_norm(max_grad_norm),
    optax.adam(learning_rate, eps=1e-5),
  )


def scale_advantage(
  advantage: chex.Array, mask: chex.Array, *, scale: str
) -> chex.Array:
  """Scales advantages of any shape over the batch; masked ones become 0.

  "rms" divides by the root mean square and keeps the centre (a sign stays a
  sign); "standardise" subtracts the mean and divides by the standard
  deviation, equal ones become 0; "none" leaves them. A batch of zeros stays
  zero.
  """
  check_choice("advantage_scale", scale, ADVANTAGE_SCALES)
  advantage = jnp.where(mask, advantage, 0.0)
  if scale == "none":
    return advantage
  count = jnp.maximum(jnp.sum(mask), 1)
  # Equal advantages less their mean leave a rounding error, not a signal.
  noise = (1e-5 * jnp.max(jnp.abs(advantage))) ** 2
  if scale == "standardise":
    advantage = jnp.where(mask, advantage - jnp.sum(advantage) / count, 0.0)
  mean_square = jnp.sum(advantage**2) / count
  signal = ~(mean_square <= noise)  # so that a NaN stays one
  scaled = advantage / jnp.sqrt(jnp.where(signal, mean_square, 1.0))
  return jnp.where(signal, scaled, 0.0)


def row_weights(mask: chex.Array, *, aggregation: str) -> chex.Array:
  """Weight of each step [P, G, T], 0 where masked; the loss is a mean.

    step        1: every environment step weighs 1 / sum T (the paper)
    trajectory  every trajectory weighs the same, its steps share it
    constant    1 / (trajectories x T_max) per step (Dr. GRPO's constant)

  Weights are relative to the number of live rows, so that the loss divides by
  that count.
  """
  check_choice("aggregation", aggregation, AGGREGATIONS)
  live = mask.astype(jnp.float32)
  if aggregation == "step":
    return live
  steps = jnp.sum(live)
  length = jnp.sum(live, axis=-1, keepdims=True)
  if aggregation == "constant":
    return live * steps / mask.size
  trajectories = jnp.maximum(jnp.sum(length > 0), 1)
  return live * steps / (trajectories * jnp.maximum(length, 1.0))


def make_update_fn(
  row_loss: RowLoss,
  optimizer: optax.GradientTransformation,
  *,
  minibatch: int,
  epochs: int,
  aggregation: str,
  advantage_scale: str,
  accumulation: int = 1,
  critic: critic_lib.Critic | None = None,
) -> Callable[..., Any]:
  """Returns jitted `update(state, levels, rollouts, advantage, key, value)`.

  Live rows are shuffled each epoch and cut into minibatches of a fixed size;
  their number is a loop bound inside the program, so episodes of any length
  compile once. A last, partly filled minibatch divides by the full size: every
  step keeps the same weight.

  A critic takes its own step on the same minibatches, on the mean value loss
  of the rows whatever the `aggregation`; its target is A + V before scaling.

  Args:
    row_loss: of `row_losses`.
    optimizer: of the parameters.
    minibatch: rows of an optimiser step.
    epochs: passes over the rows.
    aggregation: one of `AGGREGATIONS`.
    advantage_scale: one of `ADVANTAGE_SCALES`.
    accumulation: parts a minibatch is cut into, whose gradients are added up:
      the same step with less memory.
    critic: with its own optimiser, where the estimator needs one.

  Raises:
    ValueError: the parts of a minibatch would differ in size.

  Args of the returned function:
    state: LearnerState (donated).
    levels: P levels.
    rollouts: Rollouts [P, G, T].
    advantage: [P, G, T] float32.
    key: for shuffling.
    value: [P, G, T] float32, the values the advantage was computed with; only
      with a critic.
    clip_low_extra: [P, G, T] float32, added to the lower clip of each step; by
      default nothing is.

  Returns of it:
    (LearnerState, metrics dict of scalars). `params_finite` is False when a
    parameter stopped being a finite number.
  """
  if minibatch % accumulation:
    raise ValueError(
      f"minibatch {minibatch} cannot be cut into {accumulation} equal parts"
    )
  grad_fn = jax.value_and_grad(row_loss, has_aux=True)

  def gradients(params, reference, levels, rows, share):
    def one_part(sums, part):
      (_, metrics), grads = grad_fn(params, reference, *part)
      return jax.tree.map(jnp.add, sums, (metrics, grads)), None

    if accumulation == 1:
      (_, metrics), grads = grad_fn(params, reference, levels, rows, share)
      return metrics, grads
    parts = jax.tree.map(
      lambda x: x.reshape(accumulation, -1, *x.shape[1:]), (levels, rows, share)
    )
    zeros = (
      {name: jnp.zeros(()) for name in MEANS},
      jax.tree.map(jnp.zeros_like, params),
    )
    return jax.lax.scan(one_part, zeros, parts)[0]

  def update(
    state,
    levels,
    rollouts: Rollouts,
    advantage,
    key,
    value=None,
    clip_low_extra=None,
  ):
    mask = rollouts.mask
    per_level = mask.shape[1] * mask.shape[2]
    of_critic = {}
    if critic:
      of_critic = {"value": value, "return": advantage + value}
    advantage = scale_advantage(advantage, mask, scale=advantage_scale)
    weights = row_weights(mask, aggregation=aggregation).reshape(-1)
    live = mask.reshape(-1)
    rows = {
      "state": rollouts.state,
      "action": rollouts.action,
      "log_prob": rollouts.log_prob,
      "advantage": advantage,
      **of_critic,
    }
    if clip_low_extra is not None:
      rows["clip_low_extra"] = clip_low_extra
    rows = jax.tree.map(lambda x: x.reshape(live.shape + x.shape[3:]), rows)
    padding = -live.size % minibatch
    batches = (jnp.sum(live) + minibatch - 1) // minibatch

    def one_minibatch(i, carry, order):
      params, opt_state, critic_state, sums = carry
      index = jax.lax.dynamic_slice(order, (i * minibatch,), (minibatch,))
      weight = jnp.where(
        live[index] & (i * minibatch + jnp.arange(minibatch) < live.size),
        weights[index],
        0.0,
      )
      picked = jax.tree.map(lambda x: x[index], rows)
      picked_levels = jax.tree.map(lambda x: x[index // per_level], levels)
      metrics, grads = gradients(
        params, state.reference, picked_levels, picked, weight / minibatch
      )
      metrics["grad_norm"] = optax.tree.norm(grads)
      changes, opt_state = optimizer.update(grads, opt_state, params)
      params = optax.apply_updates(params, changes)
      if critic:
        share = (weight > 0).astype(jnp.float32) / minibatch
        values, values_opt = critic_state
        *critic_state, seen = critic_lib.critic_step(
          critic, values, values_opt, picked_levels, picked, share
        )
        metrics |= seen
      sums = jax.tree.map(jnp.add, sums, metrics)
      return params, opt_state, tuple(critic_state), sums

    def one_epoch(carry, epoch_key):
      # Live rows first, in random order; padding is never reached.
      draw = jax.random.uniform(epoch_key, live.shape)
      order = jnp.argsort(jnp.where(live, draw, 2.0))
      order = jnp.pad(order, (0, padding))
      return jax.lax.fori_loop(
        0, batches, lambda i, c: one_minibatch(i, c, order), carry
      ), None

    means = MEANS
    norms: tuple[str, ...] = ("grad_norm",)
    if critic:
      means, norms = means + critic_lib.MEANS, (*norms, critic_lib.NORM)
    sums = {name: jnp.zeros(()) for name in means + norms}
    critic_state = (state.critic_params, state.critic_opt_state)
    (params, opt_state, critic_state, sums), _ = jax.lax.scan(
      one_epoch,
      (state.params, state.opt_state, critic_state, sums),
      jax.random.split(key, epochs),
    )
    metrics = {k: v / jnp.maximum(batches * epochs, 1) for k, v in sums.items()}
    # Partly filled minibatches divide by the full size: undo it for reports.
    filled = batches * minibatch / jnp.maximum(jnp.sum(live), 1)
    for name in means:
      metrics[name] = metrics[name] * filled
    if critic:
      metrics["explained_variance"] = critic_lib.explained_variance(
        value, of_critic["return"], mask
      )
    learned = jax.tree.leaves((params, critic_state[0]))
    sizes = [jnp.sum(jnp.abs(x)) for x in learned]
    metrics["params_finite"] = jnp.isfinite(sum(sizes))
    state = LearnerState(
      params=params,
      opt_state=opt_state,
      reference=state.reference,
      key=state.key,
      critic_params=critic_state[0],
      critic_opt_state=critic_state[1],
    )
    return state, metrics

  return jax.jit(update, donate_argnums=0)
