"""How often do ALFWorld's state keys recur, and what do they confuse?

  python -m experiments.alfworld_keys [--games 48] [--rollouts 8]

Noisy-expert rollouts of each game; the noise of a rollout is spread evenly from
0.2 to 0.8, and a rollout ends with the win or after 50 steps. For each key of a
step (of the state that its command was chosen in):
- recurrence: share of steps whose key occurs in another rollout of the game;
- recurrence with the command: the same of (key, command) pairs;
- latent states: how many exact states one key of a game stands for.
"""

import argparse
import collections
import json
import pathlib
from typing import NamedTuple

import numpy as np

from crbc_jax import files
from crbc_jax.envs import alfworld
from crbc_jax.envs.text import TextKeys
from experiments import alfworld_stock

STEP_LIMIT = 50


class Step(NamedTuple):
  """What one step is counted by."""

  rollout: int
  keys: TextKeys
  command: str


def rollouts(game: alfworld.Game, count: int, seed: int):
  """The steps of a game's rollouts, and how many were won."""
  steps, won = [], 0
  for number, epsilon in enumerate(np.linspace(0.2, 0.8, count)):
    policy = alfworld.noisy(epsilon, np.random.default_rng([seed, number]))
    env = alfworld.AlfworldEnv(game)
    for _ in range(STEP_LIMIT):
      step = Step(number, env.keys(), policy(env))
      steps.append(step)
      if env.step(step.command).boundary:
        won += 1
        break
  return steps, won


def recurring(steps: list[Step], identity) -> int:
  """Steps whose identity occurs in another rollout."""
  seen = collections.defaultdict(set)
  for step in steps:
    seen[identity(step)].add(step.rollout)
  return sum(len(seen[identity(step)]) > 1 for step in steps)


def measure(games: list[alfworld.Game], count: int) -> dict:
  """Recurrence and aliasing of every key over all games."""
  total, won, mixed = 0, 0, 0
  again: collections.Counter[tuple[str, str]] = collections.Counter()
  states: dict[str, list[int]] = {name: [] for name in TextKeys._fields}
  met: dict[str, list[int]] = {name: [] for name in TextKeys._fields}
  for seed, game in enumerate(games):
    steps, wins = rollouts(game, count, seed)
    total += len(steps)
    won += wins
    mixed += 0 < wins < count
    for i, name in enumerate(TextKeys._fields):
      again[name, "key"] += recurring(steps, lambda s, i=i: s.keys[i])
      again[name, "pair"] += recurring(
        steps, lambda s, i=i: (s.keys[i], s.command)
      )
      latent = collections.defaultdict(set)
      for step in steps:
        latent[step.keys[i]].add(step.keys.state)
      states[name] += [len(found) for found in latent.values()]
      met[name] += [len(latent[step.keys[i]]) for step in steps]
  return {
    "games": len(games),
    "rollouts_per_game": count,
    "steps": total,
    "success": round(won / (count * len(games)), 3),
    "mixed_groups": mixed,
    "keys": {
      name: {
        "recurrence": round(again[name, "key"] / total, 3),
        "recurrence_with_command": round(again[name, "pair"] / total, 3),
        "latent_states_mean": round(float(np.mean(states[name])), 2),
        "latent_states_mean_over_steps": round(float(np.mean(met[name])), 2),
        "latent_states_max": max(states[name]),
        "aliased_steps": round(float(np.mean(np.array(met[name]) > 1)), 3),
      }
      for name in TextKeys._fields
    },
  }


def markdown(report: dict) -> str:
  """The table for readers."""
  lines = [
    "# Keys of ALFWorld states",
    "",
    "Written by `python -m experiments.alfworld_keys`:"
    f" {report['games']} {report['source']}, {report['rollouts_per_game']}"
    f" noisy-expert rollouts each, {report['steps']:,} steps, success"
    f" {report['success']:.2f}, {report['mixed_groups']} groups with both"
    " outcomes.",
    "",
    "| key | recurs in another rollout | with its command | latent states per"
    " key (mean, max) | steps at a key of several states |",
    "|---|---|---|---|---|",
  ]
  for name, row in report["keys"].items():
    lines.append(
      f"| {name} | {row['recurrence']:.3f} |"
      f" {row['recurrence_with_command']:.3f} |"
      f" {row['latent_states_mean']:.2f}, {row['latent_states_max']} |"
      f" {row['aliased_steps']:.3f} |"
    )
  return "\n".join(lines) + "\n"


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--games", type=int, default=48)
  parser.add_argument("--rollouts", type=int, default=8)
  parser.add_argument("--quick", action="store_true", help="8 games x 4")
  parser.add_argument("--results", type=pathlib.Path, default="results")
  options = parser.parse_args()
  if options.quick:
    options.games, options.rollouts = 8, 4
  path = alfworld_stock.bundle_path()
  if path.exists():
    games = alfworld.load_games(path)
    source = "real games"
  else:
    print(f"no real games at {path}: generated games instead")
    games = alfworld.generate_games(options.games, seed=0)
    source = "generated games"
  picked = np.linspace(0, len(games) - 1, min(options.games, len(games)))
  report = measure([games[int(i)] for i in picked], options.rollouts)
  report = {"source": source, **report}
  output = options.results / "alfworld_keys.json"
  files.write_text(output, json.dumps(report, indent=2) + "\n")
  text = markdown(report)
  files.write_text(output.with_suffix(".md"), text)
  print(text)


if __name__ == "__main__":
  main()
