"""Estimators on ALFWorld and WebShop: same clone, same games, same env steps.

  python -m experiments.text_games --task alfworld --data FILE
  python -m experiments.text_games --task webshop --data FILE
  python -m experiments.text_games --task sokoban_bytes --rates 3e-4 1e-3
  python -m experiments.text_games --task alfworld --data FILE --report
  python -m experiments.text_games --task alfworld --data FILE --quick

All runs begin from the same cloned policy (config file of the task). Every
estimator is tuned alike, in runs of a third of the budget with a seed that the
comparison does not use, on the same held-out games: first its options
(`experiments.contestants`) at the middle learning rate, then the other rates
with the best of them. Seeds are paired.

--quick clones in a hurry, tunes nothing and trains three estimators for a few
updates on few games: a look at the tables, not at their numbers.

sokoban_bytes and alfworld_bytes (generated games) are played by a byte-level
language model that writes its commands; by default for the four estimators of
`BYTE_LABELS`.

The reward of an episode holds penalties for inadmissible commands, but credit
is that of the outcome unless `--observed` asks for credit from the rewards.

`--added N` trains on N generated ALFWorld games besides (give such runs an
--out of their own). Without --data it runs on generated games, which says
nothing about the benchmarks. Writes results/TASK.{json,md,png,svg}.
"""

import argparse
import dataclasses
import importlib
import pathlib
import re
import sys

import jax
import numpy as np
import rich
from rich.table import Table

import crbc_jax
from crbc_jax.credit import registry
from crbc_jax.credit.diagnostics import batch_diagnostics
from crbc_jax.files import write_text
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import records, task, text_collect, training_step
from crbc_jax.report import plots
from experiments import commands, pool, statistics
from experiments.bench_credit import markdown_table
from experiments.contestants import Contestant, chosen

LABELS = (
  "CRBC exact",
  "CRBC depth 2",
  "CRBC depth 0",
  "GraphGPO",
  "GiGPO",
  "RTMC",
  "GRPO",
)
OURS = "CRBC exact"
RATES = (1e-3, 3e-4, 3e-3)  # options are tried at the first
SEEDS = (0, 1, 2)
TUNING_SEED = 100
METRIC = "success_sampled"
BUDGET = {
  "alfworld": 120_000,
  "webshop": 60_000,
  "sokoban_bytes": 40_000,
  "alfworld_bytes": 16_000,
}
QUICK_BUDGET = {
  "alfworld": 6_000,
  "webshop": 1_500,
  "sokoban_bytes": 2_000,
  "alfworld_bytes": 500,
}
BYTE_LABELS = ("CRBC exact", "CRBC depth 0", "GiGPO", "GRPO")
QUICK_LABELS = ("CRBC exact", "GiGPO", "GRPO")
QUICK = {
  "panel": 32,
  "rollout.levels": 4,
  "text.demonstrations": 40,
  "text.clone_epochs": 4,
}


def main(argv: list[str] | None = None) -> None:
  """Tunes, trains what is missing, then writes and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--task", choices=tuple(BUDGET), required=True)
  parser.add_argument("--data", default="", help="as --config.text.data")
  parser.add_argument(
    "--added", default=0, type=int, help="as --config.text.added (ALFWorld)"
  )
  parser.add_argument("--env_steps", type=int, help="of a run")
  parser.add_argument("--only", nargs="+", choices=LABELS, metavar="LABEL")
  parser.add_argument("--seeds", type=int, nargs="+")
  parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
  parser.add_argument(
    "--observed",
    action="store_true",
    help="credit from the rewards, penalties included, not from the outcome;"
    " writes results/TASK_observed.*",
  )
  parser.add_argument(
    "--untuned",
    action="store_true",
    help="the first option of each estimator, at the first rate",
  )
  parser.add_argument("--quick", action="store_true", help="for a look")
  parser.add_argument("--out", type=pathlib.Path, help="run folders")
  parser.add_argument("--report", action="store_true", help="do not train")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  labels = BYTE_LABELS if args.task.endswith("_bytes") else LABELS
  args.only = args.only or list(QUICK_LABELS if args.quick else labels)
  args.seeds = args.seeds or list(SEEDS[:1] if args.quick else SEEDS)
  args.out = args.out or pathlib.Path("runs", "quick" * args.quick, "text")
  budget = args.env_steps or (QUICK_BUDGET if args.quick else BUDGET)[args.task]

  def job(stage, estimator, rate, seed, steps):
    slug = re.sub(r"[^\w.=]+", "_", f"{args.task}-{stage}-{estimator}")
    config = importlib.import_module(f"configs.{args.task}").get_config()
    return pool.Job(
      args.out / f"{slug}-{rate:g}-s{seed}",
      config_lib.changes(config)
      | {
        "estimator": estimator,
        "learner.learning_rate": rate,
        "seed": seed,
        "env_steps": steps,
        "eval.every": max(budget // 6, 1),
        "checkpoint.every": steps,
        "text.data": args.data,
        "text.added": args.added,
        "tensorboard": False,
      }
      | (QUICK if args.quick else {}),
    )

  def areas(settings):
    """Trains what is missing; area under the curve of each setting."""
    jobs = {
      (estimator, rate): job("tune", estimator, rate, TUNING_SEED, budget // 3)
      for estimator, rate in settings
    }
    if not args.report:
      pool.run_all(list(jobs.values()))
    return {
      setting: statistics.Curve.read(job.run_dir, METRIC).area(budget // 3)
      for setting, job in jobs.items()
    }

  contestants = chosen(args.only)
  if args.observed:
    contestants = [observing(contestant) for contestant in contestants]
  tuned = (
    untuned(contestants, args.rates[0])
    if args.quick or args.untuned
    else tune(contestants, args.rates, areas)
  )
  runs = {
    label: [
      job("run", best["estimator"], best["learning_rate"], seed, budget)
      for seed in args.seeds
    ]
    for label, best in tuned.items()
  }
  if not args.report:
    pool.run_all([job for jobs in zip(*runs.values()) for job in jobs])  # noqa: B905
  folders = {label: [j.run_dir for j in jobs] for label, jobs in runs.items()}
  found = summary(folders, budget)
  rich.print(_terminal(args.task, found["rows"], len(args.seeds)))
  result = {
    "command": commands.recorded("experiments.text_games", argv),
    "version": crbc_jax.__version__,
    "seeds": args.seeds,
    "budget": budget,
    "tuned": tuned,
    "keys": live_shares(
      pool.resolved_config(runs[args.only[0]][0]), games=8 if args.quick else 48
    ),
    **found,
  }
  name = args.task + "_observed" * args.observed
  records.write_json(args.results / f"{name}.json", result)
  write_text(args.results / f"{name}.md", _markdown(name, result))
  plots.learning_curves({name: found["curves"]}, args.results / name)
  rich.print(f"wrote {args.results}/{name}.json, .md, .png and .svg")


def observing(contestant: Contestant) -> Contestant:
  """The same with credit from observed rewards (`signal="observed"`)."""

  def one(estimator: str) -> str:
    name, options = registry.parse_estimator(estimator)
    options["signal"] = "observed"
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"{name}({given})"

  return dataclasses.replace(
    contestant, estimators=tuple(map(one, contestant.estimators))
  )


def tune(contestants, rates, areas) -> dict[str, dict]:
  """The best setting of each contestant: options first, then the rate.

  Args:
    contestants: `contestants.Contestant`s.
    rates: learning rates; options are tried at the first.
    areas: {(estimator, rate): area} of a list of such settings.
  """
  found = areas([(e, rates[0]) for c in contestants for e in c.estimators])
  best = {
    c.label: max(c.estimators, key=lambda e: found[e, rates[0]])
    for c in contestants
  }
  found |= areas([(e, rate) for e in best.values() for rate in rates[1:]])
  return {
    c.label: {
      "estimator": best[c.label],
      "learning_rate": max(rates, key=lambda rate: found[best[c.label], rate]),
      "areas": {
        f"{e} {rate:g}": round(area, 4)
        for (e, rate), area in found.items()
        if e in c.estimators
      },
    }
    for c in contestants
  }


def untuned(contestants, rate: float) -> dict[str, dict]:
  """The first setting of each contestant, as `tune` gives the best."""
  return {
    c.label: {"estimator": c.estimators[0], "learning_rate": rate, "areas": {}}
    for c in contestants
  }


def summary(folders, budget: int) -> dict:
  """Tables of finished runs: success, by tag, live share, time."""
  curves = {
    label: [statistics.Curve.read(folder, METRIC) for folder in some]
    for label, some in folders.items()
  }
  areas = {
    label: [c.area(budget) for c in some] for label, some in curves.items()
  }
  rows, tags, shares = [], {}, {}
  for label, some in folders.items():
    last = [records.read_metrics(folder, "eval")[-1] for folder in some]
    train = [records.read_metrics(folder, "train") for folder in some]
    row = {
      "label": label,
      "start": float(np.mean([c.success[0] for c in curves[label]])),
      "area": statistics.interval(areas[label]),
      "end": statistics.interval([r[METRIC] for r in last]),
      "greedy": statistics.interval([r["success_greedy"] for r in last]),
      "score": statistics.interval([r["score_sampled"] for r in last]),
      "live": float(np.mean([x["live_share"] for t in train for x in t])),
      "credit_share": float(
        np.mean([statistics.credit_share(folder)[0] for folder in some])
      ),
    }
    if OURS in areas:
      lead = np.subtract(areas[OURS], areas[label])
      row["lead"] = statistics.interval(lead)
      row["seeds_ahead"] = int((lead > 0).sum())
    rows.append(row)
    tags[label] = {
      name.partition("/")[2]: statistics.interval([r[name] for r in last])
      for name in last[0]
      if name.startswith(f"{METRIC}/")
    }
    shares[label] = _time_shares(train)
  rows.sort(key=lambda row: -row["area"].mean)
  return {
    "rows": rows,
    "tags": tags,
    "time": shares,
    "curves": {
      label: [
        {"env_steps": c.env_steps.tolist(), "success": c.success.tolist()}
        for c in some
      ]
      for label, some in curves.items()
    },
  }


def live_shares(config, *, games: int = 48) -> dict[str, dict[str, float]]:
  """Of rollouts of the clone: what step credit reaches with each key.

  The same rollouts under every key: the share of steps with live credit of
  `crbc`, and of steps alone at their anchor.
  """
  shares = {}
  for key in text_collect.KEYS:
    config.text.state_key = key
    current = task.make_task(config)
    _, rollouts = current.collect_fn(config)(
      current.params,
      np.arange(min(games, len(current.train))),
      jax.random.key(0),
    )
    _, arrays, credit = training_step.credit_rollouts(
      rollouts,
      registry.make_credit_fn("crbc"),
      actions=current.num_actions,
    )
    found = batch_diagnostics(arrays, credit)
    shares[key] = {
      name: round(found[name], 4) for name in ("live_share", "singleton_share")
    }
  return shares


def _time_shares(train) -> dict[str, float]:
  """Shares of rollout, credit and update over updates, compilation aside."""
  parts = ("rollout", "credit", "update")
  seconds = np.array(
    [[x[f"seconds_{part}"] for part in parts] for t in train for x in t[3:]]
  )
  if not len(seconds):
    return {}
  total = np.median(seconds, axis=0)
  return dict(zip(parts, (total / total.sum()).round(4).tolist(), strict=True))


_HEADINGS = (
  "estimator",
  "clone",
  "area under the curve",
  "success at the end",
  "greedy",
  "score",
  f"area of {OURS} minus this (seeds ahead)",
  "live share",
)


def _cells(row: dict, seeds: int) -> list[str]:
  lead = "–"
  if row["label"] != OURS and "lead" in row:
    lead = f"{row['lead']} ({row['seeds_ahead']}/{seeds})"
  return [
    row["label"],
    f"{row['start']:.3f}",
    *(str(row[name]) for name in ("area", "end", "greedy", "score")),
    lead,
    f"{row['live']:.0%}",
  ]


def _terminal(task: str, rows, seeds: int) -> Table:
  table = Table(*_HEADINGS, title=f"{task}: held-out success")
  for row in rows:
    table.add_row(*_cells(row, seeds))
  return table


def _markdown(task: str, result: dict) -> str:
  seeds = len(result["seeds"])
  labels = [row["label"] for row in result["rows"]]
  tags = list(result["tags"][labels[0]])
  parts = [
    "<!-- written by experiments/text_games.py; do not edit -->",
    f"{task}, {result['budget']:,} env steps, {seeds} paired seeds; brackets:"
    " 95 % bootstrap interval over seeds; actions sampled unless it says"
    f" greedy.\n\n`{result['command']}`",
    markdown_table(_HEADINGS, [_cells(r, seeds) for r in result["rows"]]),
    "Success at the end by split and type of task:",
    markdown_table(
      ("estimator", *tags),
      [
        (label, *(str(result["tags"][label][tag]) for tag in tags))
        for label in labels
      ],
    ),
    "Steps with live credit of `crbc`, and alone at their anchor, in rollouts"
    " of the clone under each key (`text.state_key`):",
    markdown_table(
      ("key", "live", "alone"),
      [
        (key, *(f"{x:.1%}" for x in shares.values()))
        for key, shares in result["keys"].items()
      ],
    ),
    "Share of time (median of the updates, evaluation aside; rollout is"
    " environment and policy together), and the setting chosen:",
    markdown_table(
      ("estimator", "rollout", "credit", "update", "setting", "rate"),
      [
        (
          label,
          *(f"{x:.1%}" for x in result["time"][label].values()),
          f"`{result['tuned'][label]['estimator']}`",
          f"{result['tuned'][label]['learning_rate']:g}",
        )
        for label in labels
      ],
    ),
  ]
  return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
  sys.exit(main())
