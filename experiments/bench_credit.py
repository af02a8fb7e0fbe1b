"""How fast is the closure, and what against?

  python -m experiments.bench_credit [--quick] [--only batches giant ...]
    [--rounds 15] [--seconds 6] [--results results]

Sections, all in one run, every round of a workload running all contestants:

  batches     integer ids to advantages on groups of eight rollouts
  giant       one group of 16 thousand to a million steps; time per step
  lattice     a walk whose 13,000 states all branch: contraction does not help
  end-to-end  strings to advantages, against plain-Python GiGPO and closure
  compiles    compilations over 200 batches of sizes that vary ninefold
  memory      peak memory of the kernel, linear in the steps?
  sharding    the groups of a batch over four CPU devices

"ours" is the advantage of `make_credit_fn("crbc")` on arrays that are ready,
until it is blocked on. "dense LU" does
the same job in JAX, padded to the largest group ("padded as ours": on the very
arrays of ours, with room for growth); SciPy and NumPy stop at V and Q - V.
Times are medians with quartiles; a ratio is the median over rounds of the ratio
inside a round. What would need more than 4 GB is not run, nor a competitor that
would take more than about five seconds a round.

Writes bench_credit.json and bench_credit.md; four minutes on two free cores,
--quick half a minute. Goals that fail are told, and the exit status stays 0.
"""

import argparse
import dataclasses
import json
import pathlib
import shlex
import time
from typing import Any

import rich.console
import rich.table

import crbc_jax
from crbc_jax.files import write_text
from experiments.bench_sections import SECTIONS
from experiments.bench_timing import Found, Goal, Line, machine

LINE_COLUMNS = ("workload", "steps", "contestant", "ms", "ns a step", "x ours")


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--quick", action="store_true", help="tiny sizes")
  parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION")
  parser.add_argument("--rounds", type=int, default=15)
  parser.add_argument("--seconds", type=float, default=6.0, help="a workload")
  parser.add_argument(
    "--results", "--out", dest="out", type=pathlib.Path, default="results"
  )
  options = parser.parse_args(argv)
  rounds = 3 if options.quick else options.rounds
  seconds = 0.5 if options.quick else options.seconds

  console = rich.console.Console(width=120)
  began, facts = time.perf_counter(), machine()
  if is_busy(facts):
    console.print(f"load {facts['load']}: this machine is busy, times will lie")
  found = Found()
  for name in options.only or SECTIONS:
    part = SECTIONS[name](quick=options.quick, rounds=rounds, seconds=seconds)
    found.lines += part.lines
    found.goals += part.goals
    found.facts |= {name: part.facts} if part.facts else {}
    if part.lines:
      console.print(line_table(name, part.lines))
  if options.quick:  # tiny sizes say nothing about the goals
    found.goals = [dataclasses.replace(g, passed=None) for g in found.goals]
  console.print(goal_table(found.goals))

  command = ["python", "-m", "experiments.bench_credit"]
  command += ["--quick"] * options.quick
  command += ["--only", *options.only] if options.only else []
  command += ["--rounds", str(rounds), "--seconds", f"{seconds:g}"]
  facts |= {
    "command": shlex.join(command),
    "version": crbc_jax.__version__,
    "seconds": round(time.perf_counter() - began, 1),
  }
  result = {
    **facts,
    "goals": [dataclasses.asdict(g) for g in found.goals],
    "lines": [dataclasses.asdict(x) for x in found.lines],
    "facts": found.facts,
  }
  text = json.dumps(result, indent=1)
  write_text(options.out / "bench_credit.json", text + "\n")
  write_text(options.out / "bench_credit.md", as_markdown(facts, found))
  console.print(
    f"{facts['seconds']:.0f} s; wrote {options.out}/bench_credit.json and .md"
  )


def is_busy(facts: dict[str, Any]) -> bool:
  """Other work than this benchmark kept the cores busy when it began."""
  return facts["load"] > 0.5 * facts["cores"]


def line_cells(line: Line) -> tuple[str, ...]:
  """One contestant as text; see `LINE_COLUMNS`."""
  if line.seconds is None:
    times = (line.note, "", "")
  else:
    times = (
      line.seconds.text(1e-3),
      f"{line.seconds.median / line.steps * 1e9:,.0f}",
      line.times_ours.text() if line.times_ours else "",
    )
  return (line.workload, f"{line.steps:,}", line.name, *times)


def goal_cells(goal: Goal) -> tuple[str, str, str]:
  """One goal as text."""
  verdict = {True: "pass", False: "FAIL", None: "-"}[goal.passed]
  return goal.goal, goal.found, verdict


def line_table(title: str, lines: list[Line]) -> rich.table.Table:
  """Every contestant of a section."""
  found = rich.table.Table(title=title, title_justify="left")
  for i, name in enumerate(LINE_COLUMNS):
    found.add_column(name, justify="left" if i in (0, 2) else "right")
  for line, following in zip(lines, [*lines[1:], None], strict=True):
    ends = following is None or following.workload != line.workload
    found.add_row(*line_cells(line), end_section=ends)
  return found


def goal_table(goals: list[Goal]) -> rich.table.Table:
  """Every goal and whether it was met."""
  found = rich.table.Table(
    "goal", "found", "", title="goals", title_justify="left"
  )
  for goal in goals:
    found.add_row(*goal_cells(goal))
  return found


def as_markdown(facts: dict[str, Any], found: Found) -> str:
  """The same tables as a file."""
  versions = ", ".join(
    f"{name} {facts[name]}"
    for name in ("python", "jax", "jaxlib", "numpy", "scipy")
  )
  parts = [
    "# Speed of the closure",
    f"`{facts['command']}`, {facts['seconds']:.0f} s. crbc_jax"
    f" {facts['version']}, {versions}; {facts['cores']} cores"
    f" ({facts['processor']}), backend {facts['backend']}, load"
    f" {facts['load']} at the start"
    f"{' (BUSY: do not trust these numbers)' if is_busy(facts) else ''}.",
    "Medians with quartiles; a ratio is the median over rounds of the ratio"
    " inside a round. `x ours` above 1: slower than ours.",
    markdown_table(("goal", "found", ""), map(goal_cells, found.goals)),
  ]
  if found.lines:
    parts.append(markdown_table(LINE_COLUMNS, map(line_cells, found.lines)))
  stages = found.facts.get("end-to-end", {})
  if stages:
    names = list(next(iter(stages.values())))
    parts.append("Stages of ours, end to end, in ms:")
    parts.append(
      markdown_table(
        ("workload", *names),
        (
          (workload, *(f"{x * 1e3:.1f}" for x in taken.values()))
          for workload, taken in stages.items()
        ),
      )
    )
  return "\n\n".join(parts) + "\n"


def markdown_table(head, rows) -> str:
  """A table in Markdown."""
  lines = [head, ["---"] * len(head), *rows]
  return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
  main()
