"""Configs of language-model training: the papers' numbers, strict checks."""

import importlib

import pytest

from crbc_jax.credit import registry
from crbc_jax.learner import llm_config, memory_plan
from crbc_jax.learner.config import ConfigError, set_value

NAMES = ("alfworld", "webshop", "sokoban")


def config_of(name):
  return importlib.import_module(f"configs.{name}_qwen").get_config()


@pytest.mark.parametrize("name", NAMES)
def test_shipped_configs_are_valid(name):
  config = config_of(name)
  llm_config.validate(config)
  assert config.task == name


@pytest.mark.parametrize(
  ("name", "tasks", "steps", "prompt"),
  [
    ("alfworld", 16, 50, 2_048),
    ("webshop", 16, 15, 5_120),
    ("sokoban", 32, 15, 1_024),
  ],
)
def test_settings_of_the_paper(name, tasks, steps, prompt):
  config = config_of(name)
  rollout, learner = config.rollout, config.learner
  assert (rollout.tasks, rollout.group_size) == (tasks, 8)
  assert (rollout.step_limit, rollout.prompt) == (steps, prompt)
  assert (rollout.response, rollout.history) == (512, 2)
  assert (rollout.temperature, config.eval.temperature) == (1.0, 0.4)
  assert (learner.learning_rate, learner.kl) == (1e-6, 0.01)
  assert (config.reward.success, config.reward.invalid_penalty) == (10, 0.1)
  assert (config.updates, config.eval.every) == (150, 5)
  assert config.eval.trajectories == 128
  estimator, options = registry.parse_estimator(config.estimator)
  assert estimator == "crbc"
  assert options == {
    "beta": 0.98,
    "sigma_min": 0.1,
    "w_group": 1.0,
    "w_step": 5.0,
  }


@pytest.mark.parametrize(
  ("key", "value", "message"),
  [
    ("task", "chess", "config.task must be one of"),
    ("model.name", "Qwen2.5-2B", "config.model.name must be one of"),
    ("model.dtype", "float16", "config.model.dtype must be one of"),
    ("model.param_dtype", "bfloat16", "is lost in bfloat16 weights"),
    ("model.remat", "all", "config.model.remat must be one of"),
    ("mesh.fsdp", 0, "config.mesh.fsdp must be -1 or at least 1"),
    ("mesh.tp", 0, "config.mesh.tp must be at least 1"),
    ("lora.rank", -1, "config.lora.rank must be at least 0"),
    ("lora.alpha", 0.0, "config.lora.alpha must be > 0"),
    ("rollout.group_size", 1, "config.rollout.group_size must be at least 2"),
    ("rollout.temperature", 0.0, "config.rollout.temperature"),
    ("rollout.layout", "token", "config.rollout.layout must be one of"),
    ("learner.learning_rate", float("nan"), "must be > 0 and finite"),
    ("learner.micro_batch", 3, "must divide config.learner.mini_batch"),
    ("learner.mini_batch", 5, "must divide config.rollout.tasks"),
    ("learner.kl", -0.1, "config.learner.kl must be at least 0"),
    ("distributed.process", 1, "must be below"),
    ("distributed.processes", 2, "set config.distributed.coordinator"),
    ("estimator", "crbc(betta=0.9)", "config.estimator"),
    ("updates", "150", "config.updates must be int"),
  ],
)
def test_wrong_values_are_named(key, value, message):
  config = llm_config.get_config()
  with config.ignore_type():
    set_value(config, key, value)
  with pytest.raises(ConfigError, match="config") as error:
    llm_config.validate(config)
  assert message in str(error.value)


def test_unknown_keys_are_named():
  config = llm_config.get_config()
  config.learner.learning_rat = 1e-6
  with pytest.raises(ConfigError, match=r"learning_rat.*learning_rate"):
    llm_config.validate(config)


def test_lora_may_train_in_bfloat16_and_games_may_be_imported():
  config = llm_config.get_config()
  config.model.param_dtype = "bfloat16"
  config.lora.rank = 8
  config.task = "my_games:open_games"
  llm_config.validate(config)


def test_the_workload_of_a_config():
  config = config_of("alfworld")
  topology = memory_plan.TOPOLOGIES["8xH100"]
  work = llm_config.workload(config, topology)
  assert (work.fsdp, work.tp, work.rollouts) == (8, 1, 128)
  assert work.length == 2_048 + 8_192
  assert work.accumulate and work.reference
  assert llm_config.sequences_per_device(config, work) == 1
  config.rollout.layout = "step"
  config.mesh.tp = 2
  config.learner.micro_batch = 16
  config.learner.kl = 0.0
  work = llm_config.workload(config, topology)
  assert (work.fsdp, work.tp, work.length) == (4, 2, 2_560)
  assert not work.accumulate and not work.reference
  assert llm_config.sequences_per_device(config, work) == 32


def test_meshes_of_another_size():
  config = llm_config.get_config()
  config.mesh.tp = 3
  with pytest.raises(ConfigError, match="fsdp 2 x tp 3 is not 8"):
    llm_config.mesh_size(config, 8)


def test_a_model_folder_that_is_not_there():
  config = llm_config.get_config()
  config.model.path = "/nowhere"
  with pytest.raises(ConfigError, match="no model folder /nowhere"):
    llm_config.model_shape(config)
