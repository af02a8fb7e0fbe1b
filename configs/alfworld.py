"""ALFWorld: a cloned text policy, then CRBC, on games of the release.

Claim: success on the 140 + 134 evaluation games rises above that of the cloned
policy within 300,000 environment steps. Without data it runs on generated
games.
Command: crbc train --config=configs/alfworld.py --config.text.data=FILE
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """Fifty steps an episode, as usual for ALFWorld."""
  config = config_lib.get_config()
  config.task = "alfworld"
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 300_000
  # Small on purpose: an update is most of the time on a CPU.
  config.text.width = 32
  config.text.hidden = 64
  config.text.observation = 64
  config.text.command = 6  # "clean mug 1 with sinkbasin 1"
  config.text.clone_epochs = 24
  config.rollout.levels = 16
  config.learner.minibatch = 256
  # A clone forgets under large steps and much entropy.
  config.learner.learning_rate = 3e-4
  config.learner.entropy = 0.003
  config.eval.every = config.checkpoint.every = 30_000
  return config
