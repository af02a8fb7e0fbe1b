"""Products of WebShop: the original files, or the two in one bundle.

WebShop: Yao et al. 2022, arXiv 2207.01206. The files are described in its
repository (princeton-nlp/WebShop, MIT); none of them is shipped here.
"""

import dataclasses
import gzip
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from crbc_jax.envs.text import GameDataError

DEFAULT_PRICE = 100.0  # of a product without one
NO_ATTRIBUTE = "DUMMY_ATTR"  # of a product that the attribute file leaves out
MAX_ID_LENGTH = 10


class ShopError(GameDataError):
  """A shop that can't be opened; says which file and record, and what helps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
  """What somebody could ask for to get one product."""

  text: str
  attributes: tuple[str, ...]
  options: tuple[str, ...] | None  # values; None = any combination is meant


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
  """A product as the pages show it and the reward reads it."""

  asin: str  # its identifier, in capitals
  title: str
  description: str
  features: tuple[str, ...]  # bullet points; at least one, maybe empty
  prices: tuple[float, ...]  # one, or the ends of a range
  options: tuple[tuple[str, tuple[str, ...]], ...]  # name, values; lower case
  attributes: tuple[str, ...]  # hidden from the pages; what the reward matches
  category: str  # one of five departments
  query: str  # the search it was found by; hidden
  product_category: str  # a path, "Home › Furniture › Tables"; hidden
  synthetic: Instruction | None
  human: tuple[Instruction, ...]

  @property
  def price_tag(self) -> str:
    """As the pages show it."""
    return " to ".join(f"${price}" for price in self.prices)


def read_products(path: str | os.PathLike) -> tuple[Product, ...]:
  """Reads a folder of the original files, or a bundle.

  A folder holds items_shuffle*.json, items_ins_v2*.json and, if human
  instructions are wanted, items_human_ins.json. A bundle is one JSON object
  {"products": as in the first, "items_ins_v2": the second}, whose products may
  carry their human `instructions`. Any file may end in .gz. Products whose
  identifier is longer than 10 characters or was seen before are left out, as
  upstream does.

  Raises:
    ShopError: something is missing or is not as described.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    source = _only_file(path, "items_shuffle*.json")
    records = _read_json(source)
    described = _read_json(_only_file(path, "items_ins_v2*.json"))
    human_file = _files(path, "items_human_ins.json")
    human = _read_json(human_file[0]) if human_file else {}
  else:
    source, bundle = path, _read_json(path)
    if not isinstance(bundle, dict) or not {"products", "items_ins_v2"} <= set(
      bundle
    ):
      raise ShopError(
        f"{path} is not a bundle, an object with 'products' and"
        " 'items_ins_v2'. For the original files name their folder"
      )
    records, described = bundle["products"], bundle["items_ins_v2"]
    human = {}
  return parse_products(records, described, human, source=str(source))


def parse_products(
  records: Any, described: Any, human: Any, *, source: str
) -> tuple[Product, ...]:
  """The contents of the three files -> products.

  Args:
    records: a list, one object per product.
    described: identifier -> attributes and synthetic instruction.
    human: identifier -> list of human instructions.
    source: for messages.
  """
  if not isinstance(records, list):
    raise ShopError(f"{source}: the products are not a list")
  for name, value in (("attributes", described), ("instructions", human)):
    if not isinstance(value, dict):
      raise ShopError(f"{source}: the {name} are not an object by identifier")
  products: dict[str, Product] = {}
  for number, record in enumerate(records, 1):
    try:
      asin = record["asin"]
      if asin == "nan" or len(asin) > MAX_ID_LENGTH or asin in products:
        continue
      asked = human.get(asin, record.get("instructions", ()))
      products[asin] = _product(record, described.get(asin, {}), asked)
    except KeyError as error:
      raise ShopError(
        f"{source}, product {number}: field {error} is missing"
      ) from error
    except (AttributeError, TypeError, ValueError) as error:
      raise ShopError(f"{source}, product {number}: {error}") from error
  if not products:
    raise ShopError(f"{source}: no product in it")
  return tuple(products.values())


def _product(
  record: Mapping[str, Any], described: Mapping[str, Any], asked: Any
) -> Product:
  """One record of each file -> the product they describe."""
  features = record["small_description"]
  features = features if isinstance(features, list) else [features]
  synthetic = None
  if described.get("instruction"):
    synthetic = Instruction(
      text=described["instruction"],
      attributes=tuple(described["instruction_attributes"]),
      options=None,
    )
    if not synthetic.attributes:
      raise ValueError("its instruction_attributes are empty")
  return Product(
    asin=record["asin"].upper(),
    title=record["name"],
    description=record["full_description"] or "",
    features=tuple(features) or ("",),
    prices=_prices(record.get("pricing")),
    options=_options(record["customization_options"]),
    attributes=tuple(described.get("attributes", [NO_ATTRIBUTE])),
    category=record["category"],
    query=record["query"].lower().strip(),
    product_category=record["product_category"],
    synthetic=synthetic,
    human=tuple(
      Instruction(
        text=wish["instruction"],
        attributes=tuple(wish["instruction_attributes"]),
        options=tuple(wish["instruction_options"]),
      )
      for wish in asked
      if wish["instruction_attributes"]
    ),
  )


def _prices(pricing: str | list[float] | None) -> tuple[float, ...]:
  """Reads "$1,099.00", "$5.99$7.99" (a range) or the numbers themselves."""
  if not pricing:
    return (DEFAULT_PRICE,)
  if isinstance(pricing, str):
    parts = pricing.split("$")[1:]
    try:
      pricing = [
        float("".join(c for c in part if c in "0123456789.")) for part in parts
      ]
    except ValueError:
      pricing = []
    if not pricing:
      raise ValueError("its pricing has no number after each '$'")
  return tuple(float(price) for price in pricing[:2])


def _options(choices: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
  """{"Color": [{"value": "Red/White"}]} -> (("color", ("red | white",)),)."""
  return tuple(
    (
      name.lower(),
      tuple(
        value["value"].strip().replace("/", " | ").lower() for value in values
      ),
    )
    for name, values in (choices or {}).items()
    if values is not None
  )


def _files(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
  return sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])


def _only_file(folder: pathlib.Path, pattern: str) -> pathlib.Path:
  found = _files(folder, pattern)
  if len(found) != 1:
    names = ", ".join(path.name for path in found) or "none"
    raise ShopError(f"{folder} must hold one {pattern}; found: {names}")
  return found[0]


def _read_json(path: pathlib.Path) -> Any:
  try:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
      return json.load(file)
  except FileNotFoundError:
    raise ShopError(
      f"{path} does not exist. Name a folder of WebShop's files or a bundle"
    ) from None
  except (OSError, EOFError, UnicodeDecodeError) as error:
    raise ShopError(f"{path} can't be read: {error}") from error
  except json.JSONDecodeError as error:
    raise ShopError(f"{path} is not JSON: {error}") from error
