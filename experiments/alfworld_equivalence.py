"""Is the light ALFWorld engine the same environment? Ours beside the real one.

  python -m experiments.alfworld_equivalence [--games N] [--output PATH]

Needs the extra [alfworld] and the bundle of real games. Both play the same
commands; observation, admissible commands (and their order) and win flag must
agree at every step. Per game: the shipped walkthrough, a noisy expert, a random
player that prefers rare verbs, and a tour that takes, treats, slices and
examines things on purpose. A tenth of the random player's commands is illegal.
Games with a lamp are played once more with lamps that can be taken, and so are
some generated games.
TextWorld runs with a speed patch, itself compared with unpatched TextWorld
first.
"""

import argparse
import collections
import dataclasses
import json
import platform
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from crbc_jax import files
from crbc_jax.envs import alfworld
from crbc_jax.envs.alfworld import generator
from experiments import alfworld_stock, alfworld_tour

OUTPUT = "results/alfworld_equivalence.json"
RANDOM_STEPS = 25

Player = Callable[[alfworld.AlfworldEnv], Iterator[str]]


def walkthrough(env: alfworld.AlfworldEnv) -> Iterator[str]:
  yield from env.game.walkthrough or ()


def noisy_expert(env: alfworld.AlfworldEnv) -> Iterator[str]:
  policy = alfworld.noisy(0.4, _rng(env))
  for _ in range(30):
    yield policy(env)


def curious(env: alfworld.AlfworldEnv) -> Iterator[str]:
  """Random verbs, then a random command of the verb; some illegal ones."""
  rng = random.Random(env.game_id)
  heard: list[str] = ["", "dance", "take", "go to the moon 1"]
  for _ in range(RANDOM_STEPS):
    by_verb = collections.defaultdict(list)
    for command in env.last.commands:
      by_verb[command.split(" ")[0]].append(command)
    command = rng.choice(by_verb[rng.choice(sorted(by_verb))])
    heard.append(command)
    if rng.random() < 0.1:
      command = rng.choice(heard)  # most likely not admissible any more
      command = rng.choice([command, command.upper(), f" {command}  "])
    yield command


def _rng(env: alfworld.AlfworldEnv) -> np.random.Generator:
  return np.random.default_rng(list(env.game_id.encode()))


PLAYERS: dict[str, Player] = {
  "walkthrough": walkthrough,
  "noisy expert": noisy_expert,
  "curious": curious,
  "tour": alfworld_tour.tour,
}


class Comparison:
  """Counts what was compared and keeps what differed."""

  def __init__(self):
    self.steps: collections.Counter[str] = collections.Counter()
    self.verbs: collections.Counter[str] = collections.Counter()
    self.wins: collections.Counter[str] = collections.Counter()
    self.mismatches: list[dict] = []
    self.games = self.illegal = 0
    self.stock_seconds = 0.0

  def __str__(self) -> str:
    return f"{self.steps.total():,} steps, {len(self.mismatches)} mismatches"

  def summary(self) -> dict:
    """Counts, for the report."""
    return {
      "games": self.games,
      "steps": self.steps.total(),
      "mismatches": len(self.mismatches),
      "steps_by_player": dict(self.steps),
      "steps_by_verb": dict(sorted(self.verbs.items())),
      "illegal_commands": self.illegal,
      "wins": dict(self.wins),
      "stock_steps_per_second": round(
        self.steps.total() / self.stock_seconds if self.stock_seconds else 0
      ),
    }

  def play_all(self, game: alfworld.Game, record: Mapping[str, str]) -> None:
    """One episode of every player."""
    self.games += 1
    stock, env = alfworld_stock.Stock(record), alfworld.AlfworldEnv(game)
    for name, player in PLAYERS.items():
      if name != "walkthrough" or game.walkthrough:
        self.play(name, player, stock, env)

  def play(self, name: str, player: Player, stock, env) -> None:
    """One episode by both."""
    step, seen = env.reset(), stock.reset()
    self._compare(name, env, "(reset)", step, seen)
    for command in player(env):
      legal = command.strip() in step.commands
      step = env.step(command)
      start = time.perf_counter()
      seen = stock.step(command)
      self.stock_seconds += time.perf_counter() - start
      self.steps[name] += 1
      self.illegal += not legal
      if legal:
        self.verbs[command.split()[0]] += 1
      if not self._compare(name, env, command, step, seen) or step.boundary:
        break
    self.wins[name] += bool(step.boundary)

  def _compare(self, name, env, command, step, seen) -> bool:
    same = (
      step.text == seen.text
      and bool(step.boundary) == seen.won
      and (bool(step.boundary) or step.commands == seen.commands)
    )
    if not same:
      self.mismatches.append(
        {
          "game": env.game_id,
          "player": name,
          "command": command,
          "ours": [step.text, bool(step.boundary), step.commands],
          "stock": [seen.text, seen.won, seen.commands],
        }
      )
    return same


def check_patch(records, games) -> int:
  """Plays one game of each task type before and after the patch.

  Leaves the patch in place and returns the number of steps compared.
  """
  some = list({game.task_type: game for game in games}.values())

  def transcripts():
    return [
      [stock.reset(), *map(stock.step, list(alfworld_tour.commands(game))[:15])]
      for game in some
      for stock in [alfworld_stock.Stock(records[game.id])]
    ]

  before = transcripts()
  alfworld_stock.fast()
  if transcripts() != before:
    raise SystemExit("the speed patch changes what TextWorld says")
  return sum(len(seen) - 1 for seen in before)


def with_movable_lamps(problem: str) -> str:
  """A problem whose lamps can be taken, and put where something else can."""
  facts = [
    f"(pickupable {lamp})"
    for lamp in re.findall(r"\(toggleable (\w+_bar_\w+)\)", problem)
  ]
  hosts = sorted(set(re.findall(r"\(canContain (\w+) ", problem)))
  for lamp in ("DeskLampType", "FloorLampType"):
    facts += [f"(canContain {host} {lamp})" for host in hosts]
  return problem.replace("(:init", "(:init\n" + "\n".join(facts), 1)


def _remade(game: alfworld.Game, problem: str) -> alfworld.Game:
  """The game with another problem; its walkthrough need not win any more."""
  return alfworld.make_game(problem, game.goal, id=game.id, help=game.help)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--games", type=int, help="only so many, for a look")
  parser.add_argument("--generated", type=int, default=60)
  parser.add_argument("--output", default=OUTPUT)
  options = parser.parse_args()
  path = alfworld_stock.bundle_path()
  games = alfworld.load_games(path)[: options.games]
  records = alfworld_stock.read_records(path)
  began = time.perf_counter()
  patch_steps = check_patch(records, games)
  print(f"speed patch: {patch_steps} steps equal to unpatched TextWorld")

  real, made, lamps = Comparison(), Comparison(), Comparison()
  for number, game in enumerate(games, 1):
    real.play_all(game, records[game.id])
    if game.affordances["toggleable"]:
      problem = with_movable_lamps(records[game.id]["pddl_problem"])
      lamps.play_all(
        _remade(game, problem), {**records[game.id], "pddl_problem": problem}
      )
    if number % 20 == 0 or number == len(games):
      print(f"{number} real games, {real}; movable lamps, {lamps}", flush=True)
  logic = alfworld_stock.read_logic(path)
  for game in alfworld.generate_games(options.generated, seed=0):
    index = int(game.id.split("/")[-1].split("-")[0])
    problem, goal = generator.generate_problem(0, index)
    record = alfworld_stock.record(logic, problem, goal)
    made.play_all(dataclasses.replace(game, help=games[0].help), record)
  print(f"{options.generated} generated games, {made}")
  mismatches = real.mismatches + made.mismatches + lamps.mismatches
  report = {
    "versions": {
      **alfworld_stock.versions(),
      "python": platform.python_version(),
    },
    "games": dict(collections.Counter(game.split for game in games)),
    "walkthroughs": sum(bool(game.walkthrough) for game in games),
    "walkthroughs_won": real.wins["walkthrough"],
    "real_games": real.summary(),
    "real_games_with_movable_lamps": lamps.summary(),
    "generated_games": made.summary(),
    "speed_patch_steps_compared": patch_steps,
    "seconds": round(time.perf_counter() - began),
    "first_mismatches": mismatches[:5],
  }
  files.write_text(options.output, json.dumps(report, indent=2) + "\n")
  print(json.dumps(report, indent=2))
  if mismatches:
    raise SystemExit("the engines differ")


if __name__ == "__main__":
  main()
