"""Rollouts of P levels x G rollouts as one jitted scan on the device."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax.envs.sokoban import Level, Sokoban
from crbc_jax.policies.grid import LogitsFn
from crbc_jax.types import Boundary


@chex.dataclass(frozen=True)
class Rollouts:
  """G rollouts on each of P levels, T steps; steps after the end are masked."""

  state: Any  # leaves [P, G, T, ...], state before the step
  key: chex.Array  # [P, G, T, W] int32, exact key of that state
  final_key: chex.Array  # [P, G, W] int32, key of the state at the end
  action: chex.Array  # [P, G, T] int32
  log_prob: chex.Array  # [P, G, T] float32, of the action when sampled
  reward: chex.Array  # [P, G, T] float32
  boundary: chex.Array  # [P, G, T] int32
  moved: chex.Array  # [P, G, T] bool, the step changed the state
  mask: chex.Array  # [P, G, T] bool, the step was played
  # [P, G, T] int32, equal for equal actions; None: `action` is that already.
  action_key: chex.Array | None = None


def make_step_fn(
  env: Sokoban, logits_fn: LogitsFn
) -> Callable[..., tuple[Any, chex.Array, dict[str, Any]]]:
  """Returns `step(params, levels, state, alive, key)`, one step of P x G.

  The rollouts go on from whatever states they are in. Actions are sampled from
  the softmax of the logits; all randomness comes from `key`.

  Args of the returned function:
    params: of the policy.
    levels: P levels.
    state: leaves [P, G, ...].
    alive: [P, G] bool; the others stay where they are.
    key: for the actions and the slips of this step.

  Returns of it:
    (state after the step, alive after it, fields of `Rollouts` [P, G, ...]).
  """

  def on_group(function):  # over levels, then over the rollouts of a level
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, 0))

  def step(params, levels, state, alive, key):
    action_key, env_key = jax.random.split(key)
    logits = jax.nn.log_softmax(
      on_group(lambda level, state: logits_fn(params, level, state))(
        levels, state
      )
    )
    action = jax.random.categorical(action_key, logits).astype(jnp.int32)
    log_prob = jnp.take_along_axis(logits, action[..., None], -1)[..., 0]
    if env.slip > 0:
      keys = jax.random.split(env_key, alive.shape)
      after = on_group(lambda level, x: env.step(level, x[0], x[1], x[2]))(
        levels, (state, action, keys)
      )
    else:
      after = on_group(lambda level, x: env.step(level, x[0], x[1]))(
        levels, (state, action)
      )
    row = {
      "state": state,
      "key": jax.vmap(jax.vmap(env.state_key))(state),
      "action": action,
      "log_prob": log_prob,
      "reward": jnp.where(alive, after.reward, 0.0),
      "boundary": jnp.where(alive, after.boundary, int(Boundary.NONE)),
      "moved": after.moved & alive,
      "mask": alive,
    }
    going_on = alive & (after.boundary == int(Boundary.NONE))
    state = jax.tree.map(
      lambda new, old: jnp.where(
        alive.reshape(alive.shape + (1,) * (new.ndim - 2)), new, old
      ),
      after.state,
      state,
    )
    return state, going_on, row

  return step


def make_collect_fn(
  env: Sokoban, logits_fn: LogitsFn, *, group_size: int
) -> Callable[[Any, Level, chex.PRNGKey], Rollouts]:
  """Returns jitted `collect(params, levels, key) -> Rollouts`.

  `levels` holds P levels (leading axis). Every rollout of a group starts from
  the level's own start, so the first anchor is shared. Actions are sampled
  from the softmax of the logits; all randomness comes from `key`.
  """
  play_step = make_step_fn(env, logits_fn)

  def collect(params, levels, key):
    num_levels = levels.player.shape[0]
    start = jax.vmap(env.reset)(levels)
    start = jax.tree.map(
      lambda x: jnp.repeat(x[:, None], group_size, axis=1), start
    )

    def step(carry, step_key):
      state, alive, row = play_step(params, levels, *carry, step_key)
      return (state, alive), row

    alive = jnp.ones((num_levels, group_size), bool)
    (final, _), rows = jax.lax.scan(
      step, (start, alive), jax.random.split(key, env.step_limit)
    )
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), rows)
    return Rollouts(final_key=jax.vmap(jax.vmap(env.state_key))(final), **rows)

  return jax.jit(collect)
