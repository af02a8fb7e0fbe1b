"""Makes a small shop of our own, in the format of WebShop's files.

For tests and for a first run without data: the same pages, goals and reward,
but fewer products, so the goals are easier than the benchmark's.
"""

import json
import os
import pathlib
import random
from typing import Any, NamedTuple

from crbc_jax.envs.webshop.products import parse_products
from crbc_jax.envs.webshop.shop import Shop
from crbc_jax.files import write_text


class _Ware(NamedTuple):
  """A kind of thing that is made in many variants."""

  category: str
  path: str  # of departments
  things: str  # plural; the query it is found by
  thing: str
  attributes: tuple[str, ...]
  uses: tuple[str, ...]  # attributes said with "for"
  options: tuple[tuple[str, tuple[str, ...]], ...]
  prices: tuple[int, int]


_CLOTH_SIZES = ("small", "medium", "large", "x-large")
_COLORS = ("black", "navy", "forest green", "brick red", "grey", "off white")
_WARES = (
  _Ware(
    "fashion", "Clothing › Outdoor › Jackets", "rain jackets", "rain jacket",
    ("water resistant", "sealed seams", "machine wash", "slim fit"),
    ("daily wear", "mountain walks"),
    (("Color", _COLORS), ("Size", _CLOTH_SIZES)), (35, 140),
  ),
  _Ware(
    "fashion", "Clothing › Shirts › Casual", "linen shirts", "linen shirt",
    ("long sleeve", "button closure", "hand wash", "relaxed fit"),
    ("summer days", "office wear"),
    (("Color", _COLORS), ("Size", _CLOTH_SIZES)), (18, 60),
  ),
  _Ware(
    "fashion", "Clothing › Shoes › Walking", "trail shoes", "trail shoe",
    ("rubber sole", "non slip", "arch support", "quick drying"),
    ("wide feet", "wet ground"),
    (("Color", _COLORS), ("Size", ("7", "8", "9", "10.5"))), (40, 110),
  ),
  _Ware(
    "garden", "Home › Kitchen › Cookware", "saucepans", "saucepan",
    ("stainless steel", "heavy duty", "easy clean", "glass lid"),
    ("induction stoves", "small kitchens"),
    (("Size", ("1 quart", "2 quart", "3/4 quart")),), (15, 90),
  ),
  _Ware(
    "garden", "Home › Furniture › Shelves", "wall shelves", "wall shelf",
    ("solid wood", "easy assemble", "space saving", "floating mount"),
    ("living room", "plant pots"),
    (("Color", ("walnut", "oak", "white")), ("Size", ("16 in", "24 in"))),
    (20, 80),
  ),
  _Ware(
    "garden", "Home › Lighting › Lamps", "desk lamps", "desk lamp",
    ("dimmable light", "usb port", "flexible neck", "energy efficient"),
    ("night reading", "drawing tables"),
    (("Color", ("black", "white", "brass")),), (14, 65),
  ),
  _Ware(
    "electronics", "Electronics › Audio › Headphones", "headphones",
    "headphone",
    ("noise reducing", "long battery", "foldable frame", "wireless bluetooth"),
    ("long flights", "studio mixing"),
    (("Color", ("black", "silver", "rose gold")),), (25, 220),
  ),
  _Ware(
    "electronics", "Electronics › Cables › Adapters", "charging cables",
    "charging cable",
    ("fast charging", "braided nylon", "gold plated", "tangle free"),
    ("car use", "tablets"),
    (("Size", ("3 ft", "6 ft", "10 ft")),), (6, 25),
  ),
  _Ware(
    "beauty", "Beauty › Skin › Body", "body lotions", "body lotion",
    ("fragrance free", "cruelty free", "shea butter", "non greasy"),
    ("dry skin", "sensitive skin"),
    (("Scent", ("unscented", "oat", "lavender", "citrus")),), (5, 30),
  ),
  _Ware(
    "beauty", "Beauty › Hair › Brushes", "hair brushes", "hair brush",
    ("boar bristles", "wooden handle", "anti static", "travel size"),
    ("curly hair", "long hair"),
    (), (7, 35),
  ),
  _Ware(
    "grocery", "Grocery › Snacks › Bars", "granola bars", "granola bar",
    ("gluten free", "low sugar", "plant based", "individually wrapped"),
    ("school lunches", "trail food"),
    (
      ("Flavor Name", ("honey almond", "dark cocoa", "apple cinnamon")),
      ("Size", ("pack of 6", "pack of 12")),
    ),
    (6, 30),
  ),
  _Ware(
    "grocery", "Grocery › Drinks › Tea", "herbal teas", "herbal tea",
    ("caffeine free", "certified organic", "hand picked", "resealable bag"),
    ("cold evenings", "iced tea"),
    (("Flavor Name", ("mint", "camomile", "ginger lemon")),), (4, 28),
  ),
)  # fmt: skip
_BRANDS = (
  "Alderbrook Birchline Calderon Dunmore Eastfell Fennwick Garrick Hollis"
  " Ivarsen Juniper Keswick Larkhill Marlowe Norrvik Oakham"
)
_LINES = "Classic Pro Lite Studio Heritage Everyday"
_WITHOUT_PRICE, _WITH_RANGE, _WITH_HUMAN = 0.05, 0.15, 0.2


def generate_records(
  seed: int, num_products: int
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
  """The contents of items_shuffle, items_ins_v2 and items_human_ins."""
  rng = random.Random(f"shop/{seed}")
  records, described, human = [], {}, {}
  for number in range(num_products):
    ware = _WARES[number % len(_WARES)]
    asin = f"G{number:04d}" + "".join(rng.choices("BCDFGHJKLMNP", k=5))
    own = rng.sample(ware.attributes, rng.randint(2, 3))
    use = rng.choice(ware.uses)
    records.append(_record(rng, ware, asin, own, use))
    described[asin] = _description(rng, ware, own, use)
    if rng.random() < _WITH_HUMAN:
      human[asin] = [_human(rng, ware, own, records[-1])]
  rng.shuffle(records)
  return records, described, human


def generate_shop(seed: int, *, num_products: int = 60) -> Shop:
  """A shop made from nothing but the seed; it draws the prices' limits, too."""
  products = parse_products(
    *generate_records(seed, num_products), source=f"generated shop {seed}"
  )
  return Shop(products, seed=seed)


def write_shop(
  folder: str | os.PathLike, seed: int, *, num_products: int = 60
) -> None:
  """Writes the three files that `shop.load_shop` reads."""
  contents = generate_records(seed, num_products)
  names = (
    f"items_shuffle_{num_products}.json",
    f"items_ins_v2_{num_products}.json",
    "items_human_ins.json",
  )
  for name, content in zip(names, contents, strict=True):
    path = pathlib.Path(folder) / name
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _record(
  rng: random.Random, ware: _Ware, asin: str, own: list[str], use: str
) -> dict[str, Any]:
  in_title, *elsewhere = own
  brand, line = rng.choice(_BRANDS.split()), rng.choice(_LINES.split())
  title = f"{brand} {line} {ware.thing.title()}, {in_title.title()}"
  features = [
    f"Made for {use}",
    *(f"This {ware.thing}: {attribute}" for attribute in elsewhere),
  ]
  options = {
    name: [{"value": value, "image": None} for value in _some(rng, values)]
    for name, values in ware.options
  }
  return {
    "asin": asin,
    "name": title,
    "full_description": f"A {ware.thing} from our {ware.category} range.",
    "small_description": features,
    "pricing": _pricing(rng, *ware.prices),
    "customization_options": options or "",
    "category": ware.category,
    "query": ware.things,
    "product_category": ware.path,
  }


def _some(rng: random.Random, values: tuple[str, ...]) -> list[str]:
  """At least two of them, in their order."""
  chosen = set(rng.sample(values, rng.randint(2, len(values))))
  return [value for value in values if value in chosen]


def _pricing(rng: random.Random, low: int, high: int) -> str:
  price = rng.randint(low, high) - 0.01
  kind = rng.random()
  if kind < _WITHOUT_PRICE:
    return ""
  if kind < _WITHOUT_PRICE + _WITH_RANGE:
    return f"${price:,.2f}${price + 12:,.2f}"
  return f"${price:,.2f}"


def _description(
  rng: random.Random, ware: _Ware, own: list[str], use: str
) -> dict[str, Any]:
  wanted = rng.sample(own, rng.randint(1, 2))
  if rng.random() < 0.5:
    return {
      "attributes": [*own, use],
      "instruction": f"Find me {', '.join(wanted)} {ware.things} for {use}",
      "instruction_attributes": [*wanted, use],
    }
  return {
    "attributes": [*own, use],
    "instruction": f"Find me {ware.things} with {', '.join(wanted)}",
    "instruction_attributes": wanted,
  }


def _human(
  rng: random.Random, ware: _Ware, own: list[str], record: dict[str, Any]
) -> dict[str, Any]:
  wanted = rng.choice(own)
  values = [
    rng.choice(choices)["value"].replace("/", " | ")
    for choices in (record["customization_options"] or {}).values()
  ]
  named = f" in {' and '.join(values)}" if values else ""
  return {
    "instruction": f"i need {ware.things}{named}, {wanted} please.",
    "instruction_attributes": [wanted],
    "instruction_options": values,
  }
