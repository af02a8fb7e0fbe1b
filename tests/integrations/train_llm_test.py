"""`train_llm` by our learner and sampler: a run that stops goes on exactly.

About two minutes, most of them compilation; needs the extra [tunix].
"""

import jax
import numpy as np
import pytest

pytest.importorskip("tunix", reason="needs the extra [tunix]")

from flax import nnx

from crbc_jax.integrations import model_tokenizer, pretrained
from crbc_jax.learner import llm_config
from crbc_jax.policies.decoder_shape import TINY
from experiments import train_llm_run

pytestmark = [
  pytest.mark.training,
  pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def settings(tmp_path):
  wanted = {
    # In all threads: tunix samples in others.
    "jax_numpy_rank_promotion": "allow",
    # Each run makes the same programs anew.
    "jax_compilation_cache_dir": str(tmp_path / "cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
  }
  before = {name: getattr(jax.config, name) for name in wanted}
  for name, value in wanted.items():
    jax.config.update(name, value)
  yield
  for name, value in before.items():
    jax.config.update(name, value)


def run(folder, *, updates):
  """(parameters, sampler calls) after `updates`; goes on if it can."""
  config = train_llm_run.stand_in(llm_config.get_config(), str(folder))
  config.updates = updates
  config.learner.learning_rate = 1e-2
  mesh = pretrained.make_mesh()
  cluster = train_llm_run.run_updates(
    config,
    train_llm_run.open_games(config),
    pretrained.random_qwen(TINY, mesh=mesh),
    pretrained.random_qwen(TINY, mesh=mesh),
    model_tokenizer.ByteTokens(),
    mesh,
  )
  params = nnx.state(cluster.actor_trainer.model, nnx.Param)
  return jax.tree.map(np.array, params), cluster.rollout.calls


def test_credit_sampler_and_tasks_go_on(tmp_path):
  straight, calls = run(tmp_path / "whole", updates=2)
  first, early_calls = run(tmp_path / "parts", updates=1)
  resumed, all_calls = run(tmp_path / "parts", updates=2)
  assert all_calls == calls > early_calls > 0
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(straight))
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), first, straight)
  assert max(jax.tree.leaves(moved)) > 1e-4
  jax.tree.map(np.testing.assert_array_equal, resumed, straight)
