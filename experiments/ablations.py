"""The paper's ablations at laptop scale: one factor at a time.

  python -m experiments.ablations              # 120 runs, 20 minutes
  python -m experiments.ablations --quick      # one seed, small budget
  python -m experiments.ablations --only weights beta

Sokoban 6x6, one box, G = 8, 250,000 env steps, learning rate 3e-3 and else the
defaults, which are the paper's: beta .98, (w_G, w_S) = (1, 5), sigma_min .1,
truncation as failure, exact keys. Each factor is varied alone.

The paper's numbers (arXiv 2609.35082) are success on ALFWorld with a language
model of 1.5 B; what carries over is a direction, and each table says whether it
is the same here: of the two settings that the direction compares, which one is
ahead, by how much, on how many seeds.

Claims tested: step credit adds to trajectory credit ((1, 5) over (1, 0)) and
most of it does not need the trajectory term; (1, 5) over (1, 1); beta .98 over
1; more rollouts help, and CRBC is ahead at G = 4, 8 and 16; exact keys over
aliased ones. The gate on two actions is an identity, not an ablation: an anchor
with one action has Q = V (a test says so).

Writes results/ablations.{json,md,png,svg}.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import rich

import crbc_jax
from crbc_jax.files import write_text
from crbc_jax.learner.records import write_json
from crbc_jax.report import plots
from experiments import commands, pool, statistics
from experiments.bench_credit import markdown_table
from experiments.statistics import Interval, interval

METRIC = "success_sampled"
ENV_STEPS = 250_000
SEEDS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class Setting:
  """One value of a factor: the estimator and what else differs."""

  name: str
  estimator: str
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Factor:
  """What is varied, and which directions the paper reports."""

  title: str
  settings: tuple[Setting, ...]
  directions: tuple[tuple[str, str, str], ...]  # better, worse, source


def _groups(size: int) -> dict[str, int]:
  """As many rollouts an update whatever the size of a group."""
  return {"rollout.group_size": size, "rollout.levels": 512 // size}


_PAPER = "paper"
_OURS = "expected"
PAPER_SETTING = Setting("(1, 5)", "crbc")

FACTORS = {
  "weights": Factor(
    "(w_G, w_S): weights of trajectory and step credit",
    (
      Setting("(1, 0)", "crbc(w_step=0.0)"),
      Setting("(0, 5)", "crbc(w_group=0.0)"),
      Setting("(1, 1)", "crbc(w_step=1.0)"),
      Setting("(1, 2.5)", "crbc(w_step=2.5)"),
      PAPER_SETTING,
      Setting("(1, 10)", "crbc(w_step=10.0)"),
    ),
    (
      ("(1, 5)", "(1, 0)", f"{_PAPER}: 96.1 against 76.6"),
      ("(0, 5)", "(1, 0)", f"{_PAPER}: 95.3 against 76.6"),
      ("(1, 5)", "(0, 5)", f"{_PAPER}: 96.1 against 95.3"),
      ("(1, 5)", "(1, 1)", f"{_PAPER}: 96.1 against 93.8"),
      ("(1, 5)", "(1, 10)", f"{_PAPER}: 96.1 against 94.8"),
    ),
  ),
  "beta": Factor(
    "beta: discount of the process",
    tuple(
      Setting(f"{beta:g}", f"crbc(beta={beta})")
      for beta in (0.95, 0.98, 0.99, 1.0)
    ),
    (
      ("0.98", "0.95", f"{_PAPER}: 96.1 against 95.6"),
      ("0.98", "0.99", f"{_PAPER}: 96.1 against 95.3"),
      ("0.98", "1", f"{_PAPER}: 96.1 against 93.4"),
    ),
  ),
  "group size": Factor(
    "G: rollouts of a group, 512 rollouts an update",
    tuple(
      Setting(f"{label}, G = {size}", estimator, _groups(size))
      for size in (4, 8, 16)
      for label, estimator in (
        ("CRBC", "crbc"),
        ("GiGPO", "gigpo(step_weight=5.0)"),
        ("GraphGPO", "graphgpo(omega=0.8)"),
        ("GRPO", "grpo"),
      )
    ),
    (
      ("CRBC, G = 16", "CRBC, G = 8", f"{_PAPER}: 96.9 against 96.1"),
      ("CRBC, G = 8", "CRBC, G = 4", f"{_PAPER}: 96.1 against 93.0"),
      ("CRBC, G = 4", "GiGPO, G = 4", f"{_PAPER}: 93.0 against 79.7"),
      ("CRBC, G = 4", "GraphGPO, G = 4", f"{_PAPER}: 93.0 against 77.3"),
      ("CRBC, G = 4", "GRPO, G = 4", f"{_PAPER}: 93.0 against 47.7"),
      ("CRBC, G = 16", "GiGPO, G = 16", f"{_PAPER}: 96.9 against 93.0"),
      ("CRBC, G = 16", "GraphGPO, G = 16", f"{_PAPER}: 96.9 against 87.5"),
    ),
  ),
  "sigma_min": Factor(
    "sigma_min: floor of the divisor",
    tuple(
      Setting(f"{floor:g}", f"crbc(sigma_min={floor})")
      for floor in (0.01, 0.03, 0.1, 0.3, 1.0)
    ),
    (),
  ),
  "truncation": Factor(
    "a truncated rollout ends in failure, or goes on where it was",
    (
      Setting("failure", "crbc"),
      Setting("bootstrap", "crbc(truncation='bootstrap')"),
    ),
    (),
  ),
  "trajectory term": Factor(
    "what is added for the whole trajectory",
    tuple(
      Setting(kind, f"crbc(trajectory='{kind}')")
      for kind in ("grpo", "rloo", "none")
    ),
    (("grpo", "none", f"{_PAPER}: 96.1 against 95.3"),),
  ),
  "anchor key": Factor(
    "the state key: everything, or the player's cell alone",
    (
      Setting("exact", "crbc"),
      Setting("player", "crbc", {"env.state_keys": "player"}),
      Setting(
        "player, anchored",
        "crbc_anchored(w_step=5.0)",
        {"env.state_keys": "player"},
      ),
    ),
    (
      ("exact", "player", f"{_OURS}: keys that hide state mislead"),
      ("player, anchored", "player", f"{_OURS}: anchoring is for such keys"),
    ),
  ),
}


def main(argv: list[str] | None = None) -> None:
  """Trains what is missing, then writes and prints the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--only", nargs="+", choices=FACTORS, default=list(FACTORS), metavar="NAME"
  )
  parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
  parser.add_argument("--quick", action="store_true", help="seed 0, 40 k steps")
  parser.add_argument("--report", action="store_true", help="do not train")
  parser.add_argument("--out", default="runs/ablations", type=pathlib.Path)
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  budget = 40_000 if args.quick else ENV_STEPS
  seeds = args.seeds[:1] if args.quick else args.seeds
  jobs = {
    (name, setting.name): [
      _job(args.out, setting, seed, budget) for seed in seeds
    ]
    for name in args.only
    for setting in FACTORS[name].settings
  }
  unique = {job.run_dir: job for some in jobs.values() for job in some}
  if not args.report:
    pool.run_all(list(unique.values()))
  areas = {
    key: [statistics.Curve.read(j.run_dir, METRIC).area(budget) for j in some]
    for key, some in jobs.items()
  }
  result = {
    "command": commands.recorded("experiments.ablations", argv),
    "version": crbc_jax.__version__,
    "seeds": list(seeds),
    "budget": budget,
    "factors": {name: summary(name, areas) for name in args.only},
  }
  write_json(args.results / "ablations.json", result)
  text = markdown(result)
  write_text(args.results / "ablations.md", text)
  plots.factors(
    {
      FACTORS[name].title: {
        row["setting"]: row["area"] for row in found["rows"]
      }
      for name, found in result["factors"].items()
    },
    args.results / "ablations",
    xlabel="area under the success curve",
  )
  rich.print(text)
  rich.print(f"wrote {args.results}/ablations.json, .md, .png and .svg")


def _job(out, setting: Setting, seed: int, budget: int) -> pool.Job:
  """Settings that are the same run, such as the paper's, share a folder."""
  values = {"estimator": setting.estimator, **setting.overrides}
  if values == {"estimator": "crbc", **_groups(8)}:
    values = {"estimator": "crbc"}
  slug = "-".join(f"{k}={v}" for k, v in values.items())
  return pool.Job(
    out / f"{slug}-{budget}-s{seed}".replace(" ", ""),
    {
      **values,
      "learner.learning_rate": 3e-3,
      "seed": seed,
      "env_steps": budget,
      "eval.every": budget // 10,
      "checkpoint.every": budget,
      "tensorboard": False,
    },
  )


def summary(name: str, areas: Mapping[tuple[str, str], list[float]]) -> dict:
  """Areas of the settings of a factor, and what became of each direction."""

  def direction(better, worse, source):
    lead = np.subtract(areas[name, better], areas[name, worse])
    found = interval(lead)
    verdict = "agrees" if found.low > 0 else "disagrees"
    if found.low <= 0 <= found.high:
      verdict = "undecided"
    return {
      "claim": f"{better} over {worse}",
      "source": source,
      "lead": found,
      "seeds_ahead": int((lead > 0).sum()),
      "verdict": verdict,
    }

  factor = FACTORS[name]
  return {
    "title": factor.title,
    "rows": [
      {
        "setting": setting.name,
        "estimator": setting.estimator,
        "area": interval(areas[name, setting.name]),
      }
      for setting in factor.settings
    ],
    "directions": [direction(*claim) for claim in factor.directions],
  }


def markdown(result: Mapping[str, Any]) -> str:
  """The tables of results/ablations.md."""
  seeds = len(result["seeds"])
  blocks = [
    "<!-- written by experiments/ablations.py; do not edit -->",
    f"`{result['command']}`\n\nSokoban 6x6, {result['budget']:,} env steps,"
    f" {seeds} paired seeds: area under the curve of held-out success, 95 %"
    " bootstrap intervals over seeds. A direction agrees or"
    " disagrees where the interval of the lead leaves out 0: with three seeds,"
    " where all have the same sign.",
  ]
  for found in result["factors"].values():
    blocks += [
      f"**{found['title']}**",
      markdown_table(
        ("setting", "estimator", "area under the curve"),
        [
          (
            row["setting"],
            f"`{row['estimator']}`",
            str(Interval(*row["area"])),
          )
          for row in found["rows"]
        ],
      ),
    ]
    if found["directions"]:
      blocks.append(_directions(found["directions"], seeds))
  return "\n\n".join(blocks) + "\n"


def _directions(claims, seeds: int) -> str:
  return markdown_table(
    ("direction", "from", "lead here", "seeds ahead", "verdict"),
    [
      (
        claim["claim"],
        claim["source"],
        str(Interval(*claim["lead"])),
        f"{claim['seeds_ahead']}/{seeds}",
        claim["verdict"],
      )
      for claim in claims
    ],
  )


if __name__ == "__main__":
  sys.exit(main())
