"""Clocks: rounds of interleaved runs, medians with quartiles, ratios."""

import dataclasses
import gc
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.monitoring
import jaxlib
import numpy as np
import scipy

MEMORY_LIMIT = 4 << 30  # bytes; what needs more is not run
FLOPS_LIMIT = 3e11  # about five seconds on two cores


@dataclasses.dataclass(frozen=True)
class Case:
  """Something to time."""

  run: Callable[[Any], Any]  # blocks until it is done
  prepare: Callable[[], Any] = lambda: None  # its argument, off the clock


@dataclasses.dataclass(frozen=True)
class Spread:
  """Median, extremes and quartiles."""

  median: float
  low: float
  q1: float
  q3: float
  high: float
  rounds: int

  @classmethod
  def of(cls, values: Sequence[float] | np.ndarray) -> "Spread":
    """The spread of what was measured."""
    quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    low, q1, median, q3, high = map(float, quantiles)
    return cls(median, low, q1, q3, high, len(values))

  def text(self, unit: float = 1.0) -> str:
    """Median and quartiles in a unit."""
    middle, q1, q3 = (digits(x / unit) for x in (self.median, self.q1, self.q3))
    return middle if q1 == q3 else f"{middle} [{q1}, {q3}]"


@dataclasses.dataclass(frozen=True)
class Line:
  """One contestant on one workload."""

  section: str
  workload: str
  steps: int
  name: str
  seconds: Spread | None = None
  times_ours: Spread | None = None  # its time / ours, round by round
  note: str = ""


@dataclasses.dataclass(frozen=True)
class Goal:
  """A promise and what was found; `passed` is None where nothing was."""

  goal: str
  found: str
  passed: bool | None


@dataclasses.dataclass
class Found:
  """What a section of the benchmark found."""

  lines: list[Line] = dataclasses.field(default_factory=list)
  goals: list[Goal] = dataclasses.field(default_factory=list)
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def digits(x: float) -> str:
  """Three significant digits without an exponent."""
  if not np.isfinite(x):
    return str(x)
  return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def measure(
  cases: Mapping[str, Case], *, rounds: int, seconds: float
) -> dict[str, np.ndarray]:
  """Seconds of each case in each round.

  Every round runs every case once, in turn from another one, so that a
  machine that slows down slows all alike. A first round is thrown away. There
  are `rounds` rounds, or as many as fit into `seconds`, but at least 3 (1
  where a round takes longer than 30 s).

  Returns:
    {case: [rounds] seconds}.
  """
  names = list(cases)
  taken: dict[str, list[float]] = {name: [] for name in names}
  began = time.perf_counter()
  _round(cases, names)
  first = time.perf_counter() - began
  least = 3 if first < 30 else 1
  for number in range(rounds):
    if number >= least and time.perf_counter() - began > first + seconds:
      break
    shift = number % len(names)
    for name, found in _round(cases, names[shift:] + names[:shift]).items():
      taken[name].append(found)
  return {name: np.array(x) for name, x in taken.items()}


def _round(cases: Mapping[str, Case], names: list[str]) -> dict[str, float]:
  taken = {}
  for name in names:
    argument = cases[name].prepare()
    gc.collect()
    gc.disable()
    try:
      start = time.perf_counter()
      cases[name].run(argument)
      taken[name] = time.perf_counter() - start
    finally:
      gc.enable()
    del argument
  return taken


def lines_of(
  times: Mapping[str, np.ndarray],
  skipped: Mapping[str, str],
  *,
  section: str,
  workload: str,
  steps: int,
) -> list[Line]:
  """One line for each case; ratios are to the case "ours"."""
  lines = [
    Line(
      section=section,
      workload=workload,
      steps=steps,
      name=name,
      seconds=Spread.of(seconds),
      times_ours=(
        Spread.of(seconds / times["ours"])
        if "ours" in times and name != "ours"
        else None
      ),
    )
    for name, seconds in times.items()
  ]
  return lines + [
    Line(section, workload, steps, name, note=why)
    for name, why in skipped.items()
  ]


class Compiled:
  """A jitted function compiled for one set of shapes, with its memory.

  What cannot be lowered (a plain Python function) is called as it is.
  """

  def __init__(self, function: Callable, *args: Any):
    self._run: Callable = function
    self.bytes = 0  # temporary memory, 0 where unknown
    if hasattr(function, "lower"):
      executable = function.lower(*args).compile()
      self._run = executable
      analysis = executable.memory_analysis()
      if analysis is not None:
        self.bytes = int(analysis.temp_size_in_bytes)

  def __call__(self, *args: Any) -> Any:
    return jax.block_until_ready(self._run(*args))

  @property
  def too_large(self) -> str:
    """Why this is not run, or nothing."""
    return too_large(self.bytes)


def too_large(memory: float, flops: float = 0.0) -> str:
  """Why something is not run, or nothing."""
  if memory > MEMORY_LIMIT:
    return f"not run: needs {memory / 2**30:,.1f} GB"
  if flops > FLOPS_LIMIT:
    return f"not run: needs {flops:.0e} floating-point operations"
  return ""


class CompileCounter:
  """Counts the XLA compilations inside a `with` block."""

  _EVENT = "/jax/core/compile/backend_compile_duration"

  def __enter__(self) -> "CompileCounter":
    self.count, self.seconds, self._active = 0, 0.0, True
    jax.monitoring.register_event_duration_secs_listener(self._listen)
    return self

  def __exit__(self, *_: object) -> None:
    self._active = False  # listeners cannot be taken back one by one

  def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
    if self._active and event == self._EVENT:
      self.count += 1
      self.seconds += duration_secs


def machine() -> dict[str, Any]:
  """What the numbers depend on."""
  return {
    "cores": len(os.sched_getaffinity(0)),
    "load": round(os.getloadavg()[0], 2),
    "processor": _processor(),
    "backend": jax.default_backend(),
    "python": platform.python_version(),
    "jax": jax.__version__,
    "jaxlib": jaxlib.__version__,
    "numpy": np.__version__,
    "scipy": scipy.__version__,
  }


def _processor() -> str:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      for line in file:
        if line.startswith("model name"):
          return line.split(":", 1)[1].strip()
  except OSError:
    pass
  return platform.processor() or platform.machine()
