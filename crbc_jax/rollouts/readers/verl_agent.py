"""verl-agent's DataProto, exported to `.npz`; one row per step.

A DataProto lacks the order of steps and its columns are pickles, which are
never read. Let the rollout loop write `step_idx`, the turn of its own counter,
beside `traj_uid`, and export:

  batch = data.non_tensor_batch
  text = lambda values: np.array([str(value) for value in values])
  np.savez_compressed(
    "batch.npz",
    uid=text(batch["uid"]),
    traj_uid=text(batch["traj_uid"]),
    step_idx=batch["step_idx"].astype(np.int64),
    anchor_obs=text(batch["anchor_obs"]),  # images: np.stack
    text_actions=text(tokenizer.batch_decode(data.batch["responses"])),
    rewards=batch["rewards"].astype(np.float64),
    success=batch["episode_rewards"] >= 10,  # as your environment has it
    is_action_valid=batch["is_action_valid"].astype(bool),
    active_masks=batch["active_masks"].astype(bool),
  )

The last two are optional, and so are `next_obs` (the state after each step) and
`truncated` (True on rows of rollouts that ran out of steps). Group: `uid`.
Trajectory: `traj_uid`. The boundary stands on the last step of a trajectory.

Traps: `adjust_batch("copy")` repeats random rows before the advantage is
computed: the second row with the same `traj_uid` and `step_idx` gets weight 0,
as do inactive rows. The JSON dump of trajectories that some forks write has no
task, and rows out of order: it is rejected, trajectory by trajectory.
"""

import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from crbc_jax.rollouts.log import Item, Rejected, Row
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary

_REQUIRED = {
  "uid": "iU",
  "traj_uid": "iU",
  "step_idx": "i",
  "anchor_obs": "iU",
  "text_actions": "iU",
  "rewards": "f",
  "success": "b",
}
_OPTIONAL = {
  "is_action_valid": "b",
  "active_masks": "b",
  "truncated": "b",
  "next_obs": "iU",
}
"""Columns and the kinds of NumPy types they may have (images: any numbers)."""


def recognises(head: str) -> bool:
  """Whether the start of a file looks like a `.npz` or the JSON dump."""
  return head.startswith("PK\x03\x04") or (
    '"trajectories"' in head and '"episode_reward"' in head
  )


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  if not source.head(4).startswith("PK"):
    yield from _refused_dump(source)
    return
  columns = _load(source)
  step, traj = (columns[name].tolist() for name in ("step_idx", "traj_uid"))
  active = columns.get("active_masks", np.ones(len(step), bool)).tolist()
  rows = [
    dict(zip(columns, values, strict=True))
    for values in zip(*map(_values, columns.values()), strict=True)
  ]
  last: dict[Any, int] = {}
  for name, t, counted in zip(traj, step, active, strict=True):
    if counted:
      last[name] = max(last.get(name, t), t)
  original: dict[tuple, dict] = {}
  for i, row in enumerate(rows):
    identity = (row["traj_uid"], row["step_idx"])
    first = original.setdefault(identity, row) if active[i] else row
    if first != row:
      yield Rejected(
        source.place(i + 1, "row"),
        f"repeats step {row['step_idx']} of trajectory {row['traj_uid']!r} "
        "with other content; give every step its own step_idx",
        {"traj_id": row["traj_uid"], "step_idx": row["step_idx"]},
      )
      continue
    end = Boundary.NONE
    if row["step_idx"] == last.get(row["traj_uid"]):
      cut = row.get("truncated", False)
      end = Boundary.TRUNCATED if cut else Boundary.FAILURE
      end = Boundary.SUCCESS if row["success"] else end
    yield Row(
      place=source.place(i + 1, "row"),
      group_id=row["uid"],
      traj_id=row["traj_uid"],
      step_idx=row["step_idx"],
      state=row["anchor_obs"],
      action=row["text_actions"],
      boundary=end,
      next_state=row.get("next_obs"),
      reward=float(row["rewards"]),
      valid=row.get("is_action_valid", True),
      weight=float(active[i] and first is row),
    )


def _load(source: Source) -> dict[str, np.ndarray]:
  """The columns of a `.npz`, checked.

  Raises:
    LogError: no such file, pickled columns, or columns that are missing, of
      another type or of another length.
  """
  columns: dict[str, np.ndarray] = {}
  with source.open() as file:
    try:
      with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
          if name in _REQUIRED | _OPTIONAL:
            columns[name] = archive[name]
    except zipfile.BadZipFile:
      raise source.fail("is no .npz, or cut off; export it again") from None
    except Exception as error:  # a hostile header raises whatever it likes
      reason = str(error).splitlines()[0] if str(error) else repr(error)
      raise source.fail(
        f"can't be read ({reason}); columns must be plain arrays, text of "
        "fixed width: nothing is ever unpickled"
      ) from None
  for name in _REQUIRED:
    if name not in columns:
      raise source.fail(
        "has no column 'step_idx', and verl-agent reorders rows: without it "
        "the order of steps is lost; let the rollout loop write it"
        if name == "step_idx"
        else f"has no column {name!r}; export it"
      )
  size = columns["uid"].shape[:1]
  for name, column in columns.items():
    kinds = (_REQUIRED | _OPTIONAL)[name]
    image = name in ("anchor_obs", "next_obs") and column.ndim > 1
    fits = column.dtype.kind in ("iufb" if image else kinds)
    if not fits or column.shape[:1] != size or (column.ndim != 1 and not image):
      raise source.fail(
        f"column {name!r} is {column.dtype} {column.shape}; it must have one "
        f"value of kind {'/'.join(kinds)} for each row of 'uid'"
      )
    if column.dtype.kind == "U":
      try:
        "".join(column.tolist()).encode()
      except (ValueError, SystemError):  # NumPy's, beyond the last code point
        raise source.fail(
          f"column {name!r} holds text that is not Unicode; export it again"
        ) from None
  if not np.isfinite(columns["rewards"]).all():
    i = int(np.argmin(np.isfinite(columns["rewards"])))
    raise source.fail(f"row {i + 1} has a reward that is not a finite number")
  return columns


def _values(column: np.ndarray) -> list[Any]:
  """A column as Python values; of images, digests."""
  if column.ndim == 1:
    return column.tolist()
  return [
    xxhash.xxh3_64_hexdigest(np.ascontiguousarray(part).tobytes())
    for part in column
  ]


def _refused_dump(source: Source) -> Iterator[Item]:
  """What is wrong with each trajectory of a JSON dump."""
  found = source.json()
  dump = found.get("trajectories") if isinstance(found, dict) else None
  if not isinstance(dump, list):
    raise source.fail("is neither a .npz nor a dump of verl-agent")
  for i, record in enumerate(dump, 1):
    reason = "has no task id, so its group is unknown"
    steps = record.get("steps") if isinstance(record, dict) else None
    steps = steps if isinstance(steps, list) else []
    for t, step in enumerate(steps[:-1], 1):
      if isinstance(step, dict) and step.get("step_reward"):
        reason += (
          f", and its reward stands on row {t} of {len(steps)}, so its rows "
          "are not in the order they were played"
        )
        break
    yield Rejected(
      source.place(i, "record"),
      f"{reason}; export the batch to .npz as the reader verl_agent says",
      rows=max(len(steps), 1),
    )
