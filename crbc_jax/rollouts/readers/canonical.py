"""The canonical log: one row per environment step, as JSON lines.

| field | | |
|---|---|---|
| `group_id` | text or integer | the task that the rollouts of a group share |
| `traj_id` | text or integer | the rollout, unique over the whole log |
| `step_idx` | integer | position in the rollout, consecutive |
| `state_key` | any, null = missing | what the action was chosen from |
| `action_key` | any, null = not parsed | what was done |
| `boundary` | none, success, failure, truncated | how the rollout ended there |
| `next_state_key` | any, optional | state after the last step |
| `reward` | number, optional | of the step; on every row or on none |
| `outcome` | true, false, optional | success; the same all rollout long |
| `valid` | true, false, optional | the action could be executed |
| `weight` | 1 or 0, optional | 0: a copy or padding, counts in nothing |
| `row_id` | text or integer, optional | unique |
| `token_start`, `token_end` | integers, optional | its tokens, end excluded |
| `value` | number, optional | a critic's value of the state |

Rows come in any order. Keys may be texts, numbers or any JSON value; a key
function (`--state-key`) makes of a raw observation what states are compared by.
Other fields are ignored.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from crbc_jax.checks import suggestion
from crbc_jax.rollouts.log import INT64, Item, Place, Rejected, Row
from crbc_jax.rollouts.readers.fields import (
  check_unicode,
  identity,
  json_lines,
  number,
  typed,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.rollouts.table import REQUIRED, StepTable
from crbc_jax.types import Boundary

FIELDS = tuple(
  dict.fromkeys([*REQUIRED, *(f.name for f in dataclasses.fields(StepTable))])
)
"""The columns of a table, those that are required first."""

_BOUNDARIES = {kind.name.lower(): kind for kind in Boundary}

MAX_TOKENS = 1 << 24
"""Tokens of the longest rollout: each gets a number of its own."""


def read(source: Source) -> Iterator[Item]:
  """Rows of a JSON-lines file; see the module for its fields."""
  for found in json_lines(source):
    if isinstance(found, Rejected):
      yield found
    else:
      place, fields = found
      yield row_of(fields, place)


def recognises(head: str) -> bool:
  """Whether most of the fields of a step are named: one may be missing."""
  return sum(f'"{name}"' in head for name in REQUIRED) >= 4


def row_of(fields: Any, place: Place) -> Item:
  """One mapping of fields as a row, or why it is none."""
  if not isinstance(fields, Mapping):
    return Rejected(
      place,
      f"holds {_kind(fields)}, not an object with the fields of a step: write"
      " one JSON object a line",
      fields,
    )
  try:
    row = Row(place, **_checked(fields))
    check_unicode([row])
    return row
  except ValueError as error:
    return Rejected(place, str(error), fields)


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Arguments of a `Row`.

  Raises:
    ValueError: names the field and what it should hold.
  """
  for name in REQUIRED:
    if name not in fields:
      near = suggestion(name, set(fields) - set(FIELDS))
      advice = (
        ": without an order a log cannot be credited, number the steps of each"
        " trajectory"
        if name == "step_idx"
        else ""
      )
      raise ValueError(f"has no field {name!r}{near}{advice}")
  found: dict[str, Any] = {
    "group_id": identity(fields, "group_id"),
    "traj_id": identity(fields, "traj_id"),
    "step_idx": typed(fields["step_idx"], int, "step_idx"),
    "state": _key(fields["state_key"]),
    "action": _key(fields["action_key"]),
    "next_state": _key(fields.get("next_state_key")),
    "boundary": _boundary(fields["boundary"]),
    "valid": _flag(fields, "valid", True),
    "outcome": _flag(fields, "outcome", None),
    "weight": 1.0,
  }
  for name in ("weight", "reward", "value"):
    if fields.get(name) is not None:
      found[name] = number(fields[name], name)
  if found["weight"] not in (0, 1):
    raise ValueError(
      f"has weight {found['weight']:g}: use 1, or 0 for copies and padding"
    )
  if fields.get("row_id") is not None:
    found["row_id"] = identity(fields, "row_id")
  for name in ("token_start", "token_end"):
    if fields.get(name) is not None:
      found[name] = typed(fields[name], int, name)
  _check_span(found.get("token_start"), found.get("token_end"))
  return found


def _check_span(start: int | None, end: int | None) -> None:
  if start is None and end is None:
    return
  if start is None or end is None:
    raise ValueError(
      "has one of token_start and token_end: log both, or neither"
    )
  if not 0 <= start < end <= MAX_TOKENS:
    raise ValueError(
      f"has tokens {start} to {end}: they must begin at 0 or later, hold at"
      f" least one token and end by {MAX_TOKENS}"
    )


def _flag(fields: Mapping[str, Any], name: str, default: Any) -> Any:
  value = fields.get(name)
  if value is None:
    return default
  if not isinstance(value, bool):
    raise ValueError(
      f"has {name} {_kind(value)}: it must be true or false, never a number"
    )
  return value


def _boundary(value: Any) -> Boundary:
  kind = _BOUNDARIES.get(value) if isinstance(value, str) else None
  if kind is None:
    raise ValueError(
      f"has boundary {_kind(value)}: it must be one of {', '.join(_BOUNDARIES)}"
    )
  return kind


def _key(value: Any) -> str | int | None:
  """A state or action as text or integer; other JSON in a canonical form."""
  if value is None or isinstance(value, str):
    return value
  if isinstance(value, int) and not isinstance(value, bool):
    return value if value in INT64 else str(value)
  return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _kind(value: Any) -> str:
  """A value as it is shown in a message: short, and in JSON's words."""
  text = json.dumps(value, default=str)
  return text if len(text) <= 40 else f"{text[:37]}..."
