"""Sokoban 6x6 as text with Qwen2.5-3B-Instruct.

The paper trains Qwen2.5-VL-3B on pictures (82.8 %, GRPO 46.5 %); this is its
schedule with boards as text, so its numbers are no claim about this. Not run
here.
Command: python -m experiments.train_llm --config configs/sokoban_qwen.py
  --config.model.path=DIR
"""

from crbc_jax.learner import llm_config


def get_config():
  """32 tasks x 8 rollouts x 15 steps an update."""
  config = llm_config.get_config()
  config.task = "sokoban"
  config.model.name = "Qwen2.5-3B"
  config.rollout.tasks = config.learner.mini_batch = 32
  config.rollout.step_limit = 15
  config.rollout.prompt = 1_024
  config.checkpoint.folder = "runs/sokoban_qwen"
  return config
