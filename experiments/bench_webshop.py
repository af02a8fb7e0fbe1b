"""How fast is the WebShop environment, and does the expert buy what is wanted?

  python -m experiments.bench_webshop [--shop PATH] [--goals 1000]
    [--quick] [--results results]

PATH is a folder of WebShop's files or a bundle; without one a generated shop of
1,000 products is played. One process, one core. Every goal is played once with
random commands among those offered, at most 15, and once by the expert, so most
searches are new; they are ranked inside the time that is measured. Writes
bench_webshop.json and bench_webshop.md.
"""

import argparse
import json
import pathlib
import random
import time
from collections.abc import Callable, Sequence

from crbc_jax.envs.webshop import (
  Goal,
  Shop,
  WebshopEnv,
  expert_command,
  generate_shop,
  load_shop,
  panel_hash,
)
from crbc_jax.files import write_text

STEP_LIMIT = 15
EXPERT_GOALS = 300
SPLITS = ("train", "eval", "test", "human")


def play(
  shop: Shop, goals: Sequence[Goal], choose: Callable[[WebshopEnv], str]
) -> dict[str, float]:
  """Plays one episode per goal; what came out, and how fast."""
  rewards, steps = [], 0
  start = time.perf_counter()
  for goal in goals:
    env = WebshopEnv(shop, goal)
    step = env.reset()
    for _ in range(STEP_LIMIT):
      step = env.step(choose(env))
      steps += 1
      if step.boundary:
        break
    rewards.append(step.reward)
  seconds = time.perf_counter() - start
  return {
    "goals": len(goals),
    "steps": steps,
    "seconds": seconds,
    "steps_per_second": steps / seconds,
    "mean_reward": sum(rewards) / len(goals),
    "success": sum(reward == 1 for reward in rewards) / len(goals),
  }


def measure(path: str | None, num_goals: int) -> dict:
  """Opens the shop and plays it; each pass in a shop that has seen nothing."""

  def open_shop() -> Shop:
    return load_shop(path) if path else generate_shop(0, num_products=1_000)

  start = time.perf_counter()
  shop = open_shop()
  seconds_to_open = time.perf_counter() - start
  rng = random.Random(0)
  passes = {
    "random": play(
      shop, shop.goals[:num_goals], lambda env: rng.choice(env.commands)
    )
  }
  passes["expert"] = play(open_shop(), shop.goals[:num_goals], expert_command)
  both = [passes["random"], passes["expert"]]
  return {
    "shop": str(path) if path else "generated",
    "products": len(shop.products),
    "goals": {name: len(shop.split(name)) for name in SPLITS},
    "panels": {name: panel_hash(shop.split(name)) for name in SPLITS},
    "seconds_to_open": seconds_to_open,
    "passes": passes,
    "steps_per_second": sum(one["steps"] for one in both)
    / sum(one["seconds"] for one in both),
    "expert_synthetic": play(shop, shop.goals[:EXPERT_GOALS], expert_command),
    "expert_human": play(shop, shop.human_goals, expert_command),
  }


def as_markdown(found: dict) -> str:
  """The tables of the README."""
  goals = ", ".join(f"{n:,} {name}" for name, n in found["goals"].items())
  lines = [
    f"Shop: {found['shop']}, {found['products']:,} products, opened in"
    f" {found['seconds_to_open']:.1f} s. Goals: {goals}.",
    "",
    "| player | goals | steps | steps/s | mean reward | reward 1 |",
    "|---|---|---|---|---|---|",
  ]
  rows = {
    "random": found["passes"]["random"],
    "expert": found["passes"]["expert"],
    f"expert, first {EXPERT_GOALS} synthetic": found["expert_synthetic"],
    "expert, human": found["expert_human"],
  }
  lines += [
    f"| {name} | {row['goals']:,} | {row['steps']:,} |"
    f" {row['steps_per_second']:,.0f} | {row['mean_reward']:.3f} |"
    f" {row['success']:.1%} |"
    for name, row in rows.items()
  ]
  lines += ["", f"Random and expert: {found['steps_per_second']:,.0f} steps/s."]
  return "\n".join(lines) + "\n"


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--shop", help="a folder of WebShop's files, or a bundle")
  parser.add_argument("--goals", type=int, default=1_000)
  parser.add_argument("--quick", action="store_true", help="100 goals")
  parser.add_argument(
    "--results", "--out", dest="out", type=pathlib.Path, default="results"
  )
  options = parser.parse_args()
  found = measure(options.shop, 100 if options.quick else options.goals)
  text = as_markdown(found)
  write_text(
    options.out / "bench_webshop.json", json.dumps(found, indent=1) + "\n"
  )
  write_text(options.out / "bench_webshop.md", text)
  print(text)


if __name__ == "__main__":
  main()
