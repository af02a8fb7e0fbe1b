"""InterCode's results (`data/results/<env>/<model>/*.json`): records by task.

A record is `{environment, dataset, task_id, query, turn_history, summary}`
with parallel lists `actions, observations, rewards, valid_action` in
`turn_history`. Group: dataset and `task_id`; one file is one model, so several
files make a group of several rollouts. Step: an action; its state is the
observation before it, at first the query. Outcome: a reward of 1 on the last
turn, which is how the benchmark itself counts success.

Traps: a rollout goes on after a wrong answer, so rewards below 1 stand on
every turn and are no success. An answer its provider withheld is logged as the
action "blocked", without observation or validity: it is an unparsable action,
and the rollout failed there. One that neither submitted nor succeeded nor was
blocked ran out of turns: truncated. `summary` is missing in some files and not
needed.
"""

import pathlib
from collections.abc import Iterator

from crbc_jax.rollouts.log import Item, Place, Row
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  field,
  identity,
  length,
  number,
  rows_of,
  typed,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary

_BLOCKED = "blocked"


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"turn_history"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  found = source.json()
  if not isinstance(found, dict):
    raise source.fail("is no JSON object with one record for each task")
  yield from rows_of(
    (
      (source.place(i, "record"), record)
      for i, record in enumerate(found.values(), 1)
    ),
    lambda place, record: _rows(source, place, record),
    steps=lambda r: length(r, "turn_history", "actions"),
  )


def _rows(source: Source, place: Place, record: dict) -> list[Row]:
  task = identity(record, "task_id")
  dataset = pathlib.PurePosixPath(field(record, "dataset", str)).stem
  history = field(record, "turn_history", dict)
  actions = [typed(a, str, "action") for a in field(history, "actions", list)]
  rewards = [number(r, "reward") for r in field(history, "rewards", list)]
  observations, valid = (
    field(history, name, list) for name in ("observations", "valid_action")
  )
  blocked = actions[-1:] == [_BLOCKED] and len(observations) < len(actions)
  if blocked:
    observations, valid = [*observations, None], [*valid, False]
  steps = len(actions)
  if not steps:
    raise Malformed("has no turns; drop the record")
  if not len(rewards) == len(observations) == len(valid) == steps:
    raise Malformed(
      f"has {steps} actions, {len(observations)} observations, {len(rewards)} "
      f"rewards and {len(valid)} valid_action; they must be parallel"
    )
  states = [field(record, "query", str), *map(_text, observations)]
  rows = [
    Row(
      place=place,
      group_id=f"{dataset}:{task}",
      traj_id=f"{source.name}:{dataset}:{task}",
      step_idx=t,
      state=states[t],
      action=None if blocked and t == steps - 1 else actions[t],
      boundary=Boundary.NONE,
      reward=rewards[t],
      valid=valid[t] is True,
    )
    for t in range(steps)
  ]
  if rewards[-1] >= 1:
    end = Boundary.SUCCESS
  elif blocked or actions[-1].strip() == "submit":
    end = Boundary.FAILURE
  else:
    end = Boundary.TRUNCATED
  rows[-1] = rows[-1]._replace(boundary=end, next_state=states[-1])
  return rows


def _text(observation: object) -> str | None:
  return observation if isinstance(observation, str) else None
