"""Evaluation on a fixed panel of levels, greedy and sampled."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax.envs.sokoban import Level, Sokoban
from crbc_jax.policies.grid import LogitsFn
from crbc_jax.types import Boundary


@chex.dataclass(frozen=True)
class Episodes:
  """One episode on each of L levels."""

  success: chex.Array  # [L] bool
  length: chex.Array  # [L] int32, steps taken


def make_evaluate_fn(
  env: Sokoban, logits_fn: LogitsFn, *, greedy: bool
) -> Callable[[Any, Level, chex.PRNGKey], Episodes]:
  """Returns jitted `evaluate(params, levels, key) -> Episodes`.

  One episode on each level; stops when all have ended. Greedy takes the most
  probable action (the first of equals); otherwise actions are sampled. The key
  also drives slips.
  """

  def evaluate(params, levels, key):
    count = levels.player.shape[0]
    state = jax.vmap(env.reset)(levels)

    def going_on(carry):
      _, boundary, t = carry
      return (t < env.step_limit) & jnp.any(boundary == int(Boundary.NONE))

    def step(carry):
      state, boundary, t = carry
      action_key, env_key = jax.random.split(jax.random.fold_in(key, t))
      logits = jax.vmap(lambda level, s: logits_fn(params, level, s))(
        levels, state
      )
      action = (
        jnp.argmax(logits, axis=-1)
        if greedy
        else jax.random.categorical(action_key, logits)
      )
      after = jax.vmap(env.step)(
        levels,
        state,
        action.astype(jnp.int32),
        jax.random.split(env_key, count),
      )
      alive = boundary == int(Boundary.NONE)
      state = jax.tree.map(
        lambda new, old: jnp.where(
          alive.reshape((-1,) + (1,) * (new.ndim - 1)), new, old
        ),
        after.state,
        state,
      )
      return state, jnp.where(alive, after.boundary, boundary), t + 1

    boundary = jnp.full((count,), int(Boundary.NONE))
    state, boundary, _ = jax.lax.while_loop(
      going_on, step, (state, boundary, jnp.zeros((), jnp.int32))
    )
    return Episodes(
      success=boundary == int(Boundary.SUCCESS), length=state.step
    )

  return jax.jit(evaluate)
