"""WebShop with Qwen2.5-1.5B-Instruct: the settings of the CRBC paper.

Claim of the paper: 81.5 % of 128 goals after 150 updates (GRPO 71.1 %). Not run
here: it takes 8 accelerators; `--dry_run` says what fits where.
Command: python -m experiments.train_llm --config configs/webshop_qwen.py
  --config.model.path=DIR --config.data=FILE
"""

from crbc_jax.learner import llm_config


def get_config():
  """16 tasks x 8 rollouts x 15 steps an update; pages make long prompts."""
  config = llm_config.get_config()
  config.task = "webshop"
  config.rollout.step_limit = 15
  config.rollout.prompt = 5_120
  config.checkpoint.folder = "runs/webshop_qwen"
  return config
