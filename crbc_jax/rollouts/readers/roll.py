"""ROLL's agentic columns, exported as JSON lines or Parquet, one row per step.

Columns `traj_id`, `traj_group_id` (else `group_ids`), `step`, `state_hash`,
`step_scores`, `episode_scores`, and two that you add on export: `action`, the
decoded response (the input ids where the response mask is 1), and `success`,
unless `episode_scores` is 0 or 1. Group, trajectory and order are the columns
of that name; the state is `state_hash`. ROLL logs no truncation: what is no
success is a failure. A trajectory's rows may come in any order; the file is
held in memory.

Traps: what `state_hash` is depends on the environment manager. One writes the
turn's number, which would merge whatever happens at the same turn: such a file
is rejected. `group_ids` repeat from batch to batch: read one batch at a time if
there is no `traj_group_id`.
"""

from collections.abc import Iterator
from typing import Any

from crbc_jax.rollouts.log import Item, Place, Rejected, Row
from crbc_jax.rollouts.readers.fields import (
  LABELS,
  field,
  identity,
  json_lines,
  label,
  number,
  rows_of,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary

_COLUMNS = {
  "traj_id",
  "traj_group_id",
  "group_ids",
  "step",
  "state_hash",
  "step_scores",
  "episode_scores",
  "action",
  *LABELS,
}


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"traj_id"' in head and '"state_hash"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  won: dict[Any, bool] = {}

  def parse(place: Place, record: dict) -> list[Row]:
    row = _row(place, record)
    won[place] = label(record, record.get("episode_scores"), "episode_scores")
    return [row]

  parquet = source.head(4).startswith("PAR1")
  found = source.parquet_rows(_COLUMNS) if parquet else json_lines(source)
  rows: list[Row] = []
  lost = False
  for item in rows_of(found, parse):
    if isinstance(item, Rejected):
      known = isinstance(item.raw, dict) and item.raw.get("traj_id") is not None
      lost |= not known
      yield item
    else:
      rows.append(item)
  if rows and lost:
    yield Rejected(
      source.place(),
      "holds a row of an unknown trajectory, and ROLL does not mark the last "
      "step of one: any may have lost its own; mend that row",
      rows=len(rows),
    )
    return
  if rows and all(_is_turn(row) for row in rows):
    yield Rejected(
      source.place(),
      "has the turn's number as state_hash on every row, which says nothing "
      "about the state; hash the observation in the environment manager",
      rows=len(rows),
    )
    return
  last: dict[Any, int] = {}
  for row in rows:
    last[row.traj_id] = max(last.get(row.traj_id, row.step_idx), row.step_idx)
  for row in rows:
    if row.step_idx == last[row.traj_id]:
      end = Boundary.SUCCESS if won[row.place] else Boundary.FAILURE
      row = row._replace(boundary=end)
    yield row


def _row(place: Place, record: dict) -> Row:
  grouped = record.get("traj_group_id") is not None
  action = field(record, "action", object)
  return Row(
    place=place,
    group_id=identity(record, "traj_group_id" if grouped else "group_ids"),
    traj_id=identity(record, "traj_id"),
    step_idx=field(record, "step", int),
    state=identity(record, "state_hash"),
    action=None if action is None else identity(record, "action"),
    boundary=Boundary.NONE,
    reward=number(record.get("step_scores"), "step_scores"),
    valid=action is not None,
  )


def _is_turn(row: Row) -> bool:
  turn = str(row.step_idx)
  return str(row.state) in (turn, f"step_{turn}", f"turn_{turn}")
