"""Every estimator on the same levels, seeds and number of environment steps.

Claim: CRBC exact learns fastest from the same rollouts, ahead of GRPO, GiGPO
and visit averaging (CRBC depth 0) on 6x6 and 7x7, and of GraphGPO on 7x7; with
25 % action slip the order is the same. Where it is not so, the table says it.

  python -m experiments.compare                    # 135 runs, about an hour
  python -m experiments.compare --settings 6x6     # one setting
  python -m experiments.compare --report           # tables of finished runs

Each estimator runs with its own best learning rate and option of
`experiments.sweep` (results/sweep.json). Seeds are paired: with the same seed
all estimators start from the same network and see the same levels in the same
order. Writes results/compare.json, results/compare.md and a figure.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import rich
from rich.table import Table

from crbc_jax.envs.sokoban_levels import write_text
from crbc_jax.learner.records import write_json
from crbc_jax.report import plots
from experiments import pool, statistics

SETTINGS = {
  "6x6": {"env_steps": 500_000},
  "7x7": {
    "env_steps": 600_000,
    "generator.size": (7, 7),
    "generator.inner_walls": (0, 8),
  },
  "6x6 slip .25": {"env_steps": 500_000, "env.slip": 0.25},
}
SEEDS = (0, 1, 2, 3, 4)
EVAL_EVERY = 50_000
METRIC = "success_sampled"
FRACTIONS = (0.3, 0.5, 1.0)
THRESHOLD = 0.60
OURS = "CRBC exact"


def main(argv: list[str] | None = None) -> None:
  """Trains what is missing, then writes and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS)
  )
  parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
  parser.add_argument(
    "--tuned",
    default="results/sweep.json",
    type=pathlib.Path,
    help="output of experiments.sweep",
  )
  parser.add_argument("--out", default="runs/compare", type=pathlib.Path)
  parser.add_argument("--report", action="store_true", help="do not train")
  args = parser.parse_args(argv)
  tuned = json.loads(args.tuned.read_text(encoding="utf-8"))["best"]
  jobs = {
    (setting, label, seed): _job(args.out, setting, label, seed, best)
    for setting in args.settings
    for seed in args.seeds
    for label, best in tuned.items()
  }
  if not args.report:
    pool.run_all(list(jobs.values()))
  results = {}
  for setting in args.settings:
    curves = {
      label: [
        statistics.Curve.read(jobs[setting, label, seed].run_dir, METRIC)
        for seed in args.seeds
      ]
      for label in tuned
    }
    results[setting] = _summary(curves, SETTINGS[setting]["env_steps"])
    results[setting]["curves"] = {
      label: [
        {"env_steps": c.env_steps.tolist(), "success": c.success.tolist()}
        for c in some
      ]
      for label, some in curves.items()
    }
    rich.print(_terminal_table(setting, results[setting]["rows"]))
  write_json(
    pathlib.Path("results/compare.json"),
    {
      "command": "python -m experiments.compare " + " ".join(argv or []),
      "seeds": args.seeds,
      "metric": METRIC,
      "tuned": tuned,
      "settings": results,
    },
  )
  write_text("results/compare.md", _markdown(results, args.seeds))
  plots.learning_curves(
    {s: r["curves"] for s, r in results.items()},
    pathlib.Path("results/compare"),
  )
  rich.print("wrote results/compare.{json,md,png,svg}")


def _job(out, setting, label, seed, best) -> pool.Job:
  slug = f"{setting}-{label}-s{seed}".replace(" ", "_")
  return pool.Job(
    out / slug,
    {
      "estimator": best["estimator"],
      "learner.learning_rate": best["learning_rate"],
      "seed": seed,
      "eval.every": EVAL_EVERY,
      "tensorboard": False,
      **SETTINGS[setting],
    },
  )


def _summary(curves, budget: int) -> dict:
  """Rows of the table: one per estimator, best area first."""
  areas = {
    label: [c.area(budget) for c in some] for label, some in curves.items()
  }
  rows = []
  for label, some in curves.items():
    difference = np.subtract(areas[OURS], areas[label])
    rows.append(
      {
        "label": label,
        **{
          f"at_{f:g}": statistics.interval([c.at(f * budget) for c in some])
          for f in FRACTIONS
        },
        "last3": statistics.interval([c.success[-3:].mean() for c in some]),
        "area": statistics.interval(areas[label]),
        "steps_to": [c.steps_to(THRESHOLD) for c in some],
        "behind": statistics.interval(difference),
      }
    )
  rows.sort(key=lambda r: -r["area"].mean)
  return {"budget": budget, "rows": [_plain(r) for r in rows]}


def _plain(row: dict) -> dict:
  plain = {}
  for key, value in row.items():
    if isinstance(value, statistics.Interval):
      value = {"mean": value.mean, "low": value.low, "high": value.high}
    elif key == "steps_to":
      reached = [v for v in value if np.isfinite(v)]
      value = {
        "reached": len(reached),
        "runs": len(value),
        "median": float(np.median(value))
        if len(reached) * 2 > len(value)
        else None,
      }
    plain[key] = value
  return plain


def _cells(row: dict) -> list[str]:
  def show(x):
    return f"{x['mean']:.3f} [{x['low']:.3f}, {x['high']:.3f}]"

  steps = row["steps_to"]
  reached = f"{steps['reached']}/{steps['runs']}"
  median = f"{steps['median'] / 1e3:.0f} k" if steps["median"] else "–"
  behind = "–" if row["label"] == OURS else show(row["behind"])
  return [
    row["label"],
    *(f"{row[f'at_{f:g}']['mean']:.3f}" for f in FRACTIONS),
    show(row["last3"]),
    show(row["area"]),
    f"{median} ({reached})",
    behind,
  ]


_HEADINGS = (
  "estimator",
  *(f"at {f:.0%}" for f in FRACTIONS),
  "last three evaluations",
  "area under the curve",
  f"steps to {THRESHOLD:.2f}",
  f"area of {OURS} minus this",
)


def _terminal_table(setting: str, rows) -> Table:
  table = Table(title=f"Sokoban {setting}: held-out success")
  for heading in _HEADINGS:
    table.add_column(heading)
  for row in rows:
    table.add_row(*_cells(row))
  return table


def _markdown(results, seeds) -> str:
  lines = [
    "<!-- written by experiments/compare.py; do not edit -->",
    f"Held-out success ({METRIC.replace('_', ', ')}), {len(seeds)} paired "
    "seeds; brackets: 95 % bootstrap interval over seeds.",
  ]
  for setting, result in results.items():
    lines += ["", f"**Sokoban {setting}, {result['budget']:,} env steps**", ""]
    lines.append("| " + " | ".join(_HEADINGS) + " |")
    lines.append("|" + "---|" * len(_HEADINGS))
    lines += ["| " + " | ".join(_cells(r)) + " |" for r in result["rows"]]
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  sys.exit(main())
