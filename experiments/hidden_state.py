"""How often do the two witnesses of hidden state speak, rightly and wrongly?

  python -m experiments.hidden_state --data FILE [--quick] [--results results]

Batches of groups of 8 rollouts, with and without hidden state:

  tabular   the ten problems of `envs.problems`, which are known; each
            repetition draws a problem, and a policy half uniform, half random
  sokoban   the initial policy, keys with and without the boxes (`player`)
  alfworld  a policy cloned from the expert, under each key of
            `text.state_key`; --data as --config.text.data, else generated games

Columns: the share of batches where the p-value of `hidden_state.hidden_state`
is below .05 and .01, where the root calibration alarms (95 % interval above
1.1, beta .95) and its mean, and where two tests that assume that the policy
sees no more than the key are below .05: the action taken, and success later
on. Brackets: 95 % Wilson intervals. T-maze hides state only between groups,
which is harmless to credit and is not to be found.

Claim: without hidden state the test is below .05 and .01 in about 5 % and 1 %
of the batches, or fewer, at any number of groups; with hidden state it sees
more the more groups there are. Root calibration needs shortcuts that pay: it
sees less, and misses Sokoban and ALFWorld.

Expected, p < .01 at 8 / 64 groups: alias rooms .6 / .98 (calibration .5 / .9),
fetch hidden .2 / .9 (.1 / .3), all others at most .01. At 64 groups: Sokoban
with the player's place alone 1.0 without slips and .05 with slips of 25 %
(misses); ALFWorld 1.0 under `text`, 0 under `state` and `history`, whose
actions do depend on the past: the clone sees some of it.

Takes a quarter of an hour on two cores, --quick one or two minutes. Writes
hidden_state.json and .md.
"""

import argparse
import importlib
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import rich
from rich.table import Table

import crbc_jax
from crbc_jax.credit import calibration, hidden_state, registry
from crbc_jax.envs import problems
from crbc_jax.files import write_text
from crbc_jax.learner import records, task, text_collect, training_step
from crbc_jax.rollouts.from_arrays import batch_arrays
from crbc_jax.types import GroupArrays
from experiments import commands
from experiments.bench_credit import markdown_table
from experiments.credit_accuracy import run_config

GROUPS = (8, 16, 32, 64)
GROUP_SIZE = 8
BETA = 0.95
GAMES = 48

Witness = Callable[[GroupArrays], dict[str, float]]


def main(argv: list[str] | None = None) -> None:
  """Measures the parts that were asked for, prints and writes the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parts = {"tabular": tabular, "sokoban": sokoban, "alfworld": alfworld}
  parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
  parser.add_argument("--data", default="", help="games of ALFWorld")
  parser.add_argument("--repetitions", type=int, default=200)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--quick", action="store_true", help="few, no ALFWorld")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  if args.quick:
    args.repetitions = min(args.repetitions, 8)
    args.only = [name for name in args.only if name != "alfworld"]
  witness = make_witness()
  rows = [row for name in args.only for row in parts[name](args, witness)]
  result = {
    "command": commands.recorded("experiments.hidden_state", argv),
    "version": crbc_jax.__version__,
    "seed": args.seed,
    "rows": rows,
  }
  table = Table("problem", "hides", "groups", *_SHARES)
  for row in rows:
    hides, groups = "yes" if row["hides"] else "no", str(row["groups"])
    shares = (f"{row[name][0]:.2f}" for name in _SHARES.values())
    table.add_row(row["name"], hides, groups, *shares)
  rich.print(table)
  records.write_json(args.results / "hidden_state.json", result)
  write_text(args.results / "hidden_state.md", _markdown(result))
  rich.print(f"wrote {args.results}/hidden_state.json and .md")


def make_witness() -> Witness:
  """What both witnesses, and two tests more, say of a batch."""
  credit_fn = registry.make_credit_fn("crbc", beta=BETA)

  def witness(arrays):
    v = jax.device_get(credit_fn(arrays)).v
    found = hidden_state.hidden_state(arrays)
    rooted = calibration.root_calibration(arrays, v, beta=BETA)
    others = {
      of: hidden_state.dependence(arrays, of=of).p_value
      for of in ("action", "outcome")
    }
    return {
      "p": found.p_value,
      "z_successor": found.successor.z,
      "z_ending": found.ending.z,
      "tested": found.successor.parts,
      "excess": found.failed.excess,
      "alarm": float(rooted.alarms),
      "ratio": rooted.ratio,
      **others,
    }

  return witness


def tabular(args, witness: Witness) -> Iterator[dict[str, Any]]:
  """Rates on the problems with known truth."""
  sizes = (8, 32) if args.quick else GROUPS
  for place, (name, make) in enumerate(problems.PROBLEMS.items()):
    for groups in sizes:
      found = []
      for repetition in range(args.repetitions):
        rng = np.random.default_rng((args.seed, place, groups, repetition))
        problem = make(rng)
        shape = (problem.num_keys, problem.num_actions)
        policy = (
          problems.uniform_policy(problem)
          + rng.dirichlet(np.ones(shape[1]), shape[0])
        ) / 2
        played = problems.sample(
          problem, policy, groups=groups, group_size=GROUP_SIZE, rng=rng
        )
        batch = batch_arrays(actions=problem.num_actions, **played.columns())
        found.append(witness(batch.arrays))
      yield _row(name, name in problems.MISLEADING, groups, found)


def sokoban(args, witness: Witness) -> Iterator[dict[str, Any]]:
  """Rates on 6 x 6 levels with one box."""
  batches = 2 if args.quick else max(args.repetitions // 10, 2)
  for slip in (0.0, 0.25):
    for keys in ("exact", "player"):
      wanted = run_config(seed=args.seed, slip=slip)
      wanted.env.state_keys = keys
      current = task.make_task(wanted)
      collect = current.collect_fn(wanted)
      for groups in (64,) if args.quick else (16, 64):
        found = []
        for i in range(batches):
          drawn = task.levels_at(
            i * groups,
            groups,
            num_levels=len(current.train),
            seed=args.seed,
          )
          _, rollouts = collect(
            current.params, drawn, jax.random.key(args.seed * batches + i)
          )
          batch = training_step.batch_rollouts(
            rollouts, actions=current.num_actions
          )
          found.append(witness(batch.arrays))
        name = f"Sokoban, slip {slip:g}, key {keys}"
        yield _row(name, keys == "player", groups, found)


def alfworld(args, witness: Witness) -> Iterator[dict[str, Any]]:
  """The same rollouts of a clone under every key."""
  config = importlib.import_module("configs.alfworld").get_config()
  config.text.data = args.data
  current = task.make_task(config)
  draws = 4
  for key in text_collect.KEYS:
    config.text.state_key = key
    collect = current.collect_fn(config)
    for groups in (16, min(GAMES, len(current.train))):
      found = []
      for i in range(draws):
        rng = np.random.default_rng((args.seed, groups, i))
        drawn = rng.choice(len(current.train), groups, replace=False)
        _, rollouts = collect(current.params, drawn, jax.random.key(i))
        batch = training_step.batch_rollouts(
          rollouts, actions=current.num_actions
        )
        found.append(witness(batch.arrays))
      yield _row(f"ALFWorld, key {key}", key == "text", groups, found)


def _row(name, hides: bool, groups: int, found) -> dict[str, Any]:
  values = {k: np.array([x[k] for x in found]) for k in found[0]}
  below = {
    "p_05": values["p"] < 0.05,
    "p_01": values["p"] < 0.01,
    "alarm": values["alarm"] > 0,
    "action_05": values["action"] < 0.05,
    "outcome_05": values["outcome"] < 0.05,
  }
  ratio = values["ratio"][np.isfinite(values["ratio"])]
  return {
    "name": name,
    "hides": hides,
    "groups": groups,
    "batches": len(found),
    "ratio": float(ratio.mean()) if len(ratio) else None,
    **{k: float(np.mean(values[k])) for k in ("tested", "excess")},
    **{k: round(float(np.mean(values[f"z_{k}"])), 2) for k in _RESPONSES},
    "median_p": float(np.median(values["p"])),
    **{k: wilson(int(x.sum()), len(x)) for k, x in below.items()},
  }


_RESPONSES = ("successor", "ending")


def wilson(hits: int, count: int) -> list[float]:
  """Share and its 95 % Wilson interval."""
  share, z2 = hits / count, 1.96**2
  centre = (share + z2 / (2 * count)) / (1 + z2 / count)
  half = math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
  half *= 1.96 / (1 + z2 / count)
  low, high = max(centre - half, 0.0), min(centre + half, 1.0)
  return [round(x, 4) for x in (share, low, high)]


_SHARES = {
  "p < .05": "p_05",
  "p < .01": "p_01",
  "alarm": "alarm",
  "action": "action_05",
  "outcome": "outcome_05",
}
_HEADINGS = (
  "problem",
  "hides state",
  "groups",
  "anchors tested",
  "p < .05",
  "p < .01",
  "z successor / ending",
  "calibration alarms",
  "ratio",
  "action < .05",
  "outcome < .05",
)


def _cells(row: dict[str, Any]) -> list[str]:
  def share(name):
    mean, low, high = row[name]
    return f"{mean:.3f} [{low:.2f}, {high:.2f}]"

  return [
    row["name"],
    "yes" if row["hides"] else "no",
    str(row["groups"]),
    f"{row['tested']:.0f}",
    share("p_05"),
    share("p_01"),
    f"{row['successor']:.1f} / {row['ending']:.1f}",
    share("alarm"),
    "–" if row["ratio"] is None else f"{row['ratio']:.2f}",
    share("action_05"),
    share("outcome_05"),
  ]


def _markdown(result: dict[str, Any]) -> str:
  return (
    "\n\n".join(
      [
        "<!-- written by experiments/hidden_state.py; do not edit -->",
        f"Shares of batches, with 95 % Wilson intervals; groups of {GROUP_SIZE}"
        f" rollouts.\n\n`{result['command']}`",
        markdown_table(_HEADINGS, [_cells(row) for row in result["rows"]]),
      ]
    )
    + "\n"
  )


if __name__ == "__main__":
  main()
