"""What commands that read a log share: its arguments, and reading it."""

import argparse
import json
import os
import pathlib
from typing import NamedTuple

import jax
import rich.console
from rich import progress as rich_progress

from crbc_jax.checks import usage_errors
from crbc_jax.report.credit_files import write_rejected
from crbc_jax.rollouts import keys, readers
from crbc_jax.rollouts.keys import ActionKey, StateKey
from crbc_jax.rollouts.readers.source import STDIN
from crbc_jax.rollouts.store import RowStore


class LogKeys(NamedTuple):
  """Names of the keys, and what they stand for."""

  state_name: str
  action_name: str
  state: StateKey
  action: ActionKey


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
  """Arguments that say what is read, and how."""
  parser.add_argument(
    "logs",
    nargs="+",
    metavar="LOG",
    help="files, also .gz or .zst; - is standard input",
  )
  parser.add_argument(
    "--format",
    default="auto",
    help="of the files (default: recognised; `crbc list formats`), or"
    " my_module:MY_FORMAT",
  )
  parser.add_argument(
    "--state-key",
    metavar="KEY",
    help="what makes two states the same (default: the format's; `crbc list"
    " keys`; yours as module:function)",
  )
  parser.add_argument(
    "--action-key", metavar="KEY", help="what makes two actions the same"
  )
  parser.add_argument(
    "--skip-bad",
    action="store_true",
    help="go on at bad rows, and write each with its reason to a side file",
  )
  parser.add_argument(
    "--allow-single",
    action="store_true",
    help="keep groups of a single rollout",
  )


def find_keys(args: argparse.Namespace) -> LogKeys:
  """The keys that were named, or those of the format.

  Raises:
    UsageError: unknown key or format.
  """
  with usage_errors():
    state, action = readers.default_keys(args.logs, args.format)
    state, action = args.state_key or state, args.action_key or action
    functions = keys.state_key(state), keys.action_key(action)
  return LogKeys(state, action, *functions)


def remember_compilations() -> None:
  """Keeps compiled programs on disk: the second command starts in a second.

  Under $CRBC_CACHE, else $XDG_CACHE_HOME/crbc_jax or ~/.cache/crbc_jax;
  CRBC_CACHE=off keeps nothing. What JAX was told already stays as it is.
  """
  folder = os.environ.get("CRBC_CACHE")
  # An attribute that JAX's types do not declare.
  told = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
  if folder == "off" or told:
    return
  if not folder:
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = str(pathlib.Path(home) / "crbc_jax")
  try:
    os.makedirs(folder, exist_ok=True)
  except OSError:  # no place to keep them
    return
  jax.config.update("jax_compilation_cache_dir", folder)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def fingerprint(args: argparse.Namespace) -> str:
  """What the contents of a store depend on."""
  files = []
  for path in args.logs:
    try:
      status = os.stat(path)
    except OSError:  # standard input, or reading it will say what is wrong
      files.append((path, 0, 0))
    else:
      files.append((os.path.abspath(path), status.st_size, status.st_mtime_ns))
  return json.dumps([files, args.format, args.skip_bad, args.allow_single])


def read_into(
  store: RowStore, args: argparse.Namespace, console: rich.console.Console
) -> None:
  """Reads the logs into a store, with a progress bar on a terminal.

  Raises:
    LogError: the first bad row, unless they are skipped.
  """
  reader = readers.LogReader(args.logs, args.format)
  with progress_bar(console, "reading", reader.size, unit="bytes") as bar:
    for _ in store.add(reader):
      bar.update(bar.task_ids[0], completed=reader.done)
  store.check()


def progress_bar(
  console: rich.console.Console, what: str, total: int, *, unit: str
) -> rich_progress.Progress:
  """A bar with the time that is left; nothing where there is no terminal."""
  amount = (
    rich_progress.DownloadColumn()
    if unit == "bytes"
    else rich_progress.TextColumn(
      "{task.completed:,.0f}/{task.total:,.0f} " + unit
    )
  )
  bar = rich_progress.Progress(
    rich_progress.TextColumn("{task.description}"),
    rich_progress.BarColumn(),
    amount,
    rich_progress.TimeElapsedColumn(),
    rich_progress.TextColumn("ETA"),
    rich_progress.TimeRemainingColumn(),
    console=console,
    disable=not console.is_terminal,
  )
  bar.add_task(what, total=total or None)
  return bar


def side_file(args: argparse.Namespace) -> str:
  """Where skipped rows go: beside the output, else beside the first log."""
  beside = getattr(args, "out", None)
  if not beside or beside == STDIN:
    beside = args.logs[0] if args.logs[0] != STDIN else "stdin"
  return f"{beside}.rejected.jsonl"


def tell_rejected(
  store: RowStore, args: argparse.Namespace, console: rich.console.Console
) -> str | None:
  """Writes the rows that were skipped to the side file; returns its path."""
  number = sum(1 for _ in store.rejected())
  if not number:
    return None
  path = side_file(args)
  write_rejected(store, path)
  console.print(
    f"skipped {store.counts().rejected:,} rows, see {path}", soft_wrap=True
  )
  return path
