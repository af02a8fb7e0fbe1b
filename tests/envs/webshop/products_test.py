import gzip
import json

import pytest

from crbc_jax.envs.webshop import (
  ShopError,
  load_shop,
  read_products,
  write_shop,
)
from tests.envs.webshop.samples import (
  DESCRIBED,
  HUMAN,
  MUG,
  SHIRT,
  TEAPOT,
  sample_products,
)


def test_cleaning_by_hand():
  mug, teapot, shirt = sample_products()
  assert mug.options == (
    ("color", ("sky blue", "red | white")),
    ("size", ("8 oz", "16 oz")),
  )
  assert mug.features == ("Dishwasher safe ", " ", "Oven safe")
  assert (mug.query, mug.prices, mug.price_tag) == (
    "coffee mugs",
    (12.5,),
    "$12.5",
  )
  assert [wish.text for wish in mug.human] == ["i need a big mug, hand glazed."]
  assert mug.human[0].options == ("16 oz",)
  assert teapot.prices == (1020.0, 1100.0)
  assert teapot.price_tag == "$1020.0 to $1100.0"
  assert teapot.features == ("With a strainer",)
  assert teapot.options == ()
  assert shirt.prices == (100.0,)
  assert shirt.attributes == ("DUMMY_ATTR",)
  assert shirt.synthetic is None


def test_long_and_repeated_identifiers_are_left_out():
  records = [MUG, MUG | {"name": "again"}, MUG | {"asin": "B0123456789"}]
  records.append(MUG | {"asin": "nan"})
  (mug,) = sample_products(records)
  assert mug.title == MUG["name"]


def test_folder_and_bundle_are_the_same(tmp_path):
  folder = tmp_path / "files"
  folder.mkdir()
  contents = {
    "items_shuffle_3.json": [MUG, TEAPOT, SHIRT],
    "items_ins_v2_3.json": DESCRIBED,
    "items_human_ins.json": HUMAN,
  }
  for name, content in contents.items():
    (folder / name).write_text(json.dumps(content))
  with_human = MUG | {"instructions": HUMAN[MUG["asin"]], "pricing": [12.5]}
  bundle = tmp_path / "bundle.json.gz"
  with gzip.open(bundle, "wt") as file:
    products = [with_human, TEAPOT, SHIRT]
    json.dump({"products": products, "items_ins_v2": DESCRIBED}, file)
  assert read_products(folder) == read_products(bundle) == sample_products()


def test_human_instructions_are_optional(tmp_path):
  write_shop(tmp_path, seed=1, num_products=24)
  assert load_shop(tmp_path).human_goals
  (tmp_path / "items_human_ins.json").unlink()
  shop = load_shop(tmp_path)
  assert shop.goals
  assert not shop.human_goals


@pytest.mark.parametrize(
  ("record", "message"),
  [
    ({"name": "no identifier"}, "product 2: field 'asin' is missing"),
    (TEAPOT | {"pricing": "$a"}, "product 2: its pricing has no number"),
    (TEAPOT | {"pricing": "12"}, "product 2: its pricing has no number"),
    (
      {k: v for k, v in TEAPOT.items() if k != "query"},
      "product 2: field 'query' is missing",
    ),
    ("B00TEAPOT0", "product 2: "),
  ],
)
def test_a_bad_product_is_named(record, message):
  with pytest.raises(ShopError, match=f"^samples, {message}"):
    sample_products([MUG, record])


def test_what_is_missing_is_named(tmp_path):
  with pytest.raises(ShopError, match=r"none.json does not exist. Name a"):
    load_shop(tmp_path / "none.json")
  with pytest.raises(ShopError, match=r"one items_shuffle\*.json; found: none"):
    load_shop(tmp_path)
  write_shop(tmp_path, seed=0, num_products=12)
  write_shop(tmp_path, seed=0, num_products=24)
  with pytest.raises(ShopError, match=r"_12.json, items_shuffle_24.json"):
    load_shop(tmp_path)


def test_what_is_not_a_bundle_is_said(tmp_path):
  path = tmp_path / "shop.json"
  path.write_text("[1")
  with pytest.raises(ShopError, match=r"shop.json is not JSON"):
    load_shop(path)
  path.write_text("[]")
  with pytest.raises(ShopError, match=r"not a bundle.* name their folder"):
    load_shop(path)
  path.write_text('{"products": [], "items_ins_v2": {}}')
  with pytest.raises(ShopError, match=r"shop.json: no product in it"):
    load_shop(path)
  path.write_text('{"products": {}, "items_ins_v2": {}}')
  with pytest.raises(ShopError, match=r"the products are not a list"):
    load_shop(path)
  path.write_text(json.dumps({"products": [SHIRT], "items_ins_v2": {}}))
  with pytest.raises(ShopError, match=r"there is no goal"):
    load_shop(path)
  (tmp_path / "shop.json.gz").write_text("plain")
  with pytest.raises(ShopError, match=r"shop.json.gz can't be read"):
    load_shop(tmp_path / "shop.json.gz")
