"""Depth on real environments: credit error and gap on their rollouts.

Used by `experiments.depth_ablation`. On Sokoban the truth is known (every
reachable state is enumerated); on ALFWorld and WebShop it is not, and only the
gap to the exact closure is measured.
"""

import pathlib
import tempfile
from typing import Any

import jax
import numpy as np

from crbc_jax.learner import collect, loop, records, task, training_step, truth
from crbc_jax.learner.accuracy import widest_shape
from crbc_jax.learner.checkpoint import Checkpoints
from crbc_jax.types import Boundary
from experiments import depth_measures as measures

BETA = 0.98
GROUP_SIZE = 8
LEVELS = 64  # groups of a batch on Sokoban
GAMES = 16  # of text: a rollout has many more rows


def sokoban_accuracy(
  name: str, config, *, seed: int, batches: int, env_steps: int
) -> list[dict[str, Any]]:
  """Error of credit at every depth; cells of the initial and a trained policy.

  Args:
    name: of the setting.
    config: of a run of the setting.
    seed: of levels and rollouts.
    batches: of LEVELS groups.
    env_steps: of the training of the second policy, with CRBC; 0 leaves it
      out.
  """
  config.seed = seed
  config.tensorboard = False
  current = task.make_task(config)
  policies = {"initial": current.params}
  if env_steps:
    policies["trained"] = _trained(config, current, env_steps)
  collect_fn = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=GROUP_SIZE
  )
  true_values_fn = truth.make_true_values_fn(
    current.env, current.logits_fn, beta=BETA
  )
  cells = []
  for policy, params in policies.items():
    found, gaps, success = [], [], []
    for b in range(batches):
      drawn = task.levels_at(
        b * LEVELS, LEVELS, num_levels=len(current.train), seed=seed + 1
      )
      levels = current.train.take(drawn)
      key = jax.random.fold_in(jax.random.key(seed), b)
      rollouts = collect_fn(params, levels.as_levels(), key)
      exact = true_values_fn(params, levels, rollouts).advantage
      batch, at_depths = credit(rollouts, actions=current.num_actions)
      raw = measures.by_row(batch, at_depths.raw)
      live = batch.to_steps(np.asarray(at_depths.live)).astype(bool)
      found.append(measures.errors(raw, exact, live))
      gaps.append(measures.gaps(at_depths))
      won = np.asarray(rollouts.boundary) == Boundary.SUCCESS
      success.append(won.any(axis=2).mean())
    cells.append(
      {
        "setting": name,
        "policy": policy,
        "success": round(float(np.mean(success)), 4),
        "metrics": measures.per_metric(found),
        "pays_until": measures.pays_until(found),
        **measures.mean_gaps(gaps),
      }
    )
  return cells


def text_gaps(name: str, config, *, batches: int) -> dict[str, Any]:
  """Gap to the closure in rollouts of the cloned policy of a text task."""
  current = task.make_task(config)
  config.rollout.group_size = GROUP_SIZE
  collect_fn = current.collect_fn(config)
  gaps = []
  for b in range(batches):
    drawn = task.levels_at(
      b * GAMES, GAMES, num_levels=len(current.train), seed=config.seed
    )
    key = jax.random.fold_in(jax.random.key(config.seed), b)
    _, rollouts = collect_fn(current.params, drawn, key)
    _, at_depths = credit(rollouts, actions=current.num_actions)
    gaps.append(measures.gaps(at_depths))
  return {
    "setting": name,
    "policy": "clone",
    "note": current.note,
    **measures.mean_gaps(gaps),
  }


def credit(rollouts, *, actions: int):
  """The padded batch of rollouts and its credit at every depth."""
  batch = training_step.batch_rollouts(
    rollouts, actions=actions, shape=widest_shape(rollouts.mask.shape)
  )
  fn = measures.make_depths_fn(beta=BETA, w_step=5.0)
  return batch, jax.device_get(fn(batch.arrays))


def _trained(config, current, env_steps: int):
  """Parameters after training with the config's estimator."""
  config.env_steps = config.eval.every = config.checkpoint.every = env_steps
  with tempfile.TemporaryDirectory() as folder:
    run_dir = pathlib.Path(folder) / "run"
    loop.start_run(config, run_dir)
    last = records.read_metrics(run_dir, "train")[-1]["update"]
    like = training_step.initial_state(config, current)
    with Checkpoints(
      run_dir / "checkpoints", keep=config.checkpoint.keep
    ) as checkpoints:
      state, _ = checkpoints.restore(like, last)
  return state.params
