"""One episode of WebShop as text: pages, commands, purchase.

Observations are those of upstream's "text" mode: what a page shows, pieces
joined by " [SEP] ". Which options are chosen is not shown, as upstream.
"""

import json
import re
from typing import Literal, NamedTuple

from crbc_jax.envs.text import TextKeys, TextStep
from crbc_jax.envs.webshop.goals import Goal
from crbc_jax.envs.webshop.products import Product
from crbc_jax.envs.webshop.queries import candidate_queries
from crbc_jax.envs.webshop.reward import Score, score
from crbc_jax.envs.webshop.shop import Shop
from crbc_jax.types import Boundary

PAGE_SIZE = 10
SECTIONS = ("Description", "Features", "Reviews")
BACK, PREV, NEXT, BUY = "back to search", "< prev", "next >", "buy now"

_SEPARATOR = " [SEP] "
_COMMAND = re.compile(r"(search|click)\[(.+)\]")


class Page(NamedTuple):
  """Where an episode is; with the goal, all there is to know about it."""

  kind: Literal["search", "results", "item", "section", "done"] = "search"
  query: str = ""
  number: int = 0  # of the page of results, from 1
  asin: str = ""
  section: str = ""  # of an item: "description", ...
  options: tuple[tuple[str, str], ...] = ()  # chosen (name, value), by name


class WebshopEnv:
  """An episode; the shop is shared and never changes.

  Commands are `search[words]` and `click[what]`. Clicks are listed in
  `TextStep.commands`; on the search page it lists queries made from the
  instruction (`candidate_queries`), and any other may be typed, on any page, as
  upstream. A purchase ends the episode: with SUCCESS if its reward is 1.

  Differences from upstream: `search[<r>]` and its like, which list products
  without a search, are plain text; the reviews, none in the released data, are
  not read; the last page doesn't print the goal. The reward's are listed in
  `reward`, the search's in `search`, the goals' in `goals`.
  """

  def __init__(self, shop: Shop, goal: Goal, *, show_attributes: bool = False):
    """`show_attributes` adds the page of attributes that the reward reads."""
    self.shop = shop
    self.target_goal = goal
    self._sections = SECTIONS + ("Attributes",) * show_attributes
    self._queries = tuple(
      f"search[{query}]" for query in candidate_queries(goal.instruction)
    )
    self._page = Page()
    self._score: Score | None = None

  @property
  def game_id(self) -> str:
    """The goal's."""
    return self.target_goal.goal_id

  @property
  def task_type(self) -> str:
    """The department of the goal's product, one of five."""
    return self.target_goal.category

  @property
  def goal(self) -> str:
    """The instruction."""
    return self.target_goal.instruction

  @property
  def page(self) -> Page:
    """The latent state."""
    return self._page

  @property
  def score(self) -> Score | None:
    """Of the purchase; None before."""
    return self._score

  @property
  def commands(self) -> tuple[str, ...]:
    """The same as `TextStep.commands`."""
    if self._page.kind == "search":
      return self._queries
    return tuple(f"click[{target}]" for target in self._clickables())

  def reset(self) -> TextStep:
    """Back to the search page, with nothing bought."""
    self._page, self._score = Page(), None
    return self._observe()

  def step(self, command: str) -> TextStep:
    """Searches or clicks; anything else, or after the end, changes nothing."""
    match = _COMMAND.match(command)
    if match is None or self._page.kind == "done":
      return self._observe()
    name, target = match[1], match[2].lower()
    reward = 0.0
    if name == "search":
      self._page = Page("results", target, 1)
    elif target == BUY and target in self._clickables():
      reward = self._buy()
    elif target in self._clickables():
      self._click(target)
    return self._observe(reward)

  def describe(self, command: str) -> str:
    """A product by its title and price, an option by its name, too."""
    match = _COMMAND.match(command)
    if match is None or match[1] == "search":
      return command
    target = match[2].lower()
    if self._page.kind == "results":
      for item in self.results():
        if item.asin.lower() == target:
          return f"click {item.title} {item.price_tag}"
    elif self._page.kind == "item" and target in self._option_names():
      return f"click {self._option_names()[target]} {target}"
    return command

  def copy(self) -> "WebshopEnv":
    """A second episode on the same page; the shop stays shared."""
    twin = object.__new__(WebshopEnv)
    twin.__dict__.update(self.__dict__)  # all of it is immutable
    return twin

  def keys(self) -> TextKeys:
    """Text: the observation. History: the page, without the options chosen.

    The papers key WebShop by the "current page"; that is read here as where
    the page stands (query, number, item, section), which its text leaves out in
    part. State: that and the options.
    """
    *place, _ = self._page
    return TextKeys(
      text=self._text(), history=json.dumps(place), state=json.dumps(self._page)
    )

  def results(self) -> tuple[Product, ...]:
    """The products on the present page of results."""
    end = self._page.number * PAGE_SIZE
    return self.shop.search(self._page.query)[end - PAGE_SIZE : end]

  def _clickables(self) -> tuple[str, ...]:
    """What can be clicked: buttons, products, options."""
    page = self._page
    if page.kind == "results":
      buttons = (BACK, PREV, NEXT) if page.number > 1 else (BACK, NEXT)
      return (*buttons, *(item.asin.lower() for item in self.results()))
    if page.kind == "item":
      sections = (section.lower() for section in self._sections)
      return (BACK, PREV, *sections, BUY, *self._option_names())
    return (BACK, PREV) if page.kind == "section" else ()

  def _option_names(self) -> dict[str, str]:
    """Value -> name of the option, for the present item."""
    product = self.shop.product(self._page.asin)
    return {v: name for name, values in product.options for v in values}

  def _click(self, target: str) -> None:
    page = self._page
    if target == BACK:
      self._page = Page()
    elif page.kind == "results":
      if target in (NEXT, PREV):
        step = 1 if target == NEXT else -1
        self._page = page._replace(number=page.number + step)
      else:
        self._page = page._replace(kind="item", asin=target.upper())
    elif page.kind == "section":
      self._page = page._replace(kind="item", section="")
    elif target == PREV:
      self._page = Page("results", page.query, page.number)
    elif target.capitalize() in self._sections:
      self._page = page._replace(kind="section", section=target)
    else:
      chosen = dict(page.options) | {self._option_names()[target]: target}
      self._page = page._replace(options=tuple(sorted(chosen.items())))

  def _buy(self) -> float:
    asin = self._page.asin
    self._score = score(
      self.target_goal,
      self.shop.product(self.target_goal.asin),
      self.shop.product(asin),
      price=self.shop.price(asin),
      chosen=[value for _, value in self._page.options],
    )
    self._page = self._page._replace(kind="done")
    return self._score.reward

  def _observe(self, reward: float = 0.0) -> TextStep:
    boundary = Boundary.NONE
    if self._score is not None:
      won = self._score.reward == 1
      boundary = Boundary.SUCCESS if won else Boundary.FAILURE
    return TextStep(self._text(), self.commands, reward, boundary)

  def _text(self) -> str:
    page, instruction = self._page, self.target_goal.instruction
    if page.kind == "search":
      shown = ["WebShop", "Instruction:", instruction, "Search"]
    elif self._score is not None:
      shown = [
        "Thank you for shopping with us!",
        "Your score (min 0.0, max 1.0)",
        str(self._score.reward),
      ]
    else:
      shown = ["Instruction:", instruction, "Back to Search"]
      if page.kind == "results":
        shown += self._show_results()
      elif page.kind == "item":
        shown += self._show_item(self.shop.product(page.asin))
      else:
        shown += self._show_section(self.shop.product(page.asin))
    return _SEPARATOR.join(shown)

  def _show_results(self) -> list[str]:
    total = len(self.shop.search(self._page.query))
    shown = [f"Page {self._page.number} (Total results: {total})"]
    shown += ["< Prev", "Next >"] if self._page.number > 1 else ["Next >"]
    for item in self.results():
      shown += item.asin, item.title, item.price_tag
    return shown

  def _show_item(self, product: Product) -> list[str]:
    shown = ["< Prev"]
    for name, values in product.options:
      shown += name, *values
    return [
      *shown,
      product.title,
      f"Price: {product.price_tag}",
      "Rating: N.A.",
      *self._sections,
      "Buy Now",
    ]

  def _show_section(self, product: Product) -> list[str]:
    contents = {
      "description": (product.description,),
      "features": product.features,
      "reviews": (),
      "attributes": (
        *product.attributes,
        product.category,
        product.query,
        product.product_category,
      ),
    }[self._page.section]
    stripped = (piece.strip() for piece in contents)
    return ["< Prev", *(piece for piece in stripped if piece)]
