"""How deep must closure look? Credit error and training at every depth.

Depths 0, 1, 2, 4, 8, 16 and infinity, in one jitted program that sees the same
rollouts at every depth.

  python -m experiments.depth_ablation [--alfworld FILE] [--webshop FILE]
  python -m experiments.depth_ablation --quick
  python -m experiments.depth_ablation --parts tabular --report

Parts (--parts, all by default):

  tabular  ten small problems with known truth (`envs.problems`): grids, loops,
           a lucky shortcut, a rare hub, a tree, hidden state; error of credit
           and training of a table of logits. beta .95.
  sokoban  6x6, 7x7 and slips of 25 %: error of credit against exact values for
           the initial and a trained policy, and training. beta .98.
  text     ALFWorld and WebShop (generated games without a file): gap to the
           closure in rollouts of the clone, and training.

In training w_S = 5 (the paper's) and one learning rate serve all depths: 3e-3
on Sokoban, 1e-3 on text games. Depth 0 is visit averaging. Gaps are set beside
the bound 2 beta^K / (1 - beta) max |T V0 - V0| (arXiv 2609.35082).

Claims: error falls with depth up to about 8 where rollouts merge; on a tree
all depths are the same; where a key hides state deeper is worse in training.
Aggregates over settings by rliable: interquartile mean with stratified
bootstrap intervals, and the probability that the closure is ahead.

Takes 45 minutes on two cores, --quick four. Writes
results/depth_ablation.{json,md} and the figures depth_accuracy, depth_gap and
depth_training.
"""

import argparse
import importlib
import itertools
import json
import pathlib
import sys
from typing import Any

import numpy as np
import rich

import crbc_jax
from crbc_jax.envs.problems import MISLEADING, PROBLEMS
from crbc_jax.files import write_text
from crbc_jax.learner import config as config_lib
from crbc_jax.learner.records import write_json
from crbc_jax.report import plots
from experiments import (
  commands,
  depth_games,
  depth_tabular,
  pool,
  reliable,
  statistics,
)
from experiments.bench_credit import markdown_table
from experiments.compare import SETTINGS
from experiments.depth_measures import DEPTHS, NAMES
from experiments.statistics import Interval, interval

PARTS = ("tabular", "sokoban", "text")
SOKOBAN = ("6x6", "7x7", "6x6 slip .25")
METRIC = "success_sampled"
FULL = {
  "batches": 8,
  "groups": 64,
  "tabular_seeds": 20,
  "seeds": (0, 1, 2),
  "text_seeds": (0, 1, 2),
  "sokoban_steps": 250_000,
  "trained_steps": 100_000,
  "text_steps": 40_000,
}
QUICK = {
  "batches": 3,
  "groups": 16,
  "tabular_seeds": 3,
  "seeds": (0,),
  "text_seeds": (),
  "sokoban_steps": 40_000,
  "trained_steps": 0,
  "text_steps": 0,
}


def main(argv: list[str] | None = None) -> None:
  """Measures and trains what is missing, then writes tables and figures."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
  parser.add_argument("--alfworld", default="", help="--config.text.data of it")
  parser.add_argument("--webshop", default="", help="--config.text.data of it")
  parser.add_argument("--quick", action="store_true", help="small budgets")
  parser.add_argument("--report", action="store_true", help="do not train")
  parser.add_argument("--out", default="runs/depth", type=pathlib.Path)
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  size = QUICK if args.quick else FULL
  data = {"alfworld": args.alfworld, "webshop": args.webshop}
  path = args.results / "depth_ablation.json"
  found: dict[str, Any] = {}
  if path.exists():  # other parts stay as they are
    found = json.loads(path.read_text(encoding="utf-8"))["parts"]
  for part in args.parts:
    measure = {"tabular": _tabular, "sokoban": _sokoban, "text": _text}[part]
    found[part] = {
      "command": commands.recorded("experiments.depth_ablation", argv),
      "size": size,
      **measure(size, args, data),
    }
  result = {
    "version": crbc_jax.__version__,
    "depths": NAMES,
    "parts": {part: found[part] for part in PARTS if part in found},
  }
  result["aggregate"] = aggregate(result["parts"])
  write_json(path, result)
  text = markdown(result)
  write_text(args.results / "depth_ablation.md", text)
  draw(result, args.results)
  rich.print(text)
  rich.print(f"wrote {path}, .md and the figures")


def _tabular(size, args, data) -> dict[str, Any]:
  cells, training = [], {}
  for name in PROBLEMS:
    cells += depth_tabular.accuracy(
      name, batches=size["batches"], groups=size["groups"]
    )
    curves = depth_tabular.train(name, seeds=size["tabular_seeds"])
    training[name] = _scores(curves.mean(axis=2), curves[:, :, -1])
    rich.print(f"{name}: area {_line(training[name]['area'])}")
  return {"accuracy": cells, "training": training}


def _sokoban(size, args, data) -> dict[str, Any]:
  jobs = {
    (setting, depth, seed): _job(
      args.out,
      setting,
      depth,
      seed,
      {
        **SETTINGS[setting],
        "env_steps": size["sokoban_steps"],
        "eval.every": size["sokoban_steps"] // 10,
        "learner.learning_rate": 3e-3,
      },
    )
    for setting in SOKOBAN
    for seed in size["seeds"]
    for depth in NAMES
  }
  training = _trained(jobs, SOKOBAN, size["seeds"], args.report)
  cells = []
  for setting in SOKOBAN:
    job = jobs[setting, NAMES[-1], size["seeds"][0]]
    cells += depth_games.sokoban_accuracy(
      setting,
      pool.resolved_config(job),
      seed=0,
      batches=size["batches"],
      env_steps=size["trained_steps"],
    )
    rich.print(f"{setting}: measured")
  return {"accuracy": cells, "training": training}


def _text(size, args, data) -> dict[str, Any]:
  jobs, gaps = {}, []
  for name, file in data.items():
    standard = importlib.import_module(f"configs.{name}").get_config()
    changes = config_lib.changes(standard) | {"text.data": file}
    for seed, depth in itertools.product(size["text_seeds"], NAMES):
      jobs[name, depth, seed] = _job(
        args.out,
        name,
        depth,
        seed,
        {
          **changes,
          "env_steps": size["text_steps"],
          "eval.every": size["text_steps"] // 4,
          "checkpoint.every": size["text_steps"],
          "learner.learning_rate": 1e-3,
        },
      )
    config = pool.resolved_config(pool.Job(args.out, changes))
    gaps.append(
      depth_games.text_gaps(name, config, batches=max(size["batches"] // 2, 1))
    )
    rich.print(f"{name}: gap {_line(gaps[-1]['gap'])}")
  training = _trained(jobs, data, size["text_seeds"], args.report)
  return {"gaps": gaps, "training": training}


def _job(out, setting, depth, seed, overrides) -> pool.Job:
  slug = f"{setting}-depth-{depth}-s{seed}".replace(" ", "_")
  return pool.Job(
    out / slug,
    {
      **overrides,
      "estimator": f"crbc(depth={depth})",
      "seed": seed,
      "tensorboard": False,
    },
  )


def _trained(jobs, settings, seeds, report: bool) -> dict[str, Any]:
  """Trains what is missing; scores of each setting."""
  if not report:
    pool.run_all(list(jobs.values()))
  found = {}
  for setting in settings if seeds else ():
    curves = [
      [
        statistics.Curve.read(jobs[setting, depth, seed].run_dir, METRIC)
        for seed in seeds
      ]
      for depth in NAMES
    ]
    budget = pool.resolved_config(jobs[setting, NAMES[0], seeds[0]]).env_steps
    found[setting] = _scores(
      np.array([[c.area(budget) for c in some] for some in curves]),
      np.array([[c.success[-1] for c in some] for some in curves]),
    )
  return found


def _scores(area: np.ndarray, final: np.ndarray) -> dict[str, Any]:
  """Scores [D, seeds], and what the closure is ahead by, seeds paired."""
  return {
    "area": [interval(x) for x in area],
    "final": [interval(x) for x in final],
    "lead": [interval(area[-1] - x) for x in area],
    "areas": area.round(4).tolist(),
    "finals": final.round(4).tolist(),
  }


def aggregate(parts) -> dict[str, Any]:
  """Over the settings of each part: IQM of areas, chance of being ahead.

  Problems whose keys mislead are a part of their own; the T-maze, where a
  policy without memory has nothing to learn, is in none.
  """
  areas: dict[str, list] = {}
  for part, result in parts.items():
    for setting, scores in result["training"].items():
      hidden = ", misleading keys" * (setting in MISLEADING)
      if setting != "T-maze":
        areas.setdefault(part + hidden, []).append(scores["areas"])
  found = {}
  for name, some in areas.items():
    by_depth = np.array(some).transpose(1, 2, 0)  # [D, seeds, settings]
    scores = dict(zip(NAMES, by_depth, strict=True))
    found[name] = {
      "settings": len(some),
      "seeds": by_depth.shape[1],
      "iqm": reliable.iqm(scores),
      "ahead": reliable.improvement(scores, NAMES[-1]),
    }
  return found


def markdown(result) -> str:
  """The tables of results/depth_ablation.md."""
  depths = [name.replace("inf", "∞") for name in NAMES]
  blocks = [
    "<!-- written by experiments/depth_ablation.py; do not edit -->",
    "\n".join(
      f"- {part}: `{found['command']}`"
      for part, found in result["parts"].items()
    ),
    "Brackets: 95 % bootstrap intervals.",
  ]
  rows = [
    (
      cell["setting"],
      cell["policy"],
      *(f"{x[0]:.3f}" for x in cell["metrics"]["corr"]),
      cell["pays_until"].replace("inf", "∞"),
    )
    for part in result["parts"].values()
    for cell in part.get("accuracy", [])
  ]
  if rows:
    blocks += [
      "**Correlation of raw step credit with the exact advantage**, live rows."
      " Last column: the depth from which on none is clearly better (a lead"
      " above .005 whose interval over batches leaves out 0).",
      markdown_table(("setting", "policy", *depths, "pays until"), rows),
    ]
  rows = [
    (
      cell["setting"],
      cell["policy"],
      *(
        f"{gap:.2g} (≤ {bound:.2g})" if bound is not None else f"{gap:.2g}"
        for gap, bound in zip(cell["gap"], cell["bound"], strict=True)
      ),
    )
    for part in result["parts"].values()
    for cell in (*part.get("accuracy", []), *part.get("gaps", []))
  ]
  blocks += [
    "**Largest gap to the exact closure**, in units of the largest credit of"
    " the group, and what the bound allows; means over groups.",
    markdown_table(("setting", "policy", *depths), rows),
  ]
  rows = [
    (setting, *(str(Interval(*x)) for x in scores["area"]))
    for part in result["parts"].values()
    for setting, scores in part["training"].items()
  ]
  leads = [
    (setting, *(str(Interval(*x)) for x in scores["lead"][:-1]))
    for part in result["parts"].values()
    for setting, scores in part["training"].items()
  ]
  totals = [
    (
      f"{part}: {found['settings']} settings x {found['seeds']} seeds",
      *(str(Interval(*found["iqm"][name])) for name in NAMES),
    )
    for part, found in result["aggregate"].items()
  ]
  ahead = [
    (part, *(str(Interval(*found["ahead"][name])) for name in NAMES[:-1]))
    for part, found in result["aggregate"].items()
  ]
  blocks += [
    "**Training: area under the success curve**",
    markdown_table(("setting", *depths), rows),
    "**Area of the closure minus that of the depth**, seeds paired",
    markdown_table(("setting", *depths[:-1]), leads),
    "**Interquartile mean of the areas** (rliable)",
    markdown_table(("part", *depths), totals),
    "**Probability that the closure is ahead** (rliable)",
    markdown_table(("part", *depths[:-1]), ahead),
  ]
  return "\n\n".join(blocks) + "\n"


def draw(result, folder: pathlib.Path) -> None:
  """Three figures against depth: error, gap with its bound, training."""
  cells = [
    cell
    for part in result["parts"].values()
    for cell in (*part.get("accuracy", []), *part.get("gaps", []))
    if cell["policy"] not in ("uniform", "initial")
  ]
  figures = {
    "accuracy": {
      cell["setting"]: {
        "correlation with the truth": cell["metrics"]["corr"],
        "share of right signs": cell["metrics"]["sign"],
      }
      for cell in cells
      if "metrics" in cell
    },
    "gap": {
      cell["setting"]: {
        "largest gap to the closure": cell["gap"],
        "what the bound allows": cell["bound"],
      }
      for cell in cells
    },
    "training": {
      setting: {
        "area under the curve": scores["area"],
        "success at the end": scores["final"],
      }
      for part in result["parts"].values()
      for setting, scores in part["training"].items()
    },
  }
  for name, panels in figures.items():
    if panels:
      plots.depth_panels(
        panels, folder / f"depth_{name}", depths=DEPTHS, log=name == "gap"
      )


def _line(values) -> str:
  return " ".join(
    f"{(x[0] if isinstance(x, (tuple, list)) else x):.3f}" for x in values
  )


if __name__ == "__main__":
  sys.exit(main())
