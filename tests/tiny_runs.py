"""Helpers: tiny configs, levels and runs for the learner and the command."""

import os

import jax
import pytest

from crbc_jax.envs import sokoban, sokoban_generator
from crbc_jax.learner import (
  checkpoint,
  config,
  loop,
  records,
  task,
  training_step,
)

VALUES = {
  "env_steps": 1_000,
  "env.step_limit": 8,
  "generator.size": (5, 5),
  "generator.inner_walls": (0, 1),
  "generator.optimal_length": (1, 8),
  "generator.layouts": 6,
  "generator.held_out_layouts": 2,
  "generator.starts_per_layout": 4,
  "policy.hidden": (16,),
  "rollout.levels": 4,
  "rollout.group_size": 4,
  "learner.minibatch": 32,
  "eval.every": 400,
  "checkpoint.every": 300,
  "tensorboard": False,
}
"""About 8 updates with 3 evaluations and 4 checkpoints."""


def values(folder, **changes):
  """Dotted keys and values; in `changes` a key is written with `__`."""
  changes = {k.replace("__", "."): v for k, v in changes.items()}
  return VALUES | {"generator.folder": str(folder / "levels")} | changes


def make_config(folder, **changes):
  made = config.get_config()
  made.update_from_flattened_dict(values(folder, **changes))
  config.validate(made)
  return made


def flags(folder, **changes):
  """The same as arguments of `crbc train`."""
  return [f"--config.{k}={v}" for k, v in values(folder, **changes).items()]


def make_levels(*, seed=0, layouts=12, held_out_layouts=1, size=(5, 5)):
  """(training levels, held-out levels)."""
  return sokoban_generator.generate(
    seed,
    size=size,
    inner_walls=(0, 2),
    optimal_length=(1, 8),
    layouts=layouts,
    held_out_layouts=held_out_layouts,
    starts_per_layout=4,
  )


def make_env(levels, **options):
  return sokoban.Sokoban(
    height=levels.height,
    width=levels.width,
    boxes=levels.num_boxes,
    **{"step_limit": 8} | options,
  )


def without_seconds(run_dir):
  """The records of a run less what a clock wrote."""
  return [
    {k: v for k, v in record.items() if not k.startswith("seconds_")}
    for record in records.read_metrics(run_dir)
  ]


def last_checkpoint(run_dir, update=None):
  """(leaves of the learner state, counters) of a checkpoint."""
  made = loop.read_config(run_dir)
  like = training_step.initial_state(made, task.make_task(made))
  with checkpoint.Checkpoints(
    run_dir / "checkpoints", read_only=True
  ) as checkpoints:
    state, progress = checkpoints.restore(like, update)
  return jax.device_get(jax.tree.leaves(state)), progress


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory):
  """Runs of one session share compiled programs: most of a tiny run's time.

  Returns the environment that lets another process share them too.
  """
  wanted = {
    "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
    "jax_persistent_cache_min_compile_time_secs": 0,
  }
  if not jax.config.jax_compilation_cache_dir:
    for name, value in wanted.items():
      jax.config.update(name, value)
  return os.environ | {
    name.upper(): str(getattr(jax.config, name)) for name in wanted
  }
