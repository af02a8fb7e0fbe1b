import dataclasses

import pytest

from crbc_jax.envs.webshop import score
from crbc_jax.envs.webshop.goals import Goal
from crbc_jax.envs.webshop.reward import same, type_score
from tests.envs.webshop.samples import sample_products

MUG, TEAPOT, SHIRT = sample_products()
GOAL = Goal(
  goal_id="g",
  instruction="",
  asin=MUG.asin,
  attributes=("hand glazed", "dishwasher safe"),
  options=("sky blue", "16 oz"),
  price_upper=20.0,
  category="garden",
  split="train",
)


def reward(bought=MUG, price=12.5, chosen=(), goal=GOAL, target=MUG):
  return score(goal, target, bought, price=price, chosen=chosen).reward


def test_the_right_purchase():
  assert reward(chosen=("sky blue", "16 oz")) == 1.0


@pytest.mark.parametrize(
  ("price", "chosen", "wanted"),
  [
    (12.5, (), 3 / 5),  # two attributes and the price of 2 + 2 + 1
    (12.5, ("sky blue",), 4 / 5),
    (12.5, ("navy blue", "16 oz"), 5 / 5),  # both blue
    (12.5, ("red | white", "8 oz"), 3 / 5),  # "8 oz" is 60 % of "16 oz"
    (20.0, ("16 oz",), 4 / 5),  # the limit is kept
    (20.01, ("16 oz",), 3 / 5),
    (30.0, (), 2 / 5),
  ],
)
def test_options_and_price_by_hand(price, chosen, wanted):
  assert reward(price=price, chosen=chosen) == pytest.approx(wanted)


def test_an_option_counts_once():
  goal = dataclasses.replace(GOAL, options=("sky blue",))
  assert reward(goal=goal, chosen=("sky blue", "dark blue")) == 1.0


def test_attributes_are_found_in_the_texts():
  goal = dataclasses.replace(
    GOAL, attributes=("oven safe", "holds a pint", "stoneware", "iron")
  )
  # A feature, the description and the title have the first three; of 4 + 2 + 1
  # they and the price are matched.
  assert reward(goal=goal) == pytest.approx(4 / 7)


def test_type_by_hand():
  # The mug's words: stoneware, coffee, mug, hand, glazed.
  assert type_score(MUG, MUG) == 1.0
  # One of five is shared, not more than .2; departments differ.
  assert type_score(SHIRT, MUG) == 0.5
  # The same query makes up for it; or two departments in common.
  assert type_score(dataclasses.replace(SHIRT, query=MUG.query), MUG) == 1.0
  kitchen = dataclasses.replace(SHIRT, product_category="Home › Kitchen")
  assert type_score(kitchen, MUG) == 1.0
  # One of four is enough in itself.
  plain = dataclasses.replace(MUG, title="Stoneware Coffee Mug, Glazed")
  assert type_score(SHIRT, plain) == 1.0
  # Nothing in common, though two departments are: it is another thing.
  assert type_score(TEAPOT, MUG) == 0.0
  assert reward(bought=TEAPOT) == 0.0
  # One of eleven.
  wordy = dataclasses.replace(
    MUG, title="Mug alpha beta gamma delta epsilon zeta eta theta iota kappa"
  )
  assert type_score(MUG, wordy) == 0.1
  # A title without words tells nothing; only the rest counts.
  nameless = dataclasses.replace(MUG, title="42")
  assert type_score(MUG, nameless) == 1.0
  assert type_score(SHIRT, nameless) == 0.5


def test_the_type_multiplies():
  # The shirt: no attribute, the price of 5; half the type.
  assert reward(bought=SHIRT) == pytest.approx(0.5 * 1 / 5)


def test_fuzzy_match():
  assert same("easy clean", "Clean easy!")  # order and punctuation
  assert same("16 oz", "16 oz (pack of 2)")  # all words of one
  assert not same("8 oz", "16 oz")
  assert not same("non slip", "high heel")
  assert same("non slip", "slip on")  # by letters; the published measure
  assert not same("", "")
