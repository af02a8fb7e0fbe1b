"""Games of ALFWorld and WebShop as the learner gets them."""

import dataclasses
import re

import numpy as np
import pytest

from crbc_jax import cli
from crbc_jax.envs.alfworld import GameError
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import text_games
from crbc_jax.learner.config import ConfigError
from crbc_jax.types import Boundary
from tests.envs.alfworld.games_test import record, write_bundle

SMALL = {
  "text.generated": 24,
  "text.demonstrations": 3,
  "text.clone_epochs": 1,
  "text.step_limit": 12,
  "text.width": 8,
  "text.hidden": 16,
  "text.vocabulary": 256,
  "panel": 6,
  "env_steps": 60,
  "rollout.levels": 2,
  "rollout.group_size": 2,
  "learner.minibatch": 32,
  "tensorboard": False,
}


def config_of(task, **changes):
  config = config_lib.get_config()
  for name, value in {"task": task, **SMALL, **changes}.items():
    config_lib.set_value(config, name, value)
  return config


@pytest.mark.parametrize("task", ["alfworld", "webshop"])
def test_generated_games(task):
  found = text_games.open_games(config_of(task))
  again = text_games.open_games(config_of(task))
  assert "no --config.text.data" in found.note
  assert found.train.ids == again.train.ids
  assert found.train.digest == again.train.digest != found.panel.digest
  assert not set(found.train.ids) & set(found.panel.ids)
  assert len(found.panel) == 6 == len(found.panel.tags)
  won = 0
  for make in found.panel.make:
    env = make()
    step = env.reset()
    for _ in range(50):
      assert step.boundary == Boundary.NONE and step.commands
      assert all(env.describe(command) for command in step.commands)
      step = env.step(found.expert(env))
      if step.boundary != Boundary.NONE:
        break
    won += step.boundary == Boundary.SUCCESS
  assert won >= 5


def test_games_of_ones_own_by_import_path():
  own = config_of("tests.learner.text_task_test:source")
  config_lib.validate(own)
  found = text_games.open_games(own)
  assert len(found.train) == 40 and len(found.panel) == 6
  for task, problem in (
    ("tests.learner.text_task_test:sourec", "has no 'sourec'"),
    ("no_such_module:games", "is its folder on PYTHONPATH"),
    ("tests.learner.word_house:all_houses", "takes 0 positional"),
    ("tests.learner.word_house:ROOMS", "not callable"),
    ("builtins:repr", "must return a text_games.GameSource, got str"),
  ):
    with pytest.raises(ConfigError, match=problem):
      text_games.open_games(config_of(task))
  with pytest.raises(ConfigError, match="task must be one of"):
    config_lib.validate(config_of("sokobann"))


def test_a_panel_is_spread_over_the_list():
  games = text_games.TextGames(
    tuple("abcdefgh"),
    (None,) * 8,
    tuple((x,) for x in "abcdefgh"),
    tuple("ABCDEFGH"),
  )
  kept = text_games._spread(games, 4)
  assert kept.ids == ("a", "c", "e", "g")
  assert kept.tags == (("a",), ("c",), ("e",), ("g",))
  assert kept.content == ("A", "C", "E", "G")
  other = dataclasses.replace(games, content=("?", *games.content[1:]))
  assert other.digest != games.digest
  assert (games.take(np.array([1])) + kept).ids == ("b", *kept.ids)


@pytest.mark.parametrize(
  ("splits", "training"),
  [
    (("train", "valid_train", "valid_unseen"), "train"),
    (("valid_train", "valid_seen"), "valid_train"),
  ],
)
def test_alfworld_games_by_split(splits, training, tmp_path):
  records = [record(i, split=split) for i, split in enumerate(splits)]
  path = write_bundle(tmp_path, records)
  found = text_games.open_games(
    config_of("alfworld", **{"text.data": str(path)})
  )
  assert [tags[0] for tags in found.train.tags] == [training]
  assert [tags[0] for tags in found.panel.tags] == [splits[-1]]
  assert f"1 {training}, 1 {splits[-1]}" in found.note


def test_generated_games_beside_those_of_the_data(tmp_path):
  records = [record(0, split="train"), record(1, split="valid_seen")]
  path = str(write_bundle(tmp_path, records))
  found = text_games.open_games(
    config_of("alfworld", **{"text.data": path, "text.added": 7})
  )
  assert [tags[0] for tags in found.train.tags] == ["train"] + ["generated"] * 7
  assert len(set(found.train.ids)) == 8
  assert [tags[0] for tags in found.panel.tags] == ["valid_seen"]
  assert "7 generated to train on" in found.note
  with pytest.raises(ConfigError, match=r"text\.added is 1: only ALFWorld"):
    text_games.open_games(config_of("webshop", **{"text.added": 1}))


def test_generated_games_that_share_rooms():
  found = text_games.open_games(config_of("alfworld", **{"text.scenes": 4}))
  rooms = {
    make().reset().text.partition("you see")[2].partition("\n")[0]
    for make in found.train.make + found.panel.make
  }
  assert len(rooms) <= 4 < len(found.train)
  apart = text_games.open_games(config_of("alfworld"))
  assert found.train.digest != apart.train.digest


@pytest.mark.parametrize(
  ("task", "changes", "message"),
  [
    ("alfworld", {"text.scenes": 3}, "at least 4"),
    ("alfworld", {"text.scenes": 4, "text.data": "x"}, "only generated"),
    ("webshop", {"text.scenes": 4}, "only ALFWorld"),
  ],
)
def test_scenes_that_cannot_be(task, changes, message):
  with pytest.raises(ConfigError, match=rf"text\.scenes.*{message}"):
    text_games.open_games(config_of(task, **changes))


@pytest.mark.parametrize("split", ["train", "valid_seen"])
def test_alfworld_games_of_one_split_do_not_make_a_task(split, tmp_path):
  path = write_bundle(tmp_path, [record(0, split=split)])
  with pytest.raises(GameError, match=f"be evaluated on .* holds {split}"):
    text_games.open_games(config_of("alfworld", **{"text.data": str(path)}))


@pytest.mark.real_data
def test_real_games(real_data):
  path = real_data / "alfworld" / "alfworld_games_474.jsonl.gz"
  config = config_of("alfworld", **{"text.data": str(path), "panel": 1_000})
  found = text_games.open_games(config)
  assert (len(found.train), len(found.panel)) == (200, 274)
  splits = [tags[0] for tags in found.panel.tags]
  assert (splits.count("valid_seen"), splits.count("valid_unseen")) == (
    140,
    134,
  )
  path = real_data / "webshop" / "webshop_1000.json.gz"
  config = config_of("webshop", **{"text.data": str(path), "panel": 2_000})
  found = text_games.open_games(config)
  assert (len(found.train), len(found.panel)) == (5_410, 1_000)


@pytest.mark.training
@pytest.mark.parametrize("task", ["alfworld", "webshop"])
def test_train_then_view(task, tmp_path, capsys):
  run = str(tmp_path / "run")
  values = {"task": task, "estimator": "grpo", **SMALL}
  argv = [f"--config.{name}={value}" for name, value in values.items()]
  assert cli.main(["train", f"--run_dir={run}", *argv]) == 0
  shown = capsys.readouterr().out
  assert shown.startswith("no --config.text.data: ")
  assert cli.main(["view", run, "--level", "1"]) == 0
  shown = capsys.readouterr().out
  assert re.search(r"^> \w+", shown, re.M)
  assert re.search(r"(success|failure|truncated) after \d+ steps", shown)
  assert cli.main(["eval", run]) == 0
  assert cli.main(["view", run, "--level", "99"]) == 2
  assert "there are 6" in capsys.readouterr().err
  assert cli.main(["eval", run, "--levels", "x.txt"]) == 2
  assert cli.main(["report", run, "--out", str(tmp_path / "r.html")]) == 2


def test_data_that_is_not_there(tmp_path, capsys):
  for task in ("alfworld", "webshop"):
    argv = [f"--config.task={task}", f"--config.text.data={tmp_path}/none"]
    assert cli.main(["train", f"--run_dir={tmp_path}/run", *argv]) == 2
    assert f"{tmp_path}/none" in capsys.readouterr().err
  assert not (tmp_path / "run").exists()
