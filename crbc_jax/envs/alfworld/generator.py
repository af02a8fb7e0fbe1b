"""Solvable ALFWorld games made offline, as PDDL problems in the real format.

Every game can be won, and by the expert within 50 steps: its targets can be
taken, begin outside the receptacles they are wanted in, the appliance they need
is in the room, and looking into everything costs at most 36 steps.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from crbc_jax.envs.alfworld import tables
from crbc_jax.envs.alfworld.game import Game, make_game

SPLIT = "generated"
TASK_TYPES = (
  "pick_and_place_simple",
  "look_at_obj_in_light",
  "pick_clean_then_place_in_recep",
  "pick_heat_then_place_in_recep",
  "pick_cool_then_place_in_recep",
  "pick_two_obj_and_place",
)

_SEARCH_STEPS = 36
_TREATED = {  # task type -> appliance, what it treats, affordance, mark, words
  "pick_clean_then_place_in_recep": (
    "SinkBasin", tables.CLEANABLE, "cleanable", "isClean", "clean",
  ),
  "pick_heat_then_place_in_recep": (
    "Microwave", tables.HEATABLE, "heatable", "isHot", "hot",
  ),
  "pick_cool_then_place_in_recep": (
    "Fridge", tables.COOLABLE, "coolable", "isCool", "cool",
  ),
}  # fmt: skip
_ESCAPES = str.maketrans(
  {"|": "_bar_", "+": "_plus_", "-": "_minus_", ".": "_dot_"}
)


T = TypeVar("T")


class Task(NamedTuple):
  """What a generated game asks for, in types."""

  type: str
  target: str
  receptacle: str = ""  # where to; empty under a lamp
  lamp: str = ""


class Receptacle(NamedTuple):
  """One piece of furniture."""

  kind: str
  name: str
  place: str


def generate_games(count: int, seed: int, *, scenes: int = 0) -> list[Game]:
  """Games of all six task types in turn.

  The game of an index depends on the seed, the scenes and the index alone: more
  games begin with the same ones.

  Args:
    count: how many.
    seed: of the games.
    scenes: rooms that all the games take place in, with the same furniture and
      other objects and tasks, as those of the release share their scenes; at
      least 4, one of each kind of room. 0: every game has a room of its own.

  Raises:
    ValueError: 1 to 3 scenes, for they do not allow every type of task.
  """
  return [generate_game(seed, index, scenes=scenes) for index in range(count)]


def generate_game(seed: int, index: int, *, scenes: int = 0) -> Game:
  """One game; see `generate_games`."""
  problem, goal = generate_problem(seed, index, scenes=scenes)
  task_type = TASK_TYPES[index % len(TASK_TYPES)]
  origin = f"seed-{seed}" + (f"-scenes-{scenes}" if scenes else "")
  identity = f"{SPLIT}/{origin}/{index:05d}-{task_type}"
  return make_game(problem, goal, id=identity, split=SPLIT)


def generate_problem(
  seed: int, index: int, *, scenes: int = 0
) -> tuple[str, str]:
  """The PDDL problem of a game, and its instruction."""
  if 0 < scenes < len(tables.ROOMS):
    raise ValueError(
      f"scenes must be 0 or at least {len(tables.ROOMS)}, one of each kind of"
      f" room; got {scenes}"
    )
  rng = np.random.default_rng([seed, index])
  task_type = TASK_TYPES[index % len(TASK_TYPES)]
  while True:
    if scenes:
      scene = int(rng.integers(scenes))
      room = tables.ROOMS[list(tables.ROOMS)[scene % len(tables.ROOMS)]]
      kinds = _draw_furniture(
        np.random.default_rng([seed, scenes, scene]), room
      )
    else:
      room = tables.ROOMS[_pick(rng, list(tables.ROOMS))]
      kinds = _draw_furniture(rng, room)
    tasks = _possible_tasks(task_type, room, kinds)
    if tasks:
      task = _pick(rng, tasks)
      break
  furniture = _place_furniture(rng, kinds)
  things = _draw_things(rng, room, task, furniture)
  problem = _problem(f"plan_{seed}_{index}", task, furniture, things)
  return problem, _instruction(rng, task)


def _draw_furniture(rng: np.random.Generator, room: tables.Room) -> list[str]:
  """Receptacle types, one for each piece; can be searched in the time."""
  while True:
    kinds = [
      kind
      for kind, (least, most) in room.furniture.items()
      for _ in range(rng.integers(least, most + 1))
    ]
    if sum(2 if k in tables.OPENABLE else 1 for k in kinds) <= _SEARCH_STEPS:
      return kinds


def _possible_tasks(
  task_type: str, room: tables.Room, kinds: list[str]
) -> list[Task]:
  """Tasks of a type that the furniture allows."""
  if task_type == "look_at_obj_in_light":
    if not room.lamp or not tables.HOMES[room.lamp] & {*kinds}:
      return []
    targets = [t for t in room.things if tables.HOMES[t] & {*kinds}]
    return [Task(task_type, target, lamp=room.lamp) for target in targets]
  things, avoided = room.things, set()
  if task_type in _TREATED:
    appliance, treatable, *_ = _TREATED[task_type]
    if appliance not in kinds:
      return []
    things = tuple(t for t in things if t in treatable)
    avoided = {appliance}
  return [
    Task(task_type, thing, home)
    for thing in things
    for home in sorted(tables.HOMES[thing] & {*kinds} - avoided)
    if tables.HOMES[thing] & {*kinds} - {home}
  ]


def _place_furniture(
  rng: np.random.Generator, kinds: list[str]
) -> list[Receptacle]:
  """Names and places; now and then two neighbours share a place."""
  furniture: list[Receptacle] = []
  for number, kind in enumerate(kinds):
    neighbour = furniture[-1] if furniture else None
    shares = neighbour and neighbour.kind == kind and rng.random() < 0.2
    place = neighbour.place if neighbour and shares else f"loc|{number}|1|0|30"
    furniture.append(Receptacle(kind, _name(rng, kind), place))
  return furniture


def _draw_things(
  rng: np.random.Generator,
  room: tables.Room,
  task: Task,
  furniture: list[Receptacle],
) -> list[tuple[str, str, Receptacle]]:
  """Type, name and receptacle of each object."""
  least = {task.target: 2 if task.type == "pick_two_obj_and_place" else 1}
  found = []
  for thing in (*room.things, *([room.lamp] if room.lamp else [])):
    homes = [r for r in furniture if r.kind in tables.HOMES[thing]]
    if thing == task.target:
      homes = [r for r in homes if r.kind != task.receptacle]
    elif thing != task.lamp and rng.random() < 0.3:
      continue
    if homes:
      number = 1 if thing in tables.LAMPS else rng.integers(1, 4)
      for _ in range(max(number, least.get(thing, 1))):
        found.append((thing, _name(rng, thing), _pick(rng, homes)))
  return found


def _name(rng: np.random.Generator, kind: str) -> str:
  """A raw id: the type and three coordinates in hundredths."""
  x, y, z = rng.integers(-999, 1000, 3)
  coordinates = "|".join(f"{c / 100:+06.2f}" for c in (x, y, z))
  if kind.endswith("Basin"):
    return f"{kind.removesuffix('Basin')}|{coordinates}|{kind}"
  return f"{kind}|{coordinates}"


def _pick(rng: np.random.Generator, options: Sequence[T]) -> T:
  return options[int(rng.integers(len(options)))]


def _instruction(rng: np.random.Generator, task: Task) -> str:
  """The goal in words, in one of the two forms that ALFWorld has for it."""
  thing, home, lamp = (t.lower() for t in task[1:])
  if task.lamp:
    forms = (
      f"look at {thing} under the {lamp}",
      f"examine the {thing} with the {lamp}",
    )
  elif task.type == "pick_two_obj_and_place":
    forms = (
      f"put two {thing} in {home}",
      f"find two {thing} and put them in {home}",
    )
  elif task.type in _TREATED:
    word = _TREATED[task.type][-1]
    verb = "heat" if word == "hot" else word
    forms = (
      f"put a {word} {thing} in {home}",
      f"{verb} some {thing} and put it in {home}",
    )
  else:
    forms = (f"put a {thing} in {home}", f"put some {thing} on {home}")
  return _pick(rng, forms)


def _problem(
  name: str,
  task: Task,
  furniture: list[Receptacle],
  things: list[tuple[str, str, Receptacle]],
) -> str:
  """The text of the problem."""
  start = "loc|0|0|0|30"
  kinds = sorted({r.kind for r in furniture})
  types = sorted({thing for thing, _, _ in things})
  objects = ["agent1 - agent"]
  objects += [f"{kind}Type - rtype" for kind in kinds]
  objects += [f"{thing}Type - otype" for thing in types]
  objects += [f"{_raw(r.name)} - receptacle" for r in furniture]
  objects += [f"{_raw(thing)} - object" for _, thing, _ in things]
  places = sorted({r.place for r in furniture} | {start})
  objects += [f"{_raw(place)} - location" for place in places]
  facts = [f"(atLocation agent1 {_raw(start)})"]
  for r in furniture:
    facts.append(f"(receptacleType {_raw(r.name)} {r.kind}Type)")
    facts.append(f"(receptacleAtLocation {_raw(r.name)} {_raw(r.place)})")
    if r.kind in tables.OPENABLE:
      facts.append(f"(openable {_raw(r.name)})")
  facts += [
    f"(canContain {kind}Type {thing}Type)"
    for kind in kinds
    for thing in types
    if kind in tables.HOMES[thing] and thing not in tables.LAMPS
  ]
  for thing, raw, r in things:
    facts.append(f"(objectType {_raw(raw)} {thing}Type)")
    facts.append(f"(inReceptacle {_raw(raw)} {_raw(r.name)})")
    facts.append(f"(objectAtLocation {_raw(raw)} {_raw(r.place)})")
    facts += [f"({name} {_raw(raw)})" for name in _affordances(thing)]
  return "\n".join(
    (
      f"(define (problem {name})",
      "(:domain alfred)",
      "(:objects",
      *objects,
      ")",
      "(:init",
      *facts,
      ")",
      _goal(task),
      ")",
    )
  )


def _raw(name: str) -> str:
  """A raw id as PDDL can write it."""
  return name.translate(_ESCAPES)


def _affordances(thing: str) -> list[str]:
  sets = {
    "cleanable": tables.CLEANABLE,
    "heatable": tables.HEATABLE,
    "coolable": tables.COOLABLE,
    "sliceable": tables.SLICEABLE,
    "isReceptacleObject": tables.HOLLOW,
    "toggleable": tables.LAMPS,
  }
  found = [name for name, things in sets.items() if thing in things]
  return found if thing in tables.LAMPS else ["pickupable", *found]


def _goal(task: Task) -> str:
  """The goal in PDDL, in the form of the release."""
  if task.lamp:
    return (
      "(:goal (and (exists (?l - object ?r - receptacle ?a - agent"
      f" ?p - location) (and (objectType ?l {task.lamp}Type) (toggleable ?l)"
      " (isToggled ?l) (receptacleAtLocation ?r ?p) (atLocation ?a ?p)"
      " (inReceptacle ?l ?r))) (exists (?o - object ?a - agent) (and"
      f" (objectType ?o {task.target}Type) (holds ?a ?o)))))"
    )
  wanted = f"(receptacleType ?r {task.receptacle}Type)"
  names = ["?o1", "?o2"] if task.type == "pick_two_obj_and_place" else ["?o1"]
  for o in names:
    wanted += f" (objectType {o} {task.target}Type) (inReceptacle {o} ?r)"
    if task.type in _TREATED:
      _, _, affordance, mark, _ = _TREATED[task.type]
      wanted += f" ({affordance} {o}) ({mark} {o})"
  if len(names) == 2:
    wanted += " (not (= ?o1 ?o2))"
  variables = " ".join(f"{o} - object" for o in names)
  return f"(:goal (and (exists (?r - receptacle {variables}) (and {wanted}))))"
