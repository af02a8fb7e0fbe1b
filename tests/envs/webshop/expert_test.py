import random

import pytest

from crbc_jax.envs.webshop import (
  Shop,
  WebshopEnv,
  expert_command,
  generate_shop,
  noisy_command,
)
from tests.envs.webshop.samples import MUG, SHIRT, sample_products

SHOP = generate_shop(0)


def finish(env, step, limit=20):
  commands = []
  while not step.boundary and len(commands) < limit:
    commands.append(expert_command(env))
    step = env.step(commands[-1])
  return step, commands


def test_buys_what_every_goal_asks_for():
  for goal in (*SHOP.goals, *SHOP.human_goals):
    env = WebshopEnv(SHOP, goal)
    step, commands = finish(env, env.reset())
    assert step.reward == 1.0, (goal, env.score)
    assert len(commands) <= 8


def test_goes_on_from_anywhere():
  rng = random.Random(0)
  for goal in SHOP.goals[:60]:
    env = WebshopEnv(SHOP, goal)
    step = env.reset()
    for _ in range(rng.randint(1, 12)):
      commands = [c for c in step.commands if c != "click[buy now]"]
      step = env.step(rng.choice(commands))
    step, _ = finish(env, step, limit=30)
    assert step.reward == 1.0


def test_searches_for_the_title_where_no_query_finds_the_product():
  mug = MUG | {"name": "Cup", "full_description": "", "small_description": "-"}
  hidden = [SHIRT | {"asin": f"{n}", "name": "mugs hand"} for n in range(60)]
  shop = Shop(sample_products([*hidden, mug]))
  env = WebshopEnv(shop, shop.split("human")[0])
  step = env.reset()
  assert expert_command(env) == "search[Cup]"
  assert "search[Cup]" not in step.commands
  assert finish(env, step)[0].boundary


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_noise(noise):
  rng = random.Random(0)
  expert = random_moves = 0
  for goal in SHOP.goals[:100]:
    env = WebshopEnv(SHOP, goal)
    step = env.reset()
    for _ in range(12):
      command = noisy_command(env, rng, noise=noise)
      assert command in step.commands
      if command == expert_command(env):
        expert += 1
      else:
        assert command != "click[buy now]"
        random_moves += 1
      step = env.step(command)
      if step.boundary:
        break
  # A random move may be the expert's by chance.
  share = random_moves / (expert + random_moves)
  assert share == 0 if noise == 0 else 0.3 < share < 0.5
