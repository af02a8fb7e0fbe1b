"""A player that visits the rare corners of ALFWorld's rules on purpose."""

from collections.abc import Iterator

from crbc_jax.envs import alfworld

_TREATMENTS = (
  ("cleanable", ("sinkbasintype", "sinktype"), "clean"),
  ("heatable", ("microwavetype",), "heat"),
  ("coolable", ("fridgetype",), "cool"),
)
_KNIVES = ("knifetype", "butterknifetype")


def tour(env: alfworld.AlfworldEnv) -> Iterator[str]:
  """Commands for `env`, each to be played before the next is asked for."""
  game = env.game
  yield from ("look", "help", "inventory")
  yield from _slice_something(env)
  for o in _samples(env):
    yield from _handle(env, o)
  for lamp in sorted(game.affordances["toggleable"]):
    yield from _handle(env, lamp)


def commands(game: alfworld.Game) -> Iterator[str]:
  """The tour of a game, until it is won."""
  env = alfworld.AlfworldEnv(game)
  for command in tour(env):
    yield command
    if env.step(command).boundary:
      return


def _samples(env: alfworld.AlfworldEnv) -> list[int]:
  """One object for each way to treat one, and one that holds others."""
  game = env.game
  found = []
  for affordance in (
    "sliceable",
    "heatable",
    "cleanable",
    "coolable",
    "isreceptacleobject",
  ):
    choice = game.affordances[affordance] & game.affordances["pickupable"]
    # Something twice stored, or already used, where there is such a thing.
    twice = [o for o in choice if len(_stores(env, o)) > 1]
    found += sorted(twice or choice)[:1]
  return sorted(set(found))


def _stores(env: alfworld.AlfworldEnv, o: int) -> list[int]:
  return [r for r, inside in enumerate(env.state.contents) if o in inside]


def _visit(env: alfworld.AlfworldEnv, r: int, *, door: bool) -> Iterator[str]:
  """Goes there, by way of a command that is not allowed."""
  game = env.game
  if game.place_of[r] != env.state.place:
    yield f"go to {game.receptacles[r]}"
  yield f"go to {game.receptacles[r]}"  # already there: nothing happens
  if door and r in game.openable and r not in env.state.opened:
    yield f"open {game.receptacles[r]}"
    yield f"open {game.receptacles[r]}"


def _fetch(env: alfworld.AlfworldEnv, o: int) -> Iterator[str]:
  """Takes an object, if it can be."""
  game = env.game
  for r in _stores(env, o):
    yield from _visit(env, r, door=True)
    for lamp in sorted(
      game.affordances["toggleable"] & {*env.state.contents[r]}
    ):
      yield f"use {game.objects[lamp]}"
    yield f"take {game.objects[o]} from {game.receptacles[r]}"
    if env.state.held == o:
      yield "look"
      yield "inventory"
      yield f"examine {game.objects[o]}"
      return


def _drop(env: alfworld.AlfworldEnv) -> Iterator[str]:
  """Puts down what is held: here if possible, twice stored if possible."""
  game, held = env.game, env.state.held
  if held is None:
    return
  kind = game.object_types[held]
  hosts = [
    r
    for r, host in enumerate(game.receptacle_types)
    if (host, kind) in game.accepts
  ]
  here = env.state.place
  for r in sorted(hosts, key=lambda r: (game.place_of[r] != here, -r))[:1]:
    yield from _visit(env, r, door=True)
    yield f"move {game.objects[held]} to {game.receptacles[r]}"
    yield f"examine {game.receptacles[r]}"
    yield "look"
    if r in game.openable:
      yield f"close {game.receptacles[r]}"
      yield f"examine {game.receptacles[r]}"
      yield f"close {game.receptacles[r]}"


def _handle(env: alfworld.AlfworldEnv, o: int) -> Iterator[str]:
  """Takes, treats and examines an object, and puts it down elsewhere."""
  game = env.game
  yield from _fetch(env, o)
  if env.state.held != o:
    return
  for affordance, kinds, verb in _TREATMENTS:
    places = [
      r for r, kind in enumerate(game.receptacle_types) if kind in kinds
    ]
    if o in game.affordances[affordance] and places:
      yield from _visit(env, places[0], door=False)
      yield f"{verb} {game.objects[o]} with {game.receptacles[places[0]]}"
      yield f"examine {game.objects[o]}"
  yield from _drop(env)


def _slice_something(env: alfworld.AlfworldEnv) -> Iterator[str]:
  game = env.game
  knives = [o for o, kind in enumerate(game.object_types) if kind in _KNIVES]
  things = sorted(game.affordances["sliceable"])
  if not knives or not things:
    return
  yield from _fetch(env, knives[0])
  if env.state.held != knives[0]:
    return
  for r in _stores(env, things[0])[:1]:
    yield from _visit(env, r, door=True)
    yield f"slice {game.objects[things[0]]} with {game.objects[knives[0]]}"
  yield from _drop(env)
