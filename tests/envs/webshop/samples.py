"""Products by hand, in the format of the files."""

from crbc_jax.envs.webshop.products import parse_products

MUG = {
  "asin": "B000000MUG",
  "name": "Stoneware Coffee Mug, Hand Glazed",
  "full_description": "Holds a pint.",
  "small_description": ["Dishwasher safe ", " ", "Oven safe"],
  "pricing": "$12.50",
  "customization_options": {
    "Color": [{"value": "Sky Blue"}, {"value": "Red/White"}],
    "Size": [{"value": "8 oz"}, {"value": "16 oz"}],
    "Empty": None,
  },
  "category": "garden",
  "query": " Coffee Mugs",
  "product_category": "Home › Kitchen › Mugs",
}
TEAPOT = MUG | {
  "asin": "B00TEAPOT0",
  "name": "Glass Teapot",
  "full_description": "",
  "small_description": "With a strainer",
  "pricing": "$1,020.00$1,100.00$5",
  "customization_options": "",
  "query": "teapots",
  "product_category": "Home › Kitchen › Teapots",
}
SHIRT = TEAPOT | {
  "asin": "B0000SHIRT",
  "name": "Coffee Brown Shirt",
  "pricing": None,
  "category": "fashion",
  "query": "shirts",
  "product_category": "Clothing › Shirts",
}
DESCRIBED = {
  "B000000MUG": {
    "attributes": ["hand glazed", "dishwasher safe"],
    "instruction": "Find me hand glazed coffee mugs with dishwasher safe",
    "instruction_attributes": ["hand glazed", "dishwasher safe"],
  },
  "B00TEAPOT0": {
    "attributes": ["borosilicate glass"],
    "instruction": "Find me borosilicate glass teapots",
    "instruction_attributes": ["borosilicate glass"],
  },
}
HUMAN = {
  "B000000MUG": [
    {
      "instruction": "i need a big mug, hand glazed.",
      "instruction_attributes": ["hand glazed"],
      "instruction_options": ["16 oz"],
    },
    {
      "instruction": "anything",
      "instruction_attributes": [],
      "instruction_options": [],
    },
  ]
}


def sample_products(records=(MUG, TEAPOT, SHIRT)):
  return parse_products(list(records), DESCRIBED, HUMAN, source="samples")
