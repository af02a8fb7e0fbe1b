"""What we own of a language-model run, saved in the trainer's checkpoint.

Everything random is a function of the seed and of counters, so a few whole
numbers resume a run exactly: which tasks come next, which seeds the sampler has
used, and the credit that was configured.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

_KEY = "crbc_jax"
_VERSION = 1


class ResumeError(ValueError):
  """A saved run that cannot go on; says what differs."""


@dataclasses.dataclass(frozen=True)
class LaunchState:
  """Counters of a run after a number of updates.

  Attributes:
    update: updates done.
    task_cursor: tasks taken from the stream of `task_stream`.
    sampler_calls: calls of the sampler; the seed of the next one follows.
    seed: of the run.
    estimator: with its options, as configured.
  """

  update: int
  task_cursor: int
  sampler_calls: int
  seed: int
  estimator: str


def task_stream(start: int, count: int, *, tasks: int, seed: int) -> np.ndarray:
  """Tasks `start`, ..., `start + count - 1` of an endless shuffled stream.

  Each pass over the tasks is a permutation of its own, drawn from (seed, pass):
  where a run stands is one number.

  Args:
    start: at least 0.
    count: how many.
    tasks: number of tasks, at least 1.
    seed: of the run.

  Returns:
    [count] int64 in [0, tasks).

  Raises:
    ValueError: there are no tasks, or start is negative.
  """
  if tasks < 1 or start < 0:
    raise ValueError(f"needs tasks >= 1 and start >= 0, got {tasks}, {start}")
  place = np.arange(start, start + count)
  found = np.empty(count, np.int64)
  for epoch in np.unique(place // tasks):
    order = np.random.default_rng([seed, int(epoch)]).permutation(tasks)
    here = place // tasks == epoch
    found[here] = order[place[here] % tasks]
  return found


def to_metadata(state: LaunchState) -> dict[str, Any]:
  """What goes into the trainer's checkpoint, as JSON: whole or not at all."""
  return {_KEY: {"version": _VERSION} | dataclasses.asdict(state)}


def from_metadata(
  metadata: Mapping[str, Any], *, seed: int, estimator: str
) -> LaunchState | None:
  """The state in a restored checkpoint.

  Args:
    metadata: of the checkpoint; empty if nothing was restored.
    seed: of the config; must be that of the run.
    estimator: the same.

  Returns:
    None at the start of a run.

  Raises:
    ResumeError: the checkpoint has no state of ours, or one of another
      version, seed or estimator.
  """
  if not metadata:
    return None
  values = dict(metadata.get(_KEY) or {})
  if values.pop("version", None) != _VERSION:
    raise ResumeError(
      "the checkpoint was not written by this version of train_llm"
    )
  state = LaunchState(**values)
  for name, wanted in (("seed", seed), ("estimator", estimator)):
    if getattr(state, name) != wanted:
      raise ResumeError(
        f"the saved run has {name} {getattr(state, name)!r}, the config"
        f" {wanted!r}; use another checkpoint.folder"
      )
  return state
