"""On the games of ALFWorld's release; skipped where they are absent."""

import collections

import numpy as np
import pytest

from crbc_jax.envs.alfworld import (
  AlfworldEnv,
  expert_command,
  load_games,
  noisy,
)

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def games(real_data):
  path = real_data / "alfworld" / "alfworld_games_474.jsonl.gz"
  if not path.exists():
    pytest.skip(f"no ALFWorld games at {path}")
  return load_games(path)


def test_counts(games):
  assert collections.Counter(game.split for game in games) == {
    "valid_seen": 140,
    "valid_unseen": 134,
    "valid_train": 200,
  }
  for game in games:  # the type by the goal is the type by the name
    assert game.id.split("/")[1].startswith(game.task_type)


def test_every_walkthrough_wins(games):
  won = 0
  for game in games:
    if game.walkthrough:
      env = AlfworldEnv(game)
      for command in game.walkthrough:
        assert command in env.last.commands, (game.id, command)
        env.step(command)
      won += bool(env.last.boundary)
  assert won == 274


def test_the_expert_wins_within_fifty_steps(games):
  won = collections.Counter()
  for game in games:
    env = AlfworldEnv(game)
    for _ in range(50):
      if env.step(expert_command(env)).boundary:
        won[game.task_type] += 1
        break
  assert won.total() >= 0.95 * len(games)
  assert len(won) == 6


def test_noisy_players_never_break(games):
  policy = noisy(0.8, np.random.default_rng(0))
  for game in games[::3]:
    env = AlfworldEnv(game)
    for _ in range(50):
      command = policy(env)
      assert command in env.last.commands
      if env.step(command).boundary:
        break
