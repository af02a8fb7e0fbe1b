"""How fast is the Sokoban environment? Steps/s with random actions.

  python -m experiments.bench_sokoban [--steps 100] [--repeats 5]

Each row is the best of several repeats of one jitted `scan` of `vmap(step)`,
random actions drawn inside, compilation left out.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.envs import sokoban

SETTINGS = ((6, 1), (10, 4))  # (side of the grid, boxes)
BATCHES = (64, 1_024, 8_192)


def random_levels(side: int, boxes: int, batch: int) -> sokoban.Level:
  """A walled empty room per row with random boxes, targets and player."""
  rng = np.random.default_rng(0)
  walls = np.pad(np.zeros((side - 2, side - 2), bool), 1, constant_values=True)
  floor = np.flatnonzero(~walls)
  places = rng.permuted(np.tile(floor, (batch, 1)), axis=1).astype(np.int32)
  targets = np.zeros((batch, side * side), bool)
  np.put_along_axis(targets, places[:, -boxes:], True, axis=1)
  return sokoban.Level(
    walls=jnp.tile(walls.reshape(1, -1), (batch, 1)),
    targets=jnp.asarray(targets),
    player=jnp.asarray(places[:, 0]),
    boxes=jnp.asarray(places[:, 1 : 1 + boxes]),
  )


@functools.partial(jax.jit, static_argnames=("env", "steps", "with_keys"))
def rollout(env, levels, key, *, steps, with_keys):
  """Plays `steps` random actions on every level; returns sums to wait for."""
  batch = levels.player.shape[0]

  def one(states, key):
    actions = jax.random.randint(key, (batch,), 0, env.num_actions)
    out = jax.vmap(env.step)(levels, states, actions)
    keys = jax.vmap(env.state_key)(out.state) if with_keys else 0
    return out.state, (out.reward, out.boundary, keys)

  states = jax.vmap(env.reset)(levels)
  return jax.lax.scan(one, states, jax.random.split(key, steps))


def steps_per_second(side, boxes, batch, *, steps, repeats, with_keys=False):
  """Best rate over `repeats`."""
  env = sokoban.Sokoban(height=side, width=side, boxes=boxes, step_limit=steps)
  levels = random_levels(side, boxes, batch)
  seconds = []
  for repeat in range(repeats + 1):
    start = time.perf_counter()
    key = jax.random.key(repeat)
    jax.block_until_ready(
      rollout(env, levels, key, steps=steps, with_keys=with_keys)
    )
    seconds.append(time.perf_counter() - start)
  return batch * steps / min(seconds[1:])


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--steps", type=int, default=100)
  parser.add_argument("--repeats", type=int, default=5)
  options = vars(parser.parse_args())
  print(f"backend {jax.default_backend()}, {options['steps']} steps a rollout")
  print("grid   boxes  batch        steps/s  with state keys")
  for side, boxes in SETTINGS:
    for batch in BATCHES:
      plain = steps_per_second(side, boxes, batch, **options)
      keyed = steps_per_second(side, boxes, batch, **options, with_keys=True)
      print(
        f"{f'{side}x{side}':6s} {boxes:5d} {batch:6,d}"
        f" {plain:14,.0f} {keyed:16,.0f}"
      )


if __name__ == "__main__":
  main()
