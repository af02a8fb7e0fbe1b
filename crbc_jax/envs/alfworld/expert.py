"""A hand-coded player for demonstrations.

It knows no more than a reader of the texts with a good memory: which
receptacles there are, which kinds of things go into which, and the contents of
those that it has looked into.
"""

from collections.abc import Callable, Iterable

import numpy as np

from crbc_jax.envs.alfworld.engine import AlfworldEnv

_APPLIANCES = {
  "isclean": ("clean", ("sinkbasintype", "sinktype")),
  "ishot": ("heat", ("microwavetype",)),
  "iscool": ("cool", ("fridgetype",)),
}


def expert_command(env: AlfworldEnv) -> str:
  """What the expert does next; an admissible command, the same every time."""
  game, state, wanted = env.game, env.state, env.game.wanted
  if wanted.lamp:
    if state.held in game.targets:
      return _use_lamp(env)
  elif state.held in game.targets:
    if wanted.mark and (wanted.mark, state.held) not in state.marks:
      return _treat(env, state.held)
    return _put(env, state.held, _destination(env))
  if state.held is not None:
    hosts = _accepting(env, state.held)
    # Some things of the release can be taken and then put nowhere.
    return _put(env, state.held, _nearest(env, hosts)) if hosts else "look"
  placed = () if wanted.lamp else _finished(env, _destination(env))
  left = (o for o in sorted(game.targets) if o not in placed)
  found = _known(env, left)
  if found is None:
    return _search(env, game.targets)
  target, receptacle = found
  return _reach(env, receptacle) or (
    f"take {game.objects[target]} from {game.receptacles[receptacle]}"
  )


def noisy(
  epsilon: float, rng: np.random.Generator
) -> Callable[[AlfworldEnv], str]:
  """The expert, but a random admissible command with chance `epsilon`."""

  def command(env: AlfworldEnv) -> str:
    if rng.random() >= epsilon:
      return expert_command(env)
    commands = env.last.commands
    return commands[rng.integers(len(commands))]

  return command


def _use_lamp(env: AlfworldEnv) -> str:
  found = _known(env, env.game.lamps)
  if found is None:
    return _search(env, env.game.lamps)
  lamp, receptacle = found
  return _arrive(env, receptacle) or f"use {env.game.objects[lamp]}"


def _treat(env: AlfworldEnv, held: int) -> str:
  game = env.game
  verb, kinds = _APPLIANCES[game.wanted.mark]
  appliances = _of_kind(env, kinds)
  if not appliances:
    return "look"  # this game can't be won
  receptacle = _nearest(env, appliances)
  name = game.receptacles[receptacle]
  return _arrive(env, receptacle) or f"{verb} {game.objects[held]} with {name}"


def _put(env: AlfworldEnv, held: int, receptacle: int) -> str:
  game = env.game
  return _reach(env, receptacle) or (
    f"move {game.objects[held]} to {game.receptacles[receptacle]}"
  )


def _search(env: AlfworldEnv, wanted: Iterable[int]) -> str:
  """Looks into the next receptacle that can hold one of the wanted."""
  game, state = env.game, env.state
  kinds = {game.object_types[o] for o in wanted}
  unseen = [r for r in range(len(game.receptacles)) if r not in env.seen]

  def order(r: int) -> tuple:
    likely = any(
      (game.receptacle_types[r], kind) in game.accepts for kind in kinds
    )
    here = game.place_of[r] == state.place
    return (not likely, not here, r in game.openable, r)

  if not unseen:
    return "look"
  receptacle = min(unseen, key=order)
  return _reach(env, receptacle) or f"examine {game.receptacles[receptacle]}"


def _reach(env: AlfworldEnv, r: int) -> str | None:
  """Goes to a receptacle and opens it; None once that is done."""
  if command := _arrive(env, r):
    return command
  if r in env.game.openable and r not in env.state.opened:
    return f"open {env.game.receptacles[r]}"
  return None


def _arrive(env: AlfworldEnv, r: int) -> str | None:
  if env.game.place_of[r] != env.state.place:
    return f"go to {env.game.receptacles[r]}"
  return None


def _known(env: AlfworldEnv, objects: Iterable[int]) -> tuple[int, int] | None:
  """The first of the objects that was seen, and the receptacle it is in."""
  for o in objects:
    for r in sorted(env.seen):
      if o in env.state.contents[r]:
        return o, r
  return None


def _finished(env: AlfworldEnv, receptacle: int) -> list[int]:
  """Targets that lie in a receptacle and need nothing more."""
  mark, state = env.game.wanted.mark, env.state
  return [
    o
    for o in state.contents[receptacle]
    if o in env.game.targets and (not mark or (mark, o) in state.marks)
  ]


def _destination(env: AlfworldEnv) -> int:
  """The receptacle to fill: where most of the work is done, as far as seen."""
  game = env.game
  return max(
    game.goal_receptacles,
    key=lambda r: (
      len(_finished(env, r)) if r in env.seen else 0,
      game.place_of[r] == env.state.place,
      r not in game.openable,
      -r,
    ),
  )


def _of_kind(env: AlfworldEnv, kinds: tuple[str, ...]) -> list[int]:
  types = env.game.receptacle_types
  return [r for r, kind in enumerate(types) if kind in kinds]


def _accepting(env: AlfworldEnv, o: int) -> list[int]:
  game = env.game
  return [
    r
    for r, kind in enumerate(game.receptacle_types)
    if (kind, game.object_types[o]) in game.accepts
  ]


def _nearest(env: AlfworldEnv, receptacles: list[int]) -> int:
  """One at this place if there is one, rather without a door."""
  game, here = env.game, env.state.place
  return min(
    receptacles, key=lambda r: (game.place_of[r] != here, r in game.openable, r)
  )
