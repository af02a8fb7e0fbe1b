"""`crbc report`: one HTML file about the groups of a log, or about runs."""

import argparse
import itertools
import json
import pathlib
from collections.abc import Iterator

import rich

from crbc_jax.checks import UsageError, usage_errors
from crbc_jax.commands import groups
from crbc_jax.commands import logs as log_args
from crbc_jax.credit import registry
from crbc_jax.report import html
from crbc_jax.report.report_data import (
  DEFAULT_ESTIMATORS,
  ReportGroup,
  make_view,
)
from crbc_jax.rollouts.table import RolloutError

EXAMPLES = """\
examples:
  crbc report rollouts.jsonl
  crbc report rollouts.jsonl --out credit.html --groups 20
  crbc report rollouts.jsonl --estimators "crbc,crbc(w_step=1),rloo"
  crbc report runs/crbc-s0 --out run.html
"""

_GROUPS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Arguments of the command."""
  log_args.add_log_arguments(parser)
  parser.add_argument(
    "--out", default="report.html", help="HTML file (default: %(default)s)"
  )
  parser.add_argument(
    "--estimator",
    "--estimators",
    dest="estimators",
    default=",".join(DEFAULT_ESTIMATORS),
    help="separated by commas; the first two are shown first (default: "
    "%(default)s)",
  )
  parser.add_argument(
    "--groups",
    type=int,
    default=_GROUPS,
    help="show at most so many groups (default: %(default)s)",
  )
  parser.add_argument("--title", help="of the page")
  parser.add_argument(
    "--json", action="store_true", help="print JSON instead of a sentence"
  )


def run(args: argparse.Namespace) -> int:
  """Writes the report; returns the exit status.

  Args:
    args: of `add_arguments`, with `logs` (logs, or run folders) and whatever
      `groups.open_groups` reads.

  Raises:
    RolloutError: there is no group, or one that cannot be credited.
    UsageError: an estimator that cannot be shown.
    RunError, CheckpointError, LevelError: a run that cannot be shown.
  """
  if args.groups < 1:
    raise UsageError(f"--groups must be at least 1, got {args.groups}")
  with usage_errors():
    estimators = registry.split_estimators(args.estimators)
    for text in estimators:
      make_view(text)  # refuses it before a long log is read
  found_groups, curves, notes = _sources(args)
  first = list(itertools.islice(found_groups, args.groups))
  if next(found_groups, None) is not None:
    notes.append(
      f"The first {args.groups} groups are shown; more with --groups."
    )
  found = html.write_report(
    first,
    args.out,
    estimators=estimators,
    title=args.title or "Step credit of " + ", ".join(map(_name, args.logs)),
    notes=notes,
    curves=curves,
  )
  if args.json:
    print(json.dumps({"out": str(args.out), **found}))
  else:
    rich.get_console().print(
      f"wrote {args.out}: {found['groups']:,} groups, {found['rollouts']:,} "
      f"rollouts, {found['steps']:,} steps, {found['bytes'] / 1e6:.1f} MB",
      highlight=False,
      soft_wrap=True,
    )
  return 0


def _sources(args) -> tuple[Iterator[ReportGroup], dict, list[str]]:
  """Groups, learning curves and notes of logs or of run folders."""
  is_run = [(pathlib.Path(p) / "config.json").exists() for p in args.logs]
  if not any(is_run):
    return map(ReportGroup._make, groups.open_groups(args)), {}, []
  if not all(is_run):
    raise RolloutError(
      "logs and run folders cannot share a report: write one for each"
    )
  from crbc_jax.report import run_data

  runs = {str(path): run_data.read_run(path) for path in args.logs}
  return (
    itertools.chain.from_iterable(run.groups for run in runs.values()),
    {name: run.curve for name, run in runs.items()},
    [run.note for run in runs.values()],
  )


def _name(path) -> str:
  return pathlib.Path(path).name or str(path)
