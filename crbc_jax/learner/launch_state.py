"""What we own of a language-model run, saved beside the trainer's checkpoint.

Everything random is a function of the seed and of counters, so a few whole
numbers resume a run exactly: which tasks come next, which seeds the sampler has
used, and the credit that was configured.
"""

import dataclasses
import json
import os
import pathlib

import numpy as np

_VERSION = 1


class ResumeError(ValueError):
  """A saved run that cannot go on; says what differs."""


@dataclasses.dataclass(frozen=True)
class LaunchState:
  """Counters of a run after a number of updates.

  Attributes:
    update: updates done; the step of the trainer's checkpoint.
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


def save_state(folder: pathlib.Path, state: LaunchState, *, keep: int) -> None:
  """Writes `state-<update>.json` whole or not at all; keeps the last ones."""
  folder.mkdir(parents=True, exist_ok=True)
  path = _path(folder, state.update)
  draft = path.with_suffix(".tmp")
  values = {"version": _VERSION} | dataclasses.asdict(state)
  draft.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
  os.replace(draft, path)
  for update in saved_updates(folder)[:-keep]:
    _path(folder, update).unlink()


def saved_updates(folder: pathlib.Path) -> list[int]:
  """Updates with a state, in order."""
  found = folder.glob("state-*.json")
  return sorted(int(path.stem.split("-")[1]) for path in found)


def load_state(
  folder: pathlib.Path, update: int, *, seed: int, estimator: str
) -> LaunchState:
  """The state that belongs to the trainer's checkpoint of an update.

  Args:
    folder: of the run.
    update: the step the trainer restored.
    seed: of the config; must be that of the run.
    estimator: the same.

  Raises:
    ResumeError: no state of that update, or another seed or estimator.
  """
  path = _path(folder, update)
  if not path.is_file():
    known = ", ".join(map(str, saved_updates(folder))) or "none"
    raise ResumeError(
      f"{folder} has no state of update {update} (it has: {known}), but the"
      " trainer has a checkpoint of it"
    )
  values = json.loads(path.read_text(encoding="utf-8"))
  if values.pop("version", None) != _VERSION:
    raise ResumeError(f"{path} is of another version")
  state = LaunchState(**values)
  for name, wanted in (("seed", seed), ("estimator", estimator)):
    if getattr(state, name) != wanted:
      raise ResumeError(
        f"{path}: the run has {name} {getattr(state, name)!r}, the config"
        f" {wanted!r}; use another checkpoint.folder"
      )
  return state


def _path(folder: pathlib.Path, update: int) -> pathlib.Path:
  return folder / f"state-{update:06d}.json"
