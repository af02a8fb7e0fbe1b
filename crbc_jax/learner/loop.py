"""The training loop: collect -> credit -> update, with exact resume."""

import contextlib
import dataclasses
import fcntl
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_collections

import crbc_jax
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import records, task, training_step
from crbc_jax.learner.checkpoint import Checkpoints

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
  announce: Callable[[str], None] | None = None,
) -> dict[str, Any]:
  """Trains from scratch into a new run folder and returns its result.

  `announce` is told what the task says of itself (often nothing) before the
  first update.

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
  if announce:
    announce(current.note)
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


@contextlib.contextmanager
def _locked(run_dir: pathlib.Path) -> Iterator[None]:
  """Keeps a second process out of a run that is going on."""
  with (run_dir / ".lock").open("w") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise RunError(f"{run_dir} is being trained by another process") from None
    yield  # the system lifts the lock with the process, however it ends


def _run(config, current: task.TaskLike, run_dir: pathlib.Path, report):
  with _locked(run_dir):
    return _train(config, current, run_dir, report)


def _train(config, current: task.TaskLike, run_dir: pathlib.Path, report):
  step = training_step.make_step(config, current)
  evaluate_panel = current.panel_fn(config)
  with Checkpoints(
    run_dir / "checkpoints", keep=config.checkpoint.keep
  ) as checkpoints:
    state, progress = training_step.initial_state(config, current), Progress()
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
        state, metrics, problem = step(state, drawn, progress.update)
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
      name: value
      for name, value in evals[-1].items()
      if name.startswith(("success", "length", "score"))
    },
    "seconds": seconds,
  }
  records.write_json(run_dir / "result.json", result)
  return result
