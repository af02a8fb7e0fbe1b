"""Rows of a log -> tables that can be credited, a few groups at a time."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from crbc_jax.rollouts.keys import ActionKey, Key, StateKey
from crbc_jax.rollouts.log import LogError, Row
from crbc_jax.rollouts.store import Numbered, RowStore, text_size
from crbc_jax.rollouts.table import (
  INVALID_ACTION,
  RolloutError,
  StepTable,
  object_column,
)
from crbc_jax.rollouts.validation import validate

CHUNK_ROWS = 32_768
"""Rows that are credited together, if no group has more; a row with long texts
counts as several."""

_ROW_TEXT = 4_096  # characters that count as a row


class LogTable(NamedTuple):
  """Some groups of a log, ready to be credited."""

  table: StepTable  # its row_id is the number of the row in the log
  rows: list[Numbered]  # in the order of the table


def log_tables(
  store: RowStore,
  state_key: StateKey,
  action_key: ActionKey,
  *,
  allow_single: bool = False,
  chunk_rows: float = CHUNK_ROWS,
  after: Sequence = (),
  only: Sequence = (),
) -> Iterator[LogTable]:
  """All groups of a log, validated; what breaks a rule is rejected.

  Args:
    store: the log.
    state_key, action_key: see `keys`.
    allow_single: keep groups of a single rollout.
    chunk_rows: rows of a table, if none of its groups has more.
    after, only: see `RowStore.groups`.

  Raises:
    LogError: the first row that breaks a rule, unless the store skips them.
  """
  groups = store.groups(after=after, only=only)
  for rows in _chunks(groups, chunk_rows):
    while rows:
      try:
        table = make_table(rows, state_key, action_key)
        validate(table)
        if not allow_single:
          _refuse_single(rows)
      except RolloutError as error:
        rows = _without(store, rows, error)
      else:
        yield LogTable(table, rows)
        break


def make_table(
  rows: Sequence[Numbered], state_key: StateKey, action_key: ActionKey
) -> StepTable:
  """A table of rows that are sorted by group, trajectory and step.

  Raises:
    RolloutError: a logged successor is not the state that followed, or a key
      function fails.
  """
  states: list[Key] = []
  following: list[Key] = []
  actions: list[Key] = []
  for trajectory in _trajectories(rows):
    before = _keys(state_key, trajectory)
    states += before[:-1]
    following += before[1:]
    actions += _keys(action_key, trajectory)
  _check_successors(rows)
  column = dict(
    zip(Row._fields, zip(*(r for _, r in rows), strict=True), strict=True)
  )
  given: dict[str, Any] = {
    name: column[name]
    for name in ("token_start", "token_end", "value")
    if column[name][0] is not None
  }
  won = column["outcome"]
  if any(x is not None for x in won):
    given["outcome"] = _filled_outcomes(rows)
  return StepTable.from_columns(
    group_id=column["group_id"],
    traj_id=column["traj_id"],
    step_idx=np.array(column["step_idx"], np.int64),
    state_key=object_column(states),
    action_key=object_column(
      [INVALID_ACTION if key is None else key for key in actions]
    ),
    next_state_key=object_column(following),
    boundary=np.array(column["boundary"], np.int8),
    reward=np.array([x or 0.0 for x in column["reward"]]),
    valid=np.array(
      [
        row.valid and key not in (None, INVALID_ACTION)
        for (_, row), key in zip(rows, actions, strict=True)
      ]
    ),
    row_id=np.array([n for n, _ in rows]),
    **given,
  )


def _trajectories(rows: Iterable[Numbered]) -> Iterator[list[Numbered]]:
  for _, trajectory in itertools.groupby(
    rows, key=lambda x: (x.row.group_id, x.row.traj_id)
  ):
    yield list(trajectory)


def _keys(
  function: StateKey | ActionKey, trajectory: list[Numbered]
) -> Sequence[Key]:
  """The keys of a trajectory; an error names all of its rows."""
  try:
    return function([row for _, row in trajectory])
  except LogError as error:
    raise RolloutError(error.reason, [n for n, _ in trajectory]) from error


def _check_successors(rows: Sequence[Numbered]) -> None:
  """A logged successor is the state of the next row, where there is one."""
  bad = [
    n
    for (n, row), (_, following) in itertools.pairwise(rows)
    if row.next_state is not None
    and row.traj_id == following.traj_id
    and row.next_state != following.state
  ]
  if bad:
    raise RolloutError(
      "the next_state_key is not the state of the next step: write the same"
      " text in both, or leave next_state_key empty",
      bad,
    )


def _filled_outcomes(rows: Sequence[Numbered]) -> np.ndarray:
  """Logged outcomes; where there is none, what the boundary says."""
  won = {row.traj_id for _, row in rows if row.boundary == 1}
  return np.array(
    [
      row.traj_id in won if row.outcome is None else row.outcome
      for _, row in rows
    ]
  )


def _refuse_single(rows: Sequence[Numbered]) -> None:
  rollouts: dict = {}
  for _, row in rows:
    rollouts.setdefault(row.group_id, set()).add(row.traj_id)
  single = {group for group, found in rollouts.items() if len(found) == 1}
  if single:
    bad = [n for n, row in rows if row.group_id in single]
    raise RolloutError(
      "the group holds a single rollout, which has nothing to be compared"
      " with: log more rollouts a task (is group_id unique to each rollout by"
      " mistake?), or allow it with --allow-single",
      bad,
    )


def _without(
  store: RowStore, rows: list[Numbered], error: RolloutError
) -> list[Numbered]:
  """Rejects the trajectories that an error is about; the others are left.

  Raises:
    LogError: unless the store skips bad rows.
  """
  if not len(error.row_ids):
    raise error
  bad = set(error.row_ids)
  broken = {row.traj_id for n, row in rows if n in bad}
  with store.transaction():
    for trajectory in _trajectories(rows):
      if trajectory[0].row.traj_id in broken:
        at = next((row for n, row in trajectory if n in bad), None)
        store.reject(trajectory, at or trajectory[0].row, error.reason)
  return [x for x in rows if x.row.traj_id not in broken]


def _chunks(
  groups: Iterable[list[Numbered]], size: float
) -> Iterator[list[Numbered]]:
  chunk: list[Numbered] = []
  filled = 0
  for group in groups:
    text = sum(text_size(row) for _, row in group)
    more = len(group) + text // _ROW_TEXT
    if chunk and filled + more > size:
      yield chunk
      chunk, filled = [], 0
    chunk += group
    filled += more
  if chunk:
    yield chunk
