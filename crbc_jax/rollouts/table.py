"""StepTable: what happened, one row per environment step, in columns.

The table is the only way rollouts enter the package. It is plain NumPy on the
host; `validation.validate` refuses what credit could silently misread and names
the group, the trajectory, the step and the remedy.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crbc_jax.types import Boundary

KEY_COLUMNS = (
  "group_id",
  "traj_id",
  "state_key",
  "action_key",
  "next_state_key",
)
REQUIRED = (
  "group_id",
  "traj_id",
  "step_idx",
  "state_key",
  "action_key",
  "boundary",
)

INVALID_ACTION = "<invalid>"
"""The one action key of every output that could not be parsed."""


class RolloutError(ValueError):
  """Rollout data that cannot be credited; the message says where and why.

  `row_ids` are those of the rows that break a rule, where rows do, and
  `reason` is the message for who says otherwise which row it is about.
  """

  def __init__(
    self, message: str, row_ids: Sequence[int] = (), reason: str | None = None
  ):
    super().__init__(message)
    self.row_ids = row_ids
    self.reason = reason or message


@dataclasses.dataclass(frozen=True, eq=False)
class StepTable:
  """Columns of equal length S, one row per environment step.

  Identity is explicit: `(group_id, state_key)` is the anchor, so a key never
  merges across groups. A missing state (`None`) is an anchor of its own. Rows
  with `weight = 0` are copies or padding: they count in nothing and get credit
  zero. Rows may come in any order; `step_idx` orders a trajectory.
  """

  group_id: np.ndarray  # [S] int or object, the task the rollout belongs to
  traj_id: np.ndarray  # [S] int or object, unique over the whole table
  step_idx: np.ndarray  # [S] int64, consecutive inside a trajectory
  state_key: np.ndarray  # [S] int or object (hashable), None = missing
  action_key: np.ndarray  # [S] int or object (hashable)
  next_state_key: np.ndarray  # [S] like state_key, None = not recorded
  reward: np.ndarray  # [S] float64, observed reward of the step
  boundary: np.ndarray  # [S] int8, a `Boundary`
  outcome: np.ndarray  # [S] bool, the trajectory succeeded (same on its rows)
  valid: np.ndarray  # [S] bool, the action was parsed and executed
  weight: np.ndarray  # [S] float64, 1, or 0 for copies and padding
  row_id: np.ndarray  # [S] int64, unique
  token_start: np.ndarray | None = None  # [S] int64, first token of the step
  token_end: np.ndarray | None = None  # [S] int64, one past its last token
  # [S] float64, a critic's value of the state before the step
  value: np.ndarray | None = None

  def __len__(self) -> int:
    return len(self.step_idx)

  @classmethod
  def from_columns(cls, **columns: Any) -> "StepTable":
    """Builds a table from columns; see the class for names and meanings.

    Required: group_id, traj_id, step_idx, state_key, action_key, boundary.
    Defaults: reward 0, outcome from the boundary, valid True, weight 1,
    row_id = position, next_state_key = the state of the following step.

    Raises:
      RolloutError: a required column is missing, a name is unknown, lengths
        differ, or a column has the wrong type.
    """
    names = [f.name for f in dataclasses.fields(cls)]
    unknown = sorted(set(columns) - set(names))
    if unknown:
      raise RolloutError(f"unknown column(s) {unknown}; known: {names}")
    missing = [n for n in REQUIRED if columns.get(n) is None]
    if missing:
      hint = (
        " (a log without an order cannot be credited: number the steps of"
        " each trajectory)"
        if "step_idx" in missing
        else ""
      )
      raise RolloutError(f"missing column(s) {missing}{hint}")
    arrays = {n: _as_column(n, c) for n, c in columns.items() if c is not None}
    size = len(arrays["step_idx"])
    for name, column in arrays.items():
      if len(column) != size:
        raise RolloutError(
          f"column {name!r} has {len(column)} rows, step_idx "
          f"has {size}; every column needs one value per step"
        )
    arrays.setdefault("reward", np.zeros(size))
    arrays.setdefault("valid", np.ones(size, bool))
    arrays.setdefault("weight", np.ones(size))
    arrays.setdefault("row_id", np.arange(size))
    traj = factorize(arrays["traj_id"])
    if "outcome" not in arrays:
      arrays["outcome"] = _outcome_from_boundary(arrays, traj)
    if "next_state_key" not in arrays:
      arrays["next_state_key"] = _next_from_following(arrays, traj)
    table = cls(**arrays)
    table.__dict__["traj_codes"] = traj  # the cached property
    return table

  @classmethod
  def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "StepTable":
    """Builds a table from one mapping per step (same names and defaults)."""
    rows = list(rows)
    if not rows:
      raise RolloutError("no rows; a table needs at least one step")
    names = list(rows[0])
    for i, row in enumerate(rows):
      if set(row) != set(names):
        raise RolloutError(
          f"row {i} has fields {sorted(row)}, row 0 has {sorted(names)}; give"
          " every row the same fields"
        )
    return cls.from_columns(**{n: [row[n] for row in rows] for n in names})

  @functools.cached_property
  def group_codes(self) -> np.ndarray:
    """Groups numbered in the order of their ids; [S] int64."""
    return factorize(self.group_id)

  @functools.cached_property
  def traj_codes(self) -> np.ndarray:
    """Trajectories numbered in the order of their ids; [S] int64."""
    return factorize(self.traj_id)

  @functools.cached_property
  def order(self) -> np.ndarray:
    """Rows of positive weight by (group, trajectory, step)."""
    return canonical_order(self)

  @property
  def in_order(self) -> "StepTable":
    """The rows of positive weight, by (group, trajectory, step)."""
    # Not kept in the table itself: a cycle would outlive its last user.
    is_sorted = np.array_equal(self.order, np.arange(len(self)))
    return self if is_sorted else self._in_order

  @functools.cached_property
  def _in_order(self) -> "StepTable":
    table = self.take(self.order)
    table.__dict__["order"] = np.arange(len(table))
    for name in ("group_codes", "traj_codes"):  # known, up to gaps
      table.__dict__[name] = getattr(self, name)[self.order]
    return table

  def take(self, rows: np.ndarray) -> "StepTable":
    """The table restricted to `rows` (an index or boolean array)."""
    columns = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    return dataclasses.replace(
      self,
      **{
        name: column[rows]
        for name, column in columns.items()
        if column is not None
      },
    )


def object_column(values: Sequence[Any]) -> np.ndarray:
  """A 1-D object array whose elements may themselves be tuples."""
  if not isinstance(values, list | tuple):
    values = list(values)
  return np.fromiter(values, object, len(values))


def factorize(column: np.ndarray) -> np.ndarray:
  """Integer code per value, ordered by value: the same whatever the row order.

  Values of one object column are ordered by type name, then by value, then
  (where values do not compare) by `repr`.
  """
  if column.dtype != object:
    return _integer_codes(column)
  if not len(column):
    return np.zeros(0, np.int64)
  # Ids mostly come in runs: only the first of a run is looked up.
  starts = np.append(True, np.asarray(column[1:] != column[:-1], bool))
  codes, distinct = first_codes(column[starts].tolist())
  try:
    keys = [(type(x).__name__, x) for x in distinct]
    order = sorted(range(len(keys)), key=keys.__getitem__)
  except TypeError:
    names = [(type(x).__name__, repr(x)) for x in distinct]
    order = sorted(range(len(names)), key=names.__getitem__)
  rank = np.empty(len(order), np.int64)
  rank[order] = np.arange(len(order))
  return rank[codes][np.cumsum(starts) - 1]


def first_codes(column: Iterable[Any]) -> tuple[np.ndarray, list[Any]]:
  """Numbers hashable values by first appearance; also the distinct values."""
  number: dict = collections.defaultdict(itertools.count().__next__)
  codes = np.fromiter(map(number.__getitem__, column), np.int64)
  return codes, list(number)


def is_dense(span: int, size: int) -> bool:
  """Whether a table of `span` entries beats sorting `size` integers."""
  return span <= 16 * size + 65_536


def _integer_codes(column: np.ndarray) -> np.ndarray:
  if not len(column):
    return column.astype(np.int64)
  low, high = int(column.min()), int(column.max())
  if not is_dense(high - low, len(column)):
    return np.unique(column, return_inverse=True)[1].reshape(-1)
  offset = column - low
  present = np.zeros(high - low + 1, bool)
  present[offset] = True
  return (np.cumsum(present) - 1)[offset]


def canonical_order(table: StepTable) -> np.ndarray:
  """Index of the rows of positive weight, by (group, trajectory, step)."""
  counted = np.flatnonzero(table.weight > 0)
  keys = (table.group_codes, table.traj_codes, table.step_idx)
  return counted[sorted_by(*(key[counted] for key in keys))]


def sorted_by(*keys: np.ndarray) -> np.ndarray:
  """Index that sorts rows by the first key, then the second, and so on."""
  size, in_order = len(keys[0]), follows(*keys)
  if in_order.all():
    return np.arange(size)  # as collected: nothing to sort
  # Rows that are in order already move as one: sort the runs if they are few.
  starts = np.flatnonzero(np.append(True, ~in_order))
  ends = np.append(starts[1:], size)
  order = np.lexsort([key[starts] for key in keys[::-1]])
  length = (ends - starts)[order]
  offset = np.cumsum(length) - length
  index = np.arange(size) + np.repeat(starts[order] - offset, length)
  if follows(*(key[index] for key in keys)).all():
    return index
  return np.lexsort(keys[::-1])


def follows(*keys: np.ndarray) -> np.ndarray:
  """Whether each row but the first sorts after the row before, or with it."""
  result = np.ones(max(len(keys[0]) - 1, 0), bool)
  for key in reversed(keys):
    later, same = key[1:] > key[:-1], key[1:] == key[:-1]
    result = later | (same & result)
  return result


_SCALARS = {str, bytes, int, float, bool, type(None)}
"""Key types that are hashable."""


def _as_column(name: str, values: Any) -> np.ndarray:
  if name in KEY_COLUMNS:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
      return values.reshape(-1)
    column = object_column(values)
    if set(map(type, values)) <= _SCALARS:
      return column
    for i, key in enumerate(column):
      try:
        hash(key)
      except TypeError:
        raise RolloutError(
          f"row {i} of column {name!r} holds a {type(key).__name__}, which "
          "cannot be compared as a key: use numbers, strings or tuples of "
          "them"
        ) from None
    return column
  dtype = {
    "step_idx": np.int64,
    "row_id": np.int64,
    "boundary": np.int8,
    "token_start": np.int64,
    "token_end": np.int64,
    "outcome": bool,
    "valid": bool,
  }.get(name, np.float64)
  if name == "boundary":
    values = _boundaries(values)
  column = np.asarray(values)
  if dtype == np.int64 and column.dtype.kind not in "iu":
    raise RolloutError(
      f"column {name!r} must hold integers, one for each step;"
      f" got {column.dtype} (is a value missing?)"
    )
  if dtype is bool and column.dtype != bool:
    raise RolloutError(
      f"column {name!r} must hold True or False, got "
      f"{column.dtype}; it is never inferred from a number"
    )
  if dtype == np.float64 and column.dtype.kind not in "iufb":
    raise RolloutError(
      f"column {name!r} must hold numbers, got {column.dtype} "
      "(is a value missing?)"
    )
  if name == "boundary" and not np.isin(column, list(Boundary)).all():
    unknown = sorted(set(column.tolist()) - {*Boundary}, key=repr)
    raise RolloutError(f"column 'boundary' has values outside 0..3: {unknown}")
  return column.astype(dtype).reshape(-1)


def _boundaries(values: Any) -> Any:
  """Boundaries by name or by number, as numbers."""
  if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
    return values
  values = list(values)
  known = {
    name.lower(): int(kind) for name, kind in Boundary.__members__.items()
  }
  words = set(values)
  if not any(isinstance(word, str) for word in words):
    return values
  for word in words - set(known):
    if isinstance(word, str):
      if word.lower() not in known:
        raise RolloutError(
          f"boundary {word!r} is none of none, success, failure, truncated"
        )
      known[word] = known[word.lower()]
    else:
      known[word] = word
  return [known[word] for word in values]


def _outcome_from_boundary(
  arrays: Mapping[str, np.ndarray], traj: np.ndarray
) -> np.ndarray:
  won = np.zeros(traj.max(initial=-1) + 1, bool)
  won[
    traj[(arrays["boundary"] == Boundary.SUCCESS) & (arrays["weight"] > 0)]
  ] = True
  return won[traj]


def _next_from_following(
  arrays: Mapping[str, np.ndarray], traj: np.ndarray
) -> np.ndarray:
  """The following step's state; None after the last step of a trajectory.

  Rows of weight 0 follow nothing: a copy is not the step after its original.
  """
  state = arrays["state_key"]
  counted = arrays["weight"] > 0
  following = np.full(len(state), None, object)
  if counted.all() and follows(traj, arrays["step_idx"]).all():
    following[:-1] = state[1:]  # as collected
    following[:-1][traj[1:] != traj[:-1]] = None
    return following
  order = sorted_by(traj, arrays["step_idx"])
  order = order[counted[order]]
  goes_on = traj[order][1:] == traj[order][:-1]
  following[order[:-1][goes_on]] = state[order[1:][goes_on]]
  return following
