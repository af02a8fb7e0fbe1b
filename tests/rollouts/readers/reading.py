"""Reads a log from text, and sorts what comes."""

import importlib
import pathlib

from crbc_jax.rollouts.log import Rejected, Row
from crbc_jax.rollouts.readers.source import Source


def module(name: str):
  return importlib.import_module(f"crbc_jax.rollouts.readers.{name}")


def read_file(name: str, path) -> tuple[list[Row], list[Rejected]]:
  """The rows and the rejected parts of a file."""
  items = list(module(name).read(Source(str(path))))
  rows = [item for item in items if isinstance(item, Row)]
  rejected = [item for item in items if isinstance(item, Rejected)]
  assert len(rows) + len(rejected) == len(items)
  return rows, rejected


def read_text(
  name: str, folder: pathlib.Path, content: str | bytes, file: str = "log"
) -> tuple[list[Row], list[Rejected]]:
  """The same of a file with this content."""
  path = folder / file
  if isinstance(content, str):
    content = content.encode()
  path.write_bytes(content)
  return read_file(name, path)
