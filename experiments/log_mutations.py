"""Small valid logs of every format, and ways to damage them."""

import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyarrow import parquet

from crbc_jax.rollouts.readers.source import zstd
from tests.rollouts.readers import samples


class Log(NamedTuple):
  """A valid log, as it is before it is written and damaged."""

  format: str  # of the reader
  content: Any  # what `write` takes
  write: Callable[[Any], bytes]
  kind: str  # lines, document, rows, columns: how its content is damaged
  suffix: str


def canonical_rows() -> list[dict]:
  """Two groups of two rollouts with every field a row can have."""
  rows = []
  for group, traj, states, end in (
    ("g1", "a", ("hall", "library"), "success"),
    ("g1", "b", ("hall", "pit"), "failure"),
    (2, 7, ("hall",), "truncated"),
    (2, 8, ("hall", "hall"), "success"),
  ):
    for t, state in enumerate(states):
      is_last = t == len(states) - 1
      row = {
        "group_id": group,
        "traj_id": traj,
        "step_idx": t,
        "state_key": state,
        "action_key": f"go {t}",
        "boundary": end if is_last else "none",
        "next_state_key": "end" if is_last else states[t + 1],
        "reward": float(is_last and end == "success"),
        "outcome": end == "success",
        "valid": True,
        "weight": 1,
        "row_id": len(rows),
        "token_start": 5 * t,
        "token_end": 5 * t + 3,
        "value": 0.5,
      }
      rows.append(row)
  return [*rows, rows[0] | {"weight": 0}]


def logs() -> list[Log]:
  """A log of every format, ours also compressed and as Parquet."""
  lines = "\n".join(map(json.dumps, canonical_rows()))
  texts = [
    {**r, "group_id": str(r["group_id"]), "traj_id": str(r["traj_id"])}
    for r in canonical_rows()
  ]
  completions = [
    {"step": 1, "prompt": "2 + 2?", "completion": c, "reward": float(c == "4")}
    for c in ("4", "5", "4")
  ]
  found = [
    Log("jsonl", lines, _encoded, "lines", ".jsonl"),
    Log(
      "jsonl", lines, lambda x: gzip.compress(_encoded(x), 1), "lines", ".gz"
    ),
    Log("jsonl", lines, lambda x: zstd.compress(_encoded(x)), "lines", ".zst"),
    Log("parquet", texts, _as_parquet, "rows", ".parquet"),
    Log("trl", completions, _as_parquet, "rows", ".parquet"),
    Log("roll", samples.roll_rows(), _as_parquet, "rows", ".parquet"),
    Log("verl_agent", samples.verl_columns(), samples.npz, "columns", ".npz"),
  ]
  for name, text in samples.TEXTS.items():
    if name != "verl_agent":
      kind = "lines" if name in ("verifiers", "roll") else "document"
      found.append(Log(name, text(), _encoded, kind, ".json"))
  return found


def damaged(log: Log, rng: random.Random) -> bytes:
  """The bytes of a log after one to three mutations of what it holds or is."""
  content = log.content
  inside = rng.random() < 0.7
  for _ in range(rng.randint(1, 3) if inside else 0):
    content = _INSIDE[log.kind](content, rng)
  data = log.write(content)
  if not inside or rng.random() < 0.1:
    for _ in range(rng.randint(1, 3)):
      data = rng.choice(_OF_BYTES)(data, rng)
  return data


def _encoded(text: str) -> bytes:
  return text.encode("utf-8", "surrogatepass")


def _as_parquet(rows: list[dict]) -> bytes:
  """Rows as Parquet; a column that it cannot hold becomes text."""
  columns = {}
  for name in dict.fromkeys(name for row in rows for name in row):
    values = [row.get(name) for row in rows]
    try:
      columns[name] = pyarrow.array(values)
      _parquet_bytes({name: columns[name]})
    except (pyarrow.ArrowException, OverflowError, ValueError, TypeError):
      texts = [None if x is None else ascii(x) for x in values]
      columns[name] = pyarrow.array(texts)
  return _parquet_bytes(columns)


def _parquet_bytes(columns: dict[str, pyarrow.Array]) -> bytes:
  file = io.BytesIO()
  parquet.write_table(pyarrow.table(columns), file)
  return file.getvalue()


# -- of what a log holds -----------------------------------------------------

_ODD = (
  *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e39, 1e300),
  *(float("nan"), float("inf"), 1 << 31, 1 << 63, -(1 << 63), 1 << 70),
  *("", "0", "1", "none", "success", "\0", "a\0", "\ud800", "é", "x" * 3000),
  *([], {}, [[]], {"a": [None]}, ["\ud800"], {"\ud800": 1}),
)


def _nested(depth: int) -> list:
  value: list = []
  for _ in range(depth):
    value = [value]
  return value


def _odd(rng: random.Random) -> Any:
  return _nested(400) if rng.random() < 0.02 else rng.choice(_ODD)


def _value(value: Any, rng: random.Random) -> Any:
  """A JSON value with one thing in it exchanged, dropped, renamed or added."""
  if isinstance(value, dict | list) and value and rng.random() < 0.85:
    places: Sequence = (
      list(value) if isinstance(value, dict) else range(len(value))
    )
    at = rng.choice(places)
    changed: Any = value.copy()
    act = rng.random()
    if act < 0.7:
      changed[at] = _value(value[at], rng)
    elif act < 0.8:
      changed[at] = value[rng.choice(places)]
    elif act < 0.9 or isinstance(value, list):
      del changed[at]
    else:
      changed[f"{at}s"] = changed.pop(at)
    return changed
  return _odd(rng)


def _document(text: str, rng: random.Random) -> str:
  try:
    return json.dumps(_value(json.loads(text), rng))
  except ValueError:  # damaged before
    return text[: rng.randint(0, len(text))]


def _lines(text: str, rng: random.Random) -> str:
  lines = text.split("\n")
  at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
  act = rng.random()
  if act < 0.65:
    lines[at] = _document(lines[at], rng)
  elif act < 0.72:
    rng.shuffle(lines)
  elif act < 0.79:
    lines[at], lines[other] = lines[other], lines[at]
  elif act < 0.86:
    lines.insert(other, lines[at])
  elif act < 0.93 and len(lines) > 1:
    del lines[at]
  elif act < 0.95:
    return f"\ufeff{text}"
  elif act < 0.97:
    return text.replace("\n", rng.choice(("\r\n", "\n\n", "\r", " ")))
  elif act < 0.99:
    return f"[{','.join(lines)}]"
  else:
    lines[at] = lines[at].replace('"', "[" * 100_000, 1)
  return "\n".join(lines)


def _rows(rows: list[dict], rng: random.Random) -> list[dict]:
  rows = list(rows)
  at, act = rng.randrange(len(rows)), rng.random()
  if act < 0.7:
    name = rng.choice(list(rows[at]))
    rows[at] = rows[at] | {name: _value(rows[at][name], rng)}
  elif act < 0.8:
    rows.append(rows[at])
  elif act < 0.9 and len(rows) > 1:
    del rows[at]
  else:
    name = rng.choice(list(rows[at]))
    rows = [{n: x for n, x in row.items() if n != name} for row in rows]
    rows = [row or {"x": 0} for row in rows]
  return rows


def _columns(columns: dict, rng: random.Random) -> dict:
  columns = dict(columns)
  name, act = rng.choice(list(columns)), rng.random()
  column = np.array(columns[name])
  if column.dtype.kind == "c":
    column = column.real
  if act < 0.2 and len(columns) > 1:
    del columns[name]
  elif act < 0.4:
    columns[name] = column[: rng.randint(0, len(column))]
  elif act < 0.6 and column.ndim == 1:
    columns[name] = column[rng.sample(range(len(column)), len(column))]
  elif act < 0.8:
    kinds = (np.float16, np.int64, bool, "U3", "S2", np.complex64)
    with np.errstate(all="ignore"):
      try:
        columns[name] = column.astype(rng.choice(kinds))
      except ValueError:
        columns[name] = np.full(column.shape, np.nan)
  else:
    columns[name] = np.stack([column] * rng.randint(1, 2), axis=-1)
  return columns


_INSIDE: dict[str, Callable] = {
  "lines": _lines,
  "document": _document,
  "rows": _rows,
  "columns": _columns,
}


# -- of its bytes ------------------------------------------------------------


def _flip(data: bytes, rng: random.Random) -> bytes:
  changed = bytearray(data)
  for _ in range(rng.randint(1, 8) if data else 0):
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
  return bytes(changed)


def _overwrite(data: bytes, rng: random.Random) -> bytes:
  at = rng.randrange(len(data) + 1)
  return data[:at] + rng.randbytes(rng.randint(1, 6)) + data[at + 4 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
  return data[: rng.randint(0, len(data))]


def _remove(data: bytes, rng: random.Random) -> bytes:
  at = rng.randrange(len(data) + 1)
  return data[:at] + data[at + rng.randint(1, 40) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
  at = rng.randrange(len(data) + 1)
  return data[:at] + data[max(at - rng.randint(1, 200), 0) :]


_OF_BYTES = (_flip, _overwrite, _cut, _remove, _repeat)
