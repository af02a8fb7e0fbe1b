"""A game: everything that stays the same while it is played, and its start.

Objects, receptacles and places are numbered in the order of their raw ids, so
that sorting numbers sorts as TextWorld sorts ids.
"""

import collections
import dataclasses

from crbc_jax.envs.alfworld.errors import GameError
from crbc_jax.envs.alfworld.goal import Goal
from crbc_jax.envs.alfworld.problem import Problem, parse_problem

HELP = """Available commands:
  look:                             describe the place you are at
  inventory:                        name what you hold
  go to (receptacle):               walk to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):    put an object into or onto a receptacle
  examine (something):              look closely at a receptacle or object
  use (object):                     turn on a lamp
  heat (object) with (receptacle):  heat an object in a microwave
  clean (object) with (receptacle): clean an object in a sink
  cool (object) with (receptacle):  cool an object in a fridge
  slice (object) with (object):     slice an object with a knife
"""
"""What `help` answers in games that bring no text grammar of their own."""

_AFFORDANCES = (
  "pickupable",
  "cleanable",
  "heatable",
  "coolable",
  "sliceable",
  "toggleable",
  "isreceptacleobject",
)
_MARKS = ("isclean", "iscool", "ishot", "issliced", "istoggled")


@dataclasses.dataclass(slots=True)
class State:
  """What changes; O objects, R receptacles, P places, all as numbers."""

  place: int
  held: int | None
  opened: set[int]  # receptacles
  contents: list[tuple[int, ...]]  # [R], objects in ascending order
  marks: set[tuple[str, int]]  # (isclean, object), (istoggled, object), ...
  object_places: set[tuple[int, int]]  # (object, place)
  taken: set[tuple[int, int]]  # (object, receptacle), taken and not put back

  def copy(self) -> "State":
    """An independent state."""
    return State(
      self.place,
      self.held,
      self.opened.copy(),
      self.contents.copy(),
      self.marks.copy(),
      self.object_places.copy(),
      self.taken.copy(),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Game:
  """One parsed game, shared by its episodes; see `make_game`.

  Attributes:
    id: the same in every process and for every way to load the game.
    split: valid_seen, valid_unseen, train, ...
    task_type: one of ALFWorld's six.
    goal: the instruction.
    wanted: what wins.
    help: the answer to `help`.
    walkthrough: commands that win, or None where none is known.
    objects, receptacles: names as shown, such as "apple 1".
    object_ids, receptacle_ids: names as in the problem.
    object_types, receptacle_types: such as "appletype".
    place_of: [R], the place of each receptacle.
    here: [P], the receptacles at each place.
    go: [P], the sorted commands "go to ..." at each place.
    destinations: receptacle of each command "go to ...".
    affordances: objects by predicate (pickupable, cleanable, ...).
    openable: receptacles that open and close.
    accepts: (receptacle type, object type) that go together.
    inside: objects in objects that hold others, by the latter.
    targets: objects that are wanted.
    goal_receptacles: receptacles they are wanted in.
    lamps: lamps they are wanted under.
    start: the first state.
  """

  id: str
  split: str
  goal: str
  wanted: Goal
  help: str
  walkthrough: tuple[str, ...] | None
  objects: tuple[str, ...]
  receptacles: tuple[str, ...]
  object_ids: tuple[str, ...]
  receptacle_ids: tuple[str, ...]
  object_types: tuple[str, ...]
  receptacle_types: tuple[str, ...]
  place_of: tuple[int, ...]
  here: tuple[tuple[int, ...], ...]
  go: tuple[tuple[str, ...], ...]
  destinations: dict[str, int]
  affordances: dict[str, frozenset[int]]
  openable: frozenset[int]
  accepts: frozenset[tuple[str, str]]
  inside: dict[int, tuple[int, ...]]
  targets: frozenset[int]
  goal_receptacles: tuple[int, ...]
  lamps: frozenset[int]
  start: State

  def __repr__(self) -> str:
    return f"Game({self.id!r}, {self.goal!r})"

  @property
  def task_type(self) -> str:
    """One of ALFWorld's six."""
    return self.wanted.task_type


def make_game(
  problem: str,
  goal: str,
  *,
  id: str,
  split: str = "",
  help: str = HELP,
  walkthrough: tuple[str, ...] | None = None,
  place: str | None = None,
) -> Game:
  """A game from the text of its PDDL problem.

  Args:
    problem: the text.
    goal: the instruction.
    id: what rollouts are grouped by.
    split: which part of a release it belongs to.
    help: the answer to `help`.
    walkthrough: commands that win, with names as shown or raw ids.
    place: where it stands, for messages; the id by default.

  Raises:
    GameError: the problem cannot be played.
  """
  place = place or id
  parsed = parse_problem(problem, place)
  facts, wanted = parsed.facts, parsed.goal
  names = _shown_names(parsed)
  object_types = {a[0]: a[1] for a in facts["objecttype"]}
  receptacle_types = {a[0]: a[1] for a in facts["receptacletype"]}
  places = {a[0]: a[1] for a in facts["receptacleatlocation"]}
  objects = sorted(_of_kind(parsed, "object") & names.keys())
  receptacles = sorted(_of_kind(parsed, "receptacle") & names.keys())
  for name in receptacles:
    if name not in places or name not in receptacle_types:
      raise GameError(place, f"receptacle {name} has no place or no type")
  for name in objects:
    if name not in object_types:
      raise GameError(place, f"object {name} has no type")
  for name in (*object_types, *receptacle_types):
    if name not in names:
      raise GameError(place, f"{name} is no ALFRED id: it lacks '_bar_'")
  if len(facts["atlocation"]) != 1:
    raise GameError(place, "the agent must begin at exactly one location")

  spots = sorted(_of_kind(parsed, "location"))
  number = {name: i for i, name in enumerate(spots)}
  number |= {name: i for i, name in enumerate(objects)}
  number |= {name: i for i, name in enumerate(receptacles)}
  shown = [names[name] for name in receptacles]
  place_of = tuple(number[places[name]] for name in receptacles)
  here: list[list[int]] = [[] for _ in spots]
  for receptacle, spot in enumerate(place_of):
    here[spot].append(receptacle)
  destinations = {f"go to {name}": i for i, name in enumerate(shown)}
  ways = sorted(destinations)
  begin = number[facts["atlocation"][0][1]]
  go = tuple(
    tuple(way for way in ways if place_of[destinations[way]] != spot)
    if here[spot] or spot == begin
    else ()  # a place without a receptacle can't be gone to
    for spot in range(len(spots))
  )

  def numbers(predicate: str) -> frozenset[int]:
    return frozenset(number[name] for (name,) in facts[predicate])

  def pairs(predicate: str) -> set[tuple[int, int]]:
    return {(number[a], number[b]) for a, b in facts[predicate]}

  def of_type(kind: str) -> frozenset[int]:
    return frozenset(
      number[name] for name in objects if object_types[name] == kind
    )

  affordances = {name: numbers(name) for name in _AFFORDANCES}
  contents = _grouped(pairs("inreceptacle"))
  targets = of_type(wanted.target)
  for name in wanted.affordances:
    targets &= affordances[name]
  lamps = of_type(wanted.lamp) & affordances["toggleable"]
  goal_receptacles = tuple(
    number[name]
    for name in receptacles
    if receptacle_types[name] == wanted.receptacle
  )
  if len(targets) < wanted.count or not (lamps or goal_receptacles):
    raise GameError(place, "what its goal asks for is not there")
  return Game(
    id=id,
    split=split,
    goal=goal,
    wanted=wanted,
    help=help,
    walkthrough=walkthrough
    and tuple(_with_names(c, names) for c in walkthrough),
    objects=tuple(names[name] for name in objects),
    receptacles=tuple(shown),
    object_ids=tuple(objects),
    receptacle_ids=tuple(receptacles),
    object_types=tuple(object_types[name] for name in objects),
    receptacle_types=tuple(receptacle_types[name] for name in receptacles),
    place_of=place_of,
    here=tuple(map(tuple, here)),
    go=go,
    destinations=destinations,
    affordances=affordances,
    openable=numbers("openable"),
    accepts=frozenset((r, o) for r, o in facts["cancontain"]),
    inside=_grouped(pairs("inreceptacleobject")),
    targets=targets,
    goal_receptacles=goal_receptacles,
    lamps=lamps,
    start=State(
      place=begin,
      held=None,
      opened=set(numbers("opened")),
      contents=[contents.get(i, ()) for i in range(len(receptacles))],
      marks={(mark, o) for mark in _MARKS for o in numbers(mark)},
      object_places=pairs("objectatlocation"),
      taken=set(),
    ),
  )


def _of_kind(problem: Problem, kind: str) -> set[str]:
  return {name for name, found in problem.types.items() if found == kind}


def _grouped(pairs: set[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
  """First members of pairs, in ascending order, by the second."""
  groups = collections.defaultdict(list)
  for member, group in sorted(pairs):
    groups[group].append(member)
  return {group: tuple(members) for group, members in groups.items()}


def _shown_names(problem: Problem) -> dict[str, str]:
  """Names as ALFWorld shows them, of all that a fact mentions.

  Things of one class are numbered from 1, the greatest raw id first.
  """
  raw = {
    name
    for facts in problem.facts.values()
    for arguments in facts
    for name in arguments
    if "_bar_" in name
  }
  numbers: collections.Counter[str] = collections.Counter()
  shown = {}
  for name in sorted(raw, reverse=True):
    kind = name.split("_bar_", 1)[0] + ("basin" if "basin" in name else "")
    numbers[kind] += 1
    shown[name] = f"{kind} {numbers[kind]}"
  return shown


def _with_names(command: str, names: dict[str, str]) -> str:
  """A command of a walkthrough; some releases give raw ids."""
  return " ".join(names.get(word, word) for word in command.split(" "))
