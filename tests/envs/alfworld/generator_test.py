import collections
import dataclasses

import numpy as np
import pytest

from crbc_jax.envs.alfworld import (
  AlfworldEnv,
  expert_command,
  generate_games,
  noisy,
)
from crbc_jax.envs.alfworld.generator import TASK_TYPES


def play(game, policy, steps=50):
  """Steps until the win, or None."""
  env = AlfworldEnv(game)
  for step in range(1, steps + 1):
    command = policy(env)
    assert command in env.last.commands
    if env.step(command).boundary:
      return step
  return None


def test_the_same_seed_gives_the_same_games():
  few, more = generate_games(6, 0), generate_games(12, 0)
  for one, other in zip(few, more, strict=False):
    assert (one.id, one.goal, one.start) == (other.id, other.goal, other.start)
  goals = [[g.goal for g in generate_games(12, seed)] for seed in (0, 1)]
  assert goals[0] != goals[1]


def test_all_task_types_and_rooms():
  games = generate_games(120, 4)
  types = collections.Counter(game.task_type for game in games)
  assert types == dict.fromkeys(TASK_TYPES, 20)
  assert all(game.id.endswith(game.task_type) for game in games)
  assert len({game.id for game in games}) == len(games)
  assert len({game.goal for game in games}) > 60
  kinds = {kind for game in games for kind in game.receptacle_types}
  assert {"fridgetype", "toilettype", "bedtype", "sofatype"} <= kinds
  shared = [g for g in games if any(len(there) > 1 for there in g.here)]
  assert 10 < len(shared) < len(games)


def test_games_of_few_scenes_share_their_rooms():
  games = generate_games(120, 4, scenes=5)
  furniture = [
    AlfworldEnv(g).reset().text.partition("you see")[2].partition("\n")[0]
    for g in games
  ]
  assert len(set(furniture)) == 5
  types = collections.Counter(game.task_type for game in games)
  assert types == dict.fromkeys(TASK_TYPES, 20)
  assert len({game.goal for game in games}) > 60
  assert len({game.id for game in games}) == len(games)
  few = generate_games(6, 4, scenes=5)
  assert [g.id for g in few] == [g.id for g in games[:6]]
  assert not {g.id for g in generate_games(6, 4)} & {g.id for g in few}


def test_too_few_scenes_for_every_type_of_task():
  with pytest.raises(ValueError, match="at least 4"):
    generate_games(1, 0, scenes=3)


@pytest.mark.parametrize("seed", range(10))
def test_four_scenes_allow_every_type_of_task(seed):
  assert len(generate_games(6, seed, scenes=4)) == 6


@pytest.mark.parametrize("scenes", [0, 4])
def test_the_expert_wins_every_generated_game(scenes):
  games = generate_games(300, 0, scenes=scenes)
  steps = [play(game, expert_command) for game in games]
  assert None not in steps
  assert np.mean(steps) < 20


def test_noise_makes_the_expert_worse():
  games = generate_games(60, 2)
  won = {
    epsilon: sum(
      play(game, noisy(epsilon, np.random.default_rng(i))) is not None
      for i, game in enumerate(games)
    )
    for epsilon in (0.0, 0.7, 1.0)
  }
  assert won[0.0] == 60 > won[0.7] > won[1.0]
  assert won[1.0] < 12


def test_noise_is_reproducible():
  (game,) = generate_games(1, 0)
  walks = []
  for seed in (0, 0, 1):
    env, policy = AlfworldEnv(game), noisy(0.9, np.random.default_rng(seed))
    walks.append([env.step(policy(env)).text for _ in range(8)])
  assert walks[0] == walks[1] != walks[2]


def test_the_expert_uses_only_what_it_has_seen():
  """Until it sees a target it does the same in a room without any."""
  for game in generate_games(60, 3):
    start = game.start.copy()
    start.contents = [
      tuple(o for o in inside if o not in game.targets)
      for inside in start.contents
    ]
    env = AlfworldEnv(game)
    empty = AlfworldEnv(dataclasses.replace(game, start=start))
    names = [game.objects[o] for o in game.targets]
    while not any(name in env.last.text for name in names):
      command = expert_command(env)
      assert command == expert_command(empty)
      env.step(command)
      empty.step(command)
    assert len(env.seen) > 0
