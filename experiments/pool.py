"""Trains many runs side by side, one core each, and can be interrupted.

A run that has finished is not repeated; one that was cut off is resumed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_collections
from rich.progress import (
  BarColumn,
  Progress,
  TextColumn,
  TimeElapsedColumn,
  TimeRemainingColumn,
)

from crbc_jax.learner import config as config_lib
from crbc_jax.learner import records, task

_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Job:
  """One training run: where it goes and what differs from the defaults."""

  run_dir: pathlib.Path
  overrides: Mapping[str, Any]  # dotted config keys


class JobError(RuntimeError):
  """A run failed; the message holds the end of its log."""


def run_all(jobs: Sequence[Job], *, workers: int | None = None) -> None:
  """Trains every job that has no result yet.

  Args:
    jobs: run folders must differ.
    workers: runs at a time, each pinned to a core where the system can; all
      cores by default.

  Raises:
    JobError: a run failed. The others are stopped; a repeated call goes on.
  """
  waiting, budgets = [], []
  for job in jobs:
    config = resolved_config(job)
    budgets.append(config.env_steps)
    if _finished(job, config):
      continue
    waiting.append(job)
    if not config.levels:  # before runs could race for the same level files
      task.ensure_generated(config)
  free = _cores()[:workers]
  running: dict[int, tuple[Job, subprocess.Popen]] = {}
  with _progress(jobs, budgets) as show, contextlib.ExitStack() as stack:
    stack.callback(_stop, running)
    while waiting or running:
      while waiting and free:
        core, job = free.pop(), waiting.pop(0)
        running[core] = job, _start(job, core)
      time.sleep(_POLL_SECONDS)
      for core, (job, process) in list(running.items()):
        if process.poll() is None:
          continue
        del running[core]
        free.append(core)
        if process.returncode:
          raise JobError(f"{job.run_dir} failed:\n{_tail(job)}")
      show()


def resolved_config(job: Job) -> ml_collections.ConfigDict:
  """The full config of a job."""
  config = config_lib.get_config()
  for key, value in job.overrides.items():
    config_lib.set_value(config, key, value)
  config_lib.validate(config)
  return config_lib.with_absolute_paths(config)


def _cores() -> list[int]:
  if hasattr(os, "sched_getaffinity"):
    return sorted(os.sched_getaffinity(0))
  return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def _progress(jobs: Sequence[Job], budgets: Sequence[int]) -> Iterator[Any]:
  """A bar over the env steps of all jobs; gives a function that redraws it."""
  columns = (
    TextColumn("{task.description}"),
    BarColumn(),
    TextColumn("{task.completed:,.0f}/{task.total:,} env steps"),
    TimeElapsedColumn(),
    TextColumn("ETA"),
    TimeRemainingColumn(elapsed_when_finished=False),
  )
  with Progress(*columns, speed_estimate_period=120) as progress:
    bar = progress.add_task("", total=sum(budgets))

    def show():
      steps = [
        min(_env_steps(job), budget)
        for job, budget in zip(jobs, budgets, strict=True)
      ]
      done = sum(s >= b for s, b in zip(steps, budgets, strict=True))
      progress.update(
        bar, completed=sum(steps), description=f"{done}/{len(jobs)} runs"
      )

    show()
    yield show


def _env_steps(job: Job) -> int:
  """Steps of the last line of a run's metrics."""
  path = job.run_dir / records.METRICS
  if not path.exists():
    return 0
  with path.open("rb") as file:
    file.seek(max(0, path.stat().st_size - 4_096))
    lines = file.read().split(b"\n")[1:-1]  # whole lines only
  return json.loads(lines[-1])["env_steps"] if lines else 0


def _stop(running: Mapping[int, tuple[Job, subprocess.Popen]]) -> None:
  for _, process in running.values():
    process.terminate()
  for _, process in running.values():
    process.wait()


def _finished(job: Job, config: ml_collections.ConfigDict) -> bool:
  """Whether the folder holds the result of exactly this job.

  Raises:
    JobError: it holds a run of another config.
  """
  saved = job.run_dir / "config.json"
  if not saved.exists():
    return False
  wanted = json.loads(json.dumps(config.to_dict()))
  if json.loads(saved.read_text(encoding="utf-8")) != wanted:
    raise JobError(
      f"{job.run_dir} holds a run of another config; choose another --out or "
      "delete it"
    )
  return (job.run_dir / "result.json").exists()


def _start(job: Job, core: int) -> subprocess.Popen:
  job.run_dir.mkdir(parents=True, exist_ok=True)
  if (job.run_dir / "config.json").exists():
    arguments = ["resume", str(job.run_dir)]
  else:
    arguments = ["train", f"--run_dir={job.run_dir}"]
    arguments += [f"--config.{k}={v}" for k, v in job.overrides.items()]
  cache = pathlib.Path(".jax_cache").absolute()
  environment = os.environ | {
    "JAX_COMPILATION_CACHE_DIR": str(cache),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  with _log(job).open("ab") as log:
    process = subprocess.Popen(
      [sys.executable, "-m", "crbc_jax", *arguments],
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=environment,
    )
  if hasattr(os, "sched_setaffinity"):
    with contextlib.suppress(ProcessLookupError):  # it failed at once
      os.sched_setaffinity(process.pid, {core})
  return process


def _log(job: Job) -> pathlib.Path:
  return job.run_dir / "log.txt"


def _tail(job: Job, lines: int = 15) -> str:
  text = _log(job).read_text(encoding="utf-8", errors="replace")
  return "\n".join(text.splitlines()[-lines:])
