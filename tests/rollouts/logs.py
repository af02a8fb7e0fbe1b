"""Small canonical logs for tests."""

import json
import pathlib

from crbc_jax import StepTable


def step(group, traj, t, state, action, boundary="none", **more) -> dict:
  """One row."""
  return {
    "group_id": group,
    "traj_id": traj,
    "step_idx": t,
    "state_key": state,
    "action_key": action,
    "boundary": boundary,
    **more,
  }


def house() -> list[dict]:
  """Two groups of two rollouts, six rows."""
  return [
    step("g1", "a", 0, "hall", "north"),
    step("g1", "a", 1, "library", "take", "success"),
    step("g1", "b", 0, "hall", "south"),
    step("g1", "b", 1, "pit", "climb", "failure"),
    step("g2", "c", 0, "hall", "north", "success"),
    step("g2", "d", 0, "hall", "south", "truncated"),
  ]


def changed(at: int, **fields) -> list[dict]:
  """The house with some fields of one row exchanged."""
  rows = house()
  rows[at] |= fields
  return rows


def everywhere(**fields) -> list[dict]:
  """The house with fields added to all rows; functions get the row's number."""
  return [
    row | {name: x(i) if callable(x) else x for name, x in fields.items()}
    for i, row in enumerate(house())
  ]


def text(rows) -> str:
  return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: pathlib.Path, content) -> str:
  """Writes rows, text or bytes to a file; returns its path as text."""
  if isinstance(content, list):
    content = text(content)
  if isinstance(content, str):
    content = content.encode("utf-8", "surrogatepass")
  path.write_bytes(content)
  return str(path)


def table(rows) -> StepTable:
  """The same rows as a table, built by hand."""
  names = list(rows[0])
  return StepTable.from_columns(**{n: [row[n] for row in rows] for n in names})
