"""Game-of-24 logs of tree-of-thought-llm: chain-of-thought samples.

A list of records `{idx, ys: [text, …], infos: [{r: 0 or 1}, …]}`; a text holds
lines "a op b = c (left: …)". Group: the puzzle `idx`. Trajectory: a text of
`ys`. Step: a line with "left"; its state is the numbers left before it. The
puzzle's numbers are not in the file: they are what the first step took and
left, as most rollouts of the record have it. Outcome: `infos[].r`, which checks
the answer's formula; it may disagree with the last number left, and it decides.

A rollout is clean if it has three such lines that leave 3, 2 and 1 numbers, and
every sum is right and taken from the numbers left before. The others are
rejected one by one, more than half of the published log: with wrong arithmetic
the numbers left say nothing. Credit such a log with `--skip-bad`.
"""

import collections
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from crbc_jax.rollouts.keys_game24 import parse_numbers, parse_operation
from crbc_jax.rollouts.log import Item, Place, Rejected, Row
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  check_unicode,
  field,
  identity,
  records,
  success,
  typed,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary


class _Line(NamedTuple):
  """One step as written."""

  text: str
  a: Fraction
  symbol: str
  b: Fraction
  result: Fraction
  left: tuple[Fraction, ...]  # sorted


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"idx"' in head and '"ys"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  for place, record in records(source):
    try:
      puzzle = identity(typed(record, dict, "record"), "idx")
      texts, infos = (field(record, name, list) for name in ("ys", "infos"))
      if len(texts) != len(infos):
        raise Malformed(
          f"has {len(texts)} rollouts in 'ys' and {len(infos)} in 'infos'"
        )
    except Malformed as error:
      yield Rejected(place, str(error), record)
      continue
    parsed = [
      _parse(text, info) for text, info in zip(texts, infos, strict=True)
    ]
    start = _start([found[0] for found in parsed if isinstance(found, tuple)])
    for i, found in enumerate(parsed):
      name = f"{source.name}:{puzzle}:{i}"
      rows = (
        found
        if isinstance(found, Malformed)
        else _rows(place, puzzle, name, start, *found)
      )
      if isinstance(rows, Malformed):
        raw = {"idx": puzzle, "rollout": i, "text": texts[i]}
        steps = str(texts[i]).count("(left")
        yield Rejected(place, f"rollout {i} {rows}", raw, max(steps, 1))
      else:
        yield from rows


def _parse(text: Any, info: Any) -> tuple[list[_Line], bool] | Malformed:
  """The steps of a rollout and its label, or why it can't be read."""
  try:
    label = success(field(typed(info, dict, "infos"), "r", int), "r")
    lines = [
      _line(line)
      for line in typed(text, str, "ys").splitlines()
      if "(left" in line.replace(" ", "")
    ]
    if [len(line.left) for line in lines] != [3, 2, 1]:
      raise Malformed(
        f"leaves {[len(line.left) for line in lines]} numbers after its steps, "
        "not 3, 2, 1"
      )
    for line in lines:
      if _value(line) != line.result:
        raise Malformed(f"has a wrong sum: {line.text}")
    return lines, label
  except Malformed as error:
    return error


def _line(text: str) -> _Line:
  operation, left = parse_operation(text), parse_numbers(text)
  if operation is None or left is None:
    raise Malformed(f"has a step that is not 'a op b = c (left: …)': {text!r}")
  return _Line(text, *operation, tuple(left))


def _value(line: _Line) -> Fraction | None:
  a, b = line.a, line.b
  if line.symbol == "/":
    return a / b if b else None
  return {"+": a + b, "-": a - b, "*": a * b}[line.symbol]


def _before(line: _Line) -> tuple[Fraction, ...] | None:
  """The numbers before a step, from the step and what it left."""
  numbers = list(line.left)
  if line.result not in numbers:
    return None
  numbers.remove(line.result)
  return tuple(sorted([*numbers, line.a, line.b]))


def _start(rollouts: list[list[_Line]]) -> tuple[Fraction, ...] | None:
  """The puzzle: what most rollouts start from, the smallest of a tie."""
  starts = collections.Counter(_before(lines[0]) for lines in rollouts)
  del starts[None]
  return min(starts, key=lambda s: (-starts[s], s)) if starts else None


def _rows(
  place: Place,
  puzzle: str | int,
  name: str,
  start: tuple[Fraction, ...] | None,
  lines: list[_Line],
  label: bool,
) -> list[Row] | Malformed:
  numbers = [start, *(line.left for line in lines)]
  for before, line in zip(numbers, lines, strict=False):
    if _before(line) != before:
      return Malformed(
        f"has a step that does not follow from the numbers left: {line.text}"
      )
  states = [" ".join(map(str, left or ())) for left in numbers]
  end = Boundary.SUCCESS if label else Boundary.FAILURE
  last = len(lines) - 1
  rows = [
    Row(
      place=place,
      group_id=puzzle,
      traj_id=name,
      step_idx=t,
      state=states[t],
      action=line.text.split("(")[0].strip(),
      boundary=end if t == last else Boundary.NONE,
      next_state=states[t + 1],
      reward=float(label and t == last),
    )
    for t, line in enumerate(lines)
  ]
  try:
    check_unicode(rows)
  except Malformed as error:
    return error
  return rows
