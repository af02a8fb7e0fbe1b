"""Trains on level files: two boxes, and the real Boxoban levels.

Claim: two boxes on 7x7 are learnt, by CRBC faster than by GRPO. Boxoban
(10x10, four boxes) is out of reach of a small policy and this budget from
success alone, since no rollout ever succeeds and every estimator then gives 0;
the number is reported as it is, with and without the shaped reward.

  python -m experiments.level_files --boxoban FOLDER   # about 6 minutes
  python -m experiments.level_files --quick            # 60,000 steps a run

FOLDER holds `train` and `test` with level files, as `unfiltered` of
google-deepmind/boxoban-levels does; without it only two boxes are trained on.
Writes results/level_files.json and .md.
"""

import argparse
import pathlib
import sys

from rich import print as rich_print

import crbc_jax
from configs import sokoban
from crbc_jax.envs import ensure_levels
from crbc_jax.files import write_text
from crbc_jax.learner import config as config_lib
from crbc_jax.learner.records import write_json
from experiments import commands, pool, statistics

TWO_BOXES = {"seed": 0, "size": (7, 7), "boxes": 2}
TWO_BOX_CHANGES = {"env.step_limit": 50}
BOXOBAN_CHANGES = {
  "env.step_limit": 120,
  "rollout.levels": 16,
  "env_steps": 1_000_000,
  "eval.every": 250_000,
}
QUICK = {"env_steps": 60_000, "eval.every": 30_000}
SHAPED = {
  "estimator": "crbc(signal='observed', sigma_min=1.0, w_step=1.0)",
  "env.reward": "shaped",
}


def main(argv: list[str] | None = None) -> None:
  """Trains what is missing and writes the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--boxoban", type=pathlib.Path, metavar="FOLDER")
  parser.add_argument("--quick", action="store_true", help="for a look")
  parser.add_argument("--out", type=pathlib.Path, help="run folders")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  args.out = args.out or pathlib.Path(
    "runs", "quick" * args.quick, "level_files"
  )
  common = config_lib.changes(sokoban.get_config()) | {"tensorboard": False}
  train, held_out = ensure_levels("levels/7x7-2box", **TWO_BOXES)
  two = common | TWO_BOX_CHANGES
  two |= {"levels": str(train), "held_out": str(held_out)}
  jobs = {
    ("7x7, two boxes", "CRBC exact"): two,
    ("7x7, two boxes", "GRPO"): two | {"estimator": "grpo"},
  }
  if args.boxoban:
    box = common | BOXOBAN_CHANGES
    box |= {
      "levels": str(args.boxoban / "train"),
      "held_out": str(args.boxoban / "test"),
    }
    jobs["Boxoban", "CRBC exact"] = box
    jobs["Boxoban, shaped reward", "CRBC exact, observed"] = box | SHAPED
  named = {
    key: pool.Job(
      args.out / "-".join(key).replace(" ", "_"),
      changes | (QUICK if args.quick else {}),
    )
    for key, changes in jobs.items()
  }
  pool.run_all(list(named.values()))
  rows = []
  for (levels, estimator), job in named.items():
    config = pool.resolved_config(job)
    sampled, greedy = (
      statistics.Curve.read(job.run_dir, metric)
      for metric in ("success_sampled", "success_greedy")
    )
    rows.append(
      {
        "levels": levels,
        "estimator": estimator,
        "env_steps": config.env_steps,
        "step_limit": config.env.step_limit,
        "before": float(sampled.success[0]),
        "sampled": float(sampled.success[-1]),
        "greedy": float(greedy.success[-1]),
      }
    )
  write_json(
    args.results / "level_files.json",
    {
      "command": commands.recorded("experiments.level_files", argv),
      "version": crbc_jax.__version__,
      "seed": 0,
      "rows": rows,
    },
  )
  text = _markdown(rows)
  write_text(args.results / "level_files.md", text)
  rich_print(text)


def _markdown(rows) -> str:
  lines = [
    "| levels | estimator | env steps | before | sampled | greedy |",
    "|---|---|---|---|---|---|",
  ]
  lines += [
    f"| {r['levels']} (T = {r['step_limit']}) | {r['estimator']} | "
    f"{r['env_steps']:,} | {r['before']:.3f} | {r['sampled']:.3f} | "
    f"{r['greedy']:.3f} |"
    for r in rows
  ]
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  sys.exit(main())
