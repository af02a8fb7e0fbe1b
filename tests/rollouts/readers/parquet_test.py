"""Our own format as Parquet."""

import gzip
import io

import numpy as np
import pytest

from crbc_jax.rollouts.log import LogError, Row
from crbc_jax.rollouts.readers import canonical, parquet
from crbc_jax.rollouts.readers.source import Source
from tests.rollouts.logs import everywhere, house, write

pyarrow = pytest.importorskip("pyarrow")
pyarrow_parquet = pytest.importorskip("pyarrow.parquet")


def packed(table, **options) -> bytes:
  if isinstance(table, list):
    table = pyarrow.Table.from_pylist(table)
  file = io.BytesIO()
  pyarrow_parquet.write_table(table, file, **options)
  return file.getvalue()


def read(tmp_path, content):
  return list(parquet.read(Source(write(tmp_path / "log", content))))


def as_lines(rows):
  """What the JSON-lines reader makes of the same rows."""
  return [canonical.row_of(fields, None) for fields in rows]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_rows_are_those_of_json_lines(pack, tmp_path):
  rows = everywhere(reward=0.5, row_id=lambda i: i, token_start=None, mine=1)
  found = read(tmp_path, pack(packed(rows)))
  assert [str(row.place) for row in found][:2] == [
    f"{tmp_path}/log, row 1",
    f"{tmp_path}/log, row 2",
  ]
  assert [row._replace(place=None) for row in found] == as_lines(rows)


def test_row_numbers_go_on_over_row_groups(tmp_path):
  found = read(tmp_path, packed(house(), row_group_size=4))
  assert [row.place.line for row in found] == [1, 2, 3, 4, 5, 6]


def test_a_bad_row_is_rejected_by_its_number(tmp_path):
  rows = everywhere(reward=lambda i: float("nan") if i == 2 else 0.0)
  found = read(tmp_path, packed(rows))
  assert [isinstance(x, Row) for x in found] == [1, 1, 0, 1, 1, 1]
  assert str(found[2].place).endswith("log, row 3")
  assert "'reward' must be a finite number" in found[2].reason


def test_keys_may_be_lists_and_bytes(tmp_path):
  rows = everywhere(state_key=lambda i: [[i % 2, 2]], action_key=b"\xff")
  found = read(tmp_path, packed(rows))
  assert [row.state for row in found[:2]] == ["[[0,2]]", "[[1,2]]"]
  assert len({row.action for row in found}) == 1


def bytes_as_text():
  """A text column of bytes that are no UTF-8; Parquet does not check."""
  table = pyarrow.Table.from_pylist(house())
  offsets = pyarrow.py_buffer(np.arange(7, dtype=np.int32).tobytes())
  column = pyarrow.Array.from_buffers(
    pyarrow.string(), 6, [None, offsets, pyarrow.py_buffer(b"\xff\xfeabcd")]
  )
  return table.set_column(3, "state_key", column)


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    (lambda: packed(house())[:-50], "magic bytes not found in footer"),
    (lambda: b"PAR1" * 10, "is no readable Parquet file"),
    (lambda: b'{"group_id": 1}\n', "is no readable Parquet file"),
    (lambda: gzip.compress(packed(house()))[:-60], "Compressed file ended"),
    (lambda: packed(bytes_as_text()), "can't decode byte 0xff"),
    (lambda: b"", "is empty"),
  ],
)
def test_a_damaged_file_is_refused(content, reason, tmp_path):
  with pytest.raises(LogError) as error:
    read(tmp_path, content())
  assert reason in error.value.reason and "\n" not in error.value.reason
  assert error.value.place.file == str(tmp_path / "log")


def test_columns_of_another_name_are_not_even_read(tmp_path):
  (row,) = read(tmp_path, packed([{"x": 1}]))
  assert row.reason == "has no field 'group_id'"
  assert row.raw == {}
