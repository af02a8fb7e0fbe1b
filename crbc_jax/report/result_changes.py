"""What differs between two JSON files that an experiment wrote.

Values are found by patterns of their place, "settings/*/rows/*/area" say. A
list of objects is read as a table whose rows are named by what identifies them
(`IDENTITY`), so that rows match by label and not by their order.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

IDENTITY = (
  "task",
  "section",
  "workload",
  "setting",
  "policy",
  "stage",
  "slip",
  "levels",
  "label",
  "estimator",
  "name",
  "what",
  "learning_rate",
  "claim",
  "log",
  "key",
)
"""Fields that name a row of a table, where they hold a string or a number."""

SAMPLES = "samples:"
"""Begins the pattern of a list of values, one for each seed."""


@dataclasses.dataclass(frozen=True)
class Value:
  """A number, with its interval where there is one."""

  value: float
  low: float | None = None
  high: float | None = None

  @property
  def has_interval(self) -> bool:
    """Of some width; one seed gives none."""
    return self.low is not None and self.low != self.high

  def __str__(self) -> str:
    if self.low is None or self.high is None or not self.has_interval:
      return f"{self.value:.4g}"
    return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclasses.dataclass(frozen=True)
class Change:
  """One value of a table, before and now."""

  place: tuple[str, ...]
  before: Value
  now: Value

  @property
  def difference(self) -> float:
    """Now less before."""
    return self.now.value - self.before.value

  @property
  def inside(self) -> bool | None:
    """Whether it is in the interval of before; None where that has none."""
    if not self.before.has_interval:
      return None
    return bool(self.before.low <= self.now.value <= self.before.high)  # type: ignore[operator]


@dataclasses.dataclass(frozen=True)
class Changes:
  """All values of one table."""

  found: tuple[Change, ...]
  gone: int  # values that were there before and are not now
  added: int  # the other way round

  def summary(self) -> str:
    """One line."""
    known = [c.inside for c in self.found if c.inside is not None]
    parts = []
    if known:
      parts = [
        f"{sum(known)} of {len(known)} values inside the committed interval"
      ]
    parts += _some(len(self.found) - len(known), "without an interval")
    parts += _some(self.gone, "committed but not in this run")
    parts += _some(self.added, "new")
    if self.found:
      most = max(self.found, key=lambda c: abs(c.difference))
      parts.append(
        f"moved most: {', '.join(most.place)} {most.difference:+.3g}"
      )
    return "; ".join(parts) or "nothing to compare"


def _some(count: int, what: str) -> list[str]:
  return [f"{count} {what}"] if count else []


def find_changes(before: Any, now: Any, patterns: Sequence[str]) -> Changes:
  """Compares two results.

  Args:
    before: the JSON of the committed file.
    now: for the new one.
    patterns: places of the values, parts between slashes, `*` for any part;
      after `SAMPLES` those of lists over seeds.

  Returns:
    The values that both have, in the order of `now`, and the number of others.
  """
  old, new = (find_values(result, patterns) for result in (before, now))
  return Changes(
    found=tuple(
      Change(place, old[place], value)
      for place, value in new.items()
      if place in old
    ),
    gone=len(old.keys() - new.keys()),
    added=len(new.keys() - old.keys()),
  )


def find_values(
  result: Any, patterns: Sequence[str]
) -> dict[tuple[str, ...], Value]:
  """The values at these places: place -> value.

  A value is a finite number, [mean, low, high], an object with `median`, `q1`
  and `q3`, or (after `SAMPLES`) a list of numbers, whose mean and range it is.
  What is none of these is left out.
  """
  found: dict[tuple[str, ...], Value] = {}
  for pattern in patterns:
    samples = pattern.startswith(SAMPLES)
    parts = pattern.removeprefix(SAMPLES).split("/")
    for place, leaf in _at(result, parts, ()):
      value = _of_samples(leaf) if samples else _of(leaf)
      if value is not None:
        found.setdefault(place, value)
  return found


def _at(
  node: Any, parts: Sequence[str], place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
  if not parts:
    yield place, node
    return
  for name, child in _children(node):
    if fnmatch.fnmatchcase(name, parts[0]):
      yield from _at(child, parts[1:], (*place, name))


def _children(node: Any) -> list[tuple[str, Any]]:
  if isinstance(node, dict):
    return list(node.items())
  if not isinstance(node, list):
    return []
  names = [_row_name(child) for child in node]
  if len(set(names)) < len(names) or "" in names:
    names = [str(i) for i in range(len(node))]
  return list(zip(names, node, strict=True))


def _row_name(row: Any) -> str:
  """What identifies a row, or nothing."""
  if not isinstance(row, dict):
    return ""
  return ", ".join(
    str(row[name])
    for name in IDENTITY
    if isinstance(row.get(name), str | float)
  )


def _is_number(x: Any) -> bool:
  return (
    isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)
  )


def _of(leaf: Any) -> Value | None:
  if _is_number(leaf):
    return Value(float(leaf))
  if isinstance(leaf, dict) and {"median", "q1", "q3"} <= leaf.keys():
    leaf = [leaf["median"], leaf["q1"], leaf["q3"]]
  if not isinstance(leaf, list) or len(leaf) != 3:
    return None
  if not all(map(_is_number, leaf)) or not leaf[1] <= leaf[0] <= leaf[2]:
    return None
  return Value(*map(float, leaf))


def _of_samples(leaf: Any) -> Value | None:
  if not isinstance(leaf, list) or not leaf or not all(map(_is_number, leaf)):
    return None
  return Value(sum(leaf) / len(leaf), min(leaf), max(leaf))


HEADINGS = ("value", "committed", "now", "difference", "inside")


def _cells(change: Change) -> tuple[str, ...]:
  verdict = {True: "yes", False: "NO", None: "–"}[change.inside]
  return (
    ", ".join(change.place),
    str(change.before),
    str(change.now),
    f"{change.difference:+.3g}",
    verdict,
  )


def as_table(title: str, changes: Changes) -> Table:
  """For a terminal."""
  table = Table(title=title, title_justify="left", caption=changes.summary())
  for i, heading in enumerate(HEADINGS):
    table.add_column(heading, justify="right" if i in (1, 2, 3) else "left")
  for change in changes.found:
    table.add_row(*_cells(change))
  return table


def as_markdown(title: str, changes: Changes) -> str:
  """For a file."""
  lines = [HEADINGS, ["---"] * len(HEADINGS), *map(_cells, changes.found)]
  rows = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
  return f"## {title}\n\n{changes.summary()}\n\n{rows}\n"
