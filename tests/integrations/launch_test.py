"""The launch path through tunix: a run that stops goes on exactly.

Once with tunix's own learner in a task of one turn, where what surrounds it is
tested, and once with our learner and sampler in games. Minutes, most of them
compilation; needs the extra [tunix].
"""

import jax
import numpy as np
import pytest

pytest.importorskip("tunix", reason="needs the extra [tunix]")

from flax import nnx
from tunix.rl.agentic.agentic_grpo_learner import (
  GRPOConfig,
  GRPOLearner,
)

from crbc_jax.integrations import (
  launch,
  model_tokenizer,
  pretrained,
)
from crbc_jax.learner import llm_config
from crbc_jax.learner.launch_state import ResumeError
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


class Plain:
  """A chat template of plain lines, as tunix's parsers are called."""

  assistant_token = ""

  def parse(self, messages, add_generation_prompt=False, is_first_msg=False):
    return "".join(f"{m['content']}\n" for m in messages)


def config_of(folder, **changes):
  config = llm_config.get_config()
  config.rollout.tasks = config.learner.mini_batch = 2
  config.rollout.group_size = 2
  config.rollout.prompt = 32
  config.rollout.conversation = config.rollout.response = 32
  config.rollout.concurrent = 1
  config.learner.learning_rate = 1e-2
  config.updates = 2
  config.checkpoint.folder = str(folder)
  config.checkpoint.every = 1
  config.update(changes)
  llm_config.validate(config)
  return config


def run(config):
  """Trains to config.updates; (parameters, tasks seen, restored state)."""
  mesh = pretrained.make_mesh()
  cluster = launch.make_cluster(
    config,
    actor=pretrained.random_qwen(TINY, mesh=mesh),
    reference=pretrained.random_qwen(TINY, mesh=mesh),
    tokenizer=model_tokenizer.ByteTokens(),
    mesh=mesh,
  )
  # Random weights would never end a turn: half of the tokens do.
  ends = list(range(0, TINY.vocabulary, 2))
  for sampling in cluster.cluster_config.rollout_config.values():
    sampling.eos_tokens = ends
  seen = []

  def reward_fn(task, action):
    seen.append(str(np.ravel(task["prompts"])[0]))
    # Differs within a group: there is something to learn.
    return float(len(seen) % 2)

  restored = launch.keep_state(config, cluster, lambda: 10 * len(seen))
  learner = GRPOLearner(
    rl_cluster=cluster,
    algo_config=GRPOConfig(**launch.algorithm_options(config)),
    chat_parser=Plain(),
    env_kwargs={"reward_fn": reward_fn},
  )
  learner.train(
    {"prompts": batch[launch.TASK_KEY]}
    for batch in launch.task_batches(config, tasks=5)
  )
  params = nnx.state(cluster.actor_trainer.model, nnx.Param)
  return jax.tree.map(np.array, params), seen, restored


def tasks_of(config, first, last):
  size = config.rollout.tasks
  batches = list(launch.task_batches(config, tasks=5))
  drawn = np.concatenate([b[launch.TASK_KEY] for b in batches[first:last]])
  assert len(drawn) == (last - first) * size
  return sorted(np.repeat(drawn, config.rollout.group_size).tolist())


def test_a_run_that_stopped_goes_on_exactly(tmp_path):
  whole = config_of(tmp_path / "whole")
  straight, seen, restored = run(whole)
  assert restored is None
  assert sorted(seen) == tasks_of(whole, 0, 2)
  run(config_of(tmp_path / "parts", updates=1))
  parts = config_of(tmp_path / "parts")
  resumed, seen, restored = run(parts)
  # The second update alone, with its own tasks.
  assert (restored.update, restored.task_cursor) == (1, 2)
  assert restored.sampler_calls == 10 * 4
  assert sorted(seen) == tasks_of(parts, 1, 2)
  start = pretrained.random_qwen(TINY)
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), straight, nnx.state(start, nnx.Param)
  )
  assert max(jax.tree.leaves(moved)) > 1e-3
  jax.tree.map(np.testing.assert_array_equal, resumed, straight)
  with pytest.raises(ResumeError, match="estimator"):
    run(config_of(tmp_path / "parts", estimator="grpo"))


def run_games(folder, *, updates):
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
  straight, calls = run_games(tmp_path / "whole", updates=2)
  first, early_calls = run_games(tmp_path / "parts", updates=1)
  resumed, all_calls = run_games(tmp_path / "parts", updates=2)
  assert all_calls == calls > early_calls > 0
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(straight))
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), first, straight)
  assert max(jax.tree.leaves(moved)) > 1e-4
  jax.tree.map(np.testing.assert_array_equal, resumed, straight)
