"""The configuration of language-model training: defaults and validation."""

import dataclasses
import math
import pathlib

import ml_collections

from crbc_jax.credit import registry
from crbc_jax.learner import model_folder
from crbc_jax.learner.config import ConfigError, check_tree, flat_items
from crbc_jax.learner.memory_plan import REMATS, Topology, Workload
from crbc_jax.policies.decoder_shape import SHAPES, DecoderShape

ENGINES = ("vanilla", "vllm", "sglang_jax")
LAYOUTS = ("step", "conversation")
FLOATS = {"float32": 4, "bfloat16": 2}


def get_config() -> ml_collections.ConfigDict:
  """The papers' settings of ALFWorld (CRBC, arXiv 2609.35082, appendix)."""
  c = ml_collections.ConfigDict
  return c(
    {
      "seed": 0,
      "task": "alfworld",  # or "webshop", "sokoban", "my_module:open_games"
      "data": "",  # games or products; empty: generated ones
      "generated": 200,  # of those
      # As `crbc train` takes it; "grpo" is the control.
      "estimator": "crbc(beta=0.98, sigma_min=0.1, w_group=1.0, w_step=5.0)",
      "updates": 150,
      "model": c(
        {
          "name": "Qwen2.5-1.5B",  # for the memory plan, where path is empty
          # Local folder in Hugging Face layout. Empty: only --dry_run.
          "path": "",
          "dtype": "bfloat16",  # of computation, KV cache and frozen weights
          "param_dtype": "float32",  # of trained weights
          "remat": "decoder",  # what the backward pass computes again
        }
      ),
      "mesh": c(
        {
          "fsdp": -1,  # parts of batch and weights; -1: all devices / tp
          "tp": 1,  # parts of heads; divides the model's kv heads
        }
      ),
      "lora": c(
        {
          "rank": 0,  # 0: every weight is trained
          "alpha": 32.0,
        }
      ),
      "rollout": c(
        {
          "tasks": 16,  # task groups of an update
          "group_size": 8,  # G, rollouts of a group
          "step_limit": 50,
          "history": 2,  # past observations and actions in the prompt
          "prompt": 2_048,  # tokens, at most
          "response": 512,  # tokens of one step, at most
          # What the learner sees: one row per step, as in the papers, or the
          # whole conversation with a mask, as tunix's agentic learner does.
          "layout": "conversation",
          "conversation": 8_192,  # tokens after the first prompt, at most
          "concurrent": 128,  # rollouts at the same time
          # What samples: tunix's own sampler (one conversation at a time), or
          # "vllm", "sglang_jax" if they are installed.
          "engine": "vanilla",
          "temperature": 1.0,
        }
      ),
      "reward": c(
        {
          "success": 10.0,
          # Off each step with an unparsable or inadmissible action.
          "invalid_penalty": 0.1,
        }
      ),
      "learner": c(
        {
          "learning_rate": 1e-6,
          "max_grad_norm": 1.0,
          "clip": 0.2,
          "kl": 0.01,  # weight of k3 KL to the frozen reference
          "mini_batch": 16,  # task groups of an optimiser step
          "micro_batch": 1,  # task groups at once; their gradients are summed
        }
      ),
      "eval": c(
        {
          "every": 5,  # updates
          "trajectories": 128,
          "temperature": 0.4,
          "seed": 0,
        }
      ),
      "checkpoint": c(
        {
          "folder": "runs/llm",
          "every": 5,  # updates
          "keep": 3,
        }
      ),
      # Several hosts. On a TPU pod "auto" finds the rest by itself.
      "distributed": c(
        {
          "coordinator": "",  # "" one process, "auto", or "host:port"
          "processes": 1,
          "process": 0,
        }
      ),
    }
  )


def validate(config: ml_collections.ConfigDict) -> None:
  """Checks names, types, ranges and combinations.

  Raises:
    ConfigError: names the key and says what it may be.
  """
  check_tree(config, get_config(), "config")
  values = flat_items(config)
  for path, low, high in _RANGES:
    if not low <= values[path] <= high:
      bound = f"at least {low:g}" if high == _INF else f"in [{low:g}, {high:g}]"
      raise ConfigError(f"config.{path} must be {bound}, got {values[path]!r}")
  for path, choices in _CHOICES.items():
    value = values[path]
    imported = path == "task" and value.count(":") == 1
    if value not in choices and not imported:
      raise ConfigError(
        f"config.{path} must be one of {', '.join(choices)}; got {value!r}"
      )
  for path in _POSITIVE:
    if not 0 < values[path] < _INF:
      raise ConfigError(
        f"config.{path} must be > 0 and finite, got {values[path]!r}"
      )
  if values["mesh.fsdp"] != -1 and values["mesh.fsdp"] < 1:
    raise ConfigError(
      f"config.mesh.fsdp must be -1 or at least 1, got {values['mesh.fsdp']!r}"
    )
  _check_combinations(values)
  try:
    name, options = registry.parse_estimator(config.estimator)
    registry.make_estimator(name, **options)
  except (ValueError, TypeError) as error:
    raise ConfigError(f"config.estimator: {error}") from error


def _check_combinations(values: dict) -> None:
  micro, mini = values["learner.micro_batch"], values["learner.mini_batch"]
  tasks = values["rollout.tasks"]
  for small, large, names in (
    (micro, mini, ("learner.micro_batch", "learner.mini_batch")),
    (mini, tasks, ("learner.mini_batch", "rollout.tasks")),
  ):
    if large % small:
      raise ConfigError(
        f"config.{names[0]} ({small}) must divide config.{names[1]} ({large})"
      )
  if values["distributed.process"] >= values["distributed.processes"]:
    raise ConfigError(
      "config.distributed.process must be below config.distributed.processes,"
      f" got {values['distributed.process']} of"
      f" {values['distributed.processes']}"
    )
  if (
    values["distributed.processes"] > 1
    and not (values["distributed.coordinator"])
  ):
    raise ConfigError(
      "config.distributed.processes is"
      f" {values['distributed.processes']}: set config.distributed.coordinator"
      ' to "host:port", or to "auto" on a TPU pod'
    )
  low_rate = values["learner.learning_rate"] < 1e-4
  full = values["lora.rank"] == 0
  if full and low_rate and values["model.param_dtype"] == "bfloat16":
    # A bfloat16 keeps 8 bits: 0.02 + 1e-6 is 0.02.
    raise ConfigError(
      f"config.learner.learning_rate {values['learner.learning_rate']:g} is"
      " lost in bfloat16 weights: set config.model.param_dtype to float32, or"
      " train LoRA"
    )


def model_shape(config: ml_collections.ConfigDict) -> DecoderShape:
  """Sizes of the model: of its folder, or those published for its name.

  Raises:
    ConfigError: the folder cannot be read.
  """
  if not config.model.path:
    return SHAPES[config.model.name]
  try:
    return model_folder.read_shape(pathlib.Path(config.model.path))
  except model_folder.CheckpointError as error:
    raise ConfigError(f"config.model.path: {error}") from error


def mesh_size(
  config: ml_collections.ConfigDict, devices: int
) -> tuple[int, int]:
  """(fsdp, tp) on so many devices.

  Raises:
    ConfigError: their product is another number.
  """
  fsdp, tp = config.mesh.fsdp, config.mesh.tp
  if fsdp == -1:
    fsdp = max(devices // tp, 1)
  if fsdp * tp != devices:
    raise ConfigError(
      f"config.mesh: fsdp {fsdp} x tp {tp} is not {devices} device(s)"
    )
  return fsdp, tp


def workload(config: ml_collections.ConfigDict, topology: Topology) -> Workload:
  """What the memory planner asks for."""
  fsdp, tp = mesh_size(config, topology.devices)
  rollout = config.rollout
  whole = rollout.layout == "conversation"
  return Workload(
    shape=model_shape(config),
    prompt=rollout.prompt,
    response=rollout.conversation if whole else rollout.response,
    rollouts=min(rollout.concurrent, rollout.tasks * rollout.group_size),
    fsdp=fsdp,
    tp=tp,
    param_bytes=FLOATS[config.model.param_dtype],
    compute_bytes=FLOATS[config.model.dtype],
    lora_rank=config.lora.rank,
    remat=config.model.remat,
    reference=config.learner.kl > 0,
    accumulate=config.learner.micro_batch < config.learner.mini_batch,
  )


def sequences_per_device(
  config: ml_collections.ConfigDict, work: Workload
) -> int:
  """Of one micro-batch: its task groups' rollouts over fsdp, rounded up."""
  sequences = config.learner.micro_batch * config.rollout.group_size
  return math.ceil(sequences / work.fsdp)


def with_shape(work: Workload, shape: DecoderShape) -> Workload:
  """The same workload of another model."""
  return dataclasses.replace(work, shape=shape)


_INF = float("inf")
_COUNTS = (
  "generated",
  "updates",
  "mesh.tp",
  "rollout.tasks",
  "rollout.step_limit",
  "rollout.prompt",
  "rollout.response",
  "rollout.conversation",
  "rollout.concurrent",
  "learner.mini_batch",
  "learner.micro_batch",
  "eval.every",
  "eval.trajectories",
  "checkpoint.every",
  "checkpoint.keep",
  "distributed.processes",
)
_RANGES = (
  *((path, 1, _INF) for path in _COUNTS),
  ("seed", 0, 2**31 - 1),
  ("eval.seed", 0, 2**31 - 1),
  ("lora.rank", 0, _INF),
  ("rollout.group_size", 2, _INF),
  ("rollout.history", 0, _INF),
  ("rollout.temperature", 1e-6, _INF),
  ("eval.temperature", 0, _INF),
  ("reward.invalid_penalty", 0, _INF),
  ("learner.kl", 0, _INF),
  ("distributed.process", 0, _INF),
)
_POSITIVE = (
  "lora.alpha",
  "reward.success",
  "learner.learning_rate",
  "learner.max_grad_norm",
  "learner.clip",
)
_CHOICES = {
  "task": ("alfworld", "webshop", "sokoban"),
  "model.name": tuple(SHAPES),
  "model.dtype": tuple(FLOATS),
  "model.param_dtype": tuple(FLOATS),
  "model.remat": REMATS,
  "rollout.layout": LAYOUTS,
  "rollout.engine": ENGINES,
}
