"""ALFWorld, generated games, played by a byte-level language model.

Claim: none. The clone of 600 demonstrations wins none of 64 held-out games and
71 % of its commands are inadmissible: it needs more demonstrations and time
than two cores gave it (nine minutes for these).
Command: crbc train --config=configs/alfworld_bytes.py
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """Prompts of at most 224 bytes: four commands, observation, goal."""
  config = config_lib.get_config()
  config.task = "alfworld"
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 24_000
  config.panel = 64
  config.text.policy = "decoder"
  config.text.generated = 400
  config.text.step_limit = 30
  config.text.demonstrations = 600
  config.text.clone_epochs = 6
  config.text.clone_minibatch = 64
  config.text.clone_learning_rate = 2e-3
  config.decoder.layers = 2
  config.decoder.width = 64
  config.decoder.prompt = 224
  config.decoder.response = 40
  config.rollout.levels = 8
  config.learner.minibatch = 256
  config.learner.epochs = 1
  config.learner.learning_rate = 3e-4
  config.learner.entropy = 0.003
  config.eval.every = config.checkpoint.every = 4_000
  return config
