"""Rows of a log on disk, so that one group at a time is enough memory.

A log may hold its rows in any order, over many files, and be larger than the
memory. Its rows go into a scratch database (SQLite, from the standard library)
once; from there they come back group by group, each trajectory in order.
"""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from crbc_jax.rollouts.log import (
  INT64,
  Item,
  LogError,
  Place,
  Rejected,
  Row,
)
from crbc_jax.types import Boundary

_BATCH = 4_096  # rows that are written at once, if their texts are short
_BATCH_TEXT = 1 << 25  # characters of them
_CACHE = 32 << 20  # bytes of the database kept in memory

_ALL_OR_NONE = {
  "reward": "log 0 where there is none, or leave out a rollout that could not"
  " be scored",
  "value": "log the critic's value of every state, or of none",
  "token_start": "log the tokens of every step, or of none",
  "token_end": "log the tokens of every step, or of none",
}

_TABLES = """
CREATE TABLE rows (
  n INTEGER PRIMARY KEY, file INTEGER, line INTEGER, unit TEXT, group_id,
  traj_id, step_idx INTEGER, state, action, boundary INTEGER, next_state,
  reward REAL, outcome INTEGER, valid INTEGER, weight REAL, row_id,
  token_start INTEGER, token_end INTEGER, value REAL
);
CREATE TABLE rejected (
  file TEXT, line INTEGER, unit TEXT, reason TEXT, raw TEXT, rows INTEGER,
  traj_id
);
CREATE TABLE files (name TEXT UNIQUE);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
"""


class Numbered(NamedTuple):
  """A row and its number in the log, from 0 in the order of reading."""

  n: int
  row: Row


class Counts(NamedTuple):
  """What became of a log; `read` = `kept` + `rejected`."""

  read: int
  kept: int
  rejected: int
  copies: int  # of the kept: rows of weight 0, which get credit 0


class RowStore:
  """A scratch database of rows; use as a context.

  Args:
    path: of the database; opened if it exists.
    skip_bad: keep going at a bad row and note it; else raise.
  """

  def __init__(self, path: pathlib.Path, *, skip_bad: bool = False):
    self._skip_bad = skip_bad
    is_new = not path.exists()
    self._db = sqlite3.connect(path, isolation_level=None)
    # A killed process loses nothing; a scratch file need not survive the rest.
    self._db.execute("PRAGMA journal_mode = WAL")
    self._db.execute("PRAGMA synchronous = OFF")
    self._db.execute(f"PRAGMA cache_size = {-_CACHE // 1024}")
    self._db.execute("PRAGMA temp_store = FILE")
    if is_new:
      self._db.executescript(_TABLES)
    self._names = dict(self._db.execute("SELECT rowid, name FROM files"))
    self._files = {name: number for number, name in self._names.items()}

  def __enter__(self) -> "RowStore":
    return self

  def __exit__(self, *_) -> None:
    self._db.close()

  @property
  def database(self) -> sqlite3.Connection:
    """For results that are kept beside the rows."""
    return self._db

  @contextlib.contextmanager
  def transaction(self) -> Iterator[sqlite3.Connection]:
    """Everything inside is written, or nothing is."""
    self._db.execute("BEGIN")
    try:
      yield self._db
    except BaseException:
      self._db.execute("ROLLBACK")
      raise
    self._db.execute("COMMIT")

  def fact(self, name: str) -> Any:
    """A fact that was noted, or None."""
    found = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,))
    return next((json.loads(value) for (value,) in found), None)

  def note(self, name: str, value: Any) -> None:
    """Keeps a JSON-able fact about the log or the work on it."""
    self._db.execute(
      "INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value))
    )

  def add(self, items: Iterable[Item]) -> Iterator[int]:
    """Writes what a reader gives; yields the number of rows so far.

    Raises:
      LogError: the first that was rejected, unless bad rows are skipped.
    """
    number = 0
    for batch in _batched(items):
      with self.transaction() as db:
        rows = [x for x in batch if isinstance(x, Row)]
        for item in batch:
          if isinstance(item, Rejected):
            self._reject(item)
        start = number
        number += len(rows)
        db.executemany(
          f"INSERT INTO rows VALUES ({', '.join('?' * 19)})",
          (
            (
              start + i,
              self._file_number(row.place.file),
              row.place.line,
              row.place.unit,
              *row[1:],
            )
            for i, row in enumerate(rows)
          ),
        )
      yield number

  def check(self) -> None:
    """What only the whole log can tell: identities, and rewards on all rows.

    Raises:
      LogError: the first offence, unless bad rows are skipped.
    """
    self._refuse_trajectories(
      "SELECT traj_id FROM rows WHERE weight > 0 GROUP BY traj_id"
      " HAVING min(group_id) IS NOT max(group_id)",
      "is also in another group: make trajectory ids unique over the whole log"
      " (is a file given twice, or two runs at once?)",
    )
    self._refuse_trajectories(
      "SELECT traj_id FROM rows WHERE weight > 0 AND row_id IN (SELECT row_id"
      " FROM rows WHERE row_id IS NOT NULL AND weight > 0 GROUP BY row_id"
      " HAVING count(*) > 1)",
      "holds a row_id that another row has, too: give every row its own, and"
      " copies weight 0",
    )
    self._refuse_what_is_left()
    for column, what in _ALL_OR_NONE.items():
      if self.has_row(f"{column} NOTNULL AND weight > 0"):
        self._refuse_trajectories(
          f"SELECT traj_id FROM rows WHERE {column} ISNULL AND weight > 0",
          f"has a step without a {column}, while others have one: {what}",
        )

  def _refuse_what_is_left(self) -> None:
    """Rollouts of which a row was rejected while reading are no rollouts."""
    if not self._skip_bad:
      return
    self._refuse_trajectories(
      "SELECT traj_id FROM rejected WHERE traj_id NOTNULL",
      "has another row that was rejected: a part of a rollout cannot be"
      " credited",
    )
    # Whose it was can be unknown. A rollout without its first row begins late.
    unknown = "SELECT 1 FROM rejected WHERE traj_id ISNULL LIMIT 1"
    if self._db.execute(unknown).fetchone():
      self._refuse_trajectories(
        "SELECT traj_id FROM rows WHERE weight > 0 GROUP BY traj_id"
        " HAVING min(step_idx) > (SELECT min(step_idx) FROM rows)",
        "begins later than others, and a row of some rollout was unreadable: it"
        " may have been the first of this one",
      )

  def counts(self) -> Counts:
    """Rows read, kept and rejected so far."""
    (kept, copies), (rejected,) = (
      self._db.execute(query).fetchone()
      for query in (
        "SELECT count(*), ifnull(sum(weight = 0), 0) FROM rows",
        "SELECT ifnull(sum(rows), 0) FROM rejected",
      )
    )
    return Counts(kept + rejected, kept, rejected, copies)

  def place_of(self, traj_id: str | int) -> Place:
    """Where the first row of a trajectory stands."""
    query = "SELECT * FROM rows WHERE traj_id = ? ORDER BY n LIMIT 1"
    _, *values = self._db.execute(query, (traj_id,)).fetchone()
    return _row(self._names, values).place

  def has_row(self, condition: str) -> bool:
    """Whether a condition of SQL is true of some row."""
    query = f"SELECT 1 FROM rows WHERE {condition} LIMIT 1"
    return self._db.execute(query).fetchone() is not None

  def num_groups(self) -> int:
    """Groups of rows with weight."""
    query = "SELECT count(DISTINCT group_id) FROM rows WHERE weight > 0"
    return self._db.execute(query).fetchone()[0]

  def find_group(self, text: str | None) -> str | int | None:
    """The id of a group that reads like this, or None."""
    query = "SELECT group_id FROM rows WHERE CAST(group_id AS TEXT) = ? LIMIT 1"
    found = self._db.execute(query, (text,)).fetchone()
    return found and found[0]

  def groups(
    self, *, after: Sequence[Any] = (), only: Sequence[Any] = ()
  ) -> Iterator[list[Numbered]]:
    """Rows of weight 1, one group after another in the order of their ids.

    Args:
      after: (group id,) of the last group that is left out.
      only: (group id,) of the one group that is wanted.

    Yields:
      The rows of a group by trajectory and step.
    """
    where = "weight > 0"
    where += " AND group_id > ?" * len(after) + " AND group_id = ?" * len(only)
    found = self._db.execute(
      f"SELECT * FROM rows WHERE {where}"
      " ORDER BY group_id, traj_id, step_idx, n",
      (*after, *only),
    )
    group: list[Numbered] = []
    for n, *values in found:
      row = _row(self._names, values)
      if group and group[0].row.group_id != row.group_id:
        yield group
        group = []
      group.append(Numbered(n, row))
    if group:
      yield group

  def reject(self, rows: Sequence[Numbered], at: Row, reason: str) -> None:
    """Takes rows out of the log for a reason.

    Raises:
      LogError: at the row that broke the rule, unless bad rows are skipped.
    """
    if not self._skip_bad:
      raise LogError(at.place, reason)
    for _, row in rows:
      about = "" if row is at else f"with {at.place}: "
      raw = row._asdict() | {"place": str(row.place)}
      self._reject(Rejected(row.place, about + reason, raw))
    self._db.executemany(
      "DELETE FROM rows WHERE n = ?", ((n,) for n, _ in rows)
    )

  def rejected(self) -> Iterator[Rejected]:
    """All that was rejected so far."""
    for *place, reason, raw, rows, _ in self._db.execute(
      "SELECT * FROM rejected"
    ):
      yield Rejected(Place(*place), reason, json.loads(raw), rows)

  def _reject(self, item: Rejected) -> None:
    if not self._skip_bad:
      raise LogError(item.place, item.reason)
    traj = item.raw.get("traj_id") if isinstance(item.raw, dict) else None
    known = isinstance(traj, str) or (isinstance(traj, int) and traj in INT64)
    self._db.execute(
      "INSERT INTO rejected VALUES (?, ?, ?, ?, ?, ?, ?)",
      (
        *item.place,
        item.reason,
        json.dumps(item.raw, default=str),
        item.rows,
        traj if known else None,
      ),
    )

  def _refuse_trajectories(self, query: str, reason: str) -> None:
    """Rejects all rows of the trajectories that a query finds."""
    where = f"FROM rows WHERE weight > 0 AND traj_id IN ({query})"
    first = self._db.execute(f"SELECT * {where} ORDER BY n LIMIT 1").fetchone()
    if first is None:
      return
    if not self._skip_bad:
      row = _row(self._names, first[1:])
      self.reject((), row, f"trajectory {row.traj_id!r} {reason}")
    with self.transaction():
      bad: list[Numbered] = []
      for n, *values in self._db.execute(
        f"SELECT * {where} ORDER BY traj_id, n"
      ):
        row = _row(self._names, values)
        if bad and bad[0].row.traj_id != row.traj_id:
          self._refuse_rows_of_one(bad, reason)
          bad = []
        bad.append(Numbered(n, row))
      self._refuse_rows_of_one(bad, reason)

  def _refuse_rows_of_one(self, rows: list[Numbered], reason: str) -> None:
    first = rows[0].row
    self.reject(rows, first, f"trajectory {first.traj_id!r} {reason}")

  def _file_number(self, name: str) -> int:
    if name not in self._files:
      added = self._db.execute("INSERT INTO files VALUES (?)", (name,))
      self._files[name] = added.lastrowid or 0
      self._names[self._files[name]] = name
    return self._files[name]


def _row(names: dict[int, str], values: Sequence[Any]) -> Row:
  file, line, unit, *fields = values
  row = Row(Place(names[file], line, unit), *fields)
  outcome = None if row.outcome is None else bool(row.outcome)
  return row._replace(
    boundary=Boundary(row.boundary), outcome=outcome, valid=bool(row.valid)
  )


def text_size(item: Item) -> int:
  """Characters of the texts that may be long."""
  long = (item.state, item.action) if isinstance(item, Row) else (item.raw,)
  return sum(len(x) for x in long if isinstance(x, str))


def _batched(items: Iterable[Item]) -> Iterator[list[Item]]:
  batch: list[Item] = []
  text = 0
  for item in items:
    batch.append(item)
    text += text_size(item)
    if len(batch) == _BATCH or text > _BATCH_TEXT:
      yield batch
      batch, text = [], 0
  if batch:
    yield batch
