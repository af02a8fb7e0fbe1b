"""ALFWorld with Qwen2.5-1.5B-Instruct: the settings of the CRBC paper.

Claim of the paper: 96.1 % of 128 games after 150 updates (GRPO 77.7 %). Not run
here: it takes 8 accelerators; `--dry_run` says what fits where.
Command: python -m experiments.train_llm --config configs/alfworld_qwen.py
  --config.model.path=DIR --config.data=FILE
"""

from crbc_jax.learner import llm_config


def get_config():
  """16 tasks x 8 rollouts x 50 steps an update."""
  config = llm_config.get_config()
  config.task = "alfworld"
  config.checkpoint.folder = "runs/alfworld_qwen"
  return config
