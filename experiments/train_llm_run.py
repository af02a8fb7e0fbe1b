"""The parts of `train_llm` that need tunix: training, and one tiny update."""

import dataclasses
import functools
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import rich
from flax import nnx

from crbc_jax.agents.prompts import template_for
from crbc_jax.integrations import launch, model_tokenizer, pretrained
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import llm_config, text_games
from crbc_jax.learner.config import ConfigError
from crbc_jax.policies.decoder_shape import TINY


def train(config: ml_collections.ConfigDict) -> None:
  """Trains on all devices of all hosts, from the last checkpoint if any.

  Raises:
    ConfigError: no model folder, or a layout the learner does not have.
    ResumeError: the checkpoint is of another run.
  """
  if not config.model.path:
    raise ConfigError(
      "set config.model.path to a local folder with the weights of"
      f" {config.model.name} (or use --dry_run)"
    )
  if config.rollout.layout != "conversation":
    raise ConfigError(
      "tunix trains whole conversations: set config.rollout.layout to"
      ' "conversation"; "step" is for the memory plan'
    )
  join_hosts(config)
  fsdp, tp = llm_config.mesh_size(config, jax.device_count())
  mesh = pretrained.make_mesh(fsdp=fsdp, tp=tp)
  actor, reference = load_models(config, mesh)
  shape = llm_config.model_shape(config)
  tokenizer = model_tokenizer.load_tokenizer(
    config.model.path, vocabulary=shape.vocabulary
  )
  games = open_games(config)
  rich.print(f"{len(games):,} tasks; mesh fsdp {fsdp} x tp {tp}")
  run_updates(config, games, actor, reference, tokenizer, mesh)


def join_hosts(config: ml_collections.ConfigDict) -> None:
  """`jax.distributed.initialize` where a coordinator is configured."""
  host = config.distributed
  if host.coordinator == "auto":
    jax.distributed.initialize()
  elif host.coordinator:
    jax.distributed.initialize(host.coordinator, host.processes, host.process)


def load_models(
  config: ml_collections.ConfigDict, mesh: jax.sharding.Mesh
) -> tuple[Any, Any | None]:
  """(the model that is trained, the frozen one or None).

  With LoRA both are the same frozen weights, which tunix notices.
  """
  dtype = jnp.dtype(config.model.dtype)
  param_dtype = jnp.dtype(config.model.param_dtype)
  load = functools.partial(
    pretrained.load_qwen,
    config.model.path,
    mesh=mesh,
    dtype=dtype,
    remat=config.model.remat,
  )
  wants_reference = config.learner.kl > 0
  if config.lora.rank:
    frozen = load()
    actor = pretrained.with_lora(
      frozen,
      pretrained.Lora(rank=config.lora.rank, alpha=config.lora.alpha),
      param_dtype=param_dtype,
      mesh=mesh,
      seed=config.seed,
    )
    return actor, frozen if wants_reference else None
  return load(param_dtype=param_dtype), load() if wants_reference else None


def open_games(config: ml_collections.ConfigDict) -> text_games.TextGames:
  """The training games of a config."""
  like = config_lib.get_config()
  like.task = "sokoban_text" if config.task == "sokoban" else config.task
  like.text.data = config.data
  like.text.generated = config.generated
  return text_games.open_games(like).train


def stand_in(
  config: ml_collections.ConfigDict, folder: str
) -> ml_collections.ConfigDict:
  """The same settings at the size of a minute: one update of two tasks."""
  tiny = config.copy_and_resolve_references()
  tiny.model.path = ""
  tiny.model.dtype = tiny.model.param_dtype = "float32"
  tiny.mesh.fsdp, tiny.mesh.tp = -1, 1
  tiny.generated = 4
  tiny.data = ""
  tiny.updates = 1
  tiny.rollout.tasks = tiny.learner.mini_batch = 2
  tiny.learner.micro_batch = 1
  tiny.rollout.group_size = 2
  tiny.rollout.step_limit = 2
  tiny.rollout.prompt = tiny.rollout.conversation = 2_048  # bytes
  tiny.rollout.response = 16
  tiny.rollout.concurrent = 1
  tiny.rollout.engine = "vanilla"
  tiny.checkpoint.folder = folder
  tiny.checkpoint.every = 1
  llm_config.validate(tiny)
  return tiny


def one_update(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """One update of random weights on the devices that are there.

  Returns:
    What moved, and the state in the checkpoint.
  """
  with tempfile.TemporaryDirectory() as folder:
    tiny = stand_in(config, folder)
    mesh = pretrained.make_mesh()
    lora = pretrained.Lora(rank=4) if config.lora.rank else None
    reference = pretrained.random_qwen(TINY, mesh=mesh)
    actor = pretrained.random_qwen(TINY, mesh=mesh)
    if lora:
      actor = pretrained.with_lora(
        reference, lora, param_dtype=jnp.float32, mesh=mesh
      )
    kind = nnx.LoRAParam if lora else nnx.Param
    before = jax.tree.map(np.array, nnx.state(actor, kind))
    cluster = run_updates(
      tiny,
      open_games(tiny),
      actor,
      reference,
      model_tokenizer.ByteTokens(),
      mesh,
    )
    after = nnx.state(cluster.actor_trainer.model, kind)
    moved = jax.tree.map(
      lambda a, b: float(np.abs(np.asarray(a) - b).max()), after, before
    )
    return {
      "updates": cluster.global_steps,
      "largest_change": max(jax.tree.leaves(moved)),
      "devices": mesh.size,
    }


def run_updates(
  config: ml_collections.ConfigDict,
  games: text_games.TextGames,
  actor: Any,
  reference: Any | None,
  tokenizer: Any,
  mesh: jax.sharding.Mesh,
) -> Any:
  """Updates up to `config.updates`; returns the cluster."""
  from tunix.rl.agentic.agentic_grpo_learner import GRPOConfig

  from crbc_jax.integrations import tunix as ours

  rollout = config.rollout
  engine: Any = rollout.engine
  if engine == "vanilla":
    engine = functools.partial(
      ours.SeededRollout, seed=config.seed, response=rollout.response
    )
  cluster = launch.make_cluster(
    config,
    actor=actor,
    reference=reference,
    tokenizer=tokenizer,
    mesh=mesh,
    rollout_engine=engine,
  )
  learner = ours.CrbcLearner(
    rl_cluster=cluster,
    algo_config=GRPOConfig(**launch.algorithm_options(config)),
    estimator=config.estimator,
    agent_class=ours.TextAgent,
    env_class=ours.TextEnvironment,
    env_kwargs={
      "games": games,
      "step_limit": rollout.step_limit,
      "template": dataclasses.replace(
        template_for(config.task), history=rollout.history
      ),
      "success_reward": config.reward.success,
      "invalid_penalty": config.reward.invalid_penalty,
    },
  )
  sampler = cluster.rollout
  restored = launch.keep_state(
    config, cluster, lambda: getattr(sampler, "calls", 0)
  )
  if restored:
    rich.print(f"going on after update {restored.update}")
    sampler.calls = restored.sampler_calls
  learner.train(launch.task_batches(config, tasks=len(games)))
  return cluster
