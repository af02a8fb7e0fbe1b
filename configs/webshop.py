"""WebShop: a cloned text policy, then CRBC, on the 1,000-product shop.

Claim: the score on held-out goals rises above that of the cloned policy within
200,000 environment steps. Without data it runs on a generated shop.
Command: crbc train --config=configs/webshop.py --config.text.data=FOLDER
"""

from crbc_jax.learner import config as config_lib


def get_config():
  """Fifteen steps an episode, as usual for WebShop; long texts."""
  config = config_lib.get_config()
  config.task = "webshop"
  config.estimator = "crbc(w_step=1.0)"
  config.env_steps = 200_000
  config.panel = 300
  config.text.step_limit = 15
  config.text.width = 32
  config.text.hidden = 64
  config.text.observation = 192
  config.text.goal = 48
  config.text.command = 24
  config.text.clone_epochs = 36
  config.rollout.levels = 16
  config.learner.minibatch = 256
  # A clone forgets under large steps and much entropy.
  config.learner.learning_rate = 3e-4
  config.learner.entropy = 0.003
  config.eval.every = config.checkpoint.every = 20_000
  return config
