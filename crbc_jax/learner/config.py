"""The training configuration: defaults, meaning, and strict validation.

`get_config()` makes this file a config file of its own: it is what
`crbc train` uses when no `--config` is given.
"""

import pathlib
from typing import Any

import ml_collections

from crbc_jax.agents.prompts import TEMPLATES
from crbc_jax.checks import suggestion
from crbc_jax.credit import registry
from crbc_jax.envs.sokoban import REWARDS, STATE_KEYS
from crbc_jax.learner import branching
from crbc_jax.learner.row_losses import RATIOS
from crbc_jax.learner.update import ADVANTAGE_SCALES, AGGREGATIONS


class ConfigError(ValueError):
  """A configuration that cannot be run; one line that says what to change."""


def get_config() -> ml_collections.ConfigDict:
  """Defaults: CRBC on generated 6x6 levels with one box, 500,000 steps."""
  c = ml_collections.ConfigDict
  return c(
    {
      "seed": 0,
      # Or "sokoban_text", "alfworld", "webshop": see `text`; or
      # "my_module:open_games".
      "task": "sokoban",
      # "crbc", "grpo", ...; options in brackets: "crbc(depth=2, w_step=1.0)".
      # "vineppo" and "elpo" play extra rollouts for their credit.
      "estimator": "crbc",
      # Budget; counts steps that were really played, also in extra rollouts.
      "env_steps": 500_000,
      # Level file or folder (XSB / Boxoban). Empty: generate, see `generator`.
      "levels": "",
      # Held-out levels. Empty: generated, or every 10th layout of `levels`.
      "held_out": "",
      "panel": 1_024,  # held-out levels evaluated, at most
      "env": c(
        {
          "step_limit": 30,
          "slip": 0.0,  # probability of a uniformly random move
          "reward": "sparse",  # or "shaped", "distance"
          "state_keys": "exact",  # or "player": aliased, without the boxes
        }
      ),
      # Only read by the text games, as `env` and `generator` by Sokoban.
      "text": c(
        {
          # Folder or bundle of games or products. Empty: generated ones.
          "data": "",
          "generated": 200,  # games to generate (webshop: products)
          "added": 0,  # generated games to train on beside those of `data`
          # Rooms that ALFWorld's generated games share; 0: each has its own.
          "scenes": 0,
          "step_limit": 50,
          "state_key": "state",  # or "history", "text": the anchors
          # Scores the admissible commands; or "decoder", a language model
          # that writes them, see `decoder`.
          "policy": "scorer",
          "width": 64,  # of the word embedding
          "hidden": 128,
          "vocabulary": 4_096,
          # Tokens that are read of each text.
          "observation": 96,
          "goal": 24,
          "command": 10,
          # Behaviour cloning from the expert before training.
          "demonstrations": 200,  # episodes; 0 = none
          "noise": 0.3,  # share of random commands in them
          "clone_epochs": 4,
          "clone_learning_rate": 1e-3,
          "clone_minibatch": 256,
          "clone_decay": False,  # of the learning rate, after a warm-up
          "clone_invalid": 0.0,  # share of inadmissible commands, see decoder
          "clone_seed": 0,  # one clone for all seeds of a comparison
        }
      ),
      # A language model over bytes; read where text.policy is "decoder".
      "decoder": c(
        {
          "layers": 3,
          "width": 96,
          "heads": 4,
          "window": 1,  # bytes that each position is embedded from
          "template": "short",  # of agents.prompts
          "prompt": 256,  # bytes; of a longer prompt the end is kept
          "response": 32,  # bytes, at most
          "temperature": 1.0,  # of training and of the sampled evaluation
          "invalid_penalty": 0.1,  # taken from the reward of the step
          "ratio": "token",  # or "step": the geometric mean of its tokens
          "folder": "clones",  # where clones are kept and reused; "" = nowhere
        }
      ),
      "generator": c(
        {
          "folder": "levels",  # where generated levels are kept and reused
          "size": (6, 6),  # with the outer wall
          "boxes": 1,
          "inner_walls": (0, 5),
          "optimal_length": (3, 20),
          "layouts": 1_500,
          "held_out_layouts": 128,
          "starts_per_layout": 8,
          "seed": 0,
        }
      ),
      "policy": c(
        {
          "hidden": (256, 256),
          "crop_radius": 0,  # cells seen in each direction; 0 = whole board
        }
      ),
      "rollout": c(
        {
          "levels": 64,  # P, task groups of an update
          "group_size": 8,  # G, rollouts of a group
        }
      ),
      "learner": c(
        {
          "learning_rate": 1e-3,
          "minibatch": 1_024,
          "epochs": 2,
          "accumulation": 1,  # parts of a minibatch, for less memory
          "clip": 0.2,
          "entropy": 0.01,
          "kl": 0.0,  # weight of k3 KL to the initial policy
          "max_grad_norm": 1.0,
          "aggregation": "step",  # or "trajectory", "constant"
          "advantage_scale": "rms",  # or "standardise", "none"
          # Only read where the estimator needs a critic ("gae").
          "critic_learning_rate": 1e-3,
          "value_clip": 0.2,  # in units of the values; inf = no clip
        }
      ),
      "eval": c(
        {
          "every": 50_000,  # env steps between evaluations
          "seed": 0,  # of the sampled evaluation
        }
      ),
      "checkpoint": c(
        {
          "every": 100_000,  # env steps between checkpoints
          "keep": 3,
        }
      ),
      "tensorboard": True,
    }
  )


def flat_items(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Every value by its dotted key, in order."""
  items: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, ml_collections.ConfigDict):
      items |= {f"{key}.{k}": v for k, v in flat_items(value).items()}
    else:
      items[key] = value
  return items


def changes(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """What a config changes from the defaults, by dotted key."""
  standard = flat_items(get_config())
  return {k: v for k, v in flat_items(config).items() if v != standard[k]}


def set_value(config: ml_collections.ConfigDict, key: str, value: Any) -> None:
  """Sets one value by its dotted key.

  Raises:
    ConfigError: no such key.
  """
  if key not in flat_items(config):
    raise ConfigError(f"unknown config key {key!r}")
  *sections, last = key.split(".")
  for section in sections:
    config = config[section]
  config[last] = value


def with_absolute_paths(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """A copy whose files are found from any folder: levels, data, clones."""
  config = config.copy_and_resolve_references()
  for key in (
    "levels",
    "held_out",
    "generator.folder",
    "text.data",
    "decoder.folder",
  ):
    value = flat_items(config)[key]
    if value:
      set_value(config, key, str(pathlib.Path(value).absolute()))
  return config


def load_config(values: dict[str, Any]) -> ml_collections.ConfigDict:
  """The config saved with a run, from its JSON; validated.

  Keys that came later get their defaults, which is what such a run had.
  """
  standard = get_config().to_dict()
  values = {key: standard[key] for key in _LATER_SECTIONS} | values
  for section, keys in _LATER_KEYS.items():
    saved = values.get(section)
    if isinstance(saved, dict):
      added = {key: get_config()[section][key] for key in keys}
      values = values | {section: added | saved}
  config = ml_collections.ConfigDict(_tuples(values))
  validate(config)
  return config


def validate(config: ml_collections.ConfigDict) -> None:
  """Checks names, types, ranges and combinations.

  Raises:
    ConfigError: names the key and says what it may be.
  """
  check_tree(config, get_config(), "config")
  for path, low, high in _RANGES:
    value = _get(config, path)
    if not low <= value <= high:
      bound = f"at least {low:g}" if high == _INF else f"in [{low:g}, {high:g}]"
      raise ConfigError(f"config.{path} must be {bound}, got {value!r}")
  for path, choices in _CHOICES:
    value = _get(config, path)
    imported = path == "task" and value.count(":") == 1
    if value not in choices and not imported:
      raise ConfigError(
        f"config.{path} must be one of {', '.join(choices)}; got {value!r}"
      )
  for path, length in _LENGTHS:
    value = _get(config, path)
    wrong_length = length is not None and len(value) != length
    if (
      wrong_length
      or not value
      or any(not _is_a(x, int) or x < 0 for x in value)
    ):
      wanted = "whole numbers" if length is None else f"{length} whole numbers"
      raise ConfigError(
        f"config.{path} must be a tuple of {wanted}, for example"
        f' "{_get(get_config(), path)}"; got {value!r}'
      )
  for key in ("learning_rate", "critic_learning_rate"):
    if not 0 < config.learner[key] < _INF:
      raise ConfigError(
        f"config.learner.{key} must be > 0 and finite, got "
        f"{config.learner[key]!r}"
      )
  if config.learner.minibatch % config.learner.accumulation:
    raise ConfigError(
      f"config.learner.accumulation is {config.learner.accumulation}: it must"
      f" divide learner.minibatch, {config.learner.minibatch}"
    )
  if config.decoder.width % (2 * config.decoder.heads):
    raise ConfigError(
      f"config.decoder.width is {config.decoder.width}: it must be a multiple"
      f" of twice decoder.heads, {config.decoder.heads}"
    )
  if config.held_out and not config.levels:
    raise ConfigError(
      "config.held_out is set but config.levels is not:"
      " generated levels come with their own held-out set"
    )
  try:
    name, options = registry.parse_estimator(config.estimator)
    if name in branching.BRANCHING:
      branching.check_branching(name, options)
    else:
      registry.make_estimator(name, **options)
  except (ValueError, TypeError) as error:
    raise ConfigError(f"config.estimator: {error}") from error


_INF = float("inf")
_LATER_SECTIONS = ("task", "text", "decoder")
_LATER_KEYS = {
  "learner": ("critic_learning_rate", "value_clip", "accumulation"),
  "env": ("state_keys",),
  "text": (
    "added",
    "scenes",
    "policy",
    "clone_minibatch",
    "clone_decay",
    "clone_invalid",
  ),
  "decoder": ("window",),
}
_RANGES = (
  ("env_steps", 1, _INF),
  ("seed", 0, 2**31 - 1),
  ("panel", 1, _INF),
  ("env.step_limit", 1, _INF),
  ("env.slip", 0, 1),
  ("text.generated", 1, _INF),
  ("text.added", 0, _INF),
  ("text.scenes", 0, _INF),
  ("text.step_limit", 1, _INF),
  ("text.width", 1, _INF),
  ("text.hidden", 2, _INF),
  ("text.vocabulary", 2, _INF),
  ("text.observation", 1, _INF),
  ("text.goal", 1, _INF),
  ("text.command", 1, _INF),
  ("text.demonstrations", 0, _INF),
  ("text.noise", 0, 1),
  ("text.clone_invalid", 0, 1),
  ("text.clone_epochs", 1, _INF),
  ("text.clone_learning_rate", 1e-9, _INF),
  ("text.clone_minibatch", 1, _INF),
  ("text.clone_seed", 0, 2**31 - 1),
  ("decoder.layers", 1, _INF),
  ("decoder.width", 2, _INF),
  ("decoder.heads", 1, _INF),
  ("decoder.window", 1, _INF),
  ("decoder.prompt", 8, _INF),
  ("decoder.response", 2, _INF),
  ("decoder.temperature", 1e-3, _INF),
  ("decoder.invalid_penalty", 0, _INF),
  ("generator.boxes", 1, _INF),
  ("generator.layouts", 1, _INF),
  ("generator.held_out_layouts", 1, _INF),
  ("generator.seed", 0, _INF),
  ("generator.starts_per_layout", 1, _INF),
  ("policy.crop_radius", 0, _INF),
  ("rollout.levels", 1, _INF),
  ("rollout.group_size", 2, _INF),
  ("learner.minibatch", 1, _INF),
  ("learner.epochs", 1, _INF),
  ("learner.accumulation", 1, _INF),
  ("learner.clip", 1e-6, _INF),
  ("learner.entropy", 0, _INF),
  ("learner.kl", 0, _INF),
  ("learner.max_grad_norm", 1e-9, _INF),
  ("learner.value_clip", 1e-6, _INF),
  ("eval.every", 1, _INF),
  ("eval.seed", 0, 2**31 - 1),
  ("checkpoint.every", 1, _INF),
  ("checkpoint.keep", 1, _INF),
)
_CHOICES = (
  ("task", ("sokoban", "sokoban_text", "alfworld", "webshop")),
  ("text.policy", ("scorer", "decoder")),
  ("decoder.template", tuple(TEMPLATES)),
  ("decoder.ratio", RATIOS),
  ("text.state_key", ("state", "history", "text")),
  ("env.reward", REWARDS),
  ("env.state_keys", STATE_KEYS),
  ("learner.aggregation", AGGREGATIONS),
  ("learner.advantage_scale", ADVANTAGE_SCALES),
)
_LENGTHS = (
  ("generator.size", 2),
  ("generator.inner_walls", 2),
  ("generator.optimal_length", 2),
  ("policy.hidden", None),
)


def check_tree(config, default, path: str) -> None:
  """Refuses keys and types that the defaults do not have.

  Raises:
    ConfigError: names the key, and the nearest known one.
  """
  for key in config:
    if key not in default:
      raise ConfigError(
        f"unknown key {path}.{key}{suggestion(key, default)}; known: "
        f"{', '.join(default)}"
      )
  for key, standard in default.items():
    if key not in config:
      raise ConfigError(f"missing key {path}.{key} (default {standard!r})")
    value, where = config[key], f"{path}.{key}"
    if isinstance(standard, ml_collections.ConfigDict):
      if not isinstance(value, ml_collections.ConfigDict):
        raise ConfigError(f"{where} must be a section, got {value!r}")
      check_tree(value, standard, where)
    elif not _is_a(value, type(standard)):
      raise ConfigError(
        f"{where} must be {type(standard).__name__} "
        f"(default {standard!r}), got {value!r}"
      )


def _is_a(value, kind: type) -> bool:
  if kind is float:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
  if kind is int:
    return isinstance(value, int) and not isinstance(value, bool)
  return isinstance(value, kind)


def _get(config, path: str):
  for part in path.split("."):
    config = config[part]
  return config


def _tuples(value):
  if isinstance(value, dict):
    return {k: _tuples(v) for k, v in value.items()}
  return tuple(value) if isinstance(value, list) else value
