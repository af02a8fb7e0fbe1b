"""SWE-agent's `.traj`: one run of one issue, one JSON object.

`trajectory` is a list of `{action, observation, response, state, thought}`.
Group: the issue's id (`replay_config.problem_statement.id`, else the name of
the file up to its first "."). Trajectory: the file. Step: an action; its state
is the observation before it, at first the issue's text. Use `swe_signature` for
both keys.

Whether the issue was solved is not in the file. It is read from `results.json`
in the same folder, an object `{file name or issue id: true or false}` that you
make from the report of the evaluation; without it the run is rejected. Of an
unsolved run the boundary is a failure if it was `submitted`, else truncated
(its budget, its context or its patience ran out).
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from crbc_jax.rollouts.log import Item, Place, Row
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  field,
  length,
  resolved,
  rows_of,
  typed,
)
from crbc_jax.rollouts.readers.source import Source, parse_json
from crbc_jax.types import Boundary


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"trajectory"' in head and '"observation"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""

  def parse(place: Place, record: dict) -> list[Row]:
    steps = field(record, "trajectory", list)
    if not steps:
      raise Malformed("has no steps (did the run crash?); leave the file out")
    name = pathlib.PurePath(source.name).name
    issue, text = _issue(record)
    issue = issue or name.split(".")[0]
    won = resolved(source, name, issue)
    info = record.get("info")
    status = info.get("exit_status") if isinstance(info, dict) else None
    rows = []
    for t, step in enumerate(steps):
      action = field(typed(step, dict, "step"), "action", str).strip()
      rows.append(
        Row(
          place=place,
          group_id=issue,
          traj_id=source.name,
          step_idx=t,
          state=text,
          action=action or None,
          boundary=Boundary.NONE,
          valid=bool(action),
        )
      )
      text = field(step, "observation", str)
    rows[-1] = rows[-1]._replace(
      boundary=ending(won, status == "submitted"), next_state=text
    )
    return rows

  yield from rows_of(
    [(source.place(1, "record"), source.json())],
    parse,
    steps=lambda r: length(r, "trajectory"),
  )


def ending(won: bool, submitted: bool) -> Boundary:
  """How a run ended: solved, submitted in vain, or cut short."""
  if won:
    return Boundary.SUCCESS
  return Boundary.FAILURE if submitted else Boundary.TRUNCATED


def _issue(record: dict) -> tuple[str, str]:
  """Id and text of the issue, "" where the file does not say."""
  config: Any = record.get("replay_config")
  if isinstance(config, str):
    with contextlib.suppress(ValueError):
      config = parse_json(config)
  found = config.get("problem_statement") if isinstance(config, dict) else None
  fields = found if isinstance(found, dict) else {}
  name, text = fields.get("id"), fields.get("text")
  return (
    name if isinstance(name, str) else "",
    text if isinstance(text, str) else "",
  )
