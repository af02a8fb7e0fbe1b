"""One episode of an ALFWorld game, as TextWorld plays it, without TextWorld.

Texts, the order of admissible commands and the win are those of alfworld's
TextWorld environment (`experiments/alfworld_equivalence.py` compares them),
peculiarities included:
- `look` at the start, where there is no receptacle, sees nothing;
- an object that was taken from a receptacle and now lies in another one at the
  same place is listed by `look` ("next to it");
- lamps are only ever turned on, and through closed doors too;
- an object may lie in two receptacles at once.
"""

import bisect
from collections.abc import Callable, Sequence

from crbc_jax.envs.alfworld.game import Game, State
from crbc_jax.envs.text import TextKeys, TextStep
from crbc_jax.types import Boundary

_KNIVES = ("knifetype", "butterknifetype")
_APPLIANCES = {  # receptacle type -> verb, who can, what it sets and clears
  "sinktype": ("clean", "cleanable", "isclean", None),
  "sinkbasintype": ("clean", "cleanable", "isclean", None),
  "microwavetype": ("heat", "heatable", "ishot", "iscool"),
  "fridgetype": ("cool", "coolable", "iscool", "ishot"),
}
_LOOKS = (  # what `examine` says of an object: the first row that applies
  ({"isclean", "ishot", "issliced"}, "hot and clean sliced"),
  ({"isclean", "iscool", "issliced"}, "cool and clean sliced"),
  ({"isclean", "issliced"}, "clean sliced"),
  ({"ishot", "issliced"}, "hot sliced"),
  ({"iscool", "issliced"}, "cool sliced"),
  ({"isclean", "ishot"}, "hot and clean"),
  ({"isclean", "iscool"}, "cool and clean"),
  ({"ishot"}, "hot"),
  ({"isclean"}, "clean"),
  ({"iscool"}, "cold"),
)
_MARKS = ("isclean", "iscool", "ishot", "issliced", "istoggled")


class AlfworldEnv:
  """An episode of `game`; a `crbc_jax.envs.text.TextEnv`.

  Its keys:
    text: the observation.
    history: observation, location, held object, the commands so far that
      changed an object, in order, and the admissible commands (the key of the
      CRBC paper).
    state: the PDDL facts that change and are read by a precondition or a goal.
      Left out is TextWorld's memory of what was taken from where, which only
      the text of `look` shows.
  """

  def __init__(self, game: Game):
    self.game = game
    self.reset()

  @property
  def game_id(self) -> str:
    """The id of the game."""
    return self.game.id

  @property
  def task_type(self) -> str:
    """One of ALFWorld's six."""
    return self.game.task_type

  @property
  def goal(self) -> str:
    """The instruction."""
    return self.game.goal

  @property
  def state(self) -> State:
    """The latent state, to look at."""
    return self._state

  @property
  def seen(self) -> frozenset[int]:
    """Receptacles whose contents a text has shown."""
    return self._seen

  @property
  def last(self) -> TextStep:
    """What the agent saw last."""
    return self._last

  def reset(self) -> TextStep:
    """Begins anew."""
    self._state = self.game.start.copy()
    self._changes: tuple[str, ...] = ()
    self._seen: frozenset[int] = frozenset()
    self._refresh()
    room = _listing([f"a {name}" for name in self.game.receptacles])
    return self._show(
      "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
      f" Looking quickly around you, you see {room}.\n\nYour task is to:"
      f" {self.game.goal}."
    )

  def describe(self, command: str) -> str:
    """The command itself: it is in words."""
    return command

  def copy(self) -> "AlfworldEnv":
    """An independent episode in the same state."""
    other = object.__new__(AlfworldEnv)
    other.__dict__.update(self.__dict__)
    other._state = self._state.copy()
    return other

  def step(self, command: str) -> TextStep:
    """Plays a command; one that is not admissible changes nothing.

    Raises:
      ValueError: the episode is already won.
    """
    if self._last.boundary:
      raise ValueError(f"{self.game.id} is won: reset it before the next step")
    command = command.strip()
    game, state = self.game, self._state
    receptacle = game.destinations.get(command)
    if receptacle is not None and game.place_of[receptacle] != state.place:
      state.place = game.place_of[receptacle]
      contents = self._examine_receptacle(receptacle)
      return self._changed(
        f"You arrive at {game.receptacles[receptacle]}. {contents}"
      )
    verb, *arguments = self._actions.get(command, (None,))
    if verb is None:
      return self._show("Nothing happens.")
    if verb in _LOOKING:
      return self._show(_LOOKING[verb](self, *arguments))
    if verb in _MOVING:
      return self._changed(_MOVING[verb](self, *arguments))
    self._changes = (*self._changes, command)
    return self._changed(_CHANGING[verb](self, *arguments))

  def keys(self) -> TextKeys:
    """Identities of the present state; see the class."""
    game, state, start = self.game, self._state, self.game.start
    place = ", ".join(game.receptacles[r] for r in game.here[state.place])
    held = "nothing" if state.held is None else game.objects[state.held]
    where = f"at {place or 'the start'}, holding {held}"
    history = "\n".join(
      (
        self._last.text,
        where,
        f"changes: {'; '.join(self._changes)}",
        f"commands: {'; '.join(self._last.commands)}",
      )
    )
    # Only what differs from the start, which is the same all game long.
    facts = [where]
    facts += [
      f"{'open' if r in state.opened else 'closed'}: {game.receptacles[r]}"
      for r in sorted(state.opened ^ start.opened)
    ]
    facts += [
      f"{game.receptacles[r]}: {', '.join(game.objects[o] for o in now)}"
      for r, (now, before) in enumerate(
        zip(state.contents, start.contents, strict=True)
      )
      if now != before
    ]
    facts += [f"{m}: {game.objects[o]}" for m, o in sorted(state.marks)]
    facts += [
      f"place {place}: {game.objects[o]}"
      for o, place in sorted(state.object_places ^ start.object_places)
    ]
    return TextKeys(self._last.text, history, "\n".join(facts))

  def _show(self, text: str) -> TextStep:
    """What is returned where the state did not change."""
    self._last = TextStep(text, self._commands)
    return self._last

  def _changed(self, text: str) -> TextStep:
    """What is returned where it did."""
    if self._won():
      self._last = TextStep(text, (), 1.0, Boundary.SUCCESS)
    else:
      self._refresh()
      self._last = TextStep(text, self._commands)
    return self._last

  def _won(self) -> bool:
    game, state, wanted = self.game, self._state, self.game.wanted
    if wanted.lamp:
      return state.held in game.targets and any(
        o in game.lamps and ("istoggled", o) in state.marks
        for r in game.here[state.place]
        for o in state.contents[r]
      )
    for r in game.goal_receptacles:
      found = 0
      for o in state.contents[r]:
        if o in game.targets and (
          not wanted.mark or (wanted.mark, o) in state.marks
        ):
          found += 1
      if found >= wanted.count:
        return True
    return False

  def _refresh(self) -> None:
    """Lists what can be done here, but for going elsewhere."""
    game, state, held = self.game, self._state, self._state.held
    actions: dict[str, tuple] = {
      "help": ("help",),
      "inventory": ("inventory",),
      "look": ("look",),
    }
    if held is not None:
      actions[f"examine {game.objects[held]}"] = ("examine object", held)
    for r in game.here[state.place]:
      name = game.receptacles[r]
      actions[f"examine {name}"] = ("examine receptacle", r)
      is_open = True
      if r in game.openable:
        is_open = r in state.opened
        verb = "close" if is_open else "open"
        actions[f"{verb} {name}"] = (verb, r)
      for o in state.contents[r]:
        if o in game.affordances["toggleable"]:
          actions[f"use {game.objects[o]}"] = ("use", o)
        if held is None and is_open and o in game.affordances["pickupable"]:
          actions[f"take {game.objects[o]} from {name}"] = ("take", o, r)
      if held is not None:
        kind = game.receptacle_types[r]
        if is_open and (kind, game.object_types[held]) in game.accepts:
          actions[f"move {game.objects[held]} to {name}"] = ("move", held, r)
        if kind in _APPLIANCES:
          verb, affordance, *_ = _APPLIANCES[kind]
          if held in game.affordances[affordance]:
            command = f"{verb} {game.objects[held]} with {name}"
            actions[command] = ("treat", held, r)
    if held is not None and game.object_types[held] in _KNIVES:
      for o in game.affordances["sliceable"]:
        if (o, state.place) in state.object_places:
          command = f"slice {game.objects[o]} with {game.objects[held]}"
          actions[command] = ("slice", o, held)
    near = sorted(actions)
    split = bisect.bisect(near, "go to ")
    self._actions = actions
    self._commands = (*near[:split], *game.go[state.place], *near[split:])

  def _help(self) -> str:
    return self.game.help

  def _inventory(self) -> str:
    held = self._state.held
    if held is None:
      return "You are not carrying anything."
    return f"You are carrying: a {self.game.objects[held]}."

  def _look(self) -> str:
    game, state = self.game, self._state
    here = game.here[state.place]
    if not here:
      return (
        "You are in the middle of a room. Looking quickly around you, you see"
        " nothing."
      )
    beside = [
      f"a {game.objects[o]}"
      for o, r in sorted(state.taken)
      if r in here and (o, state.place) in state.object_places
    ]
    facing = _listing([game.receptacles[r] for r in here])
    return (
      f"You are facing the {facing}. Next to it, you see {_listing(beside)}."
    )

  def _examine_receptacle(self, r: int) -> str:
    game, name = self.game, self.game.receptacles[r]
    if r in game.openable and r not in self._state.opened:
      return f"The {name} is closed."
    self._seen |= {r}
    inside = _listing([f"a {game.objects[o]}" for o in self._state.contents[r]])
    if r in game.openable:
      return f"The {name} is open. In it, you see {inside}."
    return f"On the {name}, you see {inside}."

  def _examine_object(self, o: int) -> str:
    game, name = self.game, self.game.objects[o]
    if o in game.affordances["isreceptacleobject"]:
      inside = _listing(
        [f"a {game.objects[i]}" for i in game.inside.get(o, ())]
      )
      return f"This is a normal {name}. In it, you see {inside}."
    marks = {mark for mark in _MARKS if (mark, o) in self._state.marks}
    for wanted, words in _LOOKS:
      if wanted <= marks:
        return f"This is a {words} {name}."
    if "istoggled" in marks and o in game.affordances["toggleable"]:
      return f"This {name} is on."
    if "issliced" in marks and o in game.affordances["sliceable"]:
      return f"This is a sliced {name}."
    return f"There's nothing special about {name}."

  def _open(self, r: int) -> str:
    self._state.opened.add(r)
    return (
      f"You open the {self.game.receptacles[r]}. {self._examine_receptacle(r)}"
    )

  def _close(self, r: int) -> str:
    self._state.opened.remove(r)
    return f"You close the {self.game.receptacles[r]}."

  def _take(self, o: int, r: int) -> str:
    state = self._state
    state.contents[r] = tuple(i for i in state.contents[r] if i != o)
    state.taken.add((o, r))
    state.object_places.discard((o, state.place))
    state.held = o
    return (
      f"You pick up the {self.game.objects[o]} from the"
      f" {self.game.receptacles[r]}."
    )

  def _move(self, o: int, r: int) -> str:
    state = self._state
    state.contents[r] = tuple(sorted({*state.contents[r], o}))
    state.taken.discard((o, r))
    state.object_places.add((o, state.place))
    state.held = None
    return (
      f"You move the {self.game.objects[o]} to the {self.game.receptacles[r]}."
    )

  def _treat(self, o: int, r: int) -> str:
    verb, _, sets, clears = _APPLIANCES[self.game.receptacle_types[r]]
    self._state.marks.add((sets, o))
    if clears:
      self._state.marks.discard((clears, o))
    return (
      f"You {verb} the {self.game.objects[o]} using the"
      f" {self.game.receptacles[r]}."
    )

  def _use(self, o: int) -> str:
    self._state.marks.add(("istoggled", o))
    return f"You turn on the {self.game.objects[o]}."

  def _slice(self, o: int, knife: int) -> str:
    self._state.marks.add(("issliced", o))
    return (
      f"You sliced the {self.game.objects[o]} with the"
      f" {self.game.objects[knife]}."
    )


_LOOKING: dict[str, Callable[..., str]] = {
  "help": AlfworldEnv._help,
  "inventory": AlfworldEnv._inventory,
  "look": AlfworldEnv._look,
  "examine object": AlfworldEnv._examine_object,
  "examine receptacle": AlfworldEnv._examine_receptacle,
}
_MOVING: dict[str, Callable[..., str]] = {
  "open": AlfworldEnv._open,
  "close": AlfworldEnv._close,
}
_CHANGING: dict[str, Callable[..., str]] = {
  "take": AlfworldEnv._take,
  "move": AlfworldEnv._move,
  "treat": AlfworldEnv._treat,
  "use": AlfworldEnv._use,
  "slice": AlfworldEnv._slice,
}


def _listing(names: Sequence[str]) -> str:
  """Names as the text grammar joins them."""
  if len(names) < 2:
    return names[0] if names else "nothing"
  return f"{', '.join(names[:-1])}, and {names[-1]}"
