"""From a configuration to tunix's cluster of models, and the tasks it is fed.

Needs the extra `[tunix]`. The credit itself is in the learner, see
the module "tunix" beside this one.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from crbc_jax.learner import launch_state
from crbc_jax.learner.launch_state import LaunchState

TASK_KEY = "task"
"""Column of a batch that holds the number of the task, as text."""


def make_optimizer(
  config: ml_collections.ConfigDict,
) -> optax.GradientTransformation:
  """Adam behind a clip of the global norm; moments in float32."""
  return optax.chain(
    optax.clip_by_global_norm(config.learner.max_grad_norm),
    optax.adam(config.learner.learning_rate, mu_dtype=jnp.float32),
  )


def make_cluster(
  config: ml_collections.ConfigDict,
  *,
  actor: Any,
  reference: Any | None,
  tokenizer: Any,
  mesh: jax.sharding.Mesh,
  rollout_engine: Any = "vanilla",
) -> Any:
  """Tunix's RLCluster: actor, reference and rollouts on one mesh.

  The cluster trains a copy: read the actor trainer's model.

  Args:
    config: see `crbc_jax.learner.llm_config`, validated.
    actor: the model that is trained.
    reference: the frozen one of the KL term; None without it.
    tokenizer: of the models.
    mesh: with axes (fsdp, tp).
    rollout_engine: "vanilla", "vllm", "sglang_jax", or a class of its kind.
  """
  import orbax.checkpoint as ocp
  from tunix.rl import rl_cluster
  from tunix.rl.rollout import base_rollout

  rollout, learner = config.rollout, config.learner
  length = rollout.conversation

  def sampling(temperature: float) -> base_rollout.RolloutConfig:
    return base_rollout.RolloutConfig(
      max_tokens_to_generate=length,
      max_prompt_length=rollout.prompt,
      kv_cache_size=rollout.prompt + length,
      temperature=temperature,
      return_logprobs=True,
    )

  # Steps of the optimiser in an update; checkpoints are between updates.
  per_update = rollout.tasks // learner.mini_batch
  mode, role = rl_cluster.Mode, rl_cluster.Role
  training = rl_cluster.RLTrainingConfig(
    actor_optimizer=make_optimizer(config),
    eval_every_n_steps=config.eval.every * per_update,
    max_steps=config.updates,
    mini_batch_size=learner.mini_batch,
    train_micro_batch_size=learner.micro_batch,
    checkpoint_root_directory=str(
      pathlib.Path(config.checkpoint.folder).absolute()
    ),
    checkpointing_options=ocp.CheckpointManagerOptions(
      save_interval_steps=config.checkpoint.every * per_update,
      max_to_keep=config.checkpoint.keep,
    ),
  )
  return rl_cluster.RLCluster(
    actor=actor,
    reference=reference,
    tokenizer=tokenizer,
    cluster_config=rl_cluster.ClusterConfig(
      role_to_mesh=dict.fromkeys(
        (role.ACTOR, role.REFERENCE, role.ROLLOUT), mesh
      ),
      rollout_engine=rollout_engine,
      training_config=training,
      rollout_config={
        mode.TRAIN: sampling(rollout.temperature),
        mode.EVAL: sampling(config.eval.temperature),
      },
    ),
  )


def algorithm_options(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Keyword arguments of the GRPOConfig of tunix's agentic learner.

  The loss is a mean over sampled tokens; the papers average over steps, which
  tunix 0.1.7 has no mode for.
  """
  return {
    "num_generations": config.rollout.group_size,
    "num_iterations": 1,
    "beta": config.learner.kl,
    "kl_loss_mode": "low_var_kl",  # k3
    "epsilon": config.learner.clip,
    "loss_agg_mode": "token-mean",
    "max_response_length": config.rollout.conversation,
    "max_concurrency": config.rollout.concurrent,
    "off_policy_steps": 0,
  }


def task_batches(
  config: ml_collections.ConfigDict, *, tasks: int
) -> Iterator[dict[str, np.ndarray]]:
  """The batches of a whole run, from its first update.

  Tunix skips those of the updates it has restored: the stream must begin where
  the run began.

  Args:
    config: the run's.
    tasks: number of training tasks.

  Yields:
    {"task": [tasks of an update] numbers as text}.
  """
  size = config.rollout.tasks
  for update in range(config.updates):
    drawn = launch_state.task_stream(
      update * size, size, tasks=tasks, seed=config.seed
    )
    yield {TASK_KEY: np.array([str(x) for x in drawn])}


def keep_state(
  config: ml_collections.ConfigDict,
  cluster: Any,
  sampler_calls: Callable[[], int],
) -> LaunchState | None:
  """Saves our counters in every checkpoint, and returns the restored ones.

  Args:
    config: of the run.
    cluster: before training; it has restored its latest checkpoint.
    sampler_calls: the present number of calls.

  Returns:
    None if nothing was restored.

  Raises:
    ResumeError: the checkpoint is of another run.
  """
  trainer = cluster.actor_trainer
  restored = launch_state.from_metadata(
    trainer._restored_custom_metadata,  # tunix 0.1.7 has no other way
    seed=config.seed,
    estimator=config.estimator,
  )
  theirs = trainer.custom_checkpoint_metadata_fn

  def metadata() -> dict[str, Any]:
    values = theirs()
    update = int(values["global_step"])
    state = LaunchState(
      update=update,
      task_cursor=update * config.rollout.tasks,
      sampler_calls=int(sampler_calls()),
      seed=config.seed,
      estimator=config.estimator,
    )
    return values | launch_state.to_metadata(state)

  trainer.custom_checkpoint_metadata_fn = metadata
  return restored
