import pytest

from crbc_jax.envs.webshop import candidate_queries


def test_synthetic_instruction():
  queries = candidate_queries(
    "Find me dry, light tents for rain with color: red, and size: 3 x 4, and"
    " price lower than 50.00 dollars"
  )
  assert queries == (
    "dry, light tents for rain red 3 x 4",
    "dry, light tents for rain",
    "dry, light tents",
    "light tents red 3 x 4",
    "light tents",
  )


@pytest.mark.parametrize(
  ("instruction", "queries"),
  [
    ("Find me tents", ("tents",)),
    (
      "Find me tents with long poles with item shape: round",
      (
        "tents with long poles round",
        "tents with long poles",
        "tents",
        "tents round",
      ),
    ),
    (
      "i am looking for a pair of size 10.5 shoes that are red",
      ("size 10.5 shoes that are red", "size 10.5 shoes"),
    ),
    ("hello, i'm looking for mugs", ("mugs",)),
    ("i want to buy", ("i want to buy",)),
  ],
)
def test_others(instruction, queries):
  assert candidate_queries(instruction) == queries
