"""How fast is the Sokoban environment? Steps/s with random actions.

  python -m experiments.bench_sokoban [--steps 100] [--repeats 5]
    [--quick] [--results results]

Each row is the best of several repeats of one jitted `scan` of `vmap(step)`,
random actions drawn inside, compilation left out. Writes bench_sokoban.json and
.md.
"""

import argparse
import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

import crbc_jax
from crbc_jax.envs import sokoban
from crbc_jax.files import write_text
from crbc_jax.learner.records import write_json
from experiments import commands
from experiments.bench_credit import markdown_table
from experiments.bench_timing import machine

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


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--steps", type=int, default=100)
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--quick", action="store_true", help="no batch of 8,192")
  parser.add_argument("--results", type=pathlib.Path, default="results")
  args = parser.parse_args(argv)
  options = {"steps": args.steps, "repeats": args.repeats}
  rows = []
  for side, boxes in SETTINGS:
    for batch in BATCHES[:-1] if args.quick else BATCHES:
      plain = steps_per_second(side, boxes, batch, **options)
      keyed = steps_per_second(side, boxes, batch, **options, with_keys=True)
      name = f"{side}x{side}, {boxes} box{'es' * (boxes > 1)}, batch {batch:,}"
      rows.append({"name": name, "plain": plain, "with_keys": keyed})
  result = {
    "command": commands.recorded("experiments.bench_sokoban", argv),
    "version": crbc_jax.__version__,
    **machine(),
    **options,
    "rows": rows,
  }
  text = (
    f"Sokoban, steps/s with random actions, backend {result['backend']},"
    f" {args.steps} steps a rollout, load {result['load']} at the start.\n\n"
  )
  text += markdown_table(
    ("grid", "steps/s", "with state keys"),
    [(r["name"], f"{r['plain']:,.0f}", f"{r['with_keys']:,.0f}") for r in rows],
  )
  write_json(args.results / "bench_sokoban.json", result)
  write_text(args.results / "bench_sokoban.md", text + "\n")
  print(text)


if __name__ == "__main__":
  main()
