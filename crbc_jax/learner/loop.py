"""The training loop: collect -> credit -> update, with exact resume."""

import contextlib
import dataclasses
import fcntl
import json
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

import crbc_jax
from crbc_jax.credit import registry
from crbc_jax.credit.diagnostics import batch_diagnostics
from crbc_jax.learner import branching, evaluate, records, task, update
from crbc_jax.learner import collect as collect_lib
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import critic as critic_lib
from crbc_jax.learner.checkpoint import Checkpoints
from crbc_jax.rollouts.batching import BatchShape
from crbc_jax.rollouts.from_arrays import ArrayBatch, batch_arrays
from crbc_jax.types import StepCredit

Report = Callable[[int, dict[str, float]], None]
"""Called after each update with (env steps so far, metrics)."""


class RunError(RuntimeError):
  """A run that cannot start or go on; says what to do."""


class NonFiniteError(RunError):
  """A number stopped being finite; says which, and the last good checkpoint."""


@dataclasses.dataclass(frozen=True)
class Progress:
  """Counters of a run; with the learner state all that a resume needs."""

  update: int = 0
  env_steps: int = 0  # steps really played, those of branches included
  level_cursor: int = 0  # levels drawn so far


def start_run(
  config: ml_collections.ConfigDict,
  run_dir: str | pathlib.Path,
  *,
  report: Report | None = None,
) -> dict[str, Any]:
  """Trains from scratch into a new run folder and returns its result.

  Raises:
    ConfigError, LevelError: the config or its levels cannot be used.
    RunError: the folder holds a run already, or training broke down.
  """
  config_lib.validate(config)
  config = config_lib.with_absolute_paths(config)
  run_dir = pathlib.Path(run_dir)
  if (run_dir / "config.json").exists():
    raise RunError(
      f"{run_dir} holds a run already: go on with `crbc resume "
      f"{run_dir}`, or choose another --run_dir"
    )
  current = task.make_task(config)  # may refuse: nothing is written yet
  run_dir.mkdir(parents=True, exist_ok=True)
  records.write_json(
    run_dir / "levels.json",
    {
      "train": {"count": len(current.train), "sha256": current.train.digest},
      "panel": {
        "count": len(current.panel),
        "sha256": current.panel.digest,
        "ids": list(current.panel.ids),
      },
    },
  )
  # Last, so that a folder with a config is a run that can be resumed.
  records.write_json(run_dir / "config.json", config.to_dict())
  return _run(config, current, run_dir, report)


def resume_run(
  run_dir: str | pathlib.Path, *, report: Report | None = None
) -> dict[str, Any]:
  """Goes on from the last checkpoint, exactly as if never interrupted.

  A run killed before its first checkpoint starts again from its config.

  Raises:
    RunError: no run there, or its level files changed since it began.
  """
  run_dir = pathlib.Path(run_dir)
  config = read_config(run_dir)
  current = task.make_task(config)
  listed = json.loads((run_dir / "levels.json").read_text(encoding="utf-8"))
  for name, levels in (("train", current.train), ("panel", current.panel)):
    if listed[name]["sha256"] != levels.digest:
      raise RunError(
        f"{run_dir}: the {name} levels differ from those the run "
        "began with (levels.json); restore the files to resume"
      )
  return _run(config, current, run_dir, report)


def read_config(run_dir: pathlib.Path) -> ml_collections.ConfigDict:
  """The resolved config of a run folder."""
  path = pathlib.Path(run_dir) / "config.json"
  if not path.exists():
    raise RunError(f"{run_dir} is not a run folder (no config.json)")
  return config_lib.load_config(json.loads(path.read_text(encoding="utf-8")))


def initial_state(
  config: ml_collections.ConfigDict, current: task.Task
) -> update.LearnerState:
  """The learner state a run begins with."""
  params, critic_params = current.params, current.critic_params
  optimizer = _optimizer(config)
  return update.LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    reference=jax.tree.map(jnp.copy, params) if config.learner.kl > 0 else (),
    key=jax.random.key_data(jax.random.key(config.seed)),
    critic_params=critic_params,
    critic_opt_state=(
      _critic_optimizer(config).init(critic_params) if current.value_fn else ()
    ),
  )


def make_panel_eval(
  config: ml_collections.ConfigDict, current: task.Task
) -> Callable[[Any], dict[str, float]]:
  """Returns `evaluate(params)` on the fixed panel, greedy and sampled."""
  key = jax.random.key(config.eval.seed)
  levels = current.panel.as_levels()
  functions = {
    name: evaluate.make_evaluate_fn(
      current.env, current.logits_fn, greedy=name == "greedy"
    )
    for name in ("greedy", "sampled")
  }

  def evaluate_panel(params):
    metrics = {}
    for name, function in functions.items():
      episodes = function(params, levels, key)
      metrics[f"success_{name}"] = float(jnp.mean(episodes.success))
      metrics[f"length_{name}"] = float(jnp.mean(episodes.length))
    return metrics

  return evaluate_panel


def _optimizer(config):
  return update.make_optimizer(
    learning_rate=config.learner.learning_rate,
    max_grad_norm=config.learner.max_grad_norm,
  )


def _critic_optimizer(config):
  return update.make_optimizer(
    learning_rate=config.learner.critic_learning_rate,
    max_grad_norm=config.learner.max_grad_norm,
  )


@contextlib.contextmanager
def _locked(run_dir: pathlib.Path) -> Iterator[None]:
  """Keeps a second process out of a run that is going on."""
  with (run_dir / ".lock").open("w") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise RunError(f"{run_dir} is being trained by another process") from None
    yield  # the system lifts the lock with the process, however it ends


def _run(config, current: task.Task, run_dir: pathlib.Path, report):
  with _locked(run_dir):
    return _train(config, current, run_dir, report)


def _train(config, current: task.Task, run_dir: pathlib.Path, report):
  step = _make_step(config, current)
  evaluate_panel = make_panel_eval(config, current)
  levels = current.train.as_levels()
  with Checkpoints(
    run_dir / "checkpoints", keep=config.checkpoint.keep
  ) as checkpoints:
    state, progress = initial_state(config, current), Progress()
    fresh = checkpoints.latest is None
    if not fresh:
      state, counters = checkpoints.restore(state)
      progress = Progress(**counters)
    with records.Records(
      run_dir,
      after_update=-1 if fresh else progress.update,
      tensorboard=config.tensorboard,
    ) as log:

      def record_eval():
        metrics = evaluate_panel(state.params)
        log.write(
          "eval",
          update=progress.update,
          env_steps=progress.env_steps,
          metrics=metrics,
        )
        return metrics

      if fresh:
        record_eval()
      while progress.env_steps < config.env_steps:
        drawn = task.levels_at(
          progress.level_cursor,
          config.rollout.levels,
          num_levels=len(current.train),
          seed=config.seed,
        )
        batch = jax.tree.map(lambda x, i=drawn: x[i], levels)
        state, metrics, problem = step(state, batch, progress.update)
        if problem:
          kept = checkpoints.latest
          raise NonFiniteError(
            f"update {progress.update + 1}: {problem}; the last good "
            f"checkpoint is {'none' if kept is None else f'update {kept}'} "
            f"in {checkpoints.folder}"
          )
        before = progress
        progress = Progress(
          update=before.update + 1,
          env_steps=before.env_steps + int(metrics.pop("steps")),
          level_cursor=before.level_cursor + len(drawn),
        )
        log.write(
          "train",
          update=progress.update,
          env_steps=progress.env_steps,
          metrics=metrics,
        )
        ended = progress.env_steps >= config.env_steps
        if ended or _crosses(before, progress, config.eval.every):
          metrics |= record_eval()
        if ended or _crosses(before, progress, config.checkpoint.every):
          checkpoints.save(progress.update, state, dataclasses.asdict(progress))
        if report:
          report(progress.env_steps, metrics)
    return _write_result(config, current, run_dir, progress)


def _make_step(config, current: task.Task):
  """Returns `step(state, levels, update) -> (state, metrics, problem)`."""
  env, logits_fn = current.env, current.logits_fn
  name, options = registry.parse_estimator(config.estimator)
  if name in branching.BRANCHING:
    branch = branching.make_branch_fn(name, env, logits_fn, **options)
  else:
    branch, credit_fn = None, registry.make_credit_fn(name, **options)
  collect = collect_lib.make_collect_fn(
    env, logits_fn, group_size=config.rollout.group_size
  )
  critic = None
  if current.value_fn:
    values_of = critic_lib.make_values_fn(current.value_fn)
    critic = critic_lib.Critic(
      current.value_fn, _critic_optimizer(config), config.learner.value_clip
    )
  learn = update.make_update_fn(
    logits_fn,
    _optimizer(config),
    minibatch=config.learner.minibatch,
    epochs=config.learner.epochs,
    clip=config.learner.clip,
    entropy_weight=config.learner.entropy,
    kl_weight=config.learner.kl,
    aggregation=config.learner.aggregation,
    advantage_scale=config.learner.advantage_scale,
    critic=critic,
  )

  def step(state, levels, number):
    base = jax.random.wrap_key_data(state.key)
    rollout_key, update_key = jax.random.split(jax.random.fold_in(base, number))
    began = time.perf_counter()
    rollouts = jax.block_until_ready(collect(state.params, levels, rollout_key))
    collected = time.perf_counter()
    clip_low_extra = value = None
    extra: dict[str, float] = {}  # what branches cost
    if branch:
      # No split of the key above gives this one.
      branch_key = jax.random.fold_in(jax.random.fold_in(base, number), 2)
      found, cost = branch(state.params, levels, rollouts, branch_key)
      batch = batch_rollouts(rollouts, actions=env.num_actions)
      credit, extra = branching.for_records(found, cost, batch)
      advantage, arrays = np.asarray(found.advantage), batch.arrays
      clip_low_extra = found.clip_low_extra
    else:
      if critic:
        value = values_of(state.critic_params, levels, rollouts.state)
      advantage, arrays, credit = credit_rollouts(
        rollouts, credit_fn, actions=env.num_actions, value=value
      )
    credited = time.perf_counter()
    problem = _first_non_finite(rollouts, advantage, config.estimator)
    if problem:
      return state, {}, problem
    state, learned = learn(
      state,
      levels,
      rollouts,
      advantage,
      update_key,
      value=value,
      clip_low_extra=clip_low_extra,
    )
    learned = {k: float(v) for k, v in jax.device_get(learned).items()}
    updated = time.perf_counter()
    params_finite = learned.pop("params_finite")
    mask = np.asarray(rollouts.mask)
    metrics = {
      **batch_diagnostics(arrays, credit),
      **learned,
      **extra,
      "steps": int(mask.sum() + extra.get("extra_steps", 0)),
      "no_op_share": float(1 - np.asarray(rollouts.moved)[mask].mean()),
      "seconds_rollout": collected - began,
      "seconds_credit": credited - collected,
      "seconds_update": updated - credited,
    }
    if metrics["residual_warnings"]:
      warnings.warn(
        f"update {number + 1}: the values of "
        f"{metrics['residual_warnings']:.0f} groups miss their equation by up "
        f"to {metrics['residual']:.1e} of the rewards (residual_warnings in "
        "metrics.jsonl)",
        stacklevel=2,
      )
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
      problem = f"not finite: {', '.join(bad)}"
    elif not params_finite:
      problem = "the parameters are not finite after the update"
    return state, metrics, problem

  return step


def credit_rollouts(
  rollouts: collect_lib.Rollouts,
  credit_fn: Callable[..., StepCredit],
  *,
  actions: int,
  value: jax.Array | None = None,
):
  """Rollouts on the device -> advantages; the whole of step credit.

  Args:
    rollouts: [P, G, T].
    credit_fn: from `registry.make_credit_fn`.
    actions: number of actions of the environment.
    value: [P, G, T], a critic's values, for an estimator that needs them.

  Returns:
    (advantage [P, G, T] float32 with 0 where masked, the padded GroupArrays,
    their StepCredit).
  """
  batch = batch_rollouts(rollouts, actions=actions, value=value)
  credit = credit_fn(batch.arrays)  # only the advantage need leave the device
  advantage = jax.device_get(credit.advantage)
  return batch.to_steps(advantage), batch.arrays, credit


def batch_rollouts(
  rollouts: collect_lib.Rollouts,
  *,
  actions: int,
  shape: BatchShape | None = None,
  value: jax.Array | None = None,
) -> ArrayBatch:
  """Brings to the host what credit needs, and pads it; as `batch_arrays`."""
  wanted = ("key", "final_key", "action", "reward", "boundary", "mask")
  host = jax.device_get({name: getattr(rollouts, name) for name in wanted})
  return batch_arrays(
    state_key=host.pop("key"),
    **host,
    value=jax.device_get(value),
    actions=actions,
    shape=shape,
  )


def _first_non_finite(rollouts, advantage, estimator: str) -> str | None:
  for name in ("log_prob", "reward"):
    values = np.asarray(getattr(rollouts, name))[np.asarray(rollouts.mask)]
    if not np.isfinite(values).all():
      return f"the {name} of a rollout is not finite"
  bad = ~np.isfinite(advantage)
  if bad.any():
    groups = sorted(set(np.nonzero(bad)[0].tolist()))
    return (
      f"estimator {estimator} gave {bad.sum()} advantages that are not "
      f"finite, in groups {groups[:8]} of the batch"
    )
  return None


def _crosses(before: Progress, after: Progress, every: int) -> bool:
  return before.env_steps // every < after.env_steps // every


def _write_result(config, current, run_dir, progress) -> dict[str, Any]:
  evals = records.read_metrics(run_dir, "eval")
  train = records.read_metrics(run_dir, "train")
  seconds = {
    part: sum(r[f"seconds_{part}"] for r in train)
    for part in ("rollout", "credit", "update")
  }
  result = {
    "version": crbc_jax.__version__,
    "estimator": config.estimator,
    "seed": config.seed,
    **dataclasses.asdict(progress),
    "panel": {"count": len(current.panel), "sha256": current.panel.digest},
    "final": {
      k: v for k, v in evals[-1].items() if k.startswith(("success", "length"))
    },
    "seconds": seconds,
  }
  records.write_json(run_dir / "result.json", result)
  return result
