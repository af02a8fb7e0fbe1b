"""Tunes every estimator alike before they are compared.

Claim: none; it finds, for each of `experiments.contestants`, the learning rate
and the options that matter most for it, by area under the held-out curve on
6x6 levels. The seeds are not those of the comparison; the levels are the same,
for every estimator alike.

  python -m experiments.sweep                  # 440 runs of 250,000 steps, 1 h
  python -m experiments.sweep --only SALT HGPO # these; others stay as they are
  python -m experiments.sweep --report         # the table from finished runs
  python -m experiments.sweep --quick          # two contestants, short runs

`--rates` tries these learning rates only.

Writes sweep.json into --results, which `experiments.compare` reads.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import rich
from rich.table import Table

import crbc_jax
from crbc_jax.learner.records import write_json
from experiments import commands, pool, statistics
from experiments.contestants import CONTESTANTS, LABELS, Contestant, chosen

LEARNING_RATES = (1e-3, 2e-3, 3e-3, 5e-3, 1e-2)
SEEDS = (100, 101)
ENV_STEPS = 250_000
EVAL_EVERY = 25_000
METRIC = "success_sampled"
QUICK_LABELS = ("CRBC exact", "GRPO")
QUICK_RATES = (1e-3, 3e-3)
QUICK_STEPS = 60_000


def main(argv: list[str] | None = None) -> None:
  """Runs the sweep (or goes on with it) and writes the best of each."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--out", type=pathlib.Path, help="run folders")
  parser.add_argument("--report", action="store_true", help="do not train")
  parser.add_argument("--only", nargs="+", choices=LABELS, metavar="LABEL")
  parser.add_argument("--rates", nargs="+", type=float)
  parser.add_argument("--quick", action="store_true", help="for a look")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  args.only = args.only or list(QUICK_LABELS if args.quick else LABELS)
  args.rates = args.rates or list(QUICK_RATES if args.quick else LEARNING_RATES)
  seeds = SEEDS[:1] if args.quick else SEEDS
  budget = QUICK_STEPS if args.quick else ENV_STEPS
  path = args.results / "sweep.json"
  args.out = args.out or pathlib.Path("runs", "quick" * args.quick, "sweep")
  cells = [
    (contestant, estimator, rate)
    for contestant in chosen(args.only)
    for estimator in contestant.estimators
    for rate in args.rates
  ]
  if not args.report:
    pool.run_all(
      [_job(args.out, *cell, seed, budget) for seed in seeds for cell in cells]
    )
  rows = []
  for contestant, estimator, rate in cells:
    areas = [
      statistics.Curve.read(
        _job(args.out, contestant, estimator, rate, seed, budget).run_dir,
        METRIC,
      ).area(budget)
      for seed in seeds
    ]
    rows.append(
      {
        "label": contestant.label,
        "estimator": estimator,
        "overrides": dict(contestant.overrides),
        "learning_rate": rate,
        "area": float(np.mean(areas)),
        "areas": areas,
        "version": crbc_jax.__version__,
      }
    )
  rows += _kept_rows(path, args.only)
  best = {
    label: max(
      (r for r in rows if r["label"] == label), key=lambda r: r["area"]
    )
    for label in LABELS
    if any(r["label"] == label for r in rows)
  }
  write_json(
    path,
    {
      "command": commands.recorded("experiments.sweep", argv),
      "seeds": seeds,
      "env_steps": budget,
      "metric": f"area under {METRIC}",
      "best": best,
      "all": rows,
    },
  )
  rich.print(_table(rows, best, len(seeds)))


def _kept_rows(path: pathlib.Path, ran: list[str]) -> list[dict]:
  """Rows of the contestants that did not run this time."""
  if not path.exists():
    return []
  rows = json.loads(path.read_text(encoding="utf-8"))["all"]
  return [r for r in rows if r["label"] not in ran]


def _job(
  out: pathlib.Path,
  contestant: Contestant,
  estimator: str,
  rate: float,
  seed: int,
  env_steps: int,
) -> pool.Job:
  name = f"{estimator}-lr{rate:g}-s{seed}".replace(" ", "").replace("'", "")
  return pool.Job(
    out / name,
    {
      "estimator": estimator,
      "learner.learning_rate": rate,
      "seed": seed,
      "env_steps": env_steps,
      "eval.every": min(EVAL_EVERY, env_steps // 4),
      "tensorboard": False,
      **contestant.overrides,
    },
  )


def _table(rows, best, seeds: int) -> Table:
  table = Table(title=f"Area under {METRIC}, {seeds} seed(s), * = chosen")
  table.add_column("estimator")
  for rate in LEARNING_RATES:
    table.add_column(f"lr {rate:g}", justify="right")
  for contestant in CONTESTANTS:
    for estimator in contestant.estimators:
      cells = [
        r
        for r in rows
        if (r["label"], r["estimator"]) == (contestant.label, estimator)
      ]
      found = {r["learning_rate"]: r for r in cells}
      shown = {
        rate: f"{r['area']:.3f}" + "*" * (r is best[contestant.label])
        for rate, r in found.items()
      }
      table.add_row(estimator, *(shown.get(x, "") for x in LEARNING_RATES))
  return table


if __name__ == "__main__":
  sys.exit(main())
