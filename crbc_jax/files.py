"""Text files written in one piece."""

import os
import pathlib


def write_text(path: str | os.PathLike, text: str) -> None:
  """Writes a file so that a reader sees the old text or the new, never half.

  Makes the folder where needed.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  try:
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
      file.write(text)
    os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise
