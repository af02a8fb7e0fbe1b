import random

import pytest

from crbc_jax.envs.webshop import Page, Shop, WebshopEnv, generate_shop
from crbc_jax.types import Boundary
from tests.envs.webshop.samples import sample_products

SHOP = Shop(sample_products())
GOAL = next(
  goal for goal in SHOP.goals if goal.options == ("red | white", "8 oz")
)
SAID = f"Instruction: [SEP] {GOAL.instruction} [SEP] "
SEARCH = f"WebShop [SEP] {SAID}Search"
MUG_PAGE = (
  f"{SAID}Back to Search [SEP] < Prev [SEP] color [SEP] sky blue [SEP]"
  " red | white [SEP] size [SEP] 8 oz [SEP] 16 oz [SEP]"
  " Stoneware Coffee Mug, Hand Glazed [SEP] Price: $12.5 [SEP] Rating: N.A."
  " [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
)


def play(*commands, **options):
  env = WebshopEnv(SHOP, GOAL, **options)
  step = env.reset()
  for command in commands:
    step = env.step(command)
  return env, step


TO_MUG = ("search[coffee]", "click[b000000mug]")


def test_search_page():
  env, step = play()
  assert step.text == SEARCH
  assert step.commands == (
    "search[hand glazed coffee mugs with dishwasher safe red | white 8 oz]",
    "search[hand glazed coffee mugs with dishwasher safe]",
    "search[hand glazed coffee mugs]",
    "search[hand glazed coffee mugs red | white 8 oz]",
  )
  assert (step.reward, step.boundary) == (0.0, Boundary.NONE)
  assert env.goal == GOAL.instruction
  assert (env.game_id, env.task_type) == (GOAL.goal_id, "garden")


def test_results_page():
  _, step = play("search[Coffee Brown]")
  assert step.text == (
    f"{SAID}Back to Search [SEP] Page 1 (Total results: 2) [SEP] Next > [SEP]"
    " B0000SHIRT [SEP] Coffee Brown Shirt [SEP] $100.0 [SEP] B000000MUG [SEP]"
    " Stoneware Coffee Mug, Hand Glazed [SEP] $12.5"
  )
  assert step.commands == (
    "click[back to search]",
    "click[next >]",
    "click[b0000shirt]",
    "click[b000000mug]",
  )


def test_item_page():
  env, step = play(*TO_MUG)
  assert step.text == MUG_PAGE
  assert step.commands == (
    "click[back to search]",
    "click[< prev]",
    "click[description]",
    "click[features]",
    "click[reviews]",
    "click[buy now]",
    "click[sky blue]",
    "click[red | white]",
    "click[8 oz]",
    "click[16 oz]",
  )
  assert env.page == Page("item", "coffee", 1, "B000000MUG")


@pytest.mark.parametrize(
  ("section", "shown"),
  [
    ("description", ["Holds a pint."]),
    ("features", ["Dishwasher safe", "Oven safe"]),
    ("reviews", []),
    (
      "attributes",
      [
        "hand glazed",
        "dishwasher safe",
        "garden",
        "coffee mugs",
        "Home › Kitchen › Mugs",
      ],
    ),
  ],
)
def test_sections_and_the_way_back(section, shown):
  env, step = play(
    *TO_MUG, "click[8 oz]", f"click[{section}]", show_attributes=True
  )
  pieces = ["Back to Search", "< Prev", *shown]
  assert step.text == SAID + " [SEP] ".join(pieces)
  assert step.commands == ("click[back to search]", "click[< prev]")
  env.step("click[< prev]")
  assert env.page == Page("item", "coffee", 1, "B000000MUG", "", SIZE)


SIZE = (("size", "8 oz"),)


def test_options_are_kept_until_the_item_is_left():
  env, step = play(*TO_MUG, "click[8 oz]", "click[sky blue]", "click[16 oz]")
  assert step.text == MUG_PAGE  # as upstream, it doesn't show them
  assert env.page.options == (("color", "sky blue"), ("size", "16 oz"))
  env.step("click[< prev]")
  assert env.page == Page("results", "coffee", 1)
  env.step("click[b000000mug]")
  assert env.page.options == ()


def test_purchase_by_hand():
  env, step = play(*TO_MUG, "click[red | white]", "click[8 oz]")
  before = env.copy()
  step = env.step("click[Buy Now]")
  assert (step.reward, step.boundary) == (1.0, Boundary.SUCCESS)
  assert step.commands == ()
  assert step.text == (
    "Thank you for shopping with us! [SEP]"
    " Your score (min 0.0, max 1.0) [SEP] 1.0"
  )
  assert before.score is None
  before.step("click[16 oz]")
  # Two attributes, one option and the price of 2 + 2 + 1.
  step = before.step("click[buy now]")
  assert step.reward == pytest.approx(4 / 5)
  assert step.boundary == Boundary.FAILURE


def test_after_the_end_nothing_changes():
  env, end = play(*TO_MUG, "click[buy now]")
  keys, page = env.keys(), env.page
  for command in ("click[back to search]", "search[mug]", "click[buy now]"):
    assert env.step(command) == end._replace(reward=0.0)
    assert (env.keys(), env.page) == (keys, page)
  assert env.reset().text == SEARCH
  assert env.score is None


@pytest.mark.parametrize(
  "command",
  [
    "click[9 oz]",
    "click[attributes]",  # not shown unless asked for
    "click[next >]",
    "click[search]",
    "click[]",
    "search[]",
    "search",
    "buy now",
    "Click[buy now]",
    "",
    "click[b00teapot0]",
  ],
)
def test_illegal_commands_change_nothing(command):
  env, before = play(*TO_MUG, "click[8 oz]")
  keys = env.keys()
  assert env.step(command) == before
  assert env.keys() == keys


def test_any_page_can_search_as_upstream():
  env, _ = play(*TO_MUG, "click[8 oz]", "search[Glass Teapot]")
  assert env.page == Page("results", "glass teapot", 1)
  assert [item.asin for item in env.results()] == ["B00TEAPOT0"]


def test_turning_pages():
  shop = generate_shop(0)
  env = WebshopEnv(shop, shop.goals[0])
  env.reset()
  step = env.step("search[range]")  # in every description
  first = env.results()
  assert len(first) == 10
  assert "Page 1 (Total results: 50)" in step.text
  assert "click[< prev]" not in step.commands
  step = env.step("click[next >]")
  assert "Page 2 (Total results: 50) [SEP] < Prev [SEP] Next >" in step.text
  second = env.results()
  assert not set(first) & set(second)
  env.step(f"click[{second[3].asin}]")
  assert env.page.asin == second[3].asin
  env.step("click[< prev]")
  assert env.page == Page("results", "range", 2)
  env.step("click[< prev]")
  assert env.results() == first
  for _ in range(5):
    step = env.step("click[next >]")
  assert env.page.number == 6  # upstream has no last page
  assert env.results() == ()
  assert step.commands == (
    "click[back to search]",
    "click[< prev]",
    "click[next >]",
  )


def test_what_each_key_tells_apart():
  one, _ = play("search[coffee]", "click[b000000mug]")
  other, _ = play("search[coffee mug]", "click[b000000mug]")
  assert one.keys().text == other.keys().text
  assert one.keys().history != other.keys().history
  chosen = one.copy()
  chosen.step("click[8 oz]")
  assert chosen.keys()[:2] == one.keys()[:2]
  assert chosen.keys().state != one.keys().state
  # In another order, by another way: the same state.
  there, _ = play(*TO_MUG, "click[8 oz]", "click[sky blue]")
  back, _ = play(
    "search[x]", *TO_MUG, "click[sky blue]", "click[features]",
    "click[< prev]", "click[16 oz]", "click[8 oz]",
  )  # fmt: skip
  assert there.keys() == back.keys()


def test_the_same_state_key_goes_on_alike():
  """Random play over one goal: the state key decides all that follows."""
  shop = generate_shop(3, num_products=24)
  rng = random.Random(0)
  seen = {}
  for _ in range(200):
    env = WebshopEnv(shop, shop.goals[0])
    step = env.reset()
    while not step.boundary:
      key, command = env.keys().state, rng.choice(step.commands)
      text = env.keys().text
      assert text == step.text
      step = env.step(command)
      after = (text, step, env.keys())
      assert seen.setdefault((key, command), after) == after
  assert len(seen) > 500


def test_every_command_listed_changes_the_page_or_chooses_again():
  env, step = play(*TO_MUG)
  for command in step.commands:
    twin = env.copy()
    twin.step(command)
    assert twin.page != env.page, command
