"""What the agent is asked to buy: goals made from products, and their split."""

import dataclasses
import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from crbc_jax.envs.webshop.products import Instruction, Product

Split = Literal["train", "eval", "test", "human"]

SHUFFLE_SEED = 233  # upstream's: with it, goal i is upstream's session i
TEST_GOALS = 500
EVAL_GOALS = 1_000
NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * n for n in range(1, 100))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
  """One task. The agent sees `instruction`; all else is for the reward."""

  goal_id: str  # the product, a number, a digest of everything below
  instruction: str
  asin: str  # the product it was made from; others may do as well
  attributes: tuple[str, ...]
  options: tuple[str, ...]  # values
  price_upper: float
  category: str
  split: Split


def draw_prices(products: Iterable[Product], *, seed: int) -> dict[str, float]:
  """What each product costs, by identifier; a draw where it has a range."""
  return {
    product.asin: random.Random(f"price/{seed}/{product.asin}").uniform(
      product.prices[0], product.prices[-1]
    )
    for product in products
  }


def synthetic_goals(
  products: Iterable[Product], prices: Mapping[str, float], *, seed: int
) -> tuple[Goal, ...]:
  """A goal for every combination of options of a product with an instruction.

  Order and split are upstream's: shuffled with seed 233; the first 500 are for
  the test, the next 1,000 for evaluation, the rest for training. A shop with
  fewer than 5,000 goals gives a tenth to the test and a fifth to evaluation.

  Args:
    products: in the order of the file.
    prices: from `draw_prices`.
    seed: of the limits on the price. Upstream draws them without one, so its
      goals differ from process to process.
  """
  goals = []
  for product in products:
    if product.synthetic is None:
      continue
    limit = _price_limit(prices[product.asin], f"{seed}/{product.asin}")
    by_name = sorted(product.options)
    names = [name for name, _ in by_name]
    for values in itertools.product(*(values for _, values in by_name)):
      wish = ", and ".join(
        f"{name}: {value}" for name, value in zip(names, values, strict=True)
      )
      text = product.synthetic.text + (f" with {wish}" if wish else "")
      goals.append((product, product.synthetic, text, values, limit))
  random.Random(SHUFFLE_SEED).shuffle(goals)
  return _numbered(
    _goal(*goal, split=_split(number, len(goals)))
    for number, goal in enumerate(goals)
  )


def human_goals(
  products: Iterable[Product], prices: Mapping[str, float], *, seed: int
) -> tuple[Goal, ...]:
  """The goals people wrote, in upstream's order; a panel of its own."""
  goals = [
    _goal(
      product,
      asked,
      asked.text.strip("."),
      asked.options or (),
      _price_limit(
        prices[product.asin], f"{seed}/{product.asin}/human/{number}"
      ),
      split="human",
    )
    for product in products
    for number, asked in enumerate(product.human)
  ]
  random.Random(SHUFFLE_SEED).shuffle(goals)
  return _numbered(goals)


def panel_hash(goals: Sequence[Goal]) -> str:
  """Identifies a panel of goals: 16 hexadecimal digits over ids in order."""
  return _digest([goal.goal_id for goal in goals], 16)


def _split(number: int, num_goals: int) -> Split:
  num_test = min(TEST_GOALS, num_goals // 10)
  num_eval = min(EVAL_GOALS, num_goals // 5)
  if number < num_test:
    return "test"
  return "eval" if number < num_test + num_eval else "train"


def _price_limit(price: float, seed: str) -> float:
  """The larger of two of the next four multiples of $10 above the price."""
  above = [limit for limit in _LIMITS if limit > price][:4]
  if len(above) < 2:
    return NO_LIMIT
  return max(random.Random(f"limit/{seed}").sample(above, 2))


def _goal(
  product: Product,
  asked: Instruction,
  text: str,
  options: tuple[str, ...],
  limit: float,
  *,
  split: Split,
) -> Goal:
  if limit < NO_LIMIT:
    text += f", and price lower than {limit:.2f} dollars"
  return Goal(
    goal_id=product.asin,
    instruction=text,
    asin=product.asin,
    attributes=asked.attributes,
    options=options,
    price_upper=limit,
    category=product.category,
    split=split,
  )


def _numbered(goals: Iterable[Goal]) -> tuple[Goal, ...]:
  """Makes the ids unique: number within the product, digest of the content."""
  counts: dict[str, int] = {}
  numbered = []
  for goal in goals:
    number = counts[goal.asin] = counts.get(goal.asin, -1) + 1
    content = dataclasses.asdict(goal)
    goal_id = f"{goal.asin}-{number}-{_digest(content, 8)}"
    numbered.append(dataclasses.replace(goal, goal_id=goal_id))
  return tuple(numbered)


def _digest(content: object, length: int) -> str:
  text = json.dumps(content, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:length]
