"""Files written in one piece."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
  """A temporary path that becomes `path` if the context ends without error.

  A reader sees the old file or the new, never half. Makes the folder where
  needed.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  try:
    yield temporary
    os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


def write_text(path: str | os.PathLike, text: str) -> None:
  """Writes a text file in one piece; makes the folder where needed."""
  with (
    replacing(path) as temporary,
    open(temporary, "w", encoding="utf-8", newline="\n") as file,
  ):
    file.write(text)
