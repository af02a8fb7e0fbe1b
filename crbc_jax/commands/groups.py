"""The groups of a log, with the texts its keys stand for."""

import argparse
import pathlib
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import rich.console

from crbc_jax.commands import logs
from crbc_jax.credit import registry
from crbc_jax.credit.log_credit import check_rewards
from crbc_jax.rollouts.log_table import log_tables
from crbc_jax.rollouts.store import RowStore
from crbc_jax.rollouts.table import StepTable


class TextGroup(NamedTuple):
  """One group of a log."""

  table: StepTable
  state_text: list[str | None]  # as logged, a row each
  action_text: list[str | None]


def open_groups(args: argparse.Namespace) -> Iterator[TextGroup]:
  """Reads the logs of `logs.add_log_arguments`; a group at a time.

  If `args.group` is the text of a group's id, only that group.

  Rows that are skipped (`--skip-bad`) are written to LOG.rejected.jsonl.

  Raises:
    LogError: a log that cannot be read, or breaks a rule.
    RolloutError: one of `args.estimators` reads rewards, and the log has none.
    UsageError: unknown format or key.
  """
  console = rich.console.Console(stderr=True, highlight=False)
  named = logs.find_keys(args)
  with tempfile.TemporaryDirectory(prefix="crbc-") as folder:
    path = pathlib.Path(folder) / "log.sqlite"
    with RowStore(path, skip_bad=args.skip_bad) as store:
      logs.read_into(store, args, console)
      check_rewards(store, registry.split_estimators(args.estimators))
      wanted = store.find_group(getattr(args, "group", None))
      try:
        for table, rows in log_tables(
          store,
          named.state,
          named.action,
          allow_single=args.allow_single,
          chunk_rows=1,
          only=() if wanted is None else (wanted,),
        ):
          yield TextGroup(
            table,
            [_text(row.state) for _, row in rows],
            [_text(row.action) for _, row in rows],
          )
      finally:
        logs.tell_rejected(store, args, console)


def _text(value: str | int | None) -> str | None:
  return None if value is None else str(value)
