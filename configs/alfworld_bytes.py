"""ALFWorld, generated games in four rooms, played by a byte-level model.

Claim: GiGPO improves the clone, which wins .39 of the held-out games, in 16,000
steps, and the exact closure does not (results/README.md).
Command: crbc train --config=configs/alfworld_bytes.py
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """Prompts of at most 192 bytes: commands, observation, goal."""
  config = config_lib.get_config()
  config.task = "alfworld"
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 16_000
  config.panel = 64
  config.text.policy = "decoder"
  config.text.generated = 1_000
  config.text.scenes = 4
  config.text.step_limit = 30
  config.text.demonstrations = 4_000
  config.text.noise = 0.05
  config.text.clone_invalid = 0.15
  config.text.clone_epochs = 3
  config.text.clone_minibatch = 8  # many small steps cost no more than few
  config.text.clone_learning_rate = 1.5e-3
  config.text.clone_decay = True
  config.decoder.layers = 2
  config.decoder.width = 64
  config.decoder.window = 5
  config.decoder.prompt = 192
  config.decoder.response = 40
  config.rollout.levels = 8
  config.learner.minibatch = 128
  config.learner.accumulation = 8
  config.learner.epochs = 1
  config.learner.learning_rate = 3e-4
  config.learner.entropy = 0.003
  config.eval.every = config.checkpoint.every = 4_000
  return config
