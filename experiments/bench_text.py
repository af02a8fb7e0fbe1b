"""Strings to advantages, beside what a trainer would write in plain Python."""

import functools
import time
from collections.abc import Callable

import jax
import numpy as np

from crbc_jax import StepTable, make_batch
from experiments import bench_python, workloads
from experiments.bench_race import kernel_fn
from experiments.bench_timing import (
  Case,
  Found,
  Goal,
  Spread,
  lines_of,
  measure,
)

_CONTESTANTS = {
  "Python GiGPO": bench_python.python_gigpo,
  "Python shortest path": bench_python.python_shortest_path,
  "SciPy closure": bench_python.scipy_closure,
  "Python closure": bench_python.python_closure,
}

_SIZES = {128: 1.2, 1_024: 1.0, 8_192: 0.55}
"""Characters of an observation, and ours at most so many times GiGPO's time."""


def end_to_end(*, quick: bool, rounds: int, seconds: float) -> Found:
  """Every string object is new in each round, as from a rollout worker."""
  found = Found()
  tables = {
    f"alfworld x128, {n} B": (workloads.make_table("alfworld", 128), n)
    for n in _SIZES
  }
  tables |= {
    "web x512, 1024 B": (workloads.make_table("web", 512), 1_024),
    "swe x16, 8192 B": (workloads.make_table("swe", 16), 8_192),
    "16 x 8 x 50, 1024 B": (workloads.equal_table(16), 1_024),
    "128 x 8 x 50, 1024 B": (workloads.equal_table(128), 1_024),
  }
  if quick:
    tables = {"2 x 8 x 50, 128 B": (workloads.equal_table(2), 128)}
  for workload, (table, characters) in tables.items():
    ours = EndToEnd(table)
    prepare = functools.partial(workloads.with_text, table, characters)
    times = measure(
      {"ours": Case(ours, prepare)}
      | {name: Case(f, prepare) for name, f in _CONTESTANTS.items()},
      rounds=rounds,
      seconds=2 * seconds,
    )
    found.lines += lines_of(
      times, {}, section="end to end", workload=workload, steps=len(table)
    )
    found.facts[workload] = ours.stages(rounds=len(times["ours"]))
    if workload.startswith("alfworld"):
      found.goals.append(
        _at_most(times, f"{characters:,} B", _SIZES[characters])
      )
    elif " x 8 x 50" in workload:
      found.goals += _equal_goals(times, workload)
  return found


def _at_most(times, what: str, limit: float) -> Goal:
  """Ours against the dict loop of GiGPO."""
  spread = Spread.of(times["ours"] / times["Python GiGPO"])
  return Goal(
    f"strings of {what} to advantages: ours / plain-Python GiGPO <= {limit:g}",
    spread.text(),
    spread.median <= limit,
  )


def _equal_goals(times, workload: str) -> list[Goal]:
  """Eight rollouts of 50 steps: the goals of the offline command."""
  goals = [_at_most(times, workload, 1.0)]
  for name, least in (("Python shortest path", 3.0), ("Python closure", 10.0)):
    spread = Spread.of(times[name] / times["ours"])
    goals.append(
      Goal(
        f"{workload}: {name} / ours >= {least:g}",
        spread.text(),
        spread.median >= least,
      )
    )
  if workload.startswith("16 "):
    total = float(np.median(times["ours"]))
    goals.append(
      Goal(f"{workload}: under 0.15 s", f"{total * 1e3:.1f} ms", total < 0.15)
    )
  return goals


class EndToEnd:
  """From columns of strings to advantages in the order of the rows."""

  def __init__(self, table: StepTable, credit_fn: Callable | None = None):
    self._credit_fn = credit_fn or kernel_fn()
    self._shape = make_batch(table).shape
    self._taken: list[list[float]] = []

  def __call__(self, columns: dict[str, list]) -> np.ndarray:
    """Advantages; what a trainer calls."""
    clock = [time.perf_counter()]

    def stamp():
      clock.append(time.perf_counter())

    table = StepTable.from_columns(**columns)
    stamp()
    batch = make_batch(table, self._shape)
    stamp()
    arrays = jax.block_until_ready(jax.device_put(batch.arrays))
    stamp()
    credit = jax.block_until_ready(self._credit_fn(arrays))
    stamp()
    advantage = batch.to_rows(credit, len(table))
    stamp()
    self._taken.append(np.diff(clock).tolist())
    return advantage

  def stages(self, *, rounds: int) -> dict[str, float]:
    """Median seconds of each stage over the last rounds."""
    middle = np.median(self._taken[-rounds:], axis=0).tolist()
    names = ("from_columns", "make_batch", "transfer", "device", "to_rows")
    return dict(zip(names, middle, strict=True))
