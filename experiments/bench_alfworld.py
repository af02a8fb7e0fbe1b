"""How fast is the light ALFWorld engine? Ours beside the real one.

  python -m experiments.bench_alfworld [--games 60] [--stock-games 3]
    [--quick] [--results results]

On real games where the bundle is there, else on generated ones. Every step
returns the observation and the admissible commands; actions are random, one
game after the other or (`together`) all games in lockstep. The real environment
is timed where the extra [alfworld] is installed, first as it is and then with
the speed patch of `alfworld_stock`.
"""

import argparse
import importlib.util
import json
import pathlib
import platform
import time

import numpy as np

from crbc_jax import files
from crbc_jax.envs import alfworld
from crbc_jax.envs.alfworld import generator
from crbc_jax.envs.text import step_all
from experiments import alfworld_stock


def random_walk(env, steps: int, seed: int = 0) -> float:
  """Seconds for that many random steps, without resets."""
  rng = np.random.default_rng(seed)
  draws = iter(rng.random(steps).tolist())
  seconds = 0.0
  shown = env.reset()
  for draw in draws:
    if not shown.commands or getattr(shown, "won", False):
      shown = env.reset()
    command = shown.commands[int(draw * len(shown.commands))]
    start = time.perf_counter()
    shown = env.step(command)
    seconds += time.perf_counter() - start
  return seconds


def step_together(envs, steps: int) -> float:
  """Seconds for that many random steps of every environment, in lockstep."""
  rng = np.random.default_rng(0)
  shown = [env.reset() for env in envs]
  seconds = 0.0
  for draws in rng.random((steps, len(envs))).tolist():
    for i, step in enumerate(shown):
      if step.boundary:
        shown[i] = envs[i].reset()
    commands = [
      step.commands[int(draw * len(step.commands))]
      for step, draw in zip(shown, draws, strict=True)
    ]
    start = time.perf_counter()
    shown = step_all(envs, commands)
    seconds += time.perf_counter() - start
  return seconds


def time_ours(games, steps: int) -> dict[str, float]:
  """Microseconds of what an episode is made of."""
  envs = [alfworld.AlfworldEnv(game) for game in games]
  seconds = sum(random_walk(env, steps) for env in envs)

  def microseconds(call) -> float:
    start = time.perf_counter()
    for env in envs:
      for _ in range(20):
        call(env)
    return 1e6 * (time.perf_counter() - start) / (20 * len(envs))

  return {
    "steps_per_second": round(steps * len(games) / seconds),
    "steps_per_second_together": round(
      steps * len(envs) / step_together(envs, steps)
    ),
    "copy_us": round(microseconds(lambda env: env.copy()), 1),
    "keys_us": round(microseconds(lambda env: env.keys()), 1),
    "expert_us": round(microseconds(alfworld.expert_command), 1),
  }


def time_stock(records, steps: int) -> dict[str, float]:
  loading, playing = 0.0, 0.0
  for record in records:
    start = time.perf_counter()
    env = alfworld_stock.Stock(record)
    env.reset()
    loading += time.perf_counter() - start
    playing += random_walk(env, steps)
  return {
    "steps_per_second": round(steps * len(records) / playing, 1),
    "load_and_reset_ms": round(1e3 * loading / len(records)),
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--games", type=int, default=60)
  parser.add_argument("--stock-games", type=int, default=3)
  parser.add_argument("--quick", action="store_true", help="6 games, no stock")
  parser.add_argument("--results", type=pathlib.Path, default="results")
  options = parser.parse_args()
  if options.quick:
    options.games, options.stock_games = 6, 0
  path = alfworld_stock.bundle_path()
  report = {"python": platform.python_version(), "real_games": path.exists()}
  if path.exists():
    records = alfworld_stock.read_records(path)
    start = time.perf_counter()
    games = alfworld.load_games(path)
    build = (time.perf_counter() - start) / len(games)
    games = games[:: max(1, len(games) // options.games)]
  else:
    print(f"no real games at {path}: generated games instead")
    problems = [generator.generate_problem(0, i) for i in range(options.games)]
    start = time.perf_counter()
    games = [alfworld.make_game(*p, id=str(i)) for i, p in enumerate(problems)]
    build = (time.perf_counter() - start) / len(games)
  report["build_ms"] = round(1e3 * build, 2)
  report["ours"] = time_ours(games, 1000)
  if (
    options.stock_games
    and path.exists()
    and importlib.util.find_spec("textworld")
  ):
    some = [
      records[game.id]
      for game in games[:: max(1, len(games) // options.stock_games)]
    ][: options.stock_games]
    report["versions"] = alfworld_stock.versions()
    report["stock"] = time_stock(some, 20)
    alfworld_stock.fast()
    report["stock_patched"] = time_stock(some, 200)
    report["times_stock"] = round(
      report["ours"]["steps_per_second"] / report["stock"]["steps_per_second"]
    )
  output = options.results / "bench_alfworld.json"
  files.write_text(output, json.dumps(report, indent=2) + "\n")
  print(json.dumps(report, indent=2))


if __name__ == "__main__":
  main()
