"""One file: text, compression, and everything that can be wrong with it."""

import gzip
import os
import random
import threading

import pytest

from crbc_jax.rollouts.log import LogError, Rejected
from crbc_jax.rollouts.readers import source as source_lib
from crbc_jax.rollouts.readers.source import Source
from tests.rollouts.logs import write

zstd = source_lib.zstd


def lines(path):
  """(line, text) of what was read, (line, reason) of what was not."""
  read, rejected = [], []
  for item in Source(str(path)).lines():
    if isinstance(item, Rejected):
      rejected.append((item.place.line, item.reason))
    else:
      read.append((item[0].line, item[1].rstrip("\r\n")))
  return read, rejected


@pytest.mark.parametrize(
  ("content", "expected"),
  [
    ("a\nb\n", [(1, "a"), (2, "b")]),
    ("a\nb", [(1, "a"), (2, "b")]),
    ("a\r\nb\r\n", [(1, "a"), (2, "b")]),
    ("\ufeffa\nb\n", [(1, "a"), (2, "b")]),
    ("\n \na\n\nb\n", [(3, "a"), (5, "b")]),
    ("a\0b\n", [(1, "a\0b")]),
    ("ä\u2028b\n", [(1, "ä\u2028b")]),
  ],
)
def test_lines_are_numbered_as_an_editor_does(content, expected, tmp_path):
  assert lines(write(tmp_path / "log", content)) == (expected, [])


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_compression_is_recognised_whatever_the_name(pack, tmp_path):
  path = write(tmp_path / "log.txt", pack(b"a\nb\n"))
  assert lines(path) == ([(1, "a"), (2, "b")], [])
  assert Source(path).head() == "a\nb\n"
  assert Source(path).text() == "a\nb\n"


def test_bytes_that_are_no_utf8_cost_their_line_alone(tmp_path):
  read, rejected = lines(write(tmp_path / "log", b"a\nb\xffc\nd\n"))
  assert read == [(1, "a"), (3, "d")]
  assert rejected == [
    (2, "byte 2 of the line is not UTF-8: write logs as UTF-8")
  ]


def test_a_line_of_50_mb_costs_itself_alone(tmp_path):
  content = b"a\n" + b"x" * (50 << 20) + b"\nb\n"
  read, rejected = lines(write(tmp_path / "log", content))
  assert read == [(1, "a"), (3, "b")]
  ((line, reason),) = rejected
  assert line == 2 and "longer than 16 MiB: log one step a line" in reason


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_cut_archive_is_rejected_from_there_on(pack, tmp_path):
  noise = random.Random(0).randbytes(300)
  packed = pack(noise.hex().encode() + b"\n")
  read, rejected = lines(write(tmp_path / "log", packed[:-60]))
  assert not read
  assert rejected[0][0] == 1
  assert "from here on the file is cut off or corrupt" in rejected[0][1]
  with pytest.raises(LogError, match="the file is cut off or corrupt"):
    Source(str(tmp_path / "log")).text()


def test_lines_before_a_cut_are_read(tmp_path):
  packed = gzip.compress(b"a\nb\n")
  read, rejected = lines(write(tmp_path / "log", packed[:-8]))
  assert read == [(1, "a"), (2, "b")]
  assert [line for line, _ in rejected] == [3]
  assert Source(str(tmp_path / "log")).head() == "a\nb\n"


def test_bytes_after_an_archive_are_rejected(tmp_path):
  path = write(tmp_path / "log", gzip.compress(b"a\n") + b"more")
  read, ((line, _),) = lines(path)
  assert (read, line) == ([(1, "a")], 2)


def test_archives_one_after_another_are_one_log(tmp_path):
  packed = gzip.compress(b"a\n") + gzip.compress(b"b\n")
  assert lines(write(tmp_path / "log", packed))[0] == [(1, "a"), (2, "b")]


def refused(path):
  with pytest.raises(LogError) as error:
    list(Source(str(path)).lines())
  assert str(error.value).startswith(f"{path}: ")
  return error.value.reason


def test_what_is_no_file_is_refused(tmp_path):
  assert "No such file" in refused(tmp_path / "none")
  assert refused(tmp_path) == (
    "is a folder: name the files in it, as in FOLDER/*.jsonl"
  )
  assert refused(write(tmp_path / "log", "")) == "is empty"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
  path = write(tmp_path / "log", "a\n")
  os.chmod(path, 0)
  assert "Permission denied" in refused(path)


def append(path):
  with open(path, "a") as file:
    file.write("more\n")


def rewrite(path):
  os.replace(write(path.with_name("new"), path.read_bytes()), path)


@pytest.mark.parametrize("change", [append, rewrite, os.remove])
def test_a_file_that_changes_while_it_is_read_is_refused(change, tmp_path):
  path = tmp_path / "log"
  write(path, "a\nb\n")
  with pytest.raises(LogError, match="changed while it was read: wait until"):
    for place, _ in Source(str(path)).lines():
      if place.line == 1:
        change(path)


def test_a_pipe_is_read_once(tmp_path):
  path = tmp_path / "pipe"
  os.mkfifo(path)
  writer = threading.Thread(target=path.write_text, args=("a\nb\n",))
  writer.start()
  source = Source(str(path))
  assert source.is_stream and source.head() == ""
  assert [x[1] for x in source.lines()] == ["a\n", "b\n"]
  writer.join()


def test_a_name_that_is_no_utf8_can_be_shown(tmp_path):
  path = os.fsdecode(os.fsencode(tmp_path) + b"/l\xffg")
  with open(path, "w") as file:
    file.write("a\n")
  (item,) = Source(path).lines()
  assert str(item[0]) == f"{tmp_path}/l\\udcffg:1"


def test_a_document_is_read_whole(tmp_path, monkeypatch):
  path = write(tmp_path / "log", '\ufeff{"a": [1]}')
  assert Source(path).json() == {"a": [1]}
  monkeypatch.setattr(source_lib, "MAX_DOCUMENT", 4)
  with pytest.raises(LogError, match="must be read whole: split it"):
    Source(path).json()


@pytest.mark.parametrize(
  ("content", "reason"),
  [
    ("{", "is not JSON: Expecting property name"),
    ('{"a": NaN}', "NaN is not a number in JSON: write null, or a number"),
    ("[-Infinity]", "-Infinity is not a number in JSON"),
    ("[" * 100_000, "is not JSON: nested too deeply"),
    (b"[\xff]", "byte 2 is not UTF-8"),
  ],
)
def test_what_is_not_strictly_json_is_refused(content, reason, tmp_path):
  path = write(tmp_path / "log", content)
  with pytest.raises(LogError) as error:
    Source(path).json()
  assert reason in error.value.reason and "\n" not in error.value.reason


def test_the_position_reaches_the_size(tmp_path):
  path = write(tmp_path / "log", gzip.compress(b"a\n" * 1_000))
  source = Source(path)
  assert source.position == 0
  assert len(list(source.lines())) == 1_000
  assert source.position == os.path.getsize(path)
