"""Tunes every estimator alike before they are compared.

Claim: none; it finds, for each estimator of `experiments.compare`, the learning
rate and the options that matter most for it (w_S of CRBC, omega and step
weight of GraphGPO, step weight of GiGPO, prior of RTMC), by area under the
held-out curve on 6x6 levels. The seeds are not those of the comparison; the
levels are the same, for every estimator alike.

  python -m experiments.sweep            # 190 runs of 250,000 steps, 20-30 min
  python -m experiments.sweep --report   # the table from finished runs

Writes results/sweep.json, which `experiments.compare` reads.
"""

import argparse
import pathlib
import sys

import numpy as np
import rich
from rich.table import Table

from crbc_jax.learner.records import write_json
from experiments import pool, statistics

LEARNING_RATES = (1e-3, 2e-3, 3e-3, 5e-3, 1e-2)
SEEDS = (100, 101)
ENV_STEPS = 250_000
EVAL_EVERY = 25_000
METRIC = "success_sampled"

VARIANTS = {
  "CRBC exact": ("crbc(w_step=1.0)", "crbc(w_step=5.0)"),
  "CRBC depth 2": ("crbc(depth=2, w_step=1.0)", "crbc(depth=2, w_step=5.0)"),
  "CRBC depth 0": ("crbc(depth=0, w_step=1.0)", "crbc(depth=0, w_step=5.0)"),
  "GraphGPO": (
    "graphgpo(omega=0.5)",
    "graphgpo(omega=0.8)",
    "graphgpo(omega=0.95)",
    "graphgpo(omega=0.5, graph_weight=5.0)",
    "graphgpo(omega=0.8, graph_weight=5.0)",
  ),
  "GiGPO": ("gigpo(step_weight=1.0)", "gigpo(step_weight=5.0)"),
  "GiGPO mean": (
    "gigpo(norm='mean', step_weight=1.0)",
    "gigpo(norm='mean', step_weight=5.0)",
  ),
  "RTMC": ("rtmc(prior='success_rate')", "rtmc(prior='discounted')"),
  "RLOO": ("rloo",),
  "GRPO": ("grpo",),
}
"""What is tried for each estimator, times every learning rate."""


def main(argv: list[str] | None = None) -> None:
  """Runs the sweep (or goes on with it) and writes the best of each."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--out", default="runs/sweep", type=pathlib.Path)
  parser.add_argument("--report", action="store_true", help="do not train")
  args = parser.parse_args(argv)
  cells = [
    (label, estimator, rate)
    for label, estimators in VARIANTS.items()
    for estimator in estimators
    for rate in LEARNING_RATES
  ]
  if not args.report:
    pool.run_all(
      [
        _job(args.out, estimator, rate, seed)
        for seed in SEEDS
        for _, estimator, rate in cells
      ]
    )
  rows = []
  for label, estimator, rate in cells:
    areas = [
      statistics.Curve.read(
        _job(args.out, estimator, rate, seed).run_dir, METRIC
      ).area(ENV_STEPS)
      for seed in SEEDS
    ]
    rows.append(
      {
        "label": label,
        "estimator": estimator,
        "learning_rate": rate,
        "area": float(np.mean(areas)),
        "areas": areas,
      }
    )
  best = {
    label: max(
      (r for r in rows if r["label"] == label), key=lambda r: r["area"]
    )
    for label in VARIANTS
  }
  write_json(
    pathlib.Path("results/sweep.json"),
    {
      "command": "python -m experiments.sweep",
      "seeds": SEEDS,
      "env_steps": ENV_STEPS,
      "metric": f"area under {METRIC}",
      "best": best,
      "all": rows,
    },
  )
  rich.print(_table(rows, best))


def _job(out: pathlib.Path, estimator: str, rate: float, seed: int) -> pool.Job:
  name = f"{estimator}-lr{rate:g}-s{seed}".replace(" ", "").replace("'", "")
  return pool.Job(
    out / name,
    {
      "estimator": estimator,
      "learner.learning_rate": rate,
      "seed": seed,
      "env_steps": ENV_STEPS,
      "eval.every": EVAL_EVERY,
      "tensorboard": False,
    },
  )


def _table(rows, best) -> Table:
  table = Table(title=f"Area under {METRIC}, {len(SEEDS)} seeds, * = chosen")
  table.add_column("estimator")
  for rate in LEARNING_RATES:
    table.add_column(f"lr {rate:g}", justify="right")
  for label, estimators in VARIANTS.items():
    for estimator in estimators:
      cells = [
        r for r in rows if (r["label"], r["estimator"]) == (label, estimator)
      ]
      table.add_row(
        estimator,
        *(f"{r['area']:.3f}{'*' if r is best[label] else ''}" for r in cells),
      )
  return table


if __name__ == "__main__":
  sys.exit(main())
