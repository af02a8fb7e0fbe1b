"""What does step credit cost? Seconds and shares of an update.

  python -m experiments.cost [--alfworld FILE] [--webshop FILE] [--quick]
    [--updates 8] [--results results]

Training: rollout, credit and update of some updates on Sokoban, ALFWorld and
WebShop (generated games without a file) in the settings of `configs`, for five
estimators that take turns, so that a busy machine slows all alike. An update in
which a program was compiled is not counted. The rollout is split by playing it
again (`cost_parts`).

Workload: the papers' batch of 16 groups x 8 rollouts x 50 steps = 6,400 rows,
to advantages, from integer ids that are ready and from fresh strings of 1 kB;
beside it what a trainer would write in plain Python. Published figures are from
8 x A100 machines and Python implementations and ours from this CPU: they
compare orders of magnitude, not implementations.

Claim: credit is a small share of an update: at most 5 % on Sokoban, whose
rollouts are fastest, and 2 % on text games; the 6,400 rows take some 15 ms from
strings (as in `bench_credit`) and a few from ids.

Takes some eight minutes on two free cores, --quick (three estimators, two
updates, a hasty clone) two; on a busy machine times mean little. Writes
cost.json and cost.md.
"""

import argparse
import dataclasses
import functools
import importlib
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import rich.console
from rich.markdown import Markdown

import crbc_jax
from crbc_jax import make_batch, make_credit_fn
from crbc_jax.commands import logs
from crbc_jax.credit import registry
from crbc_jax.files import write_text
from crbc_jax.learner import task as task_lib
from crbc_jax.learner import training_step
from experiments import bench_python, commands, workloads
from experiments.bench_credit import is_busy, markdown_table
from experiments.bench_text import EndToEnd
from experiments.bench_timing import (
  Case,
  CompileCounter,
  Spread,
  digits,
  machine,
  measure,
)
from experiments.cost_parts import PARTS, rollout_parts

TASKS = ("sokoban", "alfworld", "webshop")
ESTIMATORS = {
  "CRBC exact": "crbc",
  "CRBC depth 0": "crbc(depth=0)",
  "GiGPO": "gigpo",
  "GraphGPO": "graphgpo",
  "GRPO": "grpo",
}
QUICK_LABELS = ("CRBC exact", "GiGPO", "GRPO")
STAGES = ("rollout", "credit", "update")
WARM_UP = 2  # updates
PYTHON = {
  "GiGPO": bench_python.python_gigpo,
  "GraphGPO": bench_python.python_shortest_path,
  "CRBC exact": bench_python.python_closure,
}
PUBLISHED = (
  ("GiGPO, grouping and advantages", 0.54, 0.0015, "arXiv 2505.10978"),
  ("GraphGPO, graph and advantages", 0.133, 0.0004, "arXiv 2605.26684"),
  ("CRBC, step credit alone", 0.057, 0.0003, "arXiv 2609.35082"),
  ("CRBC, the whole block", 0.330, 0.0018, "arXiv 2609.35082"),
)
"""What, seconds, share of an iteration, source."""
QUICK_TEXT = {"demonstrations": 20, "clone_epochs": 1}


def main(argv: list[str] | None = None) -> None:
  """Measures, then prints and writes the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
  parser.add_argument("--alfworld", default="", help="--config.text.data of it")
  parser.add_argument("--webshop", default="", help="--config.text.data of it")
  parser.add_argument("--updates", type=int, default=8, help="to measure")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--quick", action="store_true", help="2 updates")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  updates = 2 if args.quick else args.updates
  if updates < 1:
    parser.error("--updates must be at least 1")

  logs.remember_compilations()  # five learners are the same program
  console = rich.console.Console(width=120)
  began, facts = time.perf_counter(), machine()
  training, split = [], []
  for name in args.tasks:
    config = run_config(
      name, getattr(args, name, ""), seed=args.seed, quick=args.quick
    )
    current = task_lib.make_task(config)
    # The learner gives its buffers away; these are begun from several times.
    current = dataclasses.replace(
      current, params=jax.tree.map(np.asarray, current.params)
    )
    console.print(f"{name}: {current.note or 'generated levels'}")
    training += time_updates(
      name,
      config,
      current,
      labels=QUICK_LABELS if args.quick else tuple(ESTIMATORS),
      updates=updates,
    )
    drawn = drawn_at(config, current, 0)
    parts = rollout_parts(config, current, drawn, rounds=updates)
    split.append({"task": name, **{k: Spread.of(v) for k, v in parts.items()}})
  result = {
    "command": commands.recorded("experiments.cost", argv),
    "version": crbc_jax.__version__,
    "seed": args.seed,
    "updates": updates,
    **facts,
    "data": {name: getattr(args, name) or "generated" for name in TASKS[1:]},
    "training": training,
    "rollout": split,
    "workload": time_workload(
      rounds=3 if args.quick else 15, seconds=1.0 if args.quick else 10.0
    ),
    "published": [
      dict(zip(("what", "seconds", "share", "source"), row, strict=True))
      for row in PUBLISHED
    ],
    "seconds": round(time.perf_counter() - began, 1),
  }
  text = json.dumps(result, indent=1, default=dataclasses.asdict)
  write_text(args.results / "cost.json", text + "\n")
  write_text(args.results / "cost.md", markdown(result))
  console.print(Markdown(markdown(result)))
  console.print(
    f"{result['seconds']:.0f} s; wrote {args.results}/cost.json and .md"
  )


def run_config(name: str, data: str, *, seed: int, quick: bool):
  """The config of a task, as it trains."""
  config = importlib.import_module(f"configs.{name}").get_config()
  config.seed = seed
  if name != "sokoban":
    config.text.data = data
    config.text.update(QUICK_TEXT if quick else {})
  return config


def drawn_at(config, current, number: int) -> np.ndarray:
  """Games of an update."""
  count = config.rollout.levels
  return task_lib.levels_at(
    number * count, count, num_levels=len(current.train), seed=config.seed
  )


def time_updates(
  name: str, config, current, *, labels: Sequence[str], updates: int
) -> list[dict[str, Any]]:
  """Seconds and shares of the stages for every estimator.

  Args:
    name: of the task.
    config: of the run; the estimator is put in.
    current: the task, the same for all.
    labels: of ESTIMATORS.
    updates: to measure after WARM_UP; tries twice as many at most to get as
      many without a compilation.

  Returns:
    One row for each estimator: median and range of each stage and share, the
    rows credited in the median update, and how many updates compiled.
  """
  steps, states = {}, {}
  for label in labels:
    config.estimator = ESTIMATORS[label]
    steps[label] = training_step.make_step(config, current)
    states[label] = training_step.initial_state(config, current)
  found: dict[str, list[dict]] = {label: [] for label in labels}
  spoilt: dict[str, list[dict]] = {label: [] for label in labels}
  with CompileCounter() as counter:
    for number in range(WARM_UP + 2 * updates):
      for label, step in steps.items():
        if len(found[label]) == updates:
          continue
        before = counter.count
        states[label], metrics, problem = step(
          states[label], drawn_at(config, current, number), number
        )
        if problem:
          raise RuntimeError(f"{name}, {label}: {problem}")
        clean = counter.count == before
        if number >= WARM_UP:
          (found if clean else spoilt)[label].append(metrics)
  return [
    # Where every update compiled, those are all there is.
    _row(name, label, found[label] or spoilt[label], len(spoilt[label]))
    for label in labels
  ]


def _row(name: str, label: str, metrics: list[dict], compiled: int):
  seconds = {s: np.array([m[f"seconds_{s}"] for m in metrics]) for s in STAGES}
  whole = sum(seconds.values())
  return {
    "task": name,
    "label": label,
    "rows": int(np.median([m["steps"] for m in metrics])),
    "seconds": {s: Spread.of(x) for s, x in seconds.items()},
    "shares": {s: Spread.of(x / whole) for s, x in seconds.items()},
    "updates": len(metrics),
    "compiled": compiled,
  }


def time_workload(
  labels: Sequence[str] = tuple(ESTIMATORS),
  *,
  rounds: int,
  seconds: float,
  groups: int = 16,
) -> dict[str, Any]:
  """Ids and strings of the papers' batch to advantages.

  Returns:
    {"rows", "characters", "lines": one {label, ids, strings[, python]} for each
    estimator, each a Spread of seconds}.
  """
  table, characters = workloads.equal_table(groups), 1_024
  arrays = jax.device_put(make_batch(table).arrays)
  prepare = functools.partial(workloads.with_text, table, characters)
  cases: dict[str, Case] = {}
  for label in labels:
    credit_fn = advantage_fn(ESTIMATORS[label])
    cases[f"ids, {label}"] = Case(functools.partial(_wait, credit_fn, arrays))
    cases[f"strings, {label}"] = Case(EndToEnd(table, credit_fn), prepare)
    if label in PYTHON:
      cases[f"python, {label}"] = Case(PYTHON[label], prepare)
  times = measure(cases, rounds=rounds, seconds=seconds)
  spreads = {name: Spread.of(x) for name, x in times.items()}
  return {
    "rows": len(table),
    "characters": characters,
    "lines": [
      {
        "label": label,
        **{
          kind: spreads[f"{kind}, {label}"]
          for kind in ("ids", "strings", "python")
          if f"{kind}, {label}" in spreads
        },
      }
      for label in labels
    ],
  }


def advantage_fn(estimator: str) -> Callable:
  """Jitted: padded groups to advantages."""
  name, options = registry.parse_estimator(estimator)
  credit_fn = make_credit_fn(name, **options)
  return jax.jit(lambda arrays: credit_fn(arrays).advantage)


def _wait(credit_fn, arrays, _) -> None:
  jax.block_until_ready(credit_fn(arrays))


def ranged(spread: Spread | None, unit: float = 1e-3) -> str:
  """Median and range, in milliseconds if not said otherwise."""
  if spread is None:
    return "–"
  middle, low, high = (
    digits(x / unit) for x in (spread.median, spread.low, spread.high)
  )
  return middle if low == high else f"{middle} [{low}, {high}]"


def markdown(result: dict[str, Any]) -> str:
  """The tables as a file."""
  busy = " (BUSY: times are too long, shares are safer)"
  work = result["workload"]
  parts = [
    "<!-- written by experiments/cost.py; do not edit -->",
    "# The cost of credit",
    f"`{result['command']}`, {result['seconds']:.0f} s. crbc_jax"
    f" {result['version']}, jax {result['jax']}; {result['cores']} cores"
    f" ({result['processor']}), load {result['load']} at the start"
    f"{busy if is_busy(result) else ''}. Data: ALFWorld"
    f" {pathlib.Path(result['data']['alfworld']).name}, WebShop"
    f" {pathlib.Path(result['data']['webshop']).name}.",
    "One update in ms, medians with ranges over at most"
    f" {result['updates']} updates; those that compiled a program are left out"
    f" unless all did:",
    markdown_table(
      ("task", "estimator", "rows", *STAGES, "share of credit"),
      [
        (
          row["task"],
          row["label"],
          f"{row['rows']:,}",
          *(ranged(row["seconds"][s]) for s in STAGES),
          f"{ranged(row['shares']['credit'], 0.01)} %",
        )
        for row in result["training"]
      ],
    ),
    "The rollout in ms: environment and policy as they take when they are"
    " played and applied again to the same games, the rest by difference"
    " (Sokoban: the policy; text games: making numbers of texts):",
    markdown_table(
      ("task", *PARTS, "whole"),
      [
        (row["task"], *(ranged(row.get(p)) for p in (*PARTS, "whole")))
        for row in result["rollout"]
      ],
    ),
    f"To advantages on the papers' batch, 16 groups x 8 rollouts x 50 steps ="
    f" {work['rows']:,} rows, in ms, strings of {work['characters']:,}"
    " characters new in each round:",
    markdown_table(
      ("estimator", "from ids", "from strings", "strings, plain Python"),
      [
        (
          line["label"],
          *(ranged(line.get(k)) for k in ("ids", "strings", "python")),
        )
        for line in work["lines"]
      ],
    ),
    "Published figures, of 8 x A100 machines and Python implementations. They"
    " and the table above compare orders of magnitude, no more:",
    markdown_table(
      ("what", "ms", "share of an iteration", "source"),
      [
        (
          row["what"],
          digits(row["seconds"] * 1e3),
          f"{row['share']:.2%}",
          row["source"],
        )
        for row in result["published"]
      ],
    ),
  ]
  return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
  main()
