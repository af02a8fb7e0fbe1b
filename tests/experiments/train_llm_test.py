"""The launcher without its engine: plans, stand-in, refusals."""

import json

import pytest
from absl import flags

from crbc_jax.learner import llm_config, memory_plan
from crbc_jax.learner.config import ConfigError

# A wheel installed elsewhere comes without the experiments.
train_llm = pytest.importorskip("experiments.train_llm")
train_llm_run = pytest.importorskip("experiments.train_llm_run")
webshop_qwen = pytest.importorskip("configs.webshop_qwen")


def test_all_plans_say_which_fit():
  rows = train_llm.plan(webshop_qwen.get_config(), "all")
  sizes = len(train_llm.MODELS) * len(memory_plan.TOPOLOGIES)
  assert len(rows) == sizes * len(llm_config.LAYOUTS) * 2
  for row in rows:
    assert row["fits"] == (row["gib"]["peak"] <= row["gib"]["budget"])
    assert row["fits"] == (row["largest_micro_batch"] > 0)
  # Adam on seven billion float32 weights is 91 GB over 8 x 16 GiB.
  tight = [
    row
    for row in rows
    if (row["model"], row["topology"]) == ("Qwen2.5-7B", "v5e-8")
  ]
  assert not any(row["fits"] for row in tight if not row["lora_rank"])


def test_one_plan_follows_the_config():
  config = webshop_qwen.get_config()
  config.lora.rank = 8
  config.mesh.tp = 2
  (row,) = train_llm.plan(config, "8xH100")
  assert (row["fsdp"], row["tp"], row["lora_rank"]) == (4, 2, 8)
  assert row["tokens"] == 5_120 + 8_192
  assert row["micro_batch"] == 2  # one task group of 8 over fsdp 4


def test_the_stand_in_is_small_and_valid(tmp_path):
  config = webshop_qwen.get_config()
  tiny = train_llm_run.stand_in(config, str(tmp_path))
  assert tiny.estimator == config.estimator
  assert tiny.rollout.tasks * tiny.rollout.group_size == 4
  assert config.rollout.tasks == 16  # the config itself is as it was


def test_a_dry_run_prints_and_writes(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(train_llm.importlib.util, "find_spec", lambda name: None)
  flags.FLAGS(
    ["train_llm", "--dry_run", "--topology=v5e-8", f"--results={tmp_path}"]
  )
  train_llm.main(["train_llm"])
  assert "does not fit" in capsys.readouterr().out
  (plan,) = json.loads((tmp_path / "memory_plan.json").read_text())["plans"]
  assert plan["topology"] == "v5e-8" and not plan["fits"]
  flags.FLAGS(["train_llm", "--nodry_run"])
  with pytest.raises(SystemExit, match="tunix"):
    train_llm.main(["train_llm"])


def test_training_without_a_model_or_in_another_layout_is_refused():
  config = webshop_qwen.get_config()
  with pytest.raises(ConfigError, match=r"set config\.model\.path"):
    train_llm_run.train(config)
  config.model.path = "somewhere"
  config.rollout.layout = "step"
  with pytest.raises(ConfigError, match=r"config\.rollout\.layout"):
    train_llm_run.train(config)
