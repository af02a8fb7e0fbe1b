"""One experiment as a process: its command, its data, what it cost."""

import dataclasses
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import crbc_jax
from crbc_jax.files import write_text

TIMES = "bench_times.json"
"""In the results folder: what was run there and how long it took."""

DATA = "../shared/data"
"""Where data is if $CRBC_REAL_DATA does not say."""


@dataclasses.dataclass(frozen=True)
class Data:
  """A file that an experiment reads."""

  path: str  # below the folder of data
  option: str = ""  # how it is named to the experiment; "": it finds it itself
  required: bool = True  # else the experiment does without, or with less


@dataclasses.dataclass(frozen=True)
class Bench:
  """An experiment behind a table of the README."""

  module: str  # of `python -m`
  readme: str  # the section
  files: tuple[str, ...]  # what it writes into the results; JSON first
  values: tuple[str, ...] = ()  # patterns of `report.result_changes`
  arguments: tuple[str, ...] = ()
  full: tuple[str, ...] = ()  # besides, in full
  quick: tuple[str, ...] = ("--quick",)  # besides, if quick
  trains: bool = False  # has run folders, which --out names
  data: tuple[Data, ...] = ()
  minutes: tuple[float, float] = (0.0, 0.0)  # in full and quick, two cores


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a run ended."""

  status: int
  seconds: float
  cpu_seconds: float


def data_folder(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
  """Where data is."""
  return pathlib.Path(environment.get("CRBC_REAL_DATA") or DATA)


def missing(bench: Bench, folder: pathlib.Path) -> list[Data]:
  """Data that isn't there."""
  return [data for data in bench.data if not (folder / data.path).exists()]


def command_of(
  name: str,
  bench: Bench,
  *,
  quick: bool,
  results: pathlib.Path,
  data: pathlib.Path,
) -> list[str]:
  """The arguments of the interpreter; absent optional data is left out."""
  absent = missing(bench, data)
  words = ["-m", bench.module, *bench.arguments]
  words += bench.quick if quick else bench.full
  for item in bench.data:
    if item.option and item not in absent:
      words += [item.option, str(data / item.path)]
  words += ["--results", str(results)]
  if bench.trains and quick:  # short runs must not meet the long ones
    words += ["--out", str(pathlib.Path("runs/quick") / name)]
  return words


def read_times(results: pathlib.Path) -> dict[str, Any]:
  """What was run into a results folder: name -> command, seconds, version."""
  path = results / TIMES
  if not path.exists():
    return {}
  return json.loads(path.read_text(encoding="utf-8"))


def is_done(
  name: str, bench: Bench, words: list[str], results: pathlib.Path
) -> bool:
  """Whether exactly this was run, by this version, and its files are there."""
  found = read_times(results).get(name, {})
  return (
    found.get("arguments") == words
    and found.get("version") == crbc_jax.__version__
    and all((results / file).exists() for file in bench.files)
  )


def note_done(
  name: str, words: list[str], outcome: Outcome, results: pathlib.Path
) -> None:
  """Remembers a run that ended well."""
  entry = {
    "arguments": words,
    "version": crbc_jax.__version__,
    "seconds": round(outcome.seconds, 2),
    "cpu_seconds": round(outcome.cpu_seconds, 2),
  }
  times = read_times(results) | {name: entry}
  write_text(results / TIMES, json.dumps(times, indent=1) + "\n")


def run_process(
  words: list[str],
  log: pathlib.Path,
  *,
  wait: Callable[[float], None] = lambda seconds: None,
) -> Outcome:
  """Runs the interpreter with these arguments, all it prints into `log`.

  Args:
    words: of `command_of`.
    log: overwritten.
    wait: called about twice a second with the seconds so far.

  Returns:
    Exit status, elapsed time, and processor time of it and its children.
  """
  log.parent.mkdir(parents=True, exist_ok=True)
  before, began = _cpu_seconds(), time.perf_counter()
  with log.open("wb") as file:
    process = subprocess.Popen(
      [sys.executable, *words],
      stdout=file,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=os.environ | {"COLUMNS": "100"},
    )
    try:
      while process.poll() is None:
        wait(time.perf_counter() - began)
        try:
          process.wait(0.5)
        except subprocess.TimeoutExpired:
          continue
    except BaseException:
      _stop(process)
      raise
  return Outcome(
    process.returncode, time.perf_counter() - began, _cpu_seconds() - before
  )


def _stop(process: subprocess.Popen) -> None:
  """As Ctrl-C does, so that it can stop what it started in turn."""
  for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
    if number is not None:
      process.send_signal(number)
    try:
      process.wait(1 if number is None else 10)
      return
    except subprocess.TimeoutExpired:
      continue


def _cpu_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def tail(log: pathlib.Path, lines: int = 15) -> str:
  """The last lines of a log."""
  text = log.read_text(encoding="utf-8", errors="replace")
  return "\n".join(text.rstrip().splitlines()[-lines:])


def committed(path: pathlib.Path) -> str | None:
  """A file as the last commit has it, else as it is; None if there is none."""
  try:
    shown = subprocess.run(
      ["git", "show", f"HEAD:./{path.as_posix()}"],
      capture_output=True,
      encoding="utf-8",
      check=False,
    )
    if shown.returncode == 0:
      return shown.stdout
  except OSError:  # no git
    pass
  return path.read_text(encoding="utf-8") if path.exists() else None
