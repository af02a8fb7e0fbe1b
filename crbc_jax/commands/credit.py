"""`crbc credit`: a log of rollouts in, credit of every step out."""

import argparse
import json
import pathlib
import shutil
import tempfile
import time
from typing import Any

import rich.console
from rich import table as rich_table

import crbc_jax
from crbc_jax.checks import UsageError, usage_errors
from crbc_jax.commands import logs
from crbc_jax.credit import registry
from crbc_jax.credit.log_credit import credit_log, summary
from crbc_jax.credit.table_credit import ClosureError
from crbc_jax.report import credit_files, keys_table
from crbc_jax.rollouts.keys_report import compare_keys
from crbc_jax.rollouts.readers.source import STDIN
from crbc_jax.rollouts.store import Numbered, RowStore
from crbc_jax.rollouts.table import RolloutError

EXAMPLES = """\
examples:
  crbc credit rollouts.jsonl --out credit.parquet
  crbc credit logs/*.jsonl.gz --estimators "crbc,crbc(depth=2),gigpo" \\
    --out credit.npz
  crbc credit run.traj --format swe_agent --keys-report
  crbc credit big.jsonl --out credit.jsonl --skip-bad --resume
  zcat rollouts.jsonl.gz | crbc credit - --out - > credit.jsonl

exit status:
  0  every row is credited
  2  nothing was written: bad usage, or a row that cannot be credited
  3  written, but --skip-bad left rows out (they are in the side file)
  130  interrupted; go on with --resume
"""

SKIPPED = 3
"""Exit status when some rows were left out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Arguments of the command."""
  logs.add_log_arguments(parser)
  parser.add_argument(
    "--out",
    help=f"{', '.join(credit_files.SUFFIXES)}, or - for JSON lines on standard"
    " output",
  )
  parser.add_argument(
    "--estimator",
    "--estimators",
    dest="estimators",
    default="crbc",
    help="one, or several separated by commas (default: %(default)s)",
  )
  parser.add_argument(
    "--resume",
    action="store_true",
    help="go on with an interrupted run of the same command",
  )
  parser.add_argument(
    "--keys-report",
    action="store_true",
    help="compare keys on the log instead: what recurs, what is told apart",
  )
  parser.add_argument(
    "--json", action="store_true", help="print the summary as JSON"
  )


def run(args: argparse.Namespace) -> int:
  """Carries the command out; returns the exit status.

  Raises:
    UsageError: unknown format, key, estimator or option, or a bad --out.
    RolloutError: a log that cannot be read, or breaks a rule.
    ClosureError: values that miss their equation.
  """
  console = rich.console.Console(stderr=True, highlight=False)
  if args.keys_report:
    return _report_keys(args, console)
  if not args.out:
    raise UsageError("say where the credit goes: --out credit.parquet, or -")
  with usage_errors():
    credit_files.check_output(args.out)
    estimators = registry.split_estimators(args.estimators)
  named = logs.find_keys(args)
  began = time.perf_counter()
  work = _work_folder(args)
  mark = json.dumps(
    [crbc_jax.__version__, logs.fingerprint(args), *named[:2], *estimators]
  )
  _prepare(work, mark, resume=args.resume)
  try:
    with RowStore(work / "log.sqlite", skip_bad=args.skip_bad) as store:
      if not store.fact("read"):
        logs.read_into(store, args, console)
        store.note("read", True)
      total = store.num_groups()
      with logs.progress_bar(console, "credit", total, unit="groups") as bar:
        for done in credit_log(
          store,
          estimators,
          named.state,
          named.action,
          allow_single=args.allow_single,
        ):
          bar.update(bar.task_ids[0], completed=done)
      found = _summary(store, args, named, estimators)
      if not found["groups"]:
        raise RolloutError(_why_nothing(store, args))
      found["out"] = credit_files.write_credit(store, args.out, estimators)
      found["rejected_rows"] = logs.tell_rejected(store, args, console)
      found["seconds"] = round(time.perf_counter() - began, 2)
  except BaseException as error:
    bad = isinstance(error, ValueError | ClosureError)
    if bad or args.out == STDIN:  # nothing to go on with
      shutil.rmtree(work)
    raise
  shutil.rmtree(work)
  # Standard output may be where the credit goes.
  target = console if args.out == STDIN else rich.console.Console()
  if args.json:
    target.print_json(json.dumps(found))
  else:
    target.print(summary_table(found))
  if found["warning"]:
    console.print(f"warning: {found['warning']}", soft_wrap=True, markup=False)
  return SKIPPED if found["rejected_rows"] else 0


def summary_table(found: dict[str, Any]) -> rich_table.Table:
  """What was credited, as a table."""
  table = rich_table.Table(show_header=False)
  rows = {
    "rows": f"{found['read']:,} read = {found['credited']:,} credited +"
    f" {found['rejected']:,} rejected",
    "copies": f"{found['copies']:,} (weight 0, credit 0)",
    "groups": f"{found['groups']:,}, {found['rollouts']:,} rollouts",
    "groups with both outcomes": f"{found['mixed_share']:.1%}",
    "steps alone at their anchor": f"{found['singleton_share']:.1%}",
    "keys": f"state {found['state_key']}, action {found['action_key']}",
  }
  if not found["copies"]:
    del rows["copies"]
  for name, share in found["live_share"].items():
    rows[f"live share, {name}"] = f"{share:.1%}"
  rows["written"] = ", ".join(found["out"]) or "standard output"
  rows["seconds"] = f"{found['seconds']}"
  for name, text in rows.items():
    table.add_row(name, text)
  return table


def _summary(
  store: RowStore,
  args: argparse.Namespace,
  named: logs.LogKeys,
  estimators: list[str],
) -> dict[str, Any]:
  counts, credited = store.counts(), summary(store, estimators)
  if credited.rows + counts.copies != counts.kept:
    raise AssertionError(f"rows were lost: {counts}, {credited}")
  return {
    "logs": args.logs,
    "read": counts.read,
    "credited": counts.kept,
    "rejected": counts.rejected,
    "copies": counts.copies,
    **{k: v for k, v in credited._asdict().items() if k != "rows"},
    "estimators": estimators,
    "state_key": named.state_name,
    "action_key": named.action_name,
  }


def _why_nothing(store: RowStore, args: argparse.Namespace) -> str:
  for first in store.rejected():
    return (
      f"no row is left to credit, and nothing is written; the first that was"
      f" skipped: {first.place}: {first.reason}"
    )
  return f"{', '.join(args.logs)}: no step with weight 1, nothing to credit"


def _report_keys(
  args: argparse.Namespace, console: rich.console.Console
) -> int:
  """Compares the keys that could fit the log."""
  named = logs.find_keys(args)
  candidates = dict.fromkeys([(named.state_name, named.action_name), *_KEYS])
  with tempfile.TemporaryDirectory(prefix="crbc-") as folder:
    path = pathlib.Path(folder) / "log.sqlite"
    with RowStore(path, skip_bad=args.skip_bad) as store:
      logs.read_into(store, args, console)
      groups = (_rollouts(group) for group in store.groups())
      reports = compare_keys(groups, list(candidates))
      rejected = logs.tell_rejected(store, args, console)
  if args.json:
    print(json.dumps([vars(report) for report in reports]))
  else:
    rich.console.Console().print(keys_table.keys_table(reports))
  return SKIPPED if rejected else 0


_KEYS = (
  ("verbatim", "verbatim"),
  ("normalized", "normalized"),
  ("window(n=1)", "verbatim"),
  ("window(n=2)", "verbatim"),
  ("tool_history", "tool_call"),
  ("swe_signature", "swe_signature"),
)
"""Pairs that a report compares beside the one that was asked for."""


def _rollouts(group: list[Numbered]) -> list[list]:
  found: dict = {}
  for _, row in group:
    found.setdefault(row.traj_id, []).append(row)
  return list(found.values())


def _work_folder(args: argparse.Namespace) -> pathlib.Path:
  if args.out == STDIN:
    return pathlib.Path(tempfile.mkdtemp(prefix="crbc-"))
  out = pathlib.Path(args.out)
  return out.with_name(f".{out.name}.work")


def _prepare(work: pathlib.Path, mark: str, *, resume: bool) -> None:
  """An empty working folder, or the one of the run that was interrupted."""
  marked = work / "command.json"
  if work.exists() and resume:
    if not marked.exists() or marked.read_text() != mark:
      raise RolloutError(
        f"{work} is of another command, or the logs have changed since: run"
        " without --resume to begin afresh"
      )
    with RowStore(work / "log.sqlite") as store:
      if store.fact("read"):
        return
  elif resume:
    raise RolloutError(f"there is no interrupted run to go on with: no {work}")
  if work.exists():
    shutil.rmtree(work)
  work.mkdir(parents=True)
  marked.write_text(mark)
