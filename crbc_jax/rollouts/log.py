"""What a reader gives: rows as logged, before keys are made of them.

A reader turns one file of some format into `Row`s, and whatever it cannot
read into `Rejected`s; nothing is dropped in between.
"""

from typing import Any, NamedTuple

from crbc_jax.rollouts.table import RolloutError
from crbc_jax.types import Boundary

INT64 = range(-(1 << 63), 1 << 63)
"""Integers that a log may hold."""


class Place(NamedTuple):
  """Where in a log something stands."""

  file: str
  line: int  # from 1; 0 = the file as a whole
  unit: str = "line"  # what is counted: line, record, row

  def __str__(self) -> str:
    if not self.line:
      return self.file
    if self.unit == "line":
      return f"{self.file}:{self.line}"
    return f"{self.file}, {self.unit} {self.line}"


class LogError(RolloutError):
  """A log that cannot be credited; the message names the file and the line."""

  def __init__(self, place: Place, reason: str):
    super().__init__(f"{place}: {reason}", reason=reason)
    self.place = place


class Row(NamedTuple):
  """One environment step as logged. Key functions (`keys`) see these.

  `state` and `action` are texts (or integers) as the log has them; a format
  whose states must be built from its messages leaves that to its key function.
  Rows may come in any order.
  """

  place: Place
  group_id: str | int
  traj_id: str | int
  step_idx: int
  state: str | int | None  # what the action was chosen from; None = missing
  action: str | int | None  # None = could not be parsed
  boundary: Boundary
  next_state: str | int | None = None  # after the last step; None = unknown
  reward: float | None = None  # None = not logged
  outcome: bool | None = None  # None = as the boundary says
  valid: bool = True
  weight: float = 1.0
  row_id: str | int | None = None
  token_start: int | None = None
  token_end: int | None = None
  value: float | None = None  # a critic's V of the state


class Rejected(NamedTuple):
  """Something in a log that could not be read, and what to do about it."""

  place: Place
  reason: str
  raw: Any = None  # as logged, where it could be read that far (JSON-able)
  rows: int = 1  # steps it held, as far as known


Item = Row | Rejected
