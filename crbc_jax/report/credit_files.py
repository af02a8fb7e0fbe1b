"""Credit of a log -> files: one row per step, in the order of the log."""

import json
import pathlib
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from crbc_jax.credit.log_credit import NUMBERS, credit_columns
from crbc_jax.credit.tokens import spread_to_tokens
from crbc_jax.files import replacing
from crbc_jax.rollouts.log import LogError
from crbc_jax.rollouts.store import RowStore

STDOUT = "-"
SUFFIXES = (".jsonl", ".parquet", ".npz")

_IDS = ("group_id", "traj_id", "step_idx", "row_id")
_SHOWN = dict(zip(NUMBERS, NUMBERS, strict=True)) | {
  "step": "step_credit",
  "trajectory": "trajectory_credit",
}
_BATCH = 8_192  # rows
_ROLLOUTS = 256

Columns = dict[str, Any]
"""Arrays of numbers, or lists of ids or of arrays."""


def check_output(out: str) -> None:
  """Raises ValueError unless credit can be written to `out`."""
  if out != STDOUT and pathlib.Path(out).suffix not in SUFFIXES:
    raise ValueError(
      f"--out must end in {', '.join(SUFFIXES)}, or be - for JSON lines on"
      f" standard output; got {out!r}"
    )
  if out.endswith(".parquet"):
    try:
      import pyarrow  # noqa: F401
    except ImportError:
      raise ValueError(
        "--out .parquet needs pyarrow: pip install 'crbc_jax[logs]'"
      ) from None


def write_credit(
  store: RowStore, out: str, estimators: Sequence[str]
) -> list[str]:
  """Writes the credit of every row; returns the paths written.

  Columns: group_id, traj_id, step_idx, row_id (where the log has one), then v,
  q, step_credit, trajectory_credit, advantage and live; with several
  estimators each set as "NAME.advantage" and so on. Rows of weight 0 get 0.
  Where steps have token spans, a second file (in an npz the same) holds the
  advantage of every token of each rollout.
  """
  if out == STDOUT:
    _write_lines(sys.stdout, _steps(store, estimators))
    return []
  path = pathlib.Path(out)
  has_tokens = store.has_row("token_start NOTNULL AND weight > 0")
  if path.suffix == ".npz":
    _write_npz(store, path, estimators, with_tokens=has_tokens)
    return [out]
  if not has_tokens:
    with replacing(path) as temporary:
      _write_columns(temporary, path.suffix, _steps(store, estimators))
    return [out]
  tokens = path.with_suffix(f".tokens{path.suffix}")
  with replacing(path) as temporary, replacing(tokens) as beside:
    _write_columns(temporary, path.suffix, _steps(store, estimators))
    _write_columns(beside, path.suffix, _tokens(store, estimators))
  return [out, str(tokens)]


def write_rejected(store: RowStore, path: str) -> None:
  """Writes every rejected row with its place and reason as JSON lines."""
  with replacing(path) as temporary, _text_file(temporary) as file:
    for item in store.rejected():
      fields = item._asdict() | {"place": str(item.place)}
      file.write(json.dumps(fields) + "\n")


def _steps(store: RowStore, estimators: Sequence[str]) -> Iterator[Columns]:
  """Output columns of the rows, a batch at a time."""
  ids = [
    name for name in _IDS if name != "row_id" or store.has_row("row_id NOTNULL")
  ]
  names = credit_columns(estimators)
  numbers = ", ".join(f"ifnull({name}, 0)" for name in names)
  cursor = store.database.execute(
    f"SELECT {', '.join(ids)}, {numbers} FROM rows LEFT JOIN credit USING (n)"
    " ORDER BY n"
  )
  mixed = {n for n in ids if store.has_row(f"typeof({n}) != 'integer'")}
  prefixes = [f"{x}." if len(estimators) > 1 else "" for x in estimators]
  shown = [
    f"{prefix}{_SHOWN.get(name, name)}"
    for prefix in prefixes
    for name in (*NUMBERS, "live")
  ]
  for batch in _fetched(cursor):
    columns = list(zip(*batch, strict=True))
    found: Columns = {}
    for name, column in zip(ids, columns, strict=False):
      found[name] = (
        list(column) if name in mixed else np.array(column, np.int64)
      )
    for name, column in zip(shown, columns[len(ids) :], strict=True):
      kind = bool if name.endswith("live") else np.float32
      found[name] = np.array(column).astype(kind)
    yield found


def _tokens(store: RowStore, estimators: Sequence[str]) -> Iterator[Columns]:
  """One row per rollout: the advantage of each of its tokens, and the mask."""
  shown = [
    f"{x}.advantage" if len(estimators) > 1 else "advantage" for x in estimators
  ]
  names = ", ".join(f"advantage{i}" for i in range(len(estimators)))
  cursor = store.database.execute(
    f"SELECT group_id, traj_id, token_start, token_end, {names} FROM rows"
    " JOIN credit USING (n) ORDER BY group_id, traj_id, token_start"
  )
  found: Columns = {}
  for rollout in _runs(cursor):
    group, traj = rollout[0][:2]
    numbers = np.array([row[2:] for row in rollout])
    span = numbers[:, :2].astype(np.int64)
    try:
      values, mask = spread_to_tokens(
        span[:, 0], span[:, 1], numbers[:, 2:].astype(np.float32)
      )
    except ValueError as error:
      raise _at(store, traj, f"trajectory {traj!r}: {error}") from None
    cells = {"group_id": group, "traj_id": traj, "mask": mask}
    cells |= {name: values[:, i] for i, name in enumerate(shown)}
    for name, cell in cells.items():
      found.setdefault(name, []).append(cell)
    if len(found["mask"]) == _ROLLOUTS:
      yield found
      found = {}
  if found:
    yield found


def _write_columns(
  path: pathlib.Path, suffix: str, batches: Iterator[Columns]
) -> None:
  if suffix == ".parquet":
    _write_parquet(path, batches)
    return
  with _text_file(path) as file:
    _write_lines(file, batches)


def _text_file(path: pathlib.Path) -> IO[str]:
  return open(path, "w", encoding="utf-8", newline="\n")


def _write_lines(file: IO[str], batches: Iterator[Columns]) -> None:
  for columns in batches:
    head = [json.dumps(name) + ": " for name in columns]
    cells = [_as_json(column) for column in columns.values()]
    for row in zip(*cells, strict=True):
      pairs = (name + cell for name, cell in zip(head, row, strict=True))
      file.write("{" + ", ".join(pairs) + "}\n")


def _as_json(column: np.ndarray | list) -> list[str]:
  """Cells as JSON; float32 with no more digits than tell it apart."""
  if isinstance(column, np.ndarray):
    if column.dtype == bool:
      return ["true" if x else "false" for x in column.tolist()]
    return [str(x) for x in column]
  return [
    f"[{', '.join(_as_json(x))}]"
    if isinstance(x, np.ndarray)
    else json.dumps(x)
    for x in column
  ]


def _write_parquet(path: pathlib.Path, batches: Iterator[Columns]) -> None:
  import pyarrow
  from pyarrow import parquet

  writer = None
  try:
    for columns in batches:
      table = pyarrow.table(
        {name: _as_arrow(column) for name, column in columns.items()}
      )
      if writer is None:
        writer = parquet.ParquetWriter(path, table.schema)
      writer.write_table(table)
  finally:
    if writer is not None:
      writer.close()


def _as_arrow(column: np.ndarray | list) -> Any:
  import pyarrow

  if isinstance(column, np.ndarray) or isinstance(column[0], np.ndarray):
    return pyarrow.array(column)
  # Named, since a batch may hold no id that is known.
  texts = [None if x is None else str(x) for x in column]
  return pyarrow.array(texts, pyarrow.string())


def _write_npz(
  store: RowStore,
  path: pathlib.Path,
  estimators: Sequence[str],
  *,
  with_tokens: bool,
) -> None:
  """One array per column; the tokens of all rollouts one after another."""
  arrays = _joined(_steps(store, estimators))
  if with_tokens:
    tokens: dict[str, list] = {}
    for columns in _tokens(store, estimators):
      for name, cells in columns.items():
        tokens.setdefault(name, []).extend(cells)
    lengths = [len(mask) for mask in tokens["mask"]]
    arrays["token_offset"] = np.append(0, np.cumsum(lengths))
    for name, cells in tokens.items():
      is_id = name in _IDS
      flat = _text_array(cells) if is_id else np.concatenate(cells)
      arrays[f"token_{name}"] = flat
  with replacing(path) as temporary, open(temporary, "wb") as file:
    np.savez_compressed(file, allow_pickle=False, **arrays)


def _joined(batches: Iterator[Columns]) -> dict[str, np.ndarray]:
  parts: dict[str, list] = {}
  for columns in batches:
    for name, column in columns.items():
      parts.setdefault(name, []).append(column)
  return {
    name: np.concatenate(columns)
    if isinstance(columns[0], np.ndarray)
    else _text_array([x for column in columns for x in column])
    for name, columns in parts.items()
  }


def _text_array(values: list) -> np.ndarray:
  """Ids as fixed-width text, so that nothing needs to be unpickled."""
  if all(isinstance(x, int) for x in values):
    return np.array(values)
  return np.array(["" if x is None else str(x) for x in values])


def _fetched(cursor: sqlite3.Cursor) -> Iterator[list[tuple]]:
  while batch := cursor.fetchmany(_BATCH):
    yield batch


def _runs(cursor: sqlite3.Cursor) -> Iterator[list[tuple]]:
  """Rows of one trajectory after another."""
  run: list[Any] = []
  for row in cursor:
    if run and run[0][:2] != row[:2]:
      yield run
      run = []
    run.append(row)
  if run:
    yield run


def _at(store: RowStore, traj: Any, reason: str) -> LogError:
  return LogError(store.place_of(traj), reason)
