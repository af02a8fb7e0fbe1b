"""Which rows share their recent past: cluster ids, linear in the rows."""

import numbers
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import is_number
from crbc_jax.types import GroupArrays


def dense_ids(keys: Sequence[chex.Array], mask: chex.Array) -> chex.Array:
  """Numbers the distinct tuples of `keys`: equal tuples, equal numbers.

  Args:
    keys: one or more [R] int32; row i holds the tuple (keys[0][i], ...).
    mask: [R] False on rows that count for nothing.

  Returns:
    [R] int32 in [0, R), in the order of the tuples; 0 where masked.
  """
  chex.assert_equal_shape([*keys, mask])
  keys = [jnp.where(mask, key, 0) for key in keys]
  order = jnp.lexsort((*reversed(keys), ~mask))  # masked rows come last
  changes = jnp.zeros_like(mask)
  for key in keys:
    sorted_key = key[order]
    changes |= jnp.append(False, sorted_key[1:] != sorted_key[:-1])
  rank = jnp.cumsum(changes, dtype=jnp.int32)
  return jnp.where(mask, jnp.zeros_like(rank).at[order].set(rank), 0)


def previous_row(
  group: GroupArrays, values: chex.Array, *, first: int
) -> chex.Array:
  """`values` [R] of the row before in the trajectory; `first` on its start."""
  return jnp.where(group.step == 0, first, jnp.roll(values, 1))


def history_ids(
  group: GroupArrays, keys: Sequence[chex.Array], *, length: int
) -> chex.Array:
  """Clusters of rows whose last k rows hold the same keys, k = 1..length.

    id_1(t) = number of keys(t)
    id_k(t) = number of (id_{k-1}(t-1), keys(t)),  a marker before the start

  Row t of a trajectory has t + 1 rows to look back on. Where that is less
  than k it shares a cluster only with rows that have equally few, which the
  marker keeps apart from longer pasts with the same ending. Each level costs
  one sort of the rows.

  Args:
    group: one unbatched group.
    keys: one or more [R] int32.
    length: static, >= 1.

  Returns:
    [length, R] int32 in [0, R), level k - 1 for the last k rows; each level
    splits the clusters of the level before. 0 on padding.
  """
  key = dense_ids(keys, group.mask)

  def longer(ids, _):
    before = previous_row(group, ids, first=-1)
    ids = dense_ids((before, key), group.mask)
    return ids, ids

  _, rest = jax.lax.scan(longer, key, length=length - 1)
  return jnp.concatenate([key[None], rest])


def check_history(history: Any, *, least: int) -> None:
  """Raises ValueError unless `history` is a static integer >= `least`."""
  is_integer = is_number(history) and isinstance(history, numbers.Integral)
  if not is_integer or history < least:
    raise ValueError(f"history must be an integer >= {least}, got {history!r}")
