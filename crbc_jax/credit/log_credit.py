"""Credit of a whole log: its groups a few at a time, results beside the rows.

Results go into the log's scratch database as they come, so an interrupted run
goes on where it was, and the output has the order of the log.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from crbc_jax.credit.hidden_state import HiddenState
from crbc_jax.credit.table_credit import (
  TableCredit,
  chains_states,
  make_table_credit_fn,
  reads_rewards,
  spans_batch,
  table_hidden_state,
)
from crbc_jax.rollouts.keys import ActionKey, StateKey
from crbc_jax.rollouts.log_table import CHUNK_ROWS, LogTable, log_tables
from crbc_jax.rollouts.store import RowStore
from crbc_jax.rollouts.table import RolloutError
from crbc_jax.types import Boundary

NUMBERS = ("v", "q", "step", "trajectory", "advantage")
"""What is kept of each row for each estimator, and `live`."""

_COUNTED = ("groups", "rollouts", "rows", "mixed_groups", "alone")


class LogSummary(NamedTuple):
  """What a log offered to credit, over the rows that were credited."""

  groups: int
  rollouts: int
  rows: int
  mixed_share: float  # of the groups: both successes and others
  singleton_share: float  # of the rows: at an anchor nothing else visits
  live_share: dict[str, float]  # of the rows, for each estimator
  hidden_state_p: float  # p-value of `hidden_state`
  warning: str | None  # that the state key hides state, where it matters


def credit_log(
  store: RowStore,
  estimators: Sequence[str],
  state_key: StateKey,
  action_key: ActionKey,
  *,
  allow_single: bool = False,
) -> Iterator[int]:
  """Credits the groups that are not credited yet; yields how many are done.

  Args:
    store: a log whose rows are all there.
    estimators: names, also with options.
    state_key, action_key: see `keys`.
    allow_single: keep groups of a single rollout.

  Raises:
    ValueError: unknown estimator or option.
    LogError: a row breaks a rule, and the store does not skip it.
    RolloutError, ClosureError: as `credit_table`.
  """
  check_rewards(store, estimators)
  functions = [make_table_credit_fn(name) for name in estimators]
  whole = any(map(spans_batch, estimators))
  store.database.execute(
    f"CREATE TABLE IF NOT EXISTS credit (n INTEGER PRIMARY KEY"
    f"{''.join(f', {name}' for name in credit_columns(estimators))})"
  )
  counted = store.fact("counted") or dict.fromkeys(_COUNTED, 0)
  evidence = HiddenState.from_json(store.fact("hidden_state"))
  last = store.fact("last_group")
  for chunk in log_tables(
    store,
    state_key,
    action_key,
    allow_single=allow_single,
    chunk_rows=math.inf if whole else CHUNK_ROWS,
    after=() if last is None else (last,),
  ):
    found = [function(chunk.table) for function in functions]
    told = table_hidden_state(chunk.table)
    with store.transaction() as db:
      columns = [column for credit in found for column in _columns(credit)]
      marks = ", ".join("?" * (1 + len(columns)))
      db.executemany(
        f"INSERT INTO credit VALUES ({marks})",
        zip(
          chunk.table.row_id.tolist(),
          *(column.tolist() for column in columns),
          strict=True,
        ),
      )
      counted = _add(counted, _counts(chunk))
      store.note("counted", counted)
      store.note("hidden_state", (evidence := evidence + told).as_json())
      store.note("last_group", chunk.rows[-1].row.group_id)
    yield counted["groups"]


def check_rewards(store: RowStore, estimators: Sequence[str]) -> None:
  """Raises RolloutError if an estimator reads rewards that nobody logged."""
  for name in filter(reads_rewards, estimators):
    if not store.has_row("reward NOTNULL AND weight > 0"):
      raise RolloutError(
        f"estimator {name!r} reads the rewards of the steps, and the log has"
        " none: log a reward with every step, or choose one that reads outcomes"
      )


def credit_columns(estimators: Sequence[str]) -> list[str]:
  """Columns of the table `credit`, estimator by estimator."""
  return [
    f"{name}{i}" for i in range(len(estimators)) for name in (*NUMBERS, "live")
  ]


def summary(store: RowStore, estimators: Sequence[str]) -> LogSummary:
  """What the credited rows were, and how many of them got step credit."""
  counted = store.fact("counted") or dict.fromkeys(_COUNTED, 0)
  rows, groups = max(counted["rows"], 1), max(counted["groups"], 1)
  sums = ", ".join(f"sum(live{i})" for i in range(len(estimators)))
  live = store.database.execute(f"SELECT {sums} FROM credit").fetchone()
  evidence = HiddenState.from_json(store.fact("hidden_state"))
  misled = any(map(chains_states, estimators))
  return LogSummary(
    counted["groups"],
    counted["rollouts"],
    counted["rows"],
    mixed_share=counted["mixed_groups"] / groups,
    singleton_share=counted["alone"] / rows,
    live_share={
      name: (number or 0) / rows
      for name, number in zip(estimators, live, strict=True)
    },
    hidden_state_p=evidence.p_value,
    warning=evidence.warning() if misled else None,
  )


def _columns(credit: TableCredit) -> Iterable[np.ndarray]:
  return (getattr(credit, name) for name in (*NUMBERS, "live"))


def _counts(chunk: LogTable) -> dict[str, int]:
  table = chunk.table
  ends = table.boundary != Boundary.NONE
  won = table.boundary[ends] == Boundary.SUCCESS
  group = np.unique(table.group_codes[ends], return_inverse=True)[1]
  wins, rollouts = np.bincount(group, won), np.bincount(group)
  visits: dict = {}
  anchors = list(
    zip(table.group_codes.tolist(), table.state_key.tolist(), strict=True)
  )
  for anchor in anchors:
    visits[anchor] = visits.get(anchor, 0) + 1
  return {
    "groups": len(rollouts),
    "rollouts": int(rollouts.sum()),
    "rows": len(table),
    "mixed_groups": int(((wins > 0) & (wins < rollouts)).sum()),
    # A missing state is an anchor of its own.
    "alone": sum(
      visits[anchor] == 1 or anchor[1] is None for anchor in anchors
    ),
  }


def _add(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
  return {name: a[name] + b[name] for name in a}
