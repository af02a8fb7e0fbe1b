"""Every estimator on the same levels, seeds and number of environment steps.

Claim: CRBC exact learns fastest from the same rollouts, ahead of GRPO, GiGPO
and visit averaging (CRBC depth 0) on 6x6 and 7x7, and of GraphGPO on 7x7; with
25 % action slip the order is the same. Where it is not so, the table says it.

  python -m experiments.compare                    # 360 runs, about 2.5 hours
  python -m experiments.compare --settings 6x6     # one setting
  python -m experiments.compare --report           # tables of finished runs
  python -m experiments.compare --quick            # four of them, short runs

Each estimator runs with its own best learning rate and option of
`experiments.sweep` (results/sweep.json). Seeds are paired: with the same seed
all estimators start from the same network and see the same levels in the same
order. Steps of the extra rollouts of VinePPO and ELPO count like any other.
Settings and, with `--only`, contestants that are not run keep their results.
Writes results/compare.json, results/compare.md and a figure.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import rich
from rich.table import Table

import crbc_jax
from crbc_jax.files import write_text
from crbc_jax.learner.records import write_json
from crbc_jax.report import plots
from experiments import commands, pool, reliable, statistics
from experiments.bench_credit import markdown_table
from experiments.contestants import LABELS

SETTINGS = {
  "6x6": {"env_steps": 500_000},
  "7x7": {
    "env_steps": 600_000,
    "generator.size": (7, 7),
    "generator.inner_walls": (0, 8),
  },
  "6x6 slip .25": {"env_steps": 500_000, "env.slip": 0.25},
  # Anchors are the player's cell alone: what the boxes do is hidden from them.
  "6x6 aliased keys": {"env_steps": 500_000, "env.state_keys": "player"},
}
QUICK_LABELS = ("CRBC exact", "GraphGPO", "GiGPO", "GRPO")
QUICK_STEPS = 40_000
AGGREGATED = ("6x6", "7x7", "6x6 slip .25")
SEEDS = (0, 1, 2, 3, 4)
EVAL_EVERY = 50_000
METRIC = "success_sampled"
FRACTIONS = (0.3, 0.5, 1.0)
THRESHOLD = 0.60
LEVELS = np.linspace(0.1, 0.7, 31).round(2).tolist()  # of the profiles
OURS = "CRBC exact"


def main(argv: list[str] | None = None) -> None:
  """Trains what is missing, then writes and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--settings",
    nargs="*",
    choices=SETTINGS,
    default=list(SETTINGS),
    help="to run; without a name none: tables and figures of what is there",
  )
  parser.add_argument("--only", nargs="+", choices=LABELS, metavar="LABEL")
  parser.add_argument("--seeds", type=int, nargs="+")
  parser.add_argument("--quick", action="store_true", help="for a look")
  parser.add_argument(
    "--tuned",
    default="results/sweep.json",
    type=pathlib.Path,
    help="output of experiments.sweep",
  )
  parser.add_argument("--out", type=pathlib.Path, help="run folders")
  parser.add_argument("--report", action="store_true", help="do not train")
  parser.add_argument(
    "--results", default="results", type=pathlib.Path, help="tables, figure"
  )
  args = parser.parse_args(argv)
  if not args.tuned.exists():
    parser.error(f"{args.tuned} is missing: run python -m experiments.sweep")
  args.only = args.only or list(QUICK_LABELS if args.quick else LABELS)
  args.seeds = args.seeds or list(SEEDS[:1] if args.quick else SEEDS)
  args.out = args.out or pathlib.Path("runs", "quick" * args.quick, "compare")
  settings = _settings(args.quick)
  tuned = json.loads(args.tuned.read_text(encoding="utf-8"))["best"]
  tuned = {label: best for label, best in tuned.items() if label in args.only}
  kept = _kept(args)
  jobs = {
    (setting, label, seed): _job(
      args.out, setting, settings[setting], label, seed, best
    )
    for setting in args.settings
    for seed in args.seeds
    for label, best in tuned.items()
  }
  if not args.report:
    pool.run_all(list(jobs.values()))
  results = {}
  for setting, values in settings.items():
    ran = args.only if setting in args.settings else []
    curves = _kept_curves(kept, setting, ran)
    curves |= {
      label: [
        statistics.Curve.read(jobs[setting, label, seed].run_dir, METRIC)
        for seed in args.seeds
      ]
      for label in tuned
      if label in ran
    }
    if OURS not in curves:
      continue  # nothing to compare with yet
    results[setting] = _summary(curves, values["env_steps"])
    results[setting]["curves"] = {
      label: [
        {"env_steps": c.env_steps.tolist(), "success": c.success.tolist()}
        for c in some
      ]
      for label, some in curves.items()
    }
    if ran:
      rich.print(_terminal_table(setting, results[setting]["rows"]))
  done = list(kept["commands"])
  if not args.report:
    done.append(commands.recorded("experiments.compare", argv))
  write_json(
    args.results / "compare.json",
    {
      "commands": list(dict.fromkeys(done)),
      "version": crbc_jax.__version__,
      "seeds": args.seeds,
      "metric": METRIC,
      "tuned": kept["tuned"] | tuned,
      "settings": results,
      "aggregate": (total := aggregate(results)),
    },
  )
  write_text(args.results / "compare.md", _markdown(results, args.seeds, total))
  plots.learning_curves(
    {
      setting: {
        label: curves
        for label, curves in result["curves"].items()
        if label in plots.STYLES  # two dozen lines would show nothing
      }
      for setting, result in results.items()
    },
    args.results / "compare",
  )
  if total:
    plots.profiles(
      {label: found["profile"] for label, found in total.items()},
      args.results / "compare_profiles",
      levels=LEVELS,
      xlabel="area under the success curve, "
      + ", ".join(next(iter(total.values()))["settings"]),
    )
  rich.print(f"wrote {args.results}/compare.json, .md, .png and .svg")


def _kept(args: argparse.Namespace) -> dict:
  """What earlier calls with the same seeds found."""
  path = args.results / "compare.json"
  nothing: dict = {"commands": [], "tuned": {}, "settings": {}}
  if not path.exists():
    return nothing
  found = json.loads(path.read_text(encoding="utf-8"))
  return found if found["seeds"] == args.seeds else nothing


def _kept_curves(kept: dict, setting: str, ran: list[str]) -> dict:
  curves = kept["settings"].get(setting, {"curves": {}})["curves"]
  return {
    label: [
      statistics.Curve(np.array(c["env_steps"]), np.array(c["success"]))
      for c in some
    ]
    for label, some in curves.items()
    if label not in ran
  }


def _settings(quick: bool) -> dict[str, dict]:
  """What differs from the defaults in each setting."""
  return {
    name: {"eval.every": EVAL_EVERY, **values}
    | (
      {"env_steps": QUICK_STEPS, "eval.every": QUICK_STEPS // 4}
      if quick
      else {}
    )
    for name, values in SETTINGS.items()
  }


def _job(out, setting, changes, label, seed, best) -> pool.Job:
  slug = f"{setting}-{label}-s{seed}".replace(" ", "_")
  return pool.Job(
    out / slug,
    {
      "estimator": best["estimator"],
      "learner.learning_rate": best["learning_rate"],
      "seed": seed,
      "tensorboard": False,
      **best.get("overrides", {}),
      **changes,
    },
  )


def _summary(curves, budget: int) -> dict:
  """Rows of the table: one per estimator, largest area first."""
  areas = {
    label: [c.area(budget) for c in some] for label, some in curves.items()
  }
  rows = []
  for label, some in curves.items():
    lead = np.subtract(areas[OURS], areas[label])
    steps = [c.steps_to(THRESHOLD) for c in some]
    reached = int(np.isfinite(steps).sum())
    rows.append(
      {
        "label": label,
        "at": [
          statistics.interval([c.at(f * budget) for c in some])
          for f in FRACTIONS
        ],
        "last3": statistics.interval([c.success[-3:].mean() for c in some]),
        "area": statistics.interval(areas[label]),
        "reached": reached,
        "median_steps": (
          float(np.median(steps)) if reached * 2 > len(steps) else None
        ),
        "lead": statistics.interval(lead),
        "seeds_ahead": int((lead > 0).sum()),
        "seeds": len(some),
      }
    )
  rows.sort(key=lambda r: -r["area"].mean)
  return {"budget": budget, "rows": rows}


def aggregate(results) -> dict[str, dict]:
  """Over the settings with exact keys, of who ran in all of them.

  Returns:
    {label: {"iqm" of the areas, "ahead": the chance that CRBC exact is,
    "profile": the share of runs with an area above each of LEVELS}}.
  """
  settings = [name for name in AGGREGATED if name in results]
  labels = [
    label
    for label in (results[settings[0]]["curves"] if settings else ())
    if all(label in results[name]["curves"] for name in settings)
  ]
  if OURS not in labels or len(labels) < 2:
    return {}
  scores = {
    label: np.array(
      [
        [
          statistics.Curve(
            np.array(c["env_steps"]), np.array(c["success"])
          ).area(results[name]["budget"])
          for c in results[name]["curves"][label]
        ]
        for name in settings
      ]
    ).T
    for label in labels
  }
  ahead = reliable.improvement(scores, OURS)
  profile = reliable.profiles(scores, LEVELS)
  found = {
    label: {
      "settings": settings,
      "iqm": iqm,
      "ahead": ahead.get(label),
      "profile": profile[label],
    }
    for label, iqm in reliable.iqm(scores).items()
  }
  return dict(sorted(found.items(), key=lambda item: -item[1]["iqm"].mean))


def _cells(row: dict) -> list[str]:
  median = row["median_steps"]
  steps = f"{median / 1e3:.0f} k" if median is not None else "–"
  lead = f"{row['lead']} ({row['seeds_ahead']}/{row['seeds']})"
  return [
    row["label"],
    *(f"{at.mean:.3f}" for at in row["at"]),
    str(row["last3"]),
    str(row["area"]),
    f"{steps} ({row['reached']}/{row['seeds']})",
    "–" if row["label"] == OURS else lead,
  ]


_HEADINGS = (
  "estimator",
  *(f"at {f:.0%}" for f in FRACTIONS),
  "last three evaluations",
  "area under the curve",
  f"steps to {THRESHOLD:.2f}",
  f"area of {OURS} minus this (seeds ahead)",
)


def _terminal_table(setting: str, rows) -> Table:
  table = Table(title=f"Sokoban {setting}: held-out success")
  for heading in _HEADINGS:
    table.add_column(heading)
  for row in rows:
    table.add_row(*_cells(row))
  return table


def _markdown(results, seeds, total) -> str:
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
  if total:
    settings = ", ".join(next(iter(total.values()))["settings"])
    lines += [
      "",
      f"**{settings} together** (rliable; stratified bootstrap)",
      "",
      markdown_table(
        (
          "estimator",
          "interquartile mean of the areas",
          f"probability that {OURS} is ahead",
        ),
        [
          (label, str(x["iqm"]), str(x["ahead"]) if x["ahead"] else "–")
          for label, x in total.items()
        ],
      ),
    ]
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  sys.exit(main())
