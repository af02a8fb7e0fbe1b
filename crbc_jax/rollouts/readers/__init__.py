"""Rollout logs of many formats -> rows, one module per format."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from crbc_jax.checks import suggestion
from crbc_jax.rollouts.log import Item, LogError, Rejected
from crbc_jax.rollouts.readers import canonical, parquet
from crbc_jax.rollouts.readers.source import STDIN, Source


@dataclasses.dataclass(frozen=True)
class Format:
  """A format of rollout logs."""

  summary: str
  read: Callable[[Source], Iterator[Item]]
  recognises: Callable[[str], bool]
  """Whether the first characters of a file look like it."""
  state_key: str = "verbatim"  # unless another is asked for
  action_key: str = "verbatim"


FORMATS: dict[str, Format] = {
  "jsonl": Format(
    "one JSON object per step (see `crbc list fields`)",
    canonical.read,
    canonical.recognises,
  ),
  "parquet": Format(
    "the same fields as columns", parquet.read, parquet.recognises
  ),
}
"""By name; tried in this order on a file whose format is not named."""


def find_format(path: str, name: str = "auto") -> str:
  """The name of a file's format.

  Raises:
    ValueError: unknown name.
    LogError: the file cannot be opened, or no format recognises it.
  """
  if name != "auto":
    if name not in FORMATS:
      raise ValueError(
        f"unknown format {name!r}{suggestion(name, FORMATS)}; known: auto,"
        f" {', '.join(FORMATS)}"
      )
    return name
  if path == STDIN:
    return "jsonl"
  source = Source(path)
  head = source.head()
  for known, form in FORMATS.items():
    if form.recognises(head):
      return known
  raise source.fail(
    f"is in no format that is recognised; name one with --format:"
    f" {', '.join(FORMATS)}"
  )


def read_log(paths: Iterable[str], name: str = "auto") -> Iterator[Item]:
  """Rows of all files, one after another, and what could not be read.

  An error about a file as a whole comes as a `Rejected` of no rows.
  """
  for path in paths:
    try:
      yield from FORMATS[find_format(path, name)].read(Source(path))
    except LogError as error:
      yield Rejected(error.place, error.reason, rows=0)
