import pytest

from crbc_jax.envs import alfworld
from crbc_jax.envs.text import TextKeys
from experiments import alfworld_equivalence, alfworld_keys, alfworld_tour
from experiments.alfworld_keys import Step


def step(rollout, text, command="look"):
  return Step(rollout, TextKeys(text, text, text), command)


def test_recurrence_is_counted_over_rollouts():
  steps = [step(0, "a"), step(0, "a"), step(0, "b"), step(0, "b", "help")]
  steps += [step(1, "b"), step(1, "c"), step(2, "b")]
  # "a" recurs within its rollout only.
  assert alfworld_keys.recurring(steps, lambda s: s.keys.text) == 4
  pair = alfworld_keys.recurring(steps, lambda s: (s.keys.text, s.command))
  assert pair == 3


def test_only_the_state_key_is_exact():
  report = alfworld_keys.measure(alfworld.generate_games(12, 0), 6)
  text, history, state = (
    report["keys"][k] for k in ("text", "history", "state")
  )
  assert state["latent_states_max"] == 1 and state["aliased_steps"] == 0
  assert text["latent_states_mean"] > history["latent_states_mean"] >= 1
  assert text["recurrence"] > state["recurrence"] > 0
  assert "| text | 0." in alfworld_keys.markdown({"source": "x", **report})


@pytest.mark.parametrize("player", ["tour", "curious", "noisy expert"])
def test_players_are_reproducible(player):
  def walk(game):
    env = alfworld.AlfworldEnv(game)
    commands = []
    for command in alfworld_equivalence.PLAYERS[player](env):
      commands.append(command)
      if env.step(command).boundary:
        break
    return commands

  for game in alfworld.generate_games(12, 0):
    first = walk(game)
    assert len(first) > 3 and first == walk(game)


def test_the_tours_together_visit_every_verb():
  games = alfworld.generate_games(60, 0)
  verbs = {c.split()[0] for g in games for c in alfworld_tour.commands(g)}
  assert verbs == {
    *("clean", "close", "cool", "examine", "go", "heat", "help", "inventory"),
    *("look", "move", "open", "slice", "take", "use"),
  }
