"""A shop: products, their index and the goals; shared by all its episodes."""

import os
from collections.abc import Iterable

from crbc_jax.envs.webshop import goals as goals_lib
from crbc_jax.envs.webshop import products as products_lib
from crbc_jax.envs.webshop import search as search_lib
from crbc_jax.envs.webshop.goals import Goal
from crbc_jax.envs.webshop.products import Product, ShopError


class Shop:
  """Read-only; make one per process and share it.

  Attributes:
    products: in the order of the file.
    goals: synthetic, in upstream's order; each names its `split`.
    human_goals: those that people wrote.
  """

  def __init__(self, products: Iterable[Product], *, seed: int = 0):
    """`seed` draws what a product with a price range costs, and the limits."""
    self.products = tuple(products)
    self._by_asin = {product.asin: product for product in self.products}
    self._prices = goals_lib.draw_prices(self.products, seed=seed)
    self._index = search_lib.SearchIndex(
      [search_lib.document(product) for product in self.products]
    )
    self.goals = goals_lib.synthetic_goals(
      self.products, self._prices, seed=seed
    )
    self.human_goals = goals_lib.human_goals(
      self.products, self._prices, seed=seed
    )
    if not self.goals and not self.human_goals:
      raise ShopError("no product has an instruction, so there is no goal")

  def product(self, asin: str) -> Product:
    """By its identifier, in capitals."""
    return self._by_asin[asin]

  def price(self, asin: str) -> float:
    """What it costs here; within the range that its page shows."""
    return self._prices[asin]

  def search(self, query: str) -> tuple[Product, ...]:
    """At most 50 products, best first."""
    return tuple(self.products[n] for n in self._index.search(query))

  def split(self, name: goals_lib.Split) -> tuple[Goal, ...]:
    """The goals of "train", "eval", "test" or "human", in their order."""
    return tuple(
      goal for goal in (*self.goals, *self.human_goals) if goal.split == name
    )


def load_shop(path: str | os.PathLike, *, seed: int = 0) -> Shop:
  """Opens a folder of the original files or a bundle."""
  return Shop(products_lib.read_products(path), seed=seed)
