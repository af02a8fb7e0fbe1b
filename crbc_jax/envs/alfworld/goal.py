"""The `(:goal ...)` of a problem, as one of ALFWorld's six task types."""

import dataclasses
import re
from collections.abc import Iterator

_AFFORDANCES = frozenset({"cleanable", "coolable", "heatable"})
_MARKS = {"isclean": "clean", "iscool": "cool", "ishot": "heat"}
_TOKEN = re.compile(r"[()]|[^\s()]+")

Atom = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Goal:
  """What wins, in the types of the domain ("appletype").

  `count` objects of type `target`, all with `mark` and `affordances`, in one
  receptacle of type `receptacle`; or, where `lamp` is given, one of them in
  the hand beside a lamp of that type which has been turned on.
  """

  target: str
  count: int = 1
  receptacle: str = ""
  lamp: str = ""
  mark: str = ""  # isclean, ishot or iscool
  affordances: frozenset[str] = frozenset()

  @property
  def task_type(self) -> str:
    """The name ALFWorld gives such a task."""
    if self.lamp:
      return "look_at_obj_in_light"
    if self.mark:
      return f"pick_{_MARKS[self.mark]}_then_place_in_recep"
    if self.count == 2:
      return "pick_two_obj_and_place"
    return "pick_and_place_simple"


def parse_goal(text: str) -> Goal:
  """Reads `(:goal ...)`, in lower case.

  Takes the goal whose atoms, written out, are exactly those of the text.

  Raises:
    ValueError: there is none.
  """
  match _nested(text):
    case [":goal", list(form)]:
      atoms = frozenset(_atoms(form))
    case _:
      raise ValueError("the goal is empty")
  goal, expected = (
    _light_goal(atoms)
    if any(atom[0] == "holds" for atom in atoms)
    else _place_goal(atoms)
  )
  if atoms != expected:
    raise ValueError("the goal is not one of ALFWorld's six task types")
  return goal


def _light_goal(atoms: frozenset[Atom]) -> tuple[Goal, set[Atom]]:
  """An object in the hand beside a lamp, and the atoms of that goal."""
  types, rooms = _pairs(atoms, "objecttype"), _pairs(atoms, "inreceptacle")
  agent, target = next(iter(_pairs(atoms, "holds").items()), ("", ""))
  lamp, spot = next(iter(rooms.items()), ("", ""))
  place = _pairs(atoms, "receptacleatlocation").get(spot, "")
  goal = Goal(types.get(target, ""), lamp=types.get(lamp, ""))
  return goal, {
    ("objecttype", lamp, goal.lamp),
    ("toggleable", lamp),
    ("istoggled", lamp),
    ("inreceptacle", lamp, spot),
    ("receptacleatlocation", spot, place),
    ("atlocation", agent, place),
    ("objecttype", target, goal.target),
    ("holds", agent, target),
  }


def _place_goal(atoms: frozenset[Atom]) -> tuple[Goal, set[Atom]]:
  """One or two objects in a receptacle, and the atoms of that goal."""
  names = {atom[0] for atom in atoms}
  types, rooms = _pairs(atoms, "objecttype"), _pairs(atoms, "inreceptacle")
  target, spot = next(iter(rooms.items()), ("", ""))
  goal = Goal(
    types.get(target, ""),
    count=min(len(rooms), 2),
    receptacle=_pairs(atoms, "receptacletype").get(spot, ""),
    mark=next((mark for mark in _MARKS if mark in names), ""),
    affordances=_AFFORDANCES & names,
  )
  expected: set[Atom] = {("receptacletype", spot, goal.receptacle)}
  for item in list(rooms)[:2]:
    expected |= {
      ("objecttype", item, goal.target),
      ("inreceptacle", item, spot),
    }
    expected |= {(name, item) for name in goal.affordances}
    expected |= {(goal.mark, item)} if goal.mark else set()
  if goal.count == 2:
    expected.add(("distinct", *sorted(rooms)))
  return goal, expected


def _pairs(atoms: frozenset[Atom], name: str) -> dict[str, str]:
  return {a[1]: a[2] for a in atoms if a[0] == name and len(a) == 3}


def _atoms(form: list) -> Iterator[Atom]:
  """The atoms of nested `and` and `exists`; inequality as `distinct`."""
  match form:
    case ["and", *forms]:
      for inner in forms:
        yield from _atoms(inner)
    case ["exists", list(), list(inner)]:
      yield from _atoms(inner)
    case ["not", ["=", str(left), str(right)]]:
      yield ("distinct", *sorted((left, right)))
    case [str(name), *arguments] if all(isinstance(a, str) for a in arguments):
      yield (name, *arguments)
    case _:
      raise ValueError("the goal is not one of ALFWorld's six task types")


def _nested(text: str) -> list:
  """The first parenthesised form of a text, as nested lists."""
  stack: list[list] = [[]]
  for token in _TOKEN.findall(text):
    if token == "(":
      stack.append([])
    elif token == ")":
      form = stack.pop()
      if len(stack) == 1:
        return form
      stack[-1].append(form)
    else:
      stack[-1].append(token)
  raise ValueError("the goal does not end")
