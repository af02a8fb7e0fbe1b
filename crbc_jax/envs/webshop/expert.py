"""A scripted customer that knows the goal's product: for demonstrations."""

import random

from crbc_jax.envs.webshop import engine
from crbc_jax.envs.webshop.engine import WebshopEnv
from crbc_jax.envs.webshop.products import Product
from crbc_jax.envs.webshop.reward import same


def expert_command(env: WebshopEnv) -> str:
  """The next command on a short way to buying the goal's product.

  Goes on sensibly from any page. The command is among `env.commands`, but where
  none of the queries offered finds the product: then its title is searched for.
  """
  page, wanted = env.page, env.target_goal.asin
  if page.kind == "search":
    return _best_search(env)
  if page.kind == "results":
    rank = _rank(env, page.query)
    if rank is None:
      return _click(engine.BACK)
    number = rank // engine.PAGE_SIZE + 1
    if number == page.number:
      return _click(wanted.lower())
    return _click(engine.NEXT if number > page.number else engine.PREV)
  if page.kind == "section" or page.asin != wanted:
    return _click(engine.PREV)
  chosen = dict(page.options)
  for name, value in wanted_options(env).items():
    if chosen.get(name) != value:
      return _click(value)
  return _click(engine.BUY)


def noisy_command(env: WebshopEnv, rng: random.Random, *, noise: float) -> str:
  """The expert's command; with probability `noise` any other than buying.

  A random purchase would end most demonstrations.
  """
  if rng.random() < noise:
    buy = _click(engine.BUY)
    return rng.choice([c for c in env.commands if c != buy])
  return expert_command(env)


def wanted_options(env: WebshopEnv) -> dict[str, str]:
  """Option name -> the value of the goal's product that the goal asks for."""
  product = env.shop.product(env.target_goal.asin)
  wanted: dict[str, str] = {}
  for wish in env.target_goal.options:
    name, value = _closest_option(product, wish, wanted)
    wanted[name] = value
  return wanted


def _closest_option(
  product: Product, wish: str, taken: dict[str, str]
) -> tuple[str, str]:
  """The value that is the wish, or that matches it; of a name not yet taken."""
  free = [
    (name, value)
    for name, values in product.options
    if name not in taken
    for value in values
  ]
  exact = [option for option in free if option[1] == wish]
  return (exact or [o for o in free if same(o[1], wish)])[0]


def _best_search(env: WebshopEnv) -> str:
  """The offered query that ranks the product first, or its title."""
  ranked = []
  for command in env.commands:
    rank = _rank(env, command.removeprefix("search[").removesuffix("]"))
    if rank is not None:
      ranked.append((rank // engine.PAGE_SIZE, command))
  if ranked:
    return min(ranked, key=lambda pair: pair[0])[1]
  return f"search[{env.shop.product(env.target_goal.asin).title}]"


def _rank(env: WebshopEnv, query: str) -> int | None:
  """Of the goal's product among the results, from 0."""
  asins = [product.asin for product in env.shop.search(query)]
  wanted = env.target_goal.asin
  return asins.index(wanted) if wanted in asins else None


def _click(target: str) -> str:
  return f"click[{target}]"
