"""One log file: opened, decompressed and decoded, with clear errors.

gzip and Zstandard are recognised by their first bytes, whatever the name.
"""

import contextlib
import gzip
import json
import os
import sys
import zlib
from collections.abc import Collection, Iterator
from typing import IO, Any

from crbc_jax.rollouts.log import LogError, Place, Rejected

try:
  from compression import zstd  # Python 3.14
except ImportError:
  try:
    from backports import zstd
  except ImportError:
    zstd = None

MAX_LINE = 16 << 20
"""Bytes of the longest line that is read: one step never needs as many."""

MAX_DOCUMENT = 1 << 30
"""Bytes of the largest file that must be read whole."""

_PARQUET_ROWS = 4_096

STDIN = "-"

_BROKEN: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error)
"""What decompression raises on bad data."""
if zstd is not None:
  _BROKEN += (zstd.ZstdError,)

_CUT = "is cut off or corrupt; write the file again, or read it with --skip-bad"


class Source:
  """A log file that is read once, from its beginning to its end.

  Args:
    path: of the file; "-" is standard input.
  """

  def __init__(self, path: str):
    self.path = path
    # A name of bytes that are no UTF-8 can't be written anywhere as it is.
    shown = path.encode("utf-8", "backslashreplace").decode()
    self.name = "standard input" if path == STDIN else shown
    self._raw: IO[bytes] | None = None
    self._read = 0

  @property
  def position(self) -> int:
    """Bytes of the file read so far."""
    if self._raw is not None and not self._raw.closed:
      self._read = self._raw.tell()
    return self._read

  def place(self, line: int = 0, unit: str = "line") -> Place:
    """A place in this file."""
    return Place(self.name, line, unit)

  def fail(self, reason: str) -> LogError:
    """An error about the file as a whole."""
    return LogError(self.place(), reason)

  def lines(self) -> Iterator[tuple[Place, str] | Rejected]:
    """Its lines that are not blank, as text; what is not is rejected.

    Raises:
      LogError: the file cannot be opened, or changed while it was read.
    """
    number = 0
    with self.open() as file:
      while True:
        number += 1
        place = self.place(number)
        try:
          line = file.readline(MAX_LINE + 1)
          long = len(line) > MAX_LINE
          while long and line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)  # the rest of it is not kept
        except _BROKEN as error:
          yield Rejected(place, f"from here on the file {_CUT} ({error})")
          return
        if long:
          yield Rejected(
            place,
            f"the line is longer than {MAX_LINE >> 20} MiB: log one step a"
            " line, and long texts by reference",
          )
        elif not line:
          break
        elif line.strip():
          text = _decoded(line, first=number == 1)
          if isinstance(text, str):
            yield place, text
          else:
            yield Rejected(
              place,
              f"byte {text.start + 1} of the line is not UTF-8: write logs as"
              " UTF-8",
            )

  def text(self) -> str:
    """The whole file as text.

    Raises:
      LogError: it cannot be opened, is too long, not UTF-8, or cut off.
    """
    with self.open() as file:
      try:
        data = file.read(MAX_DOCUMENT + 1)
      except _BROKEN as error:
        raise self.fail(f"the file {_CUT} ({error})") from None
    if len(data) > MAX_DOCUMENT:
      raise self.fail(
        f"is longer than {MAX_DOCUMENT >> 20} MiB, and this format must be read"
        " whole: split it"
      )
    text = _decoded(data, first=True)
    if isinstance(text, str):
      return text
    raise self.fail(f"byte {text.start + 1} is not UTF-8: write logs as UTF-8")

  def json(self) -> Any:
    """The whole file as one JSON value; errors as `text`, and bad JSON."""
    text = self.text()
    try:
      return parse_json(text)
    except ValueError as error:
      raise self.fail(f"is not JSON: {error}") from None

  def parquet_rows(
    self, wanted: Collection[str] | None = None
  ) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Rows of a Parquet file as mappings, read in small batches.

    Args:
      wanted: columns to read where they exist (default: all).

    Raises:
      LogError: not a Parquet file, damaged, or pyarrow is not installed.
    """
    try:
      import pyarrow
      from pyarrow import parquet
    except ImportError:
      raise self.fail(
        "is a Parquet file: pip install 'crbc_jax[logs]'"
      ) from None
    with self.open() as file:
      number = 0
      try:
        data = parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"))
        names = data.schema_arrow.names
        columns = [n for n in names if wanted is None or n in wanted]
        for batch in data.iter_batches(_PARQUET_ROWS, columns=columns):
          for row in batch.to_pylist():
            number += 1
            yield self.place(number, "row"), row
      except Exception as error:  # a hostile file raises whatever it likes
        reason = (str(error) or repr(error)).splitlines()[0]
        raise self.fail(f"is no readable Parquet file ({reason})") from None

  @property
  def is_stream(self) -> bool:
    """Whether it can be read only once: standard input, a pipe."""
    return self.path == STDIN or not os.path.isfile(self.path)

  def head(self, size: int = 1 << 16) -> str:
    """What a format is recognised by: the first characters.

    Of a stream ""; of a Parquet file PAR1 and its column names in quotes.
    """
    if self.is_stream:
      return ""
    data = b""
    # What comes before a cut will do.
    with self.open(watch=False) as file, contextlib.suppress(*_BROKEN):
      while len(data) < size and (more := file.read1(size)):
        data += more
    if data.startswith(b"PAR1"):
      try:
        from pyarrow import parquet

        names = parquet.read_schema(self.path).names
      except Exception:  # whatever it is: reading the file will say so
        names = []
      return f"PAR1 {json.dumps(names)}"
    return data.decode("utf-8-sig", "replace")

  @contextlib.contextmanager
  def open(self, *, watch: bool = True) -> Iterator[Any]:
    """The decompressed bytes.

    Raises:
      LogError: no such file, a folder, no permission, empty; with `watch` also
        when the file has changed by the time the context ends.
    """
    try:
      file: Any = (
        sys.stdin.buffer if self.path == STDIN else open(self.path, "rb")  # noqa: SIM115, the exit stack closes it
      )
    except IsADirectoryError:
      raise self.fail(
        "is a folder: name the files in it, as in FOLDER/*.jsonl"
      ) from None
    except OSError as error:
      raise self.fail(f"cannot be read: {error.strerror}") from None
    with contextlib.ExitStack() as stack:
      if file is not sys.stdin.buffer:
        stack.enter_context(file)
      before = None if self.is_stream else os.fstat(file.fileno())
      magic = file.peek(4)[:4]
      if not magic:
        raise self.fail("is empty")
      self._raw = file if before is not None else None
      yield stack.enter_context(self._decompressed(file, magic))
      if watch and before is not None:
        self._read = before.st_size
        try:
          after = _identity(os.stat(self.path))
        except OSError:  # it is gone
          after = None
        if _identity(before) != after:
          raise self.fail(
            "changed while it was read: wait until it is complete, or copy it"
          )

  def _decompressed(self, file, magic: bytes):
    if magic[:2] == b"\x1f\x8b":
      return gzip.GzipFile(fileobj=file)
    if magic == b"\x28\xb5\x2f\xfd":
      if zstd is None:
        raise self.fail(
          "is compressed with Zstandard: pip install 'crbc_jax[logs]'"
        )
      return zstd.ZstdFile(file)
    return contextlib.nullcontext(file)


def parse_json(text: str) -> Any:
  """Strict JSON: no NaN, no infinities.

  Raises:
    ValueError: says what is wrong and where, in one line.
  """
  try:
    return json.loads(text, parse_constant=_refuse_constant)
  except RecursionError:
    raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
  raise ValueError(f"{name} is not a number in JSON: write null, or a number")


def _decoded(data: bytes, *, first: bool) -> str | UnicodeDecodeError:
  try:
    return data.decode("utf-8-sig" if first else "utf-8")
  except UnicodeDecodeError as error:
    return error


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
  return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
