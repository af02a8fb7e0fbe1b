"""Text Sokoban plays by the rules of the JAX environment."""

import jax
import numpy as np
import pytest

from crbc_jax.envs import sokoban_levels
from crbc_jax.envs.sokoban import Sokoban
from crbc_jax.envs.sokoban_text import COMMANDS, SokobanTextEnv
from crbc_jax.types import Boundary

LEVELS = sokoban_levels.parse_levels(
  """
; one box
######
#@   #
# $  #
#  . #
#    #
######

; two boxes, one on a target
######
#@ $.#
# *  #
#    #
#    #
######
""",
  "two.txt",
)


def test_random_play_equals_the_jax_environment():
  env = Sokoban(height=6, width=6, boxes=2, step_limit=1_000)
  levels = LEVELS.as_levels()
  step = jax.jit(env.step)
  rng = np.random.default_rng(0)
  for i in range(2):
    level = jax.tree.map(lambda x: x[i], levels)  # noqa: B023
    text, state = SokobanTextEnv(LEVELS, i), env.reset(level)
    for _ in range(40):
      action = int(rng.integers(4))
      after = step(level, state, np.int32(action), jax.random.key(0))
      seen = text.step(COMMANDS[action])
      assert seen.text == sokoban_levels.board_text(
        LEVELS.walls[i],
        LEVELS.targets[i],
        int(after.state.player),
        np.asarray(after.state.boxes),
        width=6,
      )
      assert (seen.boundary == Boundary.SUCCESS) == (
        int(after.boundary) == Boundary.SUCCESS
      )
      if seen.boundary != Boundary.NONE:
        break
      state = after.state


@pytest.mark.parametrize("index", [0, 1])
def test_the_shortest_way_wins(index):
  env = SokobanTextEnv(LEVELS, index)
  seen, steps = env.reset(), 0
  assert seen.boundary == Boundary.NONE
  while seen.boundary == Boundary.NONE:
    seen = env.step(env.shortest())
    steps += 1
  assert seen.reward == 1.0 and seen.commands == ()
  # Push right and down, or down and right: two pushes and the walk between.
  assert steps == {0: 5, 1: 2}[index]
  assert env.step("up").text == seen.text  # over is over


def test_a_level_that_cannot_be_solved_any_more_has_no_way():
  env = SokobanTextEnv(LEVELS, 0)
  env.reset()
  for command in ("right", "down", "down", "down"):
    env.step(command)
  assert env.shortest() == ""  # the box is against the wall below


def test_what_is_no_command_changes_nothing():
  env = SokobanTextEnv(LEVELS, 0)
  first = env.reset()
  assert env.step("<invalid>").text == first.text
  assert env.step("up").text == first.text  # a wall


def test_copies_are_independent():
  env = SokobanTextEnv(LEVELS, 0)
  env.step("right")
  other = env.copy()
  assert other.keys() == env.keys()
  other.step("right")
  assert other.keys() != env.keys()
  assert env.game_id == LEVELS.ids[0]
