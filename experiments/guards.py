"""Can credit be guarded against keys that hide state?

  python -m experiments.guards [--quick] [--results results]

On small problems with known truth, with and without hidden state. First the
credit of 64 groups of 8 rollouts under uniform policies: the cosine between
the policy gradient by each credit and by the exact advantages, of the mean
over the groups (bias) and of one group (bias and noise). Contestants:

  closure, visit      `crbc` and `crbc(depth=0)`
  anchored .3, .6     `crbc_anchored`
  split all           closure, every anchor told apart by its predecessor
  split failing       the same at the anchors of the group with z > 1 alone
  visit failing       visit averages there, closure elsewhere
  guarded             anchored .6 if the batch fails at p < .01, else closure

Claim: one group is too little to tell which of its anchors fail: splitting
those repairs little and costs little, splitting all loses what the closure
gains. The evidence of a batch is enough: `guarded` is about anchored .6 where
keys hide state and about the closure elsewhere. Expected, mean: alias rooms
closure .78, split failing .81, guarded .99; fetch hidden .86, .89, .94; one
group of gridworld closure .55, split all .40, anchored .6 .38, guarded .54.
Intervals: 95 % bootstrap over repetitions.

Takes two minutes on one core, --quick half of it. Writes guards.json and .md.
"""

import argparse
import pathlib
from typing import Any

import jax
import numpy as np
import rich
from rich.table import Table

import crbc_jax
from crbc_jax.credit import hidden_state, likeness, registry
from crbc_jax.envs import problems
from crbc_jax.files import write_text
from crbc_jax.learner import records
from crbc_jax.rollouts.from_arrays import batch_arrays
from experiments import commands, statistics
from experiments.bench_credit import markdown_table
from experiments.depth_tabular import padded

NAMES = (*problems.MISLEADING, "fetch", "gridworld", "loops")
BETA = 0.95
GROUPS, GROUP_SIZE = 64, 8
FAILS = 1.0  # z of an anchor in one group

CREDIT = {
  "closure": registry.make_credit_fn("crbc", beta=BETA),
  "visit": registry.make_credit_fn("crbc", beta=BETA, depth=0),
  "anchored .3": registry.make_credit_fn("crbc_anchored", beta=BETA),
  "anchored .6": registry.make_credit_fn(
    "crbc_anchored", beta=BETA, anchor_weight=0.6
  ),
}


def main(argv: list[str] | None = None) -> None:
  """Measures, prints and writes the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--repetitions", type=int, default=12)
  parser.add_argument("--quick", action="store_true")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  if args.quick:
    args.repetitions = 2
  gradients = {n: cosines(n, repetitions=args.repetitions) for n in NAMES}
  result = {
    "command": commands.recorded("experiments.guards", argv),
    "version": crbc_jax.__version__,
    "gradients": gradients,
  }
  table = Table("credit", *NAMES)
  for row in _rows(gradients):
    table.add_row(*row)
  rich.print(table)
  records.write_json(args.results / "guards.json", result)
  write_text(args.results / "guards.md", _markdown(result))


def cosines(name: str, *, repetitions: int) -> dict[str, dict[str, Any]]:
  """Cosine with the true gradient: of the mean of groups, and of one."""
  found: dict[str, list] = {}
  for repetition in range(repetitions):
    rng = np.random.default_rng((repetition, 11))
    problem = problems.PROBLEMS[name](rng)
    policy = problems.uniform_policy(problem)
    played = problems.sample(
      problem, policy, groups=GROUPS, group_size=GROUP_SIZE, rng=rng
    )

    def gradient(credit, played=played, policy=policy):
      return np.stack(
        [
          _gradient(
            policy,
            played.state_key[g, ..., 0],
            played.action[g],
            credit[g],
            played.mask[g],
          )
          for g in range(GROUPS)
        ]
      )

    truth = gradient(
      problems.exact_advantages(problem, policy, played, beta=BETA)
    )
    for label, credit in credits(problem, played).items():
      mine = gradient(credit)
      of_one = np.mean(
        [_cosine(*pair) for pair in zip(mine, truth, strict=True)]
      )
      of_mean = _cosine(mine.sum(axis=0), truth.sum(axis=0))
      found.setdefault(label, []).append((of_mean, of_one))
  return {
    label: {
      "mean": statistics.interval([x for x, _ in values]),
      "one": statistics.interval([x for _, x in values]),
    }
    for label, values in found.items()
  }


def credits(problem, played: problems.Sampled) -> dict[str, np.ndarray]:
  """Raw credit Q - V of every contestant; [P, G, T]."""
  batch = padded(problem, played)
  steps = played.mask.shape[2]

  def raw(credit_fn, of=batch):
    credit = jax.device_get(credit_fn(of.arrays))
    return of.to_steps(credit.q - credit.v)[..., :steps].astype(float)

  def told_apart(flagged):
    columns = played.columns() | {"state_key": split(played, flagged)}
    again = batch_arrays(actions=problem.num_actions, **columns)
    return raw(CREDIT["closure"], again)

  found = {label: raw(function) for label, function in CREDIT.items()}
  failing = failing_keys(batch, num_keys=problem.num_keys)
  fails = failing[np.arange(GROUPS)[:, None, None], played.state_key[..., 0]]
  p = hidden_state.hidden_state(batch.arrays).p_value
  return found | {
    "split all": told_apart(np.ones_like(failing)),
    "split failing": told_apart(failing),
    "visit failing": np.where(fails, found["visit"], found["closure"]),
    "guarded": found["anchored .6" if p < 0.01 else "closure"],
  }


def failing_keys(batch, *, num_keys: int) -> np.ndarray:
  """Keys whose own group says that they hide state; [P, K] bool."""
  history = hidden_state.History(batch.arrays)
  fails = np.zeros((GROUPS, num_keys), bool)
  at_row = batch.table.state_key[batch.batch.row_index[batch.arrays.mask]]
  for of in ("successor", "ending"):
    response, stratum, usable = hidden_state.responses(history, of)
    rows = likeness.first_visits(stratum, history.traj, response, usable)
    if not len(rows):
      continue
    total, variance, _ = likeness.contrast(rows, response, history.passed)
    first = rows[:, 0]
    place = history.group[first] * num_keys + at_row[first]
    size = GROUPS * num_keys
    spread = np.sqrt(np.bincount(place, variance, minlength=size))
    z = np.bincount(place, total, minlength=size) / np.maximum(spread, 1e-9)
    fails |= (z > FAILS).reshape(GROUPS, num_keys)
  return fails


def split(played: problems.Sampled, flagged: np.ndarray) -> np.ndarray:
  """Keys with the predecessor's key and action where flagged [P, K]."""
  key = played.state_key[..., 0]
  before = np.zeros_like(key)
  before[:, :, 1:] = 1 + key[:, :, :-1] * 8 + played.action[:, :, :-1]
  here = flagged[np.arange(len(key))[:, None, None], key]
  return np.where(here, (1 + before) * 64 + key, key)[..., None]


def _gradient(policy, key, action, credit, mask) -> np.ndarray:
  """Sum of A grad ln pi over the steps; [K, A]."""
  key, action, credit = key[mask], action[mask], credit[mask]
  step = np.zeros_like(policy)
  np.add.at(step, (key, action), credit)
  total = np.bincount(key, weights=credit, minlength=len(policy))
  return step - total[:, None] * policy


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
  size = np.linalg.norm(x) * np.linalg.norm(y)
  return float((x * y).sum() / size) if size > 0 else 0.0


def _rows(cells) -> list[list[str]]:
  labels = next(iter(cells.values()))

  def cell(of):
    mean, low, high = of["mean"]
    return f"{mean:.2f} [{low:.2f}, {high:.2f}] / {of['one'].mean:.2f}"

  return [
    [label, *(cell(cells[name][label]) for name in cells)] for label in labels
  ]


def _markdown(result: dict[str, Any]) -> str:
  parts = [
    "<!-- written by experiments/guards.py; do not edit -->",
    f"`{result['command']}`",
    "Cosine with the true policy gradient: of the mean of 64 groups [95 %] /"
    " of one group.",
    markdown_table(("credit", *NAMES), _rows(result["gradients"])),
  ]
  return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
  main()
