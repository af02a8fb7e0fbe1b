"""Trains CRBC and GRPO on Sokoban, side by side, and prints a table.

Claim: on 6x6 levels with one box CRBC solves at least 85 % of 1,024 held-out
levels, and more than GRPO on the same budget, levels and seeds.

  make train                                   # under 5 minutes on two cores
  python -m experiments.train_sokoban --seeds 0 1 2 --env_steps 500000
  python -m experiments.train_sokoban --quick  # one seed, 150,000 steps

Run folders (config, metrics, checkpoints, TensorBoard) go to runs/sokoban, the
table and the curve to results/train_sokoban.*. What is finished is not trained
again; an interrupted run goes on where it was.
"""

import argparse
import pathlib
import sys

import numpy as np
import rich
from rich.table import Table

import crbc_jax
from configs import sokoban
from crbc_jax.learner import config as config_lib
from crbc_jax.learner.records import write_json
from crbc_jax.report import plots
from experiments import commands, pool, statistics

ESTIMATORS = {"CRBC exact": "crbc(w_step=1.0)", "GRPO": "grpo"}
SEEDS = (0, 1, 2)
QUICK_STEPS = 150_000
METRICS = ("success_sampled", "success_greedy")


def main(argv: list[str] | None = None) -> None:
  """Trains, prints the table and writes it with the figure."""
  config = sokoban.get_config()
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seeds", type=int, nargs="+")
  parser.add_argument("--env_steps", type=int)
  parser.add_argument("--quick", action="store_true", help="for a look")
  parser.add_argument("--out", default="runs/sokoban", type=pathlib.Path)
  parser.add_argument(
    "--results", default="results", type=pathlib.Path, help="table, figure"
  )
  args = parser.parse_args(argv)
  args.seeds = args.seeds or list(SEEDS[:1] if args.quick else SEEDS)
  args.env_steps = args.env_steps or (
    QUICK_STEPS if args.quick else config.env_steps
  )
  changes = config_lib.changes(config) | {"env_steps": args.env_steps}
  if args.quick:
    changes["eval.every"] = args.env_steps // 5
  jobs = {
    (label, seed): pool.Job(
      args.out / _name(estimator, seed, args.env_steps),
      changes | {"estimator": estimator, "seed": seed},
    )
    for seed in args.seeds
    for label, estimator in ESTIMATORS.items()
  }
  pool.run_all(list(jobs.values()))
  curves = {
    metric: {
      label: [
        statistics.Curve.read(jobs[label, seed].run_dir, metric)
        for seed in args.seeds
      ]
      for label in ESTIMATORS
    }
    for metric in METRICS
  }
  shares = {
    label: [
      statistics.credit_share(jobs[label, seed].run_dir)[0]
      for seed in args.seeds
    ]
    for label in ESTIMATORS
  }
  rich.print(_table(curves, shares, args))
  plots.learning_curves(
    {
      f"6x6, one box, {metric.split('_')[1]}": {
        label: [{"env_steps": c.env_steps, "success": c.success} for c in some]
        for label, some in by_label.items()
      }
      for metric, by_label in curves.items()
    },
    args.results / "train_sokoban",
  )
  write_json(
    args.results / "train_sokoban.json",
    {
      "command": commands.recorded("experiments.train_sokoban", argv),
      "version": crbc_jax.__version__,
      "seeds": args.seeds,
      "env_steps": args.env_steps,
      "credit_share": shares,
      "final": {
        metric: {
          label: [c.at(args.env_steps) for c in some]
          for label, some in by_label.items()
        }
        for metric, by_label in curves.items()
      },
    },
  )
  rich.print(
    f"runs in {args.out}; table and curve in {args.results}/train_sokoban.*; "
    "look at an episode with\n  "
    f".venv/bin/crbc view {next(iter(jobs.values())).run_dir}"
  )


def _name(estimator: str, seed: int, env_steps: int) -> str:
  return f"{estimator.split('(')[0]}-s{seed}-{env_steps}"


def _table(curves, shares, args) -> Table:
  budget = args.env_steps
  table = Table(
    title=f"Sokoban 6x6, held-out success, {budget:,} env steps, "
    f"{len(args.seeds)} seed(s)"
  )
  table.add_column("estimator")
  headings = ("sampled, at 30 %", "at 50 %", "at the end", "greedy, at the end")
  for heading in headings:
    table.add_column(heading, justify="right")
  table.add_column("step credit,\nshare of time", justify="right")
  for label in ESTIMATORS:
    sampled = curves["success_sampled"][label]
    greedy = curves["success_greedy"][label]
    cells = [
      *([c.at(f * budget) for c in sampled] for f in (0.3, 0.5, 1.0)),
      [c.at(budget) for c in greedy],
    ]
    table.add_row(
      label,
      *(str(statistics.interval(x)) for x in cells),
      f"{np.mean(shares[label]):.1%}",
    )
  return table


if __name__ == "__main__":
  sys.exit(main())
