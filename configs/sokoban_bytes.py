"""Sokoban 6x6 as text, played by a byte-level language model.

Claim: step credit trains a decoder of 120,000 parameters, cloned from 400
noisy demonstrations, better than GRPO does in the same number of steps.
Command: crbc train --config=configs/sokoban_bytes.py
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """Boards of 41 bytes, four words to answer with."""
  config = config_lib.get_config()
  config.task = "sokoban_text"
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 40_000
  config.panel = 256
  config.text.policy = "decoder"
  config.text.step_limit = 30
  config.text.demonstrations = 3_000
  config.text.clone_epochs = 3
  config.text.clone_minibatch = 64
  config.text.clone_learning_rate = 2e-3
  config.decoder.layers = 2
  config.decoder.width = 64
  config.decoder.template = "board"
  config.decoder.response = 6
  config.rollout.levels = 16
  config.learner.minibatch = 256
  config.learner.epochs = 1
  config.learner.learning_rate = 3e-4
  config.learner.entropy = 0.003
  config.eval.every = config.checkpoint.every = 10_000
  return config
