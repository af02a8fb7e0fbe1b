"""A byte-level language model through the learner, on houses of words."""

import functools

import jax
import numpy as np
import pytest

from crbc_jax.agents.chat import END, PAD, ByteTokenizer
from crbc_jax.agents.parsing import INVALID
from crbc_jax.learner import agent_task, finished, loop, task
from crbc_jax.learner import config as config_lib
from tests.learner.text_task_test import numbers, source

TOKENIZER = ByteTokenizer()
LIMIT, RESPONSE = 4, 12


@pytest.fixture
def houses(monkeypatch):
  monkeypatch.setattr(agent_task, "open_games", source)


def small_config(tmp_path, **changes):
  config = config_lib.get_config()
  values = {
    "task": "alfworld",
    "estimator": "crbc",
    "env_steps": 120,
    "panel": 8,
    "tensorboard": False,
    "rollout.levels": 3,
    "rollout.group_size": 4,
    "learner.minibatch": 16,
    "learner.epochs": 1,
    "learner.kl": 0.01,
    "eval.every": 40,
    "checkpoint.every": 40,
    "text.policy": "decoder",
    "text.step_limit": LIMIT,
    "text.demonstrations": 5,
    "text.clone_epochs": 1,
    "text.clone_minibatch": 8,
    "text.clone_decay": True,
    "text.clone_invalid": 0.2,
    "decoder.layers": 1,
    "decoder.width": 16,
    "decoder.heads": 2,
    "decoder.window": 2,
    "decoder.prompt": 64,
    "decoder.response": RESPONSE,
    "decoder.folder": str(tmp_path / "clones"),
  }
  for name, value in (values | changes).items():
    config_lib.set_value(config, name, value)
  config_lib.validate(config)
  return config


@pytest.fixture
def current(houses, tmp_path):
  return task.make_task(small_config(tmp_path))


def test_rollouts_hold_what_was_sampled(current, tmp_path):
  config = small_config(tmp_path)
  levels, found = current.collect_fn(config)(
    current.params, np.array([0, 5, 7]), jax.random.key(0)
  )
  assert levels == ()
  assert found.mask.shape == (3, 4, LIMIT)
  assert found.mask.all()  # a hardly trained model finishes nothing
  rows = found.state
  for index in np.argwhere(found.mask):
    at, live = rows.at[*index], rows.mask[*index]
    tokens = rows.tokens[*index]
    said = tokens[at[live]]
    assert 1 <= len(said) <= RESPONSE
    assert PAD not in said and END not in said[:-1]
    # The response stands right behind a prompt that ends as prompts end.
    assert TOKENIZER.decode(tokens[: at[0]]).endswith(">")
    np.testing.assert_array_equal(np.diff(at[live]), 1)
    assert not tokens[at[live][-1] + 1 :].any()
    np.testing.assert_allclose(
      found.log_prob[*index], rows.log_prob[*index][live].sum(), rtol=1e-5
    )
  # All of a group begin in one state, whatever they do then.
  assert (found.key[:, :, 0] == found.key[:, :1, 0]).all()
  np.testing.assert_allclose(found.reward[found.mask], -0.1)


def test_sampled_log_probabilities_are_those_of_training(current, tmp_path):
  """Writing with a cache and reading a padded row give the same numbers."""
  _, found = current.collect_fn(small_config(tmp_path))(
    current.params, np.array([1]), jax.random.key(0)
  )
  rows = jax.tree.map(lambda x: x[found.mask], found.state)
  logits = current.logits_fn(current.params, rows.tokens, rows.at - 1)
  chosen = np.take_along_axis(rows.tokens, rows.at, 1)
  # The padding token is never written; training leaves it its probability.
  log_p = np.asarray(jax.nn.log_softmax(logits.at[..., PAD].set(-1e9)))
  wanted = np.take_along_axis(log_p, chosen[..., None], -1)[..., 0]
  np.testing.assert_allclose(
    rows.log_prob[rows.mask], wanted[rows.mask], atol=2e-5
  )


def test_responses_do_not_depend_on_how_prompts_are_batched(current):
  prompts = [
    np.array(TOKENIZER.encode("x" * n), np.int32) for n in (3, 40, 9, 60, 33)
  ]
  generate = agent_task.make_generate(
    current.write, current.params, jax.random.key(3), limit=6, temperature=1.0
  )
  whole = generate(prompts, 2)
  for i in range(5):  # the place in the list decides, not the neighbours
    again = generate([prompts[j] for j in range(i + 1)], 2)[i]
    np.testing.assert_array_equal(again.tokens, whole[i].tokens)
  other = generate(prompts, 3)
  assert any(
    a.tokens.tolist() != b.tokens.tolist()
    for a, b in zip(whole, other, strict=True)
  )


@pytest.mark.training
def test_a_run_that_was_cut_ends_like_one_that_was_not(houses, tmp_path):
  whole = loop.start_run(small_config(tmp_path), tmp_path / "whole")
  run = tmp_path / "cut"

  class Cut(Exception):
    pass

  def stop(env_steps, metrics):
    if env_steps >= 70:
      raise Cut

  with pytest.raises(Cut):
    loop.start_run(small_config(tmp_path), run, report=stop)
  resumed = loop.resume_run(run)
  assert resumed["final"] == whole["final"]

  assert numbers(run) == numbers(tmp_path / "whole")
  last = numbers(run)[-1]
  assert 0 <= last["invalid_sampled"] <= 1


@pytest.mark.training
def test_the_clone_is_made_once(houses, tmp_path, monkeypatch):
  first = task.make_task(small_config(tmp_path)).params
  kept = list((tmp_path / "clones").iterdir())
  assert len(kept) == 1
  monkeypatch.setattr(
    agent_task.cloning, "clone_tokens", lambda *a, **k: pytest.fail("again")
  )
  again = task.make_task(small_config(tmp_path, seed=1)).params
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert list((tmp_path / "clones").iterdir()) == kept


@pytest.mark.training
def test_a_clone_of_another_kind_is_another(houses, tmp_path, monkeypatch):
  task.make_task(small_config(tmp_path))
  task.make_task(small_config(tmp_path, **{"text.demonstrations": 6}))
  assert len(list((tmp_path / "clones").iterdir())) == 2
  # Without a folder nothing is kept.
  task.make_task(small_config(tmp_path, **{"decoder.folder": ""}))
  assert len(list((tmp_path / "clones").iterdir())) == 2


@pytest.mark.training
def test_the_ratio_of_a_step_trains_too(houses, tmp_path):
  config = small_config(
    tmp_path, **{"decoder.ratio": "step", "env_steps": 1, "panel": 2}
  )
  result = loop.start_run(config, tmp_path / "run")
  assert result["update"] == 1
  lines = list(finished.play_text(tmp_path / "run", 1, sampled=True))
  assert lines[0].startswith("game ")
  assert lines[1].count(">") and "bring the" in lines[1]
  assert lines[-1] == f"truncated after {LIMIT} steps"
  assert len(lines) == LIMIT + 2
  found = finished.evaluate_run(tmp_path / "run")
  assert 0 <= found["invalid_greedy"] <= 1


@pytest.mark.parametrize("estimator", ["gae", "vineppo", "elpo"])
def test_what_text_games_cannot_do_is_said(houses, tmp_path, estimator):
  with pytest.raises(config_lib.ConfigError, match="Sokoban only"):
    task.make_task(small_config(tmp_path, estimator=estimator))


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"text.policy": "llm"}, "scorer, decoder"),
    ({"decoder.template": "long"}, "decoder.template"),
    ({"decoder.width": 18}, "multiple of twice"),
    ({"learner.accumulation": 5}, "must divide"),
    ({"decoder.ratio": "word"}, "token, step"),
  ],
)
def test_bad_configs(tmp_path, changes, message):
  with pytest.raises(config_lib.ConfigError, match=message):
    small_config(tmp_path, **changes)


def test_invalid_commands_share_one_number(current, tmp_path):
  _, found = current.collect_fn(small_config(tmp_path))(
    current.params, np.array([0, 1]), jax.random.key(0)
  )
  assert INVALID == "<invalid>"
  assert len(np.unique(found.action_key[found.mask])) == 1


def test_sokoban_as_text_has_the_levels_of_sokoban(tmp_path):
  config = config_lib.get_config()
  config.task = "sokoban_text"
  config.panel = 3
  config.generator.folder = str(tmp_path)
  config.generator.layouts = 4
  config.generator.held_out_layouts = 2
  config.generator.starts_per_layout = 2
  from crbc_jax.learner.text_games import open_games

  games = open_games(config)
  levels = task.make_sokoban_task(_as_sokoban(config))
  assert games.train.ids == levels.train.ids
  env = games.train.make[1]()
  assert env.reset().text == levels.train.text(1)
  assert games.expert(env) in env.reset().commands
  assert len(games.panel) == 3
  assert isinstance(games.train.make[0], functools.partial)


def _as_sokoban(config):
  config = config.copy_and_resolve_references()
  config.task = "sokoban"
  return config
