"""What generated games are made of: rooms, furniture, things, and what fits.

Names are those of the published domain, so that a policy trained on generated
games can read real ones; the selection and the layout are ours.
"""

from typing import NamedTuple


class Room(NamedTuple):
  """One kind of room."""

  furniture: dict[str, tuple[int, int]]  # receptacle -> least, most of it
  things: tuple[str, ...]  # object types that may lie about
  lamp: str = ""


class Family(NamedTuple):
  """Objects that are kept in the same receptacles."""

  things: tuple[str, ...]
  homes: tuple[str, ...]


OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
HOLLOW = frozenset({"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"})

_FOOD = ("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato")
_CROCKERY = ("Bowl", "Cup", "Mug", "Plate")
_CUTLERY = ("ButterKnife", "Fork", "Knife", "Ladle", "Spatula", "Spoon")
_COOKWARE = ("Kettle", "Pan", "Pot")
_SEASONING = ("PepperShaker", "SaltShaker")
_WASHING = ("Cloth", "DishSponge", "SoapBar")
_BATH = ("Candle", "SoapBottle", "SprayBottle", "TissueBox", "ToiletPaper")
_DESK = ("AlarmClock", "Book", "CD", "CreditCard", "Pen", "Pencil")
_POCKET = ("CellPhone", "KeyChain", "RemoteControl", "Watch")
_BULKY = ("Box", "Laptop", "Newspaper", "Pillow", "Statue", "Vase")

_TABLES = (
  "CoffeeTable",
  "CounterTop",
  "Desk",
  "DiningTable",
  "Dresser",
  "Shelf",
  "SideTable",
)
_SEATS = ("ArmChair", "Bed", "Sofa")

FAMILIES = (
  Family(_FOOD, (*_TABLES, "Fridge", "Microwave", "SinkBasin", "GarbageCan")),
  Family(
    _CROCKERY,
    (*_TABLES, "Cabinet", "CoffeeMachine", "Fridge", "Microwave", "SinkBasin"),
  ),
  Family(_CUTLERY, (*_TABLES, "Drawer", "SinkBasin")),
  Family(_COOKWARE, (*_TABLES, "Cabinet", "SinkBasin", "StoveBurner")),
  Family(_SEASONING, (*_TABLES, "Cabinet", "Drawer")),
  Family(
    _WASHING,
    (*_TABLES, "BathtubBasin", "Cabinet", "Drawer", "SinkBasin", "Toilet"),
  ),
  Family(_BATH, (*_TABLES, "Cabinet", "Drawer", "GarbageCan", "Toilet")),
  Family(_DESK, (*_TABLES, "Drawer", "GarbageCan", "Safe")),
  Family(_POCKET, (*_TABLES, *_SEATS, "Drawer", "Safe")),
  Family(_BULKY, (*_TABLES, *_SEATS)),
  Family(("DeskLamp", "FloorLamp"), ("Desk", "Dresser", "SideTable")),
)

CLEANABLE = frozenset({*_CROCKERY, *_CUTLERY, *_COOKWARE, *_WASHING}) | {
  *(food for food in _FOOD if food != "Bread")
}
HEATABLE = frozenset({"Apple", "Bread", "Cup", "Egg", "Mug", "Plate"}) | {
  "Potato",
  "Tomato",
}
COOLABLE = frozenset({*_FOOD, *_CROCKERY, "Pan", "Pot"})
SLICEABLE = frozenset({"Apple", "Bread", "Lettuce", "Potato", "Tomato"})
LAMPS = frozenset({"DeskLamp", "FloorLamp"})

KITCHEN = Room(
  furniture={
    "Cabinet": (2, 6),
    "CoffeeMachine": (0, 1),
    "CounterTop": (1, 3),
    "DiningTable": (0, 1),
    "Drawer": (1, 4),
    "Fridge": (1, 1),
    "GarbageCan": (1, 1),
    "Microwave": (1, 1),
    "SinkBasin": (1, 1),
    "StoveBurner": (1, 4),
  },
  things=(
    *_FOOD,
    *_CROCKERY,
    *_CUTLERY,
    *_COOKWARE,
    *_SEASONING,
    "DishSponge",
    "SoapBottle",
    "Vase",
  ),
)
BATHROOM = Room(
  furniture={
    "BathtubBasin": (0, 1),
    "Cabinet": (1, 5),
    "CounterTop": (1, 1),
    "Drawer": (0, 3),
    "GarbageCan": (1, 1),
    "Shelf": (0, 2),
    "SideTable": (0, 1),
    "SinkBasin": (1, 2),
    "Toilet": (1, 1),
  },
  things=(*_WASHING[:1], *_WASHING[2:], *_BATH),
)
BEDROOM = Room(
  furniture={
    "Bed": (1, 1),
    "Desk": (1, 2),
    "Drawer": (2, 7),
    "Dresser": (0, 1),
    "GarbageCan": (1, 1),
    "Safe": (0, 1),
    "Shelf": (0, 4),
    "SideTable": (1, 2),
  },
  things=(*_DESK, *_POCKET, "Bowl", "Box", "Laptop", "Mug", "Pillow"),
  lamp="DeskLamp",
)
LIVING_ROOM = Room(
  furniture={
    "ArmChair": (1, 2),
    "Cabinet": (0, 3),
    "CoffeeTable": (1, 2),
    "Drawer": (0, 4),
    "Dresser": (0, 1),
    "GarbageCan": (1, 1),
    "Shelf": (0, 3),
    "SideTable": (1, 3),
    "Sofa": (1, 1),
  },
  things=(*_POCKET, *_BULKY, "Book", "CreditCard", "Plate", "TissueBox"),
  lamp="FloorLamp",
)
ROOMS = {
  "kitchen": KITCHEN,
  "bathroom": BATHROOM,
  "bedroom": BEDROOM,
  "living room": LIVING_ROOM,
}

HOMES = {
  thing: frozenset(family.homes)
  for family in FAMILIES
  for thing in family.things
}
"""Receptacle types that an object type can be put into or onto."""
