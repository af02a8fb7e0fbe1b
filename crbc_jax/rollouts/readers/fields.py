"""What the readers of other programs' logs share: checked fields of records."""

import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from crbc_jax.rollouts.log import INT64, Item, Place, Rejected, Row
from crbc_jax.rollouts.readers.source import Source, parse_json

_NAMES = {dict: "an object", list: "a list", str: "text", int: "an integer"}

_FLOAT32_MAX = 3.4028235e38  # credit is computed in it

LABELS = ("success", "solved", "correct", "resolved", "won")
"""Fields that say whether a rollout succeeded, in logs that have one."""


class Malformed(ValueError):
  """A record that is not as its format says; what is wrong and what to do."""


def field(record: dict, name: str, kind: type) -> Any:
  """`record[name]`, which must be there and of this type.

  Raises:
    Malformed: it isn't.
  """
  if name not in record:
    raise Malformed(f"has no field {name!r}; export it")
  return typed(record[name], kind, name)


def typed(value: Any, kind: type, what: str) -> Any:
  """`value` if it is of this type, a bool being no integer.

  Raises:
    Malformed: it isn't.
  """
  if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
    raise Malformed(
      f"{what!r} must be {_NAMES[kind]}, got {type(value).__name__}"
    )
  if kind is int and value not in INT64:
    raise Malformed(f"{what!r} is beyond 64 bits")
  return value


def identity(record: Mapping, name: str) -> str | int:
  """An id: text or a whole number.

  Raises:
    Malformed: it is missing or something else.
  """
  value = record.get(name)
  if isinstance(value, bool) or not isinstance(value, str | int):
    raise Malformed(f"has no {name!r} that is text or a whole number")
  return typed(value, int, name) if isinstance(value, int) else value


def number(value: Any, what: str) -> float:
  """A finite number.

  Raises:
    Malformed: it isn't.
  """
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise Malformed(f"{what!r} must be a number, got {type(value).__name__}")
  try:
    value = float(value)
  except OverflowError:
    value = math.inf
  if not abs(value) <= _FLOAT32_MAX:
    raise Malformed(
      f"{what!r} must be a finite number of 32 bits, got {value}; leave out a"
      " rollout that could not be scored"
    )
  return value


def success(value: Any, what: str) -> bool:
  """A label: True or False, 1 or 0.

  Raises:
    Malformed: anything between, or of another type: a reward is no label.
  """
  if isinstance(value, bool):
    return value
  if number(value, what) not in (0.0, 1.0):
    raise Malformed(
      f"{what!r} is {value}, neither 0 nor 1, so it doesn't say whether the "
      f"rollout succeeded; add a field {LABELS[0]!r} that is true or false"
    )
  return value == 1


def label(record: dict, otherwise: Any, what: str) -> bool:
  """The first of `LABELS` in a record, else the reward where it is 0 or 1.

  Raises:
    Malformed: there is no such field and the reward is something between.
  """
  for name in LABELS:
    if record.get(name) is not None:
      return success(record[name], name)
  return success(otherwise, what)


def records(source: Source) -> Iterator[tuple[Place, Any]]:
  """The elements of a file that is one JSON list.

  Raises:
    LogError: it is no list.
  """
  found = source.json()
  if not isinstance(found, list):
    raise source.fail("is no JSON list of records")
  for i, record in enumerate(found, 1):
    yield source.place(i, "record"), record


def json_lines(source: Source) -> Iterator[tuple[Place, Any] | Rejected]:
  """The JSON values of a file with one on each line."""
  for line in source.lines():
    if isinstance(line, Rejected):
      yield line
      continue
    place, text = line
    try:
      yield place, parse_json(text)
    except ValueError as error:
      yield Rejected(place, f"is not JSON: {error}", text)


def rows_of(
  found: Iterable[tuple[Place, Any] | Rejected],
  parse: Callable[[Place, dict], list[Row]],
  *,
  steps: Callable[[dict], int] = lambda record: 1,
) -> Iterator[Item]:
  """Parses records one by one; what is malformed becomes a `Rejected`.

  Args:
    found: records and their places.
    parse: a record's rows; raises `Malformed`.
    steps: how many rows a record holds that could not be parsed.
  """
  for item in found:
    if isinstance(item, Rejected):
      yield item
      continue
    place, record = item
    try:
      rows = parse(place, typed(record, dict, "record"))
      check_unicode(rows)
      yield from rows
    except Malformed as error:
      known = steps(record) if isinstance(record, dict) else 1
      yield Rejected(place, str(error), record, max(known, 1))


def check_unicode(rows: list[Row]) -> None:
  """Refuses half characters, which JSON can hold and no file can.

  Raises:
    Malformed: a text of a row has one.
  """
  for row in rows:
    for value in row:
      if isinstance(value, str) and not value.isascii():
        try:
          value.encode()
        except UnicodeEncodeError:
          raise Malformed(
            "holds half of a surrogate pair, which is not Unicode: log whole "
            "characters"
          ) from None


def length(record: dict, *path: str) -> int:
  """The length of the list at `record[path[0]][path[1]]…`, 0 without one."""
  value: Any = record
  for name in path:
    value = value.get(name) if isinstance(value, dict) else None
  return len(value) if isinstance(value, list) else 0


def resolved(source: Source, *names: str) -> bool:
  """The label of a run whose own file has none: from `results.json` beside it.

  That file is one object, `{name: true or false}`; the first of `names` in it
  decides.

  Raises:
    Malformed: there is no such file or none of the names in it.
  """
  path = pathlib.Path(source.path).parent / "results.json"
  wanted = " or ".join(repr(name) for name in names)
  remedy = f"write {{{wanted}: true or false}} to results.json beside it"
  try:
    found = parse_json(path.read_text(encoding="utf-8"))
  except OSError:
    raise Malformed(
      f"doesn't say whether the run succeeded; {remedy}"
    ) from None
  except ValueError as error:
    raise Malformed(f"results.json beside it is not JSON: {error}") from None
  for name in names:
    if name in typed(found, dict, "results.json"):
      return success(found[name], f"results.json: {name}")
  raise Malformed(f"is not in results.json beside it; {remedy}")
