"""Fresh rollouts that go on from states an earlier rollout went through.

Possible where an environment can be restored to a state: here a `sokoban.State`
says all there is, its clock included, so a continuation obeys the same time
limit.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from crbc_jax.envs.sokoban import Sokoban
from crbc_jax.learner.collect import make_step_fn
from crbc_jax.policies.grid import LogitsFn
from crbc_jax.types import Boundary

LANES = 1_024  # rollouts played side by side


@chex.dataclass(frozen=True)
class Continuations:
  """How K continuations from each of L states ended; 0 where none was asked."""

  success: chex.Array  # [L, K] bool
  length: chex.Array  # [L, K] int32, steps played


def make_continue_fn(
  env: Sokoban, logits_fn: LogitsFn, *, samples: int
) -> Callable[..., Continuations]:
  """Returns `continue_from(params, levels, level, state, clock, asked, key)`.

  Actions are sampled as in `collect.make_collect_fn`. The states asked for are
  packed into chunks of about `LANES` rollouts, those with the most steps left
  first, and a chunk ends with its last rollout: time goes with the steps that
  are played, memory with one chunk.

  Args of the returned function:
    params: of the policy.
    levels: P levels.
    level: [L] int32, level of each state, in [0, P).
    state: leaves [L, ...].
    clock: [L] int32, steps taken before it; only the packing looks at it.
    asked: [L] bool, states to go on from.
    key: of all randomness.

  Returns of it:
    Continuations with K = `samples`.
  """
  play_step = make_step_fn(env, logits_fn)

  def continue_from(params, levels, level, state, clock, asked, key):
    chex.assert_equal_shape([level, clock, asked])
    size = asked.shape[0]
    chunk = min(max(1, LANES // samples), size)
    order = jnp.argsort(jnp.where(asked, clock, env.step_limit))
    order = jnp.pad(order, (0, -size % chunk), constant_values=size)

    def one_chunk(i, found):
      place = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
      index = jnp.minimum(
        place, size - 1
      )  # what is behind the end is not asked
      wanted = asked[index] & (place < size)
      own = jax.tree.map(lambda x: x[level[index]], levels)
      start = jax.tree.map(
        lambda x: jnp.repeat(x[index][:, None], samples, axis=1), state
      )
      chunk_key = jax.random.fold_in(key, i)

      def going_on(carry):
        _, alive, _, t = carry
        return jnp.any(alive) & (t < env.step_limit)

      def step(carry):
        now, alive, ended, t = carry
        now, going_on, row = play_step(
          params, own, now, alive, jax.random.fold_in(chunk_key, t)
        )
        ended = Continuations(
          success=ended.success | (row["boundary"] == int(Boundary.SUCCESS)),
          length=ended.length + alive,
        )
        return now, going_on, ended, t + 1

      alive = jnp.repeat(wanted[:, None], samples, axis=1)
      _, _, ended, _ = jax.lax.while_loop(
        going_on, step, (start, alive, _nothing(chunk), jnp.zeros((), int))
      )
      target = jnp.where(wanted, index, size)
      return jax.tree.map(
        lambda every, new: every.at[target].set(new, mode="drop"), found, ended
      )

    chunks = (jnp.sum(asked) + chunk - 1) // chunk
    return jax.lax.fori_loop(0, chunks, one_chunk, _nothing(size))

  def _nothing(rows):
    return Continuations(
      success=jnp.zeros((rows, samples), bool),
      length=jnp.zeros((rows, samples), jnp.int32),
    )

  return continue_from
