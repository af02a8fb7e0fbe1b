"""Sokoban 6x6, one box: what `make train` runs.

Claim: CRBC solves at least 85 % of 1,024 held-out levels (actions sampled), and
more than GRPO after the same number of environment steps.
Command: make train, or crbc train --config=configs/sokoban.py
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """The library's defaults with more epochs, a larger step and budget."""
  config = config_lib.get_config()
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 1_500_000
  config.learner.epochs = 4
  config.learner.learning_rate = 2e-3
  config.eval.every = 100_000
  config.checkpoint.every = 250_000
  return config
