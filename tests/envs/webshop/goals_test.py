import collections
import random

from crbc_jax.envs.webshop import generate_shop, panel_hash
from crbc_jax.envs.webshop.goals import (
  NO_LIMIT,
  draw_prices,
  human_goals,
  synthetic_goals,
)
from tests.envs.webshop.samples import MUG, sample_products


def goals_of(products, seed=0):
  prices = draw_prices(products, seed=seed)
  return synthetic_goals(products, prices, seed=seed), prices


def test_every_combination_in_the_order_of_upstream():
  goals, _ = goals_of(sample_products())
  wanted = [
    (color, size)
    for color in ("sky blue", "red | white")
    for size in ("8 oz", "16 oz")
  ] + [()]  # the teapot has no options, the shirt no instruction
  random.Random(233).shuffle(wanted)
  assert [goal.options for goal in goals] == wanted


def test_instructions_by_hand():
  goals, _ = goals_of(sample_products())
  mug = next(goal for goal in goals if goal.options == ("red | white", "8 oz"))
  limit = f"{mug.price_upper:.2f}"
  assert mug.instruction == (
    "Find me hand glazed coffee mugs with dishwasher safe with"
    f" color: red | white, and size: 8 oz, and price lower than {limit} dollars"
  )
  teapot = next(goal for goal in goals if goal.asin == "B00TEAPOT0")
  assert teapot.price_upper == NO_LIMIT  # no multiple up to $990 is above
  assert teapot.instruction == "Find me borosilicate glass teapots"


def test_price_limits_are_the_larger_of_two_of_four():
  (mug,) = sample_products([MUG])
  limits = collections.Counter()
  for seed in range(300):
    goals, _ = goals_of([mug], seed)
    assert len({goal.price_upper for goal in goals}) == 1
    limits[goals[0].price_upper] += 1
  assert set(limits) == {30.0, 40.0, 50.0}  # of 20, 30, 40, 50
  # Pairs whose larger is 30, 40, 50: one, two and three of six.
  assert 25 < limits[30.0] < 80
  assert 110 < limits[50.0] < 190


def test_a_price_is_drawn_from_its_range_by_the_seed():
  _, teapot, _ = sample_products()
  prices = [draw_prices([teapot], seed=s)["B00TEAPOT0"] for s in range(50)]
  assert min(prices) >= 1020
  assert max(prices) <= 1100
  assert len(set(prices)) == 50
  assert prices[3] == draw_prices([teapot], seed=3)["B00TEAPOT0"]


def test_human_goals():
  products = sample_products()
  (goal,) = human_goals(products, draw_prices(products, seed=0), seed=0)
  assert goal.instruction.startswith("i need a big mug, hand glazed, and price")
  assert (goal.options, goal.split) == (("16 oz",), "human")


def test_ids_are_stable_and_unique():
  shop = generate_shop(0)
  ids = [goal.goal_id for goal in (*shop.goals, *shop.human_goals)]
  assert len(set(ids)) == len(ids)
  # Written down once: another process, another day, the same goals.
  assert panel_hash(shop.goals) == "1464e3d9e2bfaefc"
  assert panel_hash(generate_shop(1).goals) != panel_hash(shop.goals)


def test_splits_of_a_small_and_of_a_large_shop():
  shop = generate_shop(0)
  total = len(shop.goals)
  test, held_out = shop.split("test"), shop.split("eval")
  assert len(test) == total // 10
  assert len(held_out) == total // 5
  assert (*test, *held_out, *shop.split("train")) == shop.goals
  goals, _ = goals_of(generate_shop(0, num_products=1_000).products)
  assert len(goals) > 5_000
  splits = [goal.split for goal in goals]
  assert splits[:1_500] == ["test"] * 500 + ["eval"] * 1_000
  assert set(splits[1_500:]) == {"train"}
