"""A PDDL problem of the ALFRED domain: things, facts and the goal.

Only what ALFWorld's six task types use is read; anything else is refused with
its line, since an engine that guesses is not the same environment.
"""

import re
from typing import NamedTuple

from crbc_jax.envs.alfworld.errors import GameError
from crbc_jax.envs.alfworld.goal import Goal, parse_goal

ARITY = {
  "atlocation": 2,
  "cancontain": 2,
  "cleanable": 1,
  "coolable": 1,
  "heatable": 1,
  "inreceptacle": 2,
  "inreceptacleobject": 2,
  "isclean": 1,
  "iscool": 1,
  "ishot": 1,
  "isreceptacleobject": 1,
  "issliced": 1,
  "istoggled": 1,
  "objectatlocation": 2,
  "objecttype": 2,
  "openable": 1,
  "opened": 1,
  "pickupable": 1,
  "receptacleatlocation": 2,
  "receptacletype": 2,
  "sliceable": 1,
  "toggleable": 1,
}
"""Predicates a game may begin with, and how many arguments each has."""

_FACT = re.compile(r"\(([^()]*)\)")
_COMMENT = re.compile(r";[^\n]*")


class Problem(NamedTuple):
  """A parsed problem; all names in lower case, as PDDL has it."""

  types: dict[str, str]  # name -> agent, location, receptacle, object, ...
  facts: dict[str, list[tuple[str, ...]]]  # predicate -> arguments, in order
  goal: Goal


def parse_problem(text: str, place: str) -> Problem:
  """Reads the PDDL text of a game.

  Args:
    text: the problem.
    place: where it stands, for messages.

  Raises:
    GameError: it is damaged or uses what the six task types do not.
  """
  text = _COMMENT.sub("", text).lower()
  if text.count("(") != text.count(")"):
    raise GameError(
      place, "its parentheses do not match: is the problem cut off?"
    )
  starts: list[int] = []
  for section in ("(:objects", "(:init", "(:goal"):
    start = text.find(section, starts[-1] if starts else 0)
    if start < 0:
      raise GameError(place, f"the problem has no section {section} ...)")
    starts.append(start)
  objects, init, goal = starts
  types = _parse_types(text[objects + len("(:objects") : init])
  facts: dict[str, list[tuple[str, ...]]] = {name: [] for name in ARITY}
  for match in _FACT.finditer(text, init, goal):
    predicate, *arguments = match[1].split() or [""]
    if ARITY.get(predicate) != len(arguments):
      raise _error(text, match.start(), place, f"{match[0]} is no known fact")
    for argument in arguments:
      if argument not in types:
        raise _error(
          text, match.start(), place, f"{argument!r} is not among the objects"
        )
    facts[predicate].append(tuple(arguments))
  try:
    return Problem(types, facts, parse_goal(text[goal:]))
  except ValueError as error:
    raise _error(text, goal, place, str(error)) from None


def _error(text: str, position: int, place: str, reason: str) -> GameError:
  line = text.count("\n", 0, position) + 1
  return GameError(place, f"line {line} of its problem: {reason}")


def _parse_types(text: str) -> dict[str, str]:
  types: dict[str, str] = {}
  names: list[str] = []
  words = iter(text.replace(")", " ").split())
  for word in words:
    if word == "-":
      types.update(dict.fromkeys(names, next(words, "")))
      names = []
    else:
      names.append(word)
  return types
