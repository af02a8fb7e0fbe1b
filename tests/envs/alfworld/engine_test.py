import numpy as np
import pytest

from crbc_jax.envs import alfworld
from crbc_jax.envs.alfworld import AlfworldEnv, make_game
from crbc_jax.types import Boundary
from tests.envs.alfworld.problems import GOALS, KITCHEN, kitchen, play

ROOM = (
  "a countertop 2, a countertop 1, a fridge 1, a microwave 1, and a sinkbasin 1"
)


def test_beginning():
  env = AlfworldEnv(kitchen())
  first = env.reset()
  assert first.text == (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
    f" Looking quickly around you, you see {ROOM}.\n\n"
    "Your task is to: put a apple in fridge."
  )
  assert first.commands == (
    "go to countertop 1",
    "go to countertop 2",
    "go to fridge 1",
    "go to microwave 1",
    "go to sinkbasin 1",
    "help",
    "inventory",
    "look",
  )
  assert (first.reward, first.boundary) == (0.0, Boundary.NONE)
  assert play(env, "look", "inventory") == [
    "You are in the middle of a room. Looking quickly around you, you see"
    " nothing.",
    "You are not carrying anything.",
  ]
  assert play(env, "help")[0].startswith("Available commands:\n  look:")


def test_a_walk_that_wins():
  env = AlfworldEnv(kitchen())
  texts = play(
    env,
    "go to countertop 2",
    "take apple 2 from countertop 2",
    "inventory",
    "go to fridge 1",
    "examine fridge 1",
    "open fridge 1",
    "move apple 2 to fridge 1",
  )
  assert texts == [
    "You arrive at countertop 2. On the countertop 2, you see a apple 2, and a"
    " knife 1.",
    "You pick up the apple 2 from the countertop 2.",
    "You are carrying: a apple 2.",
    "You arrive at fridge 1. The fridge 1 is closed.",
    "The fridge 1 is closed.",
    "You open the fridge 1. The fridge 1 is open. In it, you see a mug 1.",
    "You move the apple 2 to the fridge 1.",
  ]
  assert env.last[1:] == ((), 1.0, Boundary.SUCCESS)
  with pytest.raises(ValueError, match="kitchen/place/0 is won"):
    env.step("look")
  assert env.reset().boundary == Boundary.NONE


def test_what_is_not_admissible_changes_nothing():
  env = AlfworldEnv(kitchen())
  play(env, "go to countertop 1")
  before = env.keys()
  for command in (
    "go to countertop 1",  # already there
    "go to countertop 2",  # the same place
    "GO TO fridge 1",
    "take mug 1 from fridge 1",
    "move apple 2 to countertop 1",
    "open countertop 1",
    "",
    "put apple 2 in/on fridge 1",
  ):
    step = env.step(command)
    assert step.text == "Nothing happens." and step.reward == 0
    assert env.keys().state == before.state
  assert env.step("  look \n").text.startswith("You are facing")


def test_receptacles_that_share_a_place():
  env = AlfworldEnv(kitchen())
  play(env, "go to countertop 1")
  assert "take apple 2 from countertop 2" in env.last.commands
  assert play(env, "look", "take apple 2 from countertop 2", "look") == [
    "You are facing the countertop 2, countertop 1, and sinkbasin 1. Next to"
    " it, you see nothing.",
    "You pick up the apple 2 from the countertop 2.",
    "You are facing the countertop 2, countertop 1, and sinkbasin 1. Next to"
    " it, you see nothing.",
  ]
  # Now it was once in countertop 2 and lies beside it.
  assert play(env, "move apple 2 to countertop 1", "look") == [
    "You move the apple 2 to the countertop 1.",
    "You are facing the countertop 2, countertop 1, and sinkbasin 1. Next to"
    " it, you see a apple 2.",
  ]


def test_objects_are_described_by_what_was_done_to_them():
  env = AlfworldEnv(kitchen("light"))
  take, put = "take apple 2 from countertop 2", "move apple 2 to countertop 2"
  there = "go to countertop 2"
  knife = ("take knife 1 from countertop 2", "slice apple 2 with knife 1")
  play(env, there, take)

  def seen():
    return play(env, "examine apple 2")[0]

  assert seen() == "There's nothing special about apple 2."
  assert play(env, "clean apple 2 with sinkbasin 1") == [
    "You clean the apple 2 using the sinkbasin 1."
  ]
  assert seen() == "This is a clean apple 2."
  play(env, "go to microwave 1", "heat apple 2 with microwave 1")
  assert seen() == "This is a hot and clean apple 2."
  play(env, "go to fridge 1", "cool apple 2 with fridge 1")
  assert seen() == "This is a cool and clean apple 2."
  play(env, there, put)
  assert play(env, *knife, "move knife 1 to countertop 1")[1] == (
    "You sliced the apple 2 with the knife 1."
  )
  play(env, take)
  assert seen() == "This is a cool and clean sliced apple 2."
  play(env, "go to microwave 1", "heat apple 2 with microwave 1")
  assert seen() == "This is a hot and clean sliced apple 2."
  play(env, there, put, "go to fridge 1", "open fridge 1")
  play(env, "take mug 1 from fridge 1")
  assert play(env, "examine mug 1") == [
    "This is a normal mug 1. In it, you see nothing."
  ]


def test_lamps():
  env = AlfworldEnv(kitchen("light"))
  play(env, "go to countertop 1", "take desklamp 1 from countertop 1")
  assert play(env, "examine desklamp 1") == [
    "There's nothing special about desklamp 1."
  ]
  assert "use desklamp 1" not in env.last.commands  # lies in nothing
  play(env, "move desklamp 1 to countertop 2")
  assert (
    play(env, "use desklamp 1", "use desklamp 1")
    == ["You turn on the desklamp 1."] * 2
  )
  play(env, "take desklamp 1 from countertop 2")
  assert play(env, "examine desklamp 1") == ["This desklamp 1 is on."]
  play(env, "move desklamp 1 to countertop 2")
  step = env.step("take apple 2 from countertop 2")
  assert step.boundary == Boundary.SUCCESS


def test_a_lamp_lights_its_own_place_only():
  env = AlfworldEnv(kitchen("light"))
  play(env, "go to countertop 1", "use desklamp 1", "go to microwave 1")
  play(env, "open microwave 1", "take apple 1 from microwave 1")
  assert env.last.boundary == Boundary.NONE
  assert env.step("go to sinkbasin 1").boundary == Boundary.SUCCESS


def test_two_are_needed_in_one_receptacle():
  env = AlfworldEnv(kitchen("two"))
  fetch = ("go to countertop 2", "take apple 2 from countertop 2")
  play(env, *fetch, "go to fridge 1", "open fridge 1")
  assert not env.step("move apple 2 to fridge 1").boundary
  play(env, "go to microwave 1", "open microwave 1")
  play(env, "take apple 1 from microwave 1", "go to fridge 1")
  assert env.step("move apple 1 to fridge 1").boundary == Boundary.SUCCESS


def test_a_cold_apple_is_not_a_hot_one():
  env = AlfworldEnv(kitchen("hot"))
  play(env, "go to countertop 2", "take apple 2 from countertop 2")
  play(env, "go to microwave 1", "heat apple 2 with microwave 1")
  play(env, "go to fridge 1", "cool apple 2 with fridge 1")
  play(env, "go to countertop 1", "move apple 2 to countertop 1")
  assert env.last.boundary == Boundary.NONE
  play(env, "take apple 2 from countertop 1", "go to microwave 1")
  play(env, "heat apple 2 with microwave 1", "go to countertop 1")
  assert env.step("move apple 2 to countertop 2").boundary == Boundary.SUCCESS


def test_a_closed_door_hides_but_does_not_stop_cooling():
  env = AlfworldEnv(kitchen())
  play(env, "go to countertop 2", "take apple 2 from countertop 2")
  play(env, "go to fridge 1")
  assert "move apple 2 to fridge 1" not in env.last.commands
  assert "cool apple 2 with fridge 1" in env.last.commands


def test_closed_doors_hide_what_is_inside():
  env = AlfworldEnv(kitchen())
  play(env, "go to microwave 1")
  take = "take apple 1 from microwave 1"
  assert take not in env.last.commands
  assert env.step(take).text == "Nothing happens."
  play(env, "open microwave 1", take)


def test_heat_and_cold_replace_each_other():
  env = AlfworldEnv(kitchen("light"))
  play(env, "go to countertop 2", "take apple 2 from countertop 2")
  apple = env.state.held
  for place, verb, mark in (
    ("fridge 1", "cool", "iscool"),
    ("microwave 1", "heat", "ishot"),
    ("fridge 1", "cool", "iscool"),
  ):
    play(env, f"go to {place}", f"{verb} apple 2 with {place}")
    assert env.state.marks == {(mark, apple)}


def test_an_object_in_two_receptacles():
  """The release has such; they are at one location until put somewhere."""
  twice = "(inReceptacle Apple_bar_1 Fridge_bar_1)\n(openable Fridge_bar_1)"
  problem = KITCHEN.replace("(openable Fridge_bar_1)", twice) + GOALS["light"]
  env = AlfworldEnv(make_game(f"{problem})", "x", id="x"))
  play(env, "go to countertop 2", "take knife 1 from countertop 2")
  play(env, "go to fridge 1", "open fridge 1")
  with_knife = env.copy()
  assert not any(c.startswith("slice") for c in with_knife.last.commands)
  play(env, "go to countertop 1", "move knife 1 to countertop 1")
  play(env, "go to fridge 1")
  before = env.keys()
  play(env, "take apple 2 from fridge 1", "move apple 2 to fridge 1")
  assert env.keys().state != before.state
  play(env, "go to countertop 1", "take knife 1 from countertop 1")
  play(env, "go to fridge 1")
  assert "slice apple 2 with knife 1" in env.last.commands
  assert env.state.contents == with_knife.state.contents


def test_keys_tell_states_apart():
  game = kitchen("two")
  one, other = AlfworldEnv(game), AlfworldEnv(game)
  fetch = ("go to countertop 2", "take apple 2 from countertop 2")
  back = "move apple 2 to countertop 2"
  play(one, *fetch, back, "look")
  play(other, *fetch[:1], "look")
  # All is as before, but the history isn't.
  assert one.keys().text == other.keys().text
  assert one.keys().state == other.keys().state
  assert one.keys().history != other.keys().history
  # The same text at another state of the world.
  play(one, "go to fridge 1", "open fridge 1", "go to countertop 2")
  play(other, "go to fridge 1", "go to countertop 2")
  assert one.keys().text == other.keys().text
  assert one.keys().state != other.keys().state


def random_walk(env, rng, steps):
  for _ in range(steps):
    if env.last.boundary:
      env.reset()
    env.step(env.last.commands[rng.integers(len(env.last.commands))])


@pytest.mark.parametrize("index", range(6))
def test_equal_state_keys_have_equal_futures(index):
  """What the key leaves out can't be noticed, but in the text of `look`."""
  (game,) = alfworld.generate_games(index + 1, 1)[index:]
  rng = np.random.default_rng(index)
  env, seen, met = AlfworldEnv(game), {}, 0
  for _ in range(400):
    random_walk(env, rng, 1)
    if env.last.boundary:
      continue
    twin = seen.setdefault(env.keys().state, env.copy())
    here = env.copy()
    assert {*here.last.commands} == {*twin.last.commands}
    met += 1
    twin = twin.copy()
    for _ in range(3):
      command = here.last.commands[rng.integers(len(here.last.commands))]
      one, other = here.step(command), twin.step(command)
      assert one.commands == other.commands
      assert one.boundary == other.boundary
      assert here.keys().state == twin.keys().state
      if command != "look":
        assert one.text == other.text
      if one.boundary:
        break
  assert met > len(seen)


def test_copies_are_independent():
  (game,) = alfworld.generate_games(1, 3)
  rng = np.random.default_rng(0)
  env = AlfworldEnv(game)
  random_walk(env, rng, 10)
  before = env.keys(), env.last
  random_walk(env.copy(), rng, 50)
  assert (env.keys(), env.last) == before
  assert env.reset() == AlfworldEnv(game).last
