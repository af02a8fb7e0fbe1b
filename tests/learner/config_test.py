import json
import re

import ml_collections
import pytest

from crbc_jax.learner import config as config_lib
from crbc_jax.learner import task


def changed(key, value):
  config = config_lib.get_config()
  section = config
  *sections, name = key.split(".")
  for part in sections:
    section = section[part]
  with section.ignore_type():
    section[name] = value
  return config


def refusal(config):
  """The message, which must be one line."""
  with pytest.raises(config_lib.ConfigError) as caught:
    config_lib.validate(config)
  message = str(caught.value)
  assert "\n" not in message and len(message) < 400
  return message


def test_defaults_are_valid():
  config_lib.validate(config_lib.get_config())


@pytest.mark.parametrize(
  "key, value",
  [
    ("env_steps", 0),
    ("seed", -1),
    ("seed", 2**31),
    ("panel", 0),
    ("env.step_limit", 0),
    ("env.slip", -0.1),
    ("env.slip", 1.5),
    ("env.slip", float("nan")),
    ("generator.boxes", 0),
    ("generator.layouts", 0),
    ("generator.held_out_layouts", 0),
    ("generator.seed", -1),
    ("generator.starts_per_layout", 0),
    ("policy.crop_radius", -1),
    ("rollout.levels", 0),
    ("rollout.group_size", 0),
    ("learner.minibatch", 0),
    ("learner.epochs", 0),
    ("learner.clip", -0.1),
    ("learner.clip", float("nan")),
    ("learner.entropy", -0.1),
    ("learner.kl", -0.1),
    ("learner.max_grad_norm", 0.0),
    ("learner.learning_rate", 0.0),
    ("learner.learning_rate", -1.0),
    ("learner.learning_rate", float("nan")),
    ("learner.learning_rate", float("inf")),
    ("learner.critic_learning_rate", 0.0),
    ("learner.critic_learning_rate", float("nan")),
    ("learner.value_clip", 0.0),
    ("learner.value_clip", float("nan")),
    ("eval.every", 0),
    ("eval.seed", -1),
    ("checkpoint.every", 0),
    ("checkpoint.keep", 0),
  ],
)
def test_ranges(key, value):
  message = refusal(changed(key, value))
  assert message.startswith(f"config.{key} must be ")
  assert repr(value) in message


@pytest.mark.parametrize(
  "key, choice",
  [
    ("env.reward", "shaped"),
    ("learner.aggregation", "trajectory"),
    ("learner.advantage_scale", "standardise"),
  ],
)
def test_choices(key, choice):
  config_lib.validate(changed(key, choice))
  message = refusal(changed(key, "other"))
  assert f"config.{key} must be one of" in message and choice in message


@pytest.mark.parametrize(
  "key, value",
  [
    ("generator.size", (6,)),
    ("generator.size", (6, 6, 6)),
    ("generator.size", (6.0, 6)),
    ("generator.inner_walls", ()),
    ("generator.inner_walls", (-1, 5)),
    ("generator.optimal_length", (1,)),
    ("policy.hidden", ()),
    ("policy.hidden", (64, "64")),
    ("policy.hidden", (True,)),
  ],
)
def test_tuples(key, value):
  assert f"config.{key} must be a tuple of" in refusal(changed(key, value))


@pytest.mark.parametrize(
  "key, value, kind",
  [
    ("seed", "0", "int"),
    ("seed", 0.5, "int"),
    ("seed", True, "int"),
    ("env.slip", "0.1", "float"),
    ("tensorboard", 1, "bool"),
    ("levels", 3, "str"),
    ("estimator", None, "str"),
    ("policy.hidden", 64, "tuple"),
  ],
)
def test_types(key, value, kind):
  message = refusal(changed(key, value))
  assert message.startswith(f"config.{key} must be {kind} (default ")


def test_an_integer_does_for_a_float():
  config_lib.validate(changed("learner.max_grad_norm", 1))


@pytest.mark.parametrize(
  "key, hint",
  [
    ("sed", "did you mean 'seed'?"),
    ("learner.learning_rat", "did you mean 'learning_rate'?"),
    ("learner.xyz", "known: "),
  ],
)
def test_unknown_keys(key, hint):
  message = refusal(changed(key, 1))
  assert f"unknown key config.{key}" in message and hint in message


def test_missing_keys_and_sections():
  config = config_lib.get_config()
  del config.learner["clip"]
  assert refusal(config) == "missing key config.learner.clip (default 0.2)"
  config = config_lib.get_config()
  del config["eval"]
  config["eval"] = 3
  assert "config.eval must be a section" in refusal(config)


def test_held_out_needs_levels():
  message = refusal(changed("held_out", "levels.txt"))
  assert "config.held_out" in message and "config.levels" in message


@pytest.mark.parametrize(
  "text",
  [
    "grpo",
    "crbc",
    "gae(gamma=0.99, lam=0.95)",
    "crbc(depth=2, w_step=1.0)",
    "crbc(depth=inf)",
    " rtmc() ",
  ],
)
def test_estimators(text):
  config_lib.validate(changed("estimator", text))


@pytest.mark.parametrize(
  "text, words",
  [
    ("crcb", "did you mean 'crbc'?"),
    ("crbc(dept=2)", "did you mean 'depth'?"),
    ("crbc(depth=1.5)", "depth must be"),
    ("crbc(beta=2.0)", "beta must be"),
    ("crbc(2)", "name(option=value)"),
    ("crbc(depth=2", "name(option=value)"),
    ("crbc(depth=os.exit())", "name(option=value)"),
    ("crbc(beta='x')", "config.estimator"),
    ("", "name(option=value)"),
  ],
)
def test_refused_estimators(text, words):
  message = refusal(changed("estimator", text))
  assert message.startswith("config.estimator: ") and words in message


@pytest.mark.parametrize(
  "key, value, words",
  [
    ("generator.size", (2, 2), "size must be two sides >= 3"),
    ("generator.inner_walls", (5, 0), "inner_walls must be"),
    ("generator.optimal_length", (0, 3), "optimal_length must be"),
    ("generator.inner_walls", (0, 15), "too few"),
  ],
)
def test_what_the_generator_refuses(tmp_path, key, value, words):
  config = changed(key, value)
  config.generator.folder = str(tmp_path)
  with pytest.raises(config_lib.ConfigError, match=words) as caught:
    task.make_task(config)
  assert re.match(r"config\.generator: .*$", str(caught.value))
  assert not list(tmp_path.iterdir())


def test_json_round_trip_restores_tuples():
  config = changed("policy.hidden", (8, 4))
  read = config_lib.load_config(json.loads(json.dumps(config.to_dict())))
  assert read.policy.hidden == (8, 4)
  assert read.to_dict() == config.to_dict()
  assert isinstance(read, ml_collections.ConfigDict)


def test_loading_validates():
  values = config_lib.get_config().to_dict()
  values["learner"]["clap"] = values["learner"].pop("clip")
  with pytest.raises(config_lib.ConfigError, match="did you mean 'clip'"):
    config_lib.load_config(values)


def test_a_run_from_before_critics_loads_with_their_defaults():
  values = config_lib.get_config().to_dict()
  for key in ("critic_learning_rate", "value_clip"):
    del values["learner"][key]
  read = config_lib.load_config(values)
  assert read.to_dict() == config_lib.get_config().to_dict()
  assert "value_clip" not in values["learner"]
  # What is there is kept, and what was always there is still asked for.
  values["learner"] |= {"value_clip": float("inf")}
  assert config_lib.load_config(values).learner.value_clip == float("inf")
  del values["learner"]["clip"]
  with pytest.raises(config_lib.ConfigError, match=r"missing.*learner\.clip"):
    config_lib.load_config(values)


def test_flat_items():
  items = config_lib.flat_items(config_lib.get_config())
  assert items["seed"] == 0 and items["policy.hidden"] == (256, 256)
  assert "policy" not in items
  assert list(items) == sorted(items)
  config = config_lib.get_config()
  config.update_from_flattened_dict(items)
  assert config.to_dict() == config_lib.get_config().to_dict()


def test_changes_are_what_differs_from_the_defaults():
  changed = config_lib.get_config()
  assert config_lib.changes(changed) == {}
  changed.learner.epochs = 7
  changed.estimator = "grpo"
  assert config_lib.changes(changed) == {
    "estimator": "grpo",
    "learner.epochs": 7,
  }
