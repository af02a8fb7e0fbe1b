"""`crbc bench`: the experiments behind the tables, one process each."""

import argparse
import importlib.util
import json
import pathlib
from collections.abc import Mapping

import rich.console
import rich.markup
import rich.table

from crbc_jax.checks import UsageError, suggestion
from crbc_jax.commands import bench_runs
from crbc_jax.commands.bench_runs import Bench
from crbc_jax.files import write_text
from crbc_jax.report import result_changes

EXAMPLES = """\
examples:
  crbc bench --list
  crbc bench all --quick              # every table, small: half an hour
  crbc bench game24_credit
  crbc bench all --skip compare sweep

Needs a checkout: it runs `python -m experiments.NAME` there. What is finished
in the folder of --out is not run again, so an interrupted call can be repeated.
Afterwards it says how the numbers moved from the committed ones in results/;
every value is in changes/NAME.md there. Data is looked for in $CRBC_REAL_DATA.

exit status: 0 done; 1 an experiment failed (the others ran); 2 bad usage
"""

COMMITTED = pathlib.Path("results")
QUICK = COMMITTED / "quick"
TABLE = pathlib.Path("experiments/benches.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """What this command takes."""
  parser.add_argument(
    "names", nargs="*", metavar="NAME", help="of --list, or all"
  )
  parser.add_argument(
    "--quick", action="store_true", help="small forms of the same tables"
  )
  parser.add_argument(
    "--out",
    type=pathlib.Path,
    help=f"folder of the results (default: {COMMITTED}, quick: {QUICK})",
  )
  parser.add_argument("--skip", nargs="+", default=[], metavar="NAME")
  parser.add_argument(
    "--again", action="store_true", help="also run what is finished"
  )
  parser.add_argument(
    "--list", action="store_true", help="show what there is, run nothing"
  )


def run(args: argparse.Namespace) -> int:
  """Carries the command out; returns the exit status.

  Raises:
    UsageError: not in a checkout, an unknown name, or a quick run that would
      overwrite the committed results.
  """
  console = rich.console.Console(highlight=False)
  benches = load_benches()
  data = bench_runs.data_folder()
  if args.list:
    console.print(list_table(benches, data))
    return 0
  chosen = choose(benches, args.names, args.skip)
  out = args.out or (QUICK if args.quick else COMMITTED)
  if args.quick and out.resolve() == COMMITTED.resolve():
    raise UsageError(
      f"--quick would overwrite the full results in {COMMITTED}: choose another"
      f" --out (default: {QUICK})"
    )
  failed, skipped = [], []
  for number, (name, bench) in enumerate(chosen.items(), start=1):
    head = f"[{number}/{len(chosen)}] {name}"
    before = _read(bench_runs.committed(COMMITTED / bench.files[0]))
    status = _run_one(head, name, bench, args, out, data, console)
    if status is None:
      skipped.append(name)
    elif status:
      failed.append(name)
    else:
      _tell_changes(name, bench, before, out, len(chosen) == 1, console)
  ran = len(chosen) - len(failed) - len(skipped)
  console.print(
    f"{ran} done, {len(failed)} failed{_listed(failed)}, {len(skipped)} skipped"
    f"{_listed(skipped)}; results in {out}, changes in {out}/changes",
    markup=False,
  )
  return 1 if failed else 0


def _listed(names: list[str]) -> str:
  return f" ({', '.join(names)})" if names else ""


def load_benches() -> dict[str, Bench]:
  """The table of the checkout that this is run in.

  Raises:
    UsageError: this folder is none.
  """
  if not TABLE.exists():
    raise UsageError(
      f"no {TABLE} in {pathlib.Path.cwd()}: the experiments are not part of the"
      " installed package; run this in a checkout of crbc_jax"
    )
  spec = importlib.util.spec_from_file_location("crbc_benches", TABLE)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.BENCHES


def choose(
  benches: Mapping[str, Bench], names: list[str], skip: list[str]
) -> dict[str, Bench]:
  """The benches of these names, in the order of the table.

  Raises:
    UsageError: no name, or an unknown one.
  """
  if not names:
    raise UsageError("say which: a NAME of --list, or all")
  for name in [*names, *skip]:
    if name != "all" and name not in benches:
      raise UsageError(
        f"unknown bench {name!r}{suggestion(name, list(benches))}; `crbc bench"
        " --list` shows them"
      )
  return {
    name: bench
    for name, bench in benches.items()
    if ("all" in names or name in names) and name not in skip
  }


def list_table(
  benches: Mapping[str, Bench], data: pathlib.Path
) -> rich.table.Table:
  """What there is, how long it takes on two cores, and what it lacks."""
  table = rich.table.Table()
  table.add_column("name", no_wrap=True)
  table.add_column("section of the README", overflow="fold")
  table.add_column("minutes", justify="right")
  table.add_column("--quick", justify="right")
  table.add_column("data", overflow="fold")
  for name, bench in benches.items():
    absent = bench_runs.missing(bench, data)
    words = [
      f"{pathlib.Path(item.path).name}{'' if item.required else ' (optional)'}"
      f"{': MISSING' if item in absent else ''}"
      for item in bench.data
    ]
    table.add_row(
      name,
      bench.readme,
      *(f"{minutes:g}" for minutes in bench.minutes),
      rich.markup.escape("\n".join(words)),
    )
  full, quick = (sum(b.minutes[i] for b in benches.values()) for i in (0, 1))
  table.caption = f"together {full:.0f} minutes, quick {quick:.0f}"
  return table


def _run_one(
  head: str,
  name: str,
  bench: Bench,
  args: argparse.Namespace,
  out: pathlib.Path,
  data: pathlib.Path,
  console: rich.console.Console,
) -> int | None:
  """The exit status; None where data is absent."""

  def say(text: str) -> None:
    console.print(f"{head}: {text}", markup=False, soft_wrap=True)

  absent = bench_runs.missing(bench, data)
  needed = [item for item in absent if item.required]
  if needed:
    say(
      f"skipped, needs {', '.join(str(data / x.path) for x in needed)} (set"
      " CRBC_REAL_DATA to the folder of data)"
    )
    return None
  words = bench_runs.command_of(
    name, bench, quick=args.quick, results=out, data=data
  )
  if not args.again and bench_runs.is_done(name, bench, words, out):
    say("finished before (--again repeats it)")
    return 0
  for item in absent:
    say(f"without {data / item.path}")
  say(f"python {' '.join(words)}")
  log = out / "logs" / f"{name}.txt"
  with console.status(head) as shown:
    outcome = bench_runs.run_process(
      words,
      log,
      wait=lambda seconds: shown.update(
        f"{rich.markup.escape(head)}: {seconds:.0f} s"
      ),
    )
  took = f"{outcome.seconds:.0f} s, {outcome.cpu_seconds:.0f} s of processor"
  lost = [file for file in bench.files if not (out / file).exists()]
  if outcome.status or lost:
    why = (
      f"exit status {outcome.status}"
      if outcome.status
      else f"did not write {', '.join(lost)}"
    )
    say(f"FAILED after {took}: {why}; the end of {log}:")
    console.print(bench_runs.tail(log), markup=False, soft_wrap=True)
    return outcome.status or 1
  bench_runs.note_done(name, words, outcome, out)
  say(f"done in {took}")
  return 0


def _read(text: str | None):
  return None if text is None else json.loads(text)


def _tell_changes(
  name: str,
  bench: Bench,
  before,
  out: pathlib.Path,
  whole: bool,
  console: rich.console.Console,
) -> None:
  """Prints how the values moved, `whole` or in a line; writes all of it."""
  if not bench.values:
    return
  if before is None:
    console.print(f"  no committed {bench.files[0]} to compare with")
    return
  now = _read((out / bench.files[0]).read_text(encoding="utf-8"))
  changes = result_changes.find_changes(before, now, bench.values)
  if whole:
    console.print(result_changes.as_table(name, changes))
  else:
    console.print(f"  {changes.summary()}", markup=False, soft_wrap=True)
  write_text(
    out / "changes" / f"{name}.md", result_changes.as_markdown(name, changes)
  )
