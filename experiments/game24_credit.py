"""Does step credit know which steps of real GPT-4 rollouts were right?

  python -m experiments.game24_credit [--log FILE] [--out results]

The log holds 100 puzzles of the Game of 24 with 100 rollouts each (GPT-4,
chain of thought; princeton-nlp/tree-of-thought-llm, MIT licence). Whether a
step was right is known by brute force over exact fractions: it is if the puzzle
can still be solved after it. Nobody who assigns credit sees that; they see
states, actions and whether a rollout was judged a success.

Convention. A rollout counts if it is clean, that is, if the reader of such logs
takes it (`crbc_jax.rollouts.readers.game24`). The rollouts of a puzzle are
dealt at random into groups of 8; groups whose rollouts all failed or all
succeeded are left out; five such deals. The state key is the multiset of the
numbers left, the action key the numbers that the step leaves ("result"), or the
two numbers and the operation ("operation").
The score of a step is the advantage that an estimator gives it, pooled over
all groups of a deal. The measure is the area under the ROC curve: how often a
right step scores higher than a wrong one, a tie counting half; mean over the
deals, with a 95 % bootstrap interval over puzzles. Measured on

  all       all steps
  first     first steps, where all rollouts of a group share the state
  solvable  steps from a state that could still be solved. From a dead state
            every step is wrong whatever it does, so that a method can be ahead
            on `all` by knowing who is lost rather than which step lost it

Left out are estimators that need a critic (`gae`), rewards besides the outcome
(`mica`) or extra rollouts (`vineppo`, `elpo`).

Claim: evidence across rollouts tells right steps from wrong ones better than
the outcome of the rollout, most of all on first steps. Expected (all, first,
solvable): CRBC exact .851 .898 .914, GRPO .808 .692 .809, GraphGPO .848 .884
.894, CRBC depth 0 .841 .885 .906; ahead of CRBC on all steps, and not on first
ones: SALT .908 .870 .908 and RTMC .893 .858 .920. On all steps the lead of CRBC
over GRPO, .043, has an interval that reaches 0. Step terms alone (CRBC .736
on all steps) know nothing at an anchor of one rollout and give 0 to the steps
of lost rollouts there. Takes two minutes on two cores. Writes
game24_credit.json, .md, .png and .svg.
"""

import argparse
import json
import os
import pathlib
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import rich.console
import rich.table
from matplotlib.figure import Figure

import crbc_jax
from crbc_jax import make_batch, make_credit_fn, parse_estimator
from crbc_jax.files import write_text
from crbc_jax.report import plots
from experiments import commands, game24_rollouts, ranking
from experiments.game24_rollouts import Groups, Rollout
from experiments.statistics import Interval

LOG = "gpt-4_0.7_naive_cot_sample_100_start900_end1000.json"
GROUP_SIZE = 8
SEEDS = (0, 1, 2, 3, 4)
ACTION_KEYS = ("result", "operation")
ALONE = ", step term alone"

ESTIMATORS = {
  "GRPO": "grpo",
  "RLOO": "rloo",
  "Dr. GRPO": "dr_grpo",
  "REINFORCE++": "reinforce_pp",
  "REINFORCE++ baseline": "reinforce_pp_baseline",
  "SALT": "salt",
  "GiGPO": "gigpo",
  f"GiGPO{ALONE}": "gigpo(trajectory='none')",
  "HGPO": "hgpo",
  "G2PO": "g2po",
  "GAGPO": "gagpo",
  "RTMC": "rtmc",
  "GraphGPO": "graphgpo",
  f"GraphGPO{ALONE}": "graphgpo(trajectory='none')",
  "RewardFlow": "rewardflow",
  "GraphHCA": "graphhca",
  "GRAFT": "graft",
  "GRAFT + GRPO": "graft(trajectory='grpo')",
  "CRBC depth 0": "crbc(depth=0)",
  f"CRBC depth 0{ALONE}": "crbc(depth=0, trajectory='none')",
  "CRBC depth 1": "crbc(depth=1)",
  "CRBC exact": "crbc",
  f"CRBC exact{ALONE}": "crbc(trajectory='none')",
  "CRBC exact, w_S = 1": "crbc(w_step=1.0)",
  "CRBC by state": "crbc(readout='state')",
  "CRBC anchored": "crbc_anchored",
  "CRBC lambda": "crbc_lambda",
}
BASELINE = "GRPO"


def main(argv: list[str] | None = None) -> None:
  """Credits the log, then writes and prints the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--log",
    type=pathlib.Path,
    default=pathlib.Path(os.environ.get("CRBC_REAL_DATA", "../shared/data"))
    / "game24"
    / LOG,
    help="the log (default: in game24 of $CRBC_REAL_DATA)",
  )
  parser.add_argument("--quick", action="store_true", help="two deals")
  parser.add_argument(
    "--results", "--out", dest="out", type=pathlib.Path, default="results"
  )
  options = parser.parse_args(argv)
  if not options.log.is_file():
    parser.error(f"{options.log} is missing: name the log by --log")
  began = time.perf_counter()
  rollouts, rejected = game24_rollouts.read_rollouts(options.log)
  seeds = SEEDS[:2] if options.quick else SEEDS
  result = measure(rollouts, ESTIMATORS, size=GROUP_SIZE, seeds=seeds)
  result = {
    "command": commands.recorded("experiments.game24_credit", argv),
    "version": crbc_jax.__version__,
    "seeds": seeds,
    "group_size": GROUP_SIZE,
    "seconds": round(time.perf_counter() - began, 1),
    "estimators": ESTIMATORS,
    "rollouts": {"clean": len(rollouts), "rejected": rejected},
    **result,
  }
  text = json.dumps(result, indent=1)
  text = re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()), text)
  write_text(options.out / "game24_credit.json", text + "\n")
  write_text(options.out / "game24_credit.md", markdown(result))
  draw(result, options.out / "game24_credit")
  console = rich.console.Console(width=120)
  console.print(as_table(result))
  console.print(
    f"{result['seconds']:.0f} s; wrote {options.out}/game24_credit.json, .md,"
    " .png and .svg"
  )


def measure(
  rollouts: Sequence[Rollout],
  estimators: dict[str, str],
  *,
  size: int,
  seeds: Sequence[int],
) -> dict[str, Any]:
  """Areas under the ROC curve of every estimator.

  Args:
    rollouts: clean ones.
    estimators: label -> estimator with its options; holds `BASELINE`.
    size: rollouts of a group.
    seeds: one deal each.

  Returns:
    {"deals": one {groups, steps, right (share)} each,
     "areas": action key -> label -> steps -> Interval,
     "lead": the same of the area less that of `BASELINE`, paired}
  """
  puzzles = sorted({rollout.puzzle for rollout in rollouts})
  found: dict[str, Any] = {"deals": [], "areas": {}, "lead": {}}
  for key in ACTION_KEYS:
    deals = [
      game24_rollouts.regroup(rollouts, size=size, seed=seed, action_key=key)
      for seed in seeds
    ]
    found["deals"] = [
      {
        "groups": len(set(deal.table.group_id.tolist())),
        "steps": len(deal.table),
        "right": round(float(deal.kept.mean()), 4),
      }
      for deal in deals
    ]
    seen = np.isin(puzzles, np.concatenate([deal.puzzle for deal in deals]))
    drawn_from = np.array(puzzles)[seen]
    samples = {
      label: _samples(deals, advantages(deals, text), drawn_from)
      for label, text in estimators.items()
    }
    found["areas"][key] = {
      label: {steps: ranking.summary(x) for steps, x in areas.items()}
      for label, areas in samples.items()
    }
    found["lead"][key] = {
      label: {
        steps: ranking.summary(x - samples[BASELINE][steps])
        for steps, x in areas.items()
      }
      for label, areas in samples.items()
    }
  return found


def advantages(deals: Sequence[Groups], estimator: str) -> list[np.ndarray]:
  """The advantage of every step of every deal, [S] each."""
  name, options = parse_estimator(estimator)
  credit_fn = make_credit_fn(name, **options)
  shape, found = None, []
  for deal in deals:
    batch = make_batch(deal.table, shape)
    shape = batch.shape
    credit = jax.device_get(credit_fn(batch.arrays).advantage)
    found.append(batch.to_rows(credit, len(deal.table)))
  return found


def scored_steps(deal: Groups) -> dict[str, np.ndarray]:
  """Which steps [S] are compared, by name."""
  return {
    "all": np.ones(len(deal.step), bool),
    "first": deal.step == 0,
    "solvable": deal.solvable,
  }


def _samples(
  deals: Sequence[Groups], scores: Sequence[np.ndarray], puzzles: np.ndarray
) -> dict[str, np.ndarray]:
  pairs: dict[str, list[ranking.Pairs]] = {}
  for deal, score in zip(deals, scores, strict=True):
    cluster = np.searchsorted(puzzles, deal.puzzle)
    for name, some in scored_steps(deal).items():
      pairs.setdefault(name, []).append(
        ranking.count_pairs(
          score[some], deal.kept[some], cluster[some], len(puzzles)
        )
      )
  return {name: ranking.area_samples(x) for name, x in pairs.items()}


_STEPS = {
  "all": "all steps",
  "first": "first steps",
  "solvable": "steps from a solvable state",
}
_HEADINGS = (
  "credit",
  *_STEPS.values(),
  f"all: lead over {BASELINE}",
  f"solvable: lead over {BASELINE}",
)


def _rows(result: dict[str, Any]) -> list[list[str]]:
  """One row per estimator, the largest area on all steps first."""
  areas, lead = (result[name][ACTION_KEYS[0]] for name in ("areas", "lead"))
  return [
    [
      label,
      *(_short(areas[label][steps]) for steps in _STEPS),
      *(
        "–" if label == BASELINE else _short(lead[label][steps], sign="+")
        for steps in ("all", "solvable")
      ),
    ]
    for label in sorted(areas, key=lambda label: -areas[label]["all"].mean)
  ]


def _short(found: Interval, sign: str = "") -> str:
  mean, low, high = (f"{x:{sign}.3f}".replace("0.", ".", 1) for x in found)
  return f"{mean} [{low}, {high}]"


def _key_matters(result: dict[str, Any]) -> float:
  """The largest change of an area by the other action key."""
  one, other = (result["areas"][key] for key in ACTION_KEYS)
  return max(
    abs(area.mean - other[label][steps].mean)
    for label, areas in one.items()
    for steps, area in areas.items()
  )


def as_table(result: dict[str, Any]) -> rich.table.Table:
  """The table for a terminal."""
  table = rich.table.Table(title="Game of 24: area under the ROC curve")
  for heading in _HEADINGS:
    table.add_column(heading)
  for row in _rows(result):
    table.add_row(*row)
  return table


def markdown(result: dict[str, Any]) -> str:
  """The table as a page, with what it was measured on."""
  counts = result["rollouts"]
  groups, steps = (
    "–".join(f"{f(d[name] for d in result['deals']):,}" for f in (min, max))
    for name in ("groups", "steps")
  )
  right = np.mean([deal["right"] for deal in result["deals"]])
  lines = [
    "<!-- written by experiments/game24_credit.py; do not edit -->",
    f"Game of 24, {counts['clean']:,} clean of {sum(counts.values()):,} GPT-4"
    f" rollouts. {len(result['deals'])} deals (seeds"
    f" {', '.join(map(str, result['seeds']))}) into groups of"
    f" {result['group_size']}: {groups} mixed groups and {steps} steps a deal,"
    f" of which {right:.0%} keep the puzzle solvable. Area under the ROC curve"
    " of a step's advantage; brackets: 95 % bootstrap interval over puzzles."
    " The action key is the numbers a step leaves; with the operation as key no"
    f" area changes by more than {_key_matters(result):.4f}.",
    "",
    "| " + " | ".join(_HEADINGS) + " |",
    "|" + "---|" * len(_HEADINGS),
    *("| " + " | ".join(row) + " |" for row in _rows(result)),
  ]
  return "\n".join(lines) + "\n"


def draw(result: dict[str, Any], path: pathlib.Path) -> None:
  """Areas with their intervals, one panel for each set of steps."""
  areas = result["areas"][ACTION_KEYS[0]]
  labels = sorted(areas, key=lambda label: areas[label]["all"].mean)
  figure = Figure(figsize=(10.5, 0.26 * len(labels) + 1), layout="constrained")
  axes = figure.subplots(1, len(_STEPS), sharex=True, sharey=True)
  place = np.arange(len(labels))
  for axis, (steps, title) in zip(axes, _STEPS.items(), strict=True):
    mean, low, high = np.array([areas[label][steps] for label in labels]).T
    for i, label in enumerate(labels):
      colour, marker = plots.STYLES.get(label, ("#777777", "."))
      axis.plot([low[i], high[i]], [i, i], color=colour, lw=1.5)
      axis.plot(mean[i], i, marker, color=colour, ms=5)
    base = areas[BASELINE][steps].mean
    axis.axvline(base, color="#000000", lw=0.8, ls=":")
    axis.set_title(title, fontsize=9)
    axis.set_yticks(place, labels, fontsize=7)
    axis.grid(axis="x", lw=0.4)
  figure.supxlabel(f"area under the ROC curve; dotted: {BASELINE}", fontsize=9)
  plots.save(figure, path)


if __name__ == "__main__":
  main()
