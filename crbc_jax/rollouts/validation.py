"""What a table must satisfy before credit may trust it."""

import numpy as np

from crbc_jax.rollouts.table import (
  RolloutError,
  StepTable,
)
from crbc_jax.types import Boundary


def validate(table: StepTable) -> None:
  """Refuses a table that credit would misread.

  Checked on rows of positive weight: unique row ids; every trajectory in one
  group, with consecutive steps, exactly one boundary, on its last step; an
  outcome that agrees with the boundary; successors that agree with the next
  row; finite rewards and values; weights 0 or 1; token spans not empty and one
  after the other.

  Raises:
    RolloutError: names the group, trajectory and step of the first offence of
      the first rule broken, how many rows break it, and what to do.
  """
  if not len(table):
    raise RolloutError("the table is empty; a table needs at least one step")
  refuse_rows(
    table,
    ~np.isin(table.weight, (0.0, 1.0)),
    "has a weight other than 0 or 1",
    "use 1, or 0 for copies and padding",
  )
  if not len(table.order):
    raise RolloutError("every row has weight 0; there is nothing to credit")
  t = table.in_order
  repeated = np.zeros(len(t), bool)
  if (table.row_id[1:] <= table.row_id[:-1]).any():
    first = np.unique(t.row_id, return_index=True)[1]
    repeated[:] = True
    repeated[first] = False
  refuse_rows(t, repeated, "repeats a row_id", "give every row its own row_id")
  refuse_rows(
    t,
    ~np.isfinite(t.reward),
    "has a reward that is not a finite number",
    "write the reward of every step, 0 where there is none",
  )
  if t.value is not None:
    refuse_rows(
      t,
      ~np.isfinite(t.value),
      "has a value that is not a finite number",
      "write the critic's value of every step, or leave the column out",
    )
  traj, group = t.traj_codes, t.group_codes
  _check_one_group(t, traj, group)
  same = np.zeros(len(t), bool)  # row continues the trajectory of the last row
  same[1:] = traj[1:] == traj[:-1]
  gap = np.zeros(len(t), np.int64)
  gap[1:] = t.step_idx[1:] - t.step_idx[:-1]
  refuse_rows(
    t,
    same & (gap == 0),
    "repeats a step",
    "number the steps of a trajectory without repeats, and give copied "
    "rows weight 0",
  )
  refuse_rows(
    t,
    same & (gap != 1),  # also where the difference overflows
    "follows a missing step",
    "log every step of the trajectory, or drop the whole trajectory",
  )
  ended = t.boundary != Boundary.NONE
  after = same.copy()
  after[1:] &= ended[:-1]
  refuse_rows(
    t,
    after,
    "comes after the end of its trajectory",
    "end a trajectory at its first boundary",
  )
  last = np.append(~same[1:], True)
  refuse_rows(
    t,
    last & ~ended,
    "is the last step but has no boundary",
    "mark it success, failure or truncated",
  )
  success = t.boundary == Boundary.SUCCESS
  refuse_rows(
    t,
    last & (success != t.outcome),
    "has an outcome that contradicts its boundary",
    "outcome is True exactly for trajectories that end in success",
  )
  changed = np.zeros(len(t), bool)
  changed[1:] = same[1:] & (t.outcome[1:] != t.outcome[:-1])
  refuse_rows(
    t,
    changed,
    "has another outcome than the step before",
    "the outcome belongs to the trajectory: repeat it on every row",
  )
  _check_successors(t, last)
  if t.token_start is not None and t.token_end is not None:
    refuse_rows(
      t,
      t.token_end <= t.token_start,
      "has an empty token span",
      "token_end is one past the last token of the step",
    )
    overlaps = same.copy()
    overlaps[1:] &= t.token_start[1:] < t.token_end[:-1]
    refuse_rows(
      t,
      overlaps,
      "has a token span that begins before that of the step before ends",
      "count tokens from the start of the trajectory, each in one step",
    )


def refuse_rows(
  table: StepTable, bad: np.ndarray, what: str, remedy: str
) -> None:
  """Raises RolloutError about the first row of `bad` [S], if there is one.

  The message names its group, trajectory and step, says `what` is wrong with
  it, how many more rows are like that, and the `remedy`.
  """
  if not bad.any():
    return
  i = int(np.argmax(bad))
  more = int(bad.sum()) - 1
  also = f" (and {more} more row{'s' if more > 1 else ''})" if more else ""
  # tolist: as written in the log, not np.int64(3)
  group, traj = (
    c[i : i + 1].tolist()[0] for c in (table.group_id, table.traj_id)
  )
  step = f"group {group!r}, trajectory {traj!r}, step {table.step_idx[i]}"
  raise RolloutError(
    f"{step} (row_id {table.row_id[i]}) {what}{also}: {remedy}",
    table.row_id[bad].tolist(),
    f"{step} {what}: {remedy}",
  )


def _check_one_group(t: StepTable, traj: np.ndarray, group: np.ndarray) -> None:
  home = np.full(traj.max() + 1, -1)
  home[traj[::-1]] = group[::-1]  # the first row of a trajectory decides
  refuse_rows(
    t,
    group != home[traj],
    "belongs to a trajectory of another group",
    "make trajectory ids unique over the whole table",
  )


def _check_successors(t: StepTable, last: np.ndarray) -> None:
  recorded, following = t.next_state_key[:-1], t.state_key[1:]
  differs = np.asarray(recorded != following, bool)
  if recorded.dtype == object:
    at = np.flatnonzero(differs)
    differs[at] = [key is not None for key in recorded[at]]
  bad = np.append(differs & ~last[:-1], False)
  refuse_rows(
    t,
    bad,
    "has a next_state_key that is not the state of its next step",
    "use one key function for both, or leave next_state_key empty",
  )
