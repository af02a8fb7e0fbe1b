"""Trains many runs side by side, one core each, and can be interrupted.

A run that has finished is not repeated; one that was cut off is resumed.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress import (
  BarColumn,
  MofNCompleteColumn,
  Progress,
  TextColumn,
  TimeElapsedColumn,
  TimeRemainingColumn,
)

from crbc_jax.learner import config as config_lib
from crbc_jax.learner import task

_POLL_SECONDS = 0.2


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
    workers: runs at a time, each pinned to a core; default all cores.

  Raises:
    JobError: a run failed. The others are stopped; a repeated call goes on.
  """
  cores = sorted(os.sched_getaffinity(0))
  workers = min(workers or len(cores), len(cores))
  waiting = [job for job in jobs if not _finished(job)]
  for job in waiting:  # before runs could race for the same level files
    task.ensure_generated(resolved_config(job))
  free, running = list(cores[:workers]), {}
  columns = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TextColumn("ETA"),
    TimeRemainingColumn(),
  )
  with Progress(*columns) as progress:
    total = progress.add_task(
      "runs", total=len(jobs), completed=len(jobs) - len(waiting)
    )
    try:
      while waiting or running:
        while waiting and free:
          job = waiting.pop(0)
          core = free.pop()
          running[core] = job, _start(job, core)
        time.sleep(_POLL_SECONDS)
        for core, (job, process) in list(running.items()):
          if process.poll() is None:
            continue
          del running[core]
          free.append(core)
          if process.returncode:
            raise JobError(f"{job.run_dir} failed:\n{_tail(job)}")
          progress.advance(total)
    finally:
      for _, process in running.values():
        process.terminate()


def resolved_config(job: Job):
  """The full config of a job."""
  config = config_lib.get_config()
  for key, value in job.overrides.items():
    config_lib.set_value(config, key, value)
  config_lib.validate(config)
  return config


def grid(**axes: Sequence[Any]) -> list[dict[str, Any]]:
  """All combinations of the values of several axes, the last one fastest."""
  return [
    dict(zip(axes, values, strict=True))
    for values in itertools.product(*axes.values())
  ]


def _finished(job: Job) -> bool:
  """Whether the folder holds the result of exactly this job.

  Raises:
    JobError: it holds a run of another config.
  """
  saved = job.run_dir / "config.json"
  if not saved.exists():
    return False
  wanted = json.loads(json.dumps(resolved_config(job).to_dict()))
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
    return subprocess.Popen(
      [sys.executable, "-m", "crbc_jax", *arguments],
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=environment,
      preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )


def _log(job: Job) -> pathlib.Path:
  return job.run_dir / "log.txt"


def _tail(job: Job, lines: int = 15) -> str:
  text = _log(job).read_text(encoding="utf-8", errors="replace")
  return "\n".join(text.splitlines()[-lines:])
