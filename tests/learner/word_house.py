"""A text game that is small enough to be known by heart."""

import dataclasses

from crbc_jax.envs.text import TextKeys, TextStep
from crbc_jax.types import Boundary

ROOMS = ("hall", "kitchen", "cellar", "attic", "study", "garden")
THINGS = ("lamp", "apple", "key", "book")


@dataclasses.dataclass
class WordHouse:
  """A thing lies in a room; bring it to another room.

  Rooms are all next to each other; the agent begins in the first. A rollout
  that drops the thing elsewhere fails.
  """

  thing: str
  source: str
  target: str
  here: str = "hall"
  holds: bool = False
  steps: int = 0

  @property
  def game_id(self) -> str:
    return f"{self.thing}:{self.source}:{self.target}"

  @property
  def task_type(self) -> str:
    return self.target

  @property
  def goal(self) -> str:
    return f"bring the {self.thing} to the {self.target}"

  def reset(self) -> TextStep:
    self.here, self.holds, self.steps = "hall", False, 0
    return self._seen(f"You are in the {self.here}.")

  def step(self, command: str) -> TextStep:
    self.steps += 1
    verb, _, rest = command.partition(" ")
    if verb == "go" and rest in ROOMS:
      self.here = rest
    elif command == f"take {self.thing}" and self._lies_here():
      self.holds = True
    elif command == f"drop {self.thing}" and self.holds:
      won = self.here == self.target
      end = Boundary.SUCCESS if won else Boundary.FAILURE
      return TextStep("Done.", (), float(won), end)
    else:
      return self._seen("Nothing happens.")
    return self._seen(f"You are in the {self.here}.")

  def describe(self, command: str) -> str:
    return command

  def copy(self) -> "WordHouse":
    return dataclasses.replace(self)

  def keys(self) -> TextKeys:
    state = f"{self.here} {self.holds}"
    return TextKeys(self.here, state, state)

  def _lies_here(self) -> bool:
    return not self.holds and self.here == self.source

  def _seen(self, text: str) -> TextStep:
    commands = [f"go {room}" for room in ROOMS if room != self.here]
    if self._lies_here():
      text += f" A {self.thing} lies here."
      commands.append(f"take {self.thing}")
    if self.holds:
      commands.append(f"drop {self.thing}")
    return TextStep(text, tuple(commands))


def expert(house: WordHouse) -> str:
  """The shortest way."""
  if not house.holds:
    if house.here == house.source:
      return f"take {house.thing}"
    return f"go {house.source}"
  if house.here == house.target:
    return f"drop {house.thing}"
  return f"go {house.target}"


def all_houses() -> list[WordHouse]:
  """Every game."""
  return [
    WordHouse(thing, source, target)
    for thing in THINGS
    for source in ROOMS[1:]
    for target in ROOMS[1:]
    if source != target
  ]
