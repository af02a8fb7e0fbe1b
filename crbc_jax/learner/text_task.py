"""Text games as a task of the learner: policy, rollouts, evaluation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.learner import cloning, text_collect
from crbc_jax.learner.collect import Rollouts
from crbc_jax.learner.config import ConfigError
from crbc_jax.learner.row_losses import RowLoss, make_action_loss
from crbc_jax.learner.task import CollectFn
from crbc_jax.learner.text_games import GameSource, TextGames, open_games
from crbc_jax.policies.text import TextSizes, make_text_policy
from crbc_jax.types import Boundary


@dataclasses.dataclass(frozen=True, eq=False)
class TextTask:
  """Games and policy of one run; satisfies `task.TaskLike`."""

  train: TextGames
  panel: TextGames
  sizes: TextSizes
  params: Any  # initial parameters: random, or cloned from the expert
  logits_fn: Callable[..., Any]
  note: str  # where the games come from
  critic_params: Any = ()
  value_fn: None = None

  @property
  def num_actions(self) -> int:
    """Any number of distinct commands at an anchor."""
    return 1 << 16

  def collect_fn(self, config: ml_collections.ConfigDict) -> CollectFn:
    """Rollouts of the games drawn."""
    collect = self._collect(config, group_size=config.rollout.group_size)

    def collect_drawn(params, drawn, key):
      return collect(params, self.train.take(drawn).make, key)

    return collect_drawn

  def panel_fn(
    self, config: ml_collections.ConfigDict
  ) -> Callable[[Any], dict[str, float]]:
    """`evaluate(params)`: success, score and steps, greedy and sampled.

    The score is the reward of an episode; success is also given for each tag
    of the games (split, type of task).
    """
    key = jax.random.key(config.eval.seed)
    players = {
      name: self._collect(config, group_size=1, greedy=name == "greedy")
      for name in ("greedy", "sampled")
    }

    def evaluate_panel(params):
      metrics: dict[str, float] = {}
      for name, play in players.items():
        _, found = play(params, self.panel.make, key)
        metrics |= panel_metrics(self.panel, found, name)
      return metrics

    return evaluate_panel

  def row_loss(self, **options: float) -> RowLoss:
    """Of the choice among the admissible commands."""
    return make_action_loss(self.logits_fn, **options)

  def _collect(self, config, *, group_size: int, greedy: bool = False):
    return text_collect.make_text_collect_fn(
      self.logits_fn,
      self.sizes,
      group_size=group_size,
      step_limit=config.text.step_limit,
      state_key=config.text.state_key,
      greedy=greedy,
    )


def panel_metrics(
  panel: TextGames, found: Rollouts, name: str
) -> dict[str, float]:
  """Success, mean steps and score of one episode on each game of the panel.

  Success is also given for each tag of the games.

  Args:
    panel: P games.
    found: [P, 1, T].
    name: "greedy" or "sampled", the end of the metrics' names.
  """
  won = (found.boundary == Boundary.SUCCESS).any(axis=(1, 2))
  metrics = {
    f"success_{name}": float(won.mean()),
    f"length_{name}": float(found.mask.sum(axis=(1, 2)).mean()),
    f"score_{name}": float(found.reward.sum(axis=(1, 2)).mean()),
  }
  tagged: dict[str, list[int]] = {}
  for i, tags in enumerate(panel.tags):
    for tag in tags:
      tagged.setdefault(tag, []).append(i)
  for tag, index in tagged.items():
    metrics[f"success_{name}/{tag}"] = float(won[index].mean())
  return metrics


def check_estimator(estimator: str) -> None:
  """Refuses what text games cannot do.

  Raises:
    ConfigError: an estimator that needs a critic, or states restored.
  """
  name, _ = registry.parse_estimator(estimator)
  if name in registry.NEED_RESTORING or registry.lookup(name).needs_critic:
    raise ConfigError(
      f"config.estimator: {name!r} needs a critic or extra rollouts, which are"
      " there for Sokoban only"
    )


def make_text_task(config: ml_collections.ConfigDict) -> TextTask:
  """Opens or generates games, builds the policy and clones the expert.

  The clone depends on `text.clone_seed` and not on the seed of the run, so
  that runs of a comparison begin from the same policy.

  Raises:
    GameError, ShopError: games or products cannot be read.
    ConfigError: an estimator that needs a critic, or states restored.
  """
  check_estimator(config.estimator)
  source = open_games(config)
  text = config.text
  sizes = TextSizes(text.vocabulary, text.observation, text.goal, text.command)
  params, logits_fn = make_text_policy(
    sizes, width=text.width, hidden=text.hidden, seed=text.clone_seed
  )
  if text.demonstrations:
    params = _cloned(params, logits_fn, source, sizes, text)
  return TextTask(
    train=source.train,
    panel=source.panel,
    sizes=sizes,
    params=jax.tree.map(np.asarray, params),
    logits_fn=logits_fn,
    note=source.note,
  )


def _cloned(params, logits_fn, source: GameSource, sizes: TextSizes, text):
  shown = cloning.demonstrate(
    source.train.make,
    source.expert,
    sizes,
    episodes=text.demonstrations,
    noise=text.noise,
    step_limit=text.step_limit,
    seed=text.clone_seed,
  )
  return cloning.clone(
    params,
    logits_fn,
    shown,
    epochs=text.clone_epochs,
    learning_rate=text.clone_learning_rate,
    minibatch=text.clone_minibatch,
    seed=text.clone_seed,
  )
