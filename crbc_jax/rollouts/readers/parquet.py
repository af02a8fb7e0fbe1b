"""The canonical log as Parquet: the same fields (`canonical`) as columns."""

from collections.abc import Iterator

from crbc_jax.rollouts.log import Item
from crbc_jax.rollouts.readers import canonical
from crbc_jax.rollouts.readers.source import Source


def read(source: Source) -> Iterator[Item]:
  """Rows of a Parquet file; see `canonical` for its columns.

  Raises:
    LogError: no Parquet file, or pyarrow is not installed.
  """
  for place, fields in source.parquet_rows(canonical.FIELDS):
    yield canonical.row_of(fields, place)


def recognises(head: str) -> bool:
  """Whether the file begins as Parquet files do."""
  return head.startswith("PAR1")
