"""From a config to levels, environment and policy: what a run is about.

The learner sees a task through `TaskLike` only: Sokoban's is here, that of the
text games in `text_task`.
"""

import dataclasses
import hashlib
import json
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.envs import sokoban_generator, sokoban_levels
from crbc_jax.envs.sokoban import Sokoban
from crbc_jax.envs.sokoban_levels import LevelError, LevelSet
from crbc_jax.learner import collect as collect_lib
from crbc_jax.learner import evaluate
from crbc_jax.learner.collect import Rollouts
from crbc_jax.learner.config import ConfigError
from crbc_jax.learner.row_losses import RowLoss, make_action_loss
from crbc_jax.policies.grid import (
  LogitsFn,
  ValueFn,
  make_grid_policy,
  make_grid_value,
)

_HOLD_OUT_EVERY = 10

CollectFn = Callable[..., tuple[Any, Rollouts]]
"""`collect(params, drawn [P], key)` -> what the policy sees of each level
(leaves [P, ...]), and the rollouts."""


class Levels(Protocol):
  """What is trained or evaluated on: listed, with a hash of its content."""

  @property
  def ids(self) -> Sequence[str]:
    """One for each level."""

  @property
  def digest(self) -> str:
    """Changes with any level."""

  def __len__(self) -> int: ...


class TaskLike(Protocol):
  """What the learner needs of a task."""

  @property
  def train(self) -> Levels:
    """Levels to train on."""

  @property
  def panel(self) -> Levels:
    """The fixed, listed held-out levels."""

  @property
  def num_actions(self) -> int:
    """No anchor has more distinct actions, up to the padding of a batch."""

  params: Any
  logits_fn: Callable[..., Any]
  critic_params: Any
  value_fn: Callable[..., Any] | None
  note: str  # where the levels come from, if that needs saying

  def collect_fn(self, config: ml_collections.ConfigDict) -> CollectFn:
    """How rollouts are collected."""

  def panel_fn(
    self, config: ml_collections.ConfigDict
  ) -> Callable[[Any], dict[str, float]]:
    """`evaluate(params)` on the panel, greedy and sampled."""

  def row_loss(self, **options: float) -> RowLoss:
    """What training minimises; options of `row_losses.make_action_loss`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
  """Levels, environment, policy and critic of one Sokoban run."""

  env: Sokoban
  train: LevelSet
  panel: LevelSet  # the fixed, listed held-out levels
  params: Any  # initial parameters
  logits_fn: LogitsFn
  critic_params: Any = ()  # initial ones, () where no critic is needed
  value_fn: ValueFn | None = None
  note: str = ""

  @property
  def num_actions(self) -> int:
    """Of the environment."""
    return self.env.num_actions

  def collect_fn(self, config: ml_collections.ConfigDict) -> CollectFn:
    """Rollouts on the device, from the starts of the levels drawn."""
    levels = self.train.as_levels()
    collect = collect_lib.make_collect_fn(
      self.env, self.logits_fn, group_size=config.rollout.group_size
    )

    def collect_drawn(params, drawn, key):
      batch = jax.tree.map(lambda x: x[drawn], levels)
      return batch, jax.block_until_ready(collect(params, batch, key))

    return collect_drawn

  def row_loss(self, **options: float) -> RowLoss:
    """Of the four moves."""
    return make_action_loss(self.logits_fn, **options)

  def panel_fn(
    self, config: ml_collections.ConfigDict
  ) -> Callable[[Any], dict[str, float]]:
    """`evaluate(params)`: success and mean steps, greedy and sampled."""
    key = jax.random.key(config.eval.seed)
    levels = self.panel.as_levels()
    functions = {
      name: evaluate.make_evaluate_fn(
        self.env, self.logits_fn, greedy=name == "greedy"
      )
      for name in ("greedy", "sampled")
    }

    def evaluate_panel(params):
      metrics = {}
      for name, function in functions.items():
        episodes = function(params, levels, key)
        metrics[f"success_{name}"] = float(jnp.mean(episodes.success))
        metrics[f"length_{name}"] = float(jnp.mean(episodes.length))
      return metrics

    return evaluate_panel


def make_task(config: ml_collections.ConfigDict) -> Any:
  """The task of a config, a `TaskLike`.

  Raises:
    LevelError, GameError, ShopError: levels, games or products that cannot be
      read or used.
    ConfigError: an estimator that this task cannot do.
  """
  if config.task == "sokoban":
    return make_sokoban_task(config)
  from crbc_jax.learner import agent_task, text_task

  if config.text.policy == "decoder":
    return agent_task.make_agent_task(config)
  return text_task.make_text_task(config)


def make_sokoban_task(config: ml_collections.ConfigDict) -> Task:
  """Reads or generates levels and builds environment, policy and critic.

  Levels that start solved are left out of training and of the panel.

  Raises:
    LevelError: a level file cannot be read, or nothing is left to train on.
  """
  train, held_out = level_sets(config)
  panel = held_out.take(np.arange(min(len(held_out), config.panel)))
  env = Sokoban(
    height=train.height,
    width=train.width,
    boxes=train.num_boxes,
    step_limit=config.env.step_limit,
    slip=config.env.slip,
    reward=config.env.reward,
    state_keys=config.env.state_keys,
  )
  network = {
    "hidden": config.policy.hidden,
    "radius": config.policy.crop_radius,
    "seed": config.seed,
  }
  params, logits_fn = make_grid_policy(env, **network)
  critic_params: Any = ()
  value_fn = None
  name, _ = registry.parse_estimator(config.estimator)
  if name not in registry.NEED_RESTORING and registry.lookup(name).needs_critic:
    critic_params, value_fn = make_grid_value(env, **network)
  return Task(
    env=env,
    train=train,
    panel=panel,
    params=params,
    logits_fn=logits_fn,
    critic_params=critic_params,
    value_fn=value_fn,
  )


def level_sets(
  config: ml_collections.ConfigDict,
) -> tuple[LevelSet, LevelSet]:
  """Levels to train on and held-out ones: one size, none solved at the start.

  Raises:
    LevelError: a level file cannot be read, or nothing is left.
  """
  train, held_out = sokoban_levels.match_sizes(*_level_sets(config))
  return unsolved(train, "training"), unsolved(held_out, "held-out")


def levels_at(
  cursor: int, count: int, *, num_levels: int, seed: int
) -> np.ndarray:
  """Level indices [count] of positions cursor, cursor + 1, ...

  Levels are visited in passes; each pass is a fresh permutation drawn from
  (seed, number of the pass) alone, so the cursor is all there is to remember.
  """
  position = cursor + np.arange(count)
  passes = position // num_levels
  order = {
    p: np.random.default_rng((seed, int(p))).permutation(num_levels)
    for p in np.unique(passes)
  }
  return np.array(
    [order[p][i] for p, i in zip(passes, position % num_levels, strict=True)]
  )


def generator_spec(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Arguments of `sokoban_generator.generate` in a config."""
  spec = config.generator.to_dict()
  del spec["folder"]
  return spec


def ensure_generated(
  config: ml_collections.ConfigDict,
) -> tuple[pathlib.Path, pathlib.Path]:
  """Generates the levels of a config once; returns (train, held-out) files.

  Raises:
    ConfigError: the generator cannot be asked for such levels.
    LevelError: it found too few, or the files were changed.
  """
  spec = generator_spec(config)
  digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
  height, width = spec["size"]
  name = f"{height}x{width}-{spec['boxes']}box-{digest[:8]}"
  try:
    return sokoban_generator.ensure_levels(
      pathlib.Path(config.generator.folder) / name, **spec
    )
  except LevelError:
    raise
  except ValueError as error:
    raise ConfigError(f"config.generator: {error}") from error


def _level_sets(config) -> tuple[LevelSet, LevelSet]:
  if not config.levels:
    paths = ensure_generated(config)
    return (
      sokoban_levels.read_levels(paths[0]),
      sokoban_levels.read_levels(paths[1]),
    )
  levels = sokoban_levels.read_levels(config.levels)
  if not config.held_out:
    return _split_by_layout(levels)
  held_out = sokoban_levels.read_levels(config.held_out)
  seen = set(_layout_keys(levels))
  shared = sum(key in seen for key in _layout_keys(held_out))
  if shared:
    warnings.warn(
      f"{shared} of {len(held_out)} held-out levels have a layout that is "
      "also trained on",
      stacklevel=2,
    )
  return levels, held_out


def _layout_keys(levels: LevelSet) -> list[bytes]:
  """Equal for levels with equal walls and targets up to symmetry."""
  symmetries = sokoban_generator.grid_symmetries(levels.height, levels.width)
  codes = levels.walls + 2 * levels.targets
  return [sokoban_generator.layout_key(code, symmetries) for code in codes]


def _split_by_layout(levels: LevelSet) -> tuple[LevelSet, LevelSet]:
  """Holds out every 10th layout; symmetric layouts stay together."""
  keys = _layout_keys(levels)
  number: dict[bytes, int] = {}
  layout = np.array([number.setdefault(k, len(number)) for k in keys])
  held = layout % _HOLD_OUT_EVERY == _HOLD_OUT_EVERY - 1
  if not held.any():
    raise LevelError(
      f"{len(number)} layout(s) are too few to hold some out (at least "
      f"{_HOLD_OUT_EVERY} needed); name held-out levels with "
      "--config.held_out"
    )
  return levels.take(np.flatnonzero(~held)), levels.take(np.flatnonzero(held))


def unsolved(levels: LevelSet, role: str) -> LevelSet:
  """The levels that are not solved at the start.

  Raises:
    LevelError: none is left; names `role`.
  """
  left = np.flatnonzero(~levels.solved)
  if not len(left):
    raise LevelError(f"all {role} levels are solved at the start")
  return levels.take(left)
