"""Text games through the learner: rollouts, cloning, training, resume."""

import dataclasses
import functools
import json
import random

import jax
import numpy as np
import pytest

from crbc_jax.learner import cloning, loop, task, text_collect, text_task
from crbc_jax.learner import config as config_lib
from crbc_jax.learner.text_games import GameSource, TextGames
from crbc_jax.policies import text as policy
from crbc_jax.types import Boundary
from tests.learner import word_house

SIZES = policy.TextSizes(vocabulary=256, observation=12, goal=6, command=3)
LIMIT = 6


def games(houses):
  return TextGames(
    ids=tuple(house.game_id for house in houses),
    make=tuple(functools.partial(dataclasses.replace, h) for h in houses),
    tags=tuple(("house", house.task_type) for house in houses),
    content=tuple(map(repr, houses)),
  )


def source(_=None):
  houses = word_house.all_houses()
  random.Random(0).shuffle(houses)
  return GameSource(
    games(houses[:40]), games(houses[40:60]), word_house.expert, "word houses"
  )


@pytest.fixture(scope="module")
def network():
  return policy.make_text_policy(SIZES, width=8, hidden=16, seed=0)


def collect_fn(network, **options):
  return text_collect.make_text_collect_fn(
    network[1],
    SIZES,
    **{"group_size": 3, "step_limit": LIMIT, "state_key": "state"} | options,
  )


@pytest.fixture(scope="module")
def rollouts(network):
  make = source().train.make[:4]
  return collect_fn(network)(network[0], make, jax.random.key(5))


def test_same_key_same_rollouts(network, rollouts):
  make = source().train.make[:4]
  again = collect_fn(network)(network[0], make, jax.random.key(5))
  other = collect_fn(network)(network[0], make, jax.random.key(6))
  jax.tree.map(np.testing.assert_array_equal, again, rollouts)
  assert (np.asarray(other[1].action) != np.asarray(rollouts[1].action)).any()


def test_rollouts_are_what_the_games_do(rollouts):
  """Replays the commands in fresh games."""
  _, found = rollouts
  houses = source().train.make[:4]
  texts: dict = {}
  for p, g in np.ndindex(4, 3):
    house, t = houses[p](), 0
    now = house.reset()
    while found.mask[p, g, t]:
      key = house.keys().state
      number = int(found.key[p, g, t, 0])
      assert texts.setdefault(number, key) == key
      command = now.commands[found.action[p, g, t]]
      named = ("command", int(found.action_key[p, g, t]))
      assert texts.setdefault(named, command) == command
      now = house.step(command)
      assert found.reward[p, g, t] == now.reward
      expected = now.boundary
      if t + 1 == LIMIT and expected == Boundary.NONE:
        expected = Boundary.TRUNCATED
      assert found.boundary[p, g, t] == expected
      t += 1
      if t == LIMIT or expected != Boundary.NONE:
        break
    assert not found.mask[p, g, t:].any()
    last = int(found.final_key[p, g, 0])
    assert texts.setdefault(last, house.keys().state) == house.keys().state
  assert len(set(texts.values())) == len(texts)  # equal texts, equal numbers


def test_recorded_states_give_the_recorded_probabilities(network, rollouts):
  params, logits_fn = network
  goals, found = rollouts
  for p, g, t in np.argwhere(found.mask):
    state = jax.tree.map(lambda x, i=(p, g, t): x[i], found.state)
    logits = jax.nn.log_softmax(logits_fn(params, goals[p], state))
    assert logits[found.action[p, g, t]] == pytest.approx(
      float(found.log_prob[p, g, t]), abs=1e-5
    )


def test_the_anchor_can_be_the_text(network):
  make = source().train.make[:4]
  exact = collect_fn(network)(network[0], make, jax.random.key(5))[1]
  coarse = collect_fn(network, state_key="text")(
    network[0], make, jax.random.key(5)
  )[1]
  np.testing.assert_array_equal(exact.action, coarse.action)
  assert len(np.unique(coarse.key)) <= len(np.unique(exact.key))


def test_an_expert_without_noise_wins_and_is_labelled():
  shown = cloning.demonstrate(
    source().train.make,
    word_house.expert,
    SIZES,
    episodes=10,
    noise=0.0,
    step_limit=LIMIT,
    seed=0,
  )
  assert shown.success == 1.0
  assert len(shown.choice) == len(shown.goals) <= 40
  assert shown.states.mask[np.arange(len(shown.choice)), shown.choice].all()


def test_cloning_learns_the_expert(network):
  params, logits_fn = network
  shown = cloning.demonstrate(
    source().train.make,
    word_house.expert,
    SIZES,
    episodes=120,
    noise=0.3,
    step_limit=LIMIT,
    seed=0,
  )
  cloned = cloning.clone(
    params,
    logits_fn,
    shown,
    epochs=40,
    learning_rate=1e-2,
    minibatch=256,
    seed=0,
  )
  act = text_collect.make_act_fn(logits_fn, greedy=True)

  def agreement(params):
    choice, _ = act(params, shown.goals, shown.states, jax.random.key(0))
    return np.mean(np.asarray(choice) == shown.choice)

  # Where the thing lies only the expert knows: nobody can agree with all of it.
  assert agreement(cloned) > 0.6 > agreement(params) + 0.2


def small_config(**changes):
  config = config_lib.get_config()
  config.task = "alfworld"
  config.estimator = "grpo"  # the quickest to compile
  config.env_steps = 600
  config.panel = 8
  config.tensorboard = False
  config.rollout.levels = 4
  config.rollout.group_size = 4
  config.learner.minibatch = 64
  config.eval.every = config.checkpoint.every = 200
  for name, value in {
    "step_limit": LIMIT,
    "width": 8,
    "hidden": 16,
    "vocabulary": 256,
    "observation": 12,
    "goal": 6,
    "command": 3,
    "demonstrations": 5,
    "clone_epochs": 1,
  }.items():
    config.text[name] = value
  for name, value in changes.items():
    config_lib.set_value(config, name, value)
  return config


def numbers(folder):
  """All metrics of a run but the seconds."""
  lines = (folder / "metrics.jsonl").read_text().splitlines()
  return [
    {k: v for k, v in json.loads(x).items() if not k.startswith("seconds")}
    for x in lines
  ]


@pytest.fixture
def houses(monkeypatch):
  monkeypatch.setattr(text_task, "open_games", source)


@pytest.mark.training
def test_a_run_that_was_cut_ends_like_one_that_was_not(
  houses, tmp_path, monkeypatch
):
  whole = loop.start_run(small_config(), tmp_path / "whole")
  run = tmp_path / "cut"

  class Cut(Exception):
    pass

  def stop(env_steps, metrics):
    if env_steps >= 350:
      raise Cut

  with pytest.raises(Cut):
    loop.start_run(small_config(), run, report=stop)
  resumed = loop.resume_run(run)
  assert resumed["final"] == whole["final"]

  assert numbers(run) == numbers(tmp_path / "whole")


@pytest.mark.training
def test_success_is_reported_by_tag(houses, tmp_path):
  found = loop.start_run(small_config(env_steps=1), tmp_path / "run")["final"]
  assert "score_sampled" in found
  tags = {k.partition("/")[2] for k in found if k.startswith("success_greedy/")}
  assert tags > {"house"} and tags <= {"house", *word_house.ROOMS}
  assert found["success_greedy/house"] == found["success_greedy"]


@pytest.mark.training
def test_the_clone_is_the_same_for_every_seed(houses):
  a, b = (task.make_task(small_config(seed=seed)).params for seed in (0, 1))
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("estimator", ["gae", "vineppo", "elpo"])
def test_what_text_games_cannot_do_is_said(houses, estimator):
  with pytest.raises(config_lib.ConfigError, match="Sokoban only"):
    task.make_task(small_config(estimator=estimator))
