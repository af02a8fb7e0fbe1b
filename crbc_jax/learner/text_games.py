"""Text games to train and evaluate on, whichever environment they are of."""

import dataclasses
import functools
import hashlib
import json
import operator
from collections.abc import Callable, Iterable
from typing import Any

import ml_collections
import numpy as np

from crbc_jax import specs
from crbc_jax.envs.text import TextEnv
from crbc_jax.learner.config import ConfigError


@dataclasses.dataclass(frozen=True, eq=False)
class TextGames:
  """A list of games; satisfies `task.Levels`."""

  ids: tuple[str, ...]
  make: tuple[Callable[[], TextEnv], ...]  # a new episode of each game
  tags: tuple[tuple[str, ...], ...]  # what success is reported by
  content: tuple[str, ...]  # changes with what there is in a game

  def __len__(self) -> int:
    return len(self.ids)

  @property
  def digest(self) -> str:
    """Of ids and content."""
    text = json.dumps([self.ids, self.content])
    return hashlib.sha256(text.encode()).hexdigest()

  def __add__(self, other: "TextGames") -> "TextGames":
    return TextGames(
      self.ids + other.ids,
      self.make + other.make,
      self.tags + other.tags,
      self.content + other.content,
    )

  def take(self, index: Iterable[int]) -> "TextGames":
    """The games at these places."""
    index = list(index)
    return TextGames(
      ids=tuple(self.ids[i] for i in index),
      make=tuple(self.make[i] for i in index),
      tags=tuple(self.tags[i] for i in index),
      content=tuple(self.content[i] for i in index),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class GameSource:
  """Training games, the held-out panel, and who shows how it is done."""

  train: TextGames
  panel: TextGames
  expert: Callable[[Any], str]
  note: str  # one line about where the games come from


def open_games(config: ml_collections.ConfigDict) -> GameSource:
  """The games of a config: those of its data, or generated ones.

  `config.task` may be an import path, "my_module:open_games", of a function
  from the `text` section of the config to a GameSource.

  Raises:
    ConfigError: no such function, or it returns something else.
  """
  known = {"alfworld": _alfworld, "webshop": _webshop}
  if config.task in known:
    source = known[config.task](config.text)
  elif config.task == "sokoban_text":
    source = _sokoban(config)
  else:
    try:
      source = specs.import_function("games", config.task)(config.text)
    except (ValueError, TypeError) as error:
      raise ConfigError(f"config.task {config.task!r}: {error}") from error
    if not isinstance(source, GameSource):
      raise ConfigError(
        f"config.task {config.task!r} must return a text_games.GameSource, got"
        f" {type(source).__name__}"
      )
  return dataclasses.replace(source, panel=_spread(source.panel, config.panel))


def _alfworld(text: ml_collections.ConfigDict) -> GameSource:
  """Games of the release by split and some generated ones, or those alone.

  A bundle may hold valid_train in place of train, a sample of it.
  """
  from crbc_jax.envs import alfworld

  data, generated = text.data, text.generated

  if text.scenes and data and not text.added:
    raise ConfigError(
      f"config.text.scenes is {text.scenes}: only generated games share scenes;"
      " leave config.text.data empty or set config.text.added"
    )

  def made(count):
    try:
      return alfworld.generate_games(count, seed=0, scenes=text.scenes)
    except ValueError as error:
      raise ConfigError(f"config.text.scenes: {error}") from error

  def listed(games, split):
    return TextGames(
      ids=tuple(game.id for game in games),
      make=tuple(functools.partial(alfworld.AlfworldEnv, g) for g in games),
      tags=tuple((split, game.task_type) for game in games),
      content=tuple(_content(game) for game in games),
    )

  if not data:
    count = max(generated // 4, 6)
    games = made(generated + count)
    return GameSource(
      train=listed(games[:generated], "train"),
      panel=listed(games[generated:], "generated"),
      expert=alfworld.expert_command,
      note=f"no --config.text.data: {generated} generated ALFWorld games to"
      f" train on and {count} held out",
    )
  splits: dict[str, list] = {}
  for game in alfworld.load_games(data):
    splits.setdefault(game.split, []).append(game)
  training = "train" if "train" in splits else "valid_train"
  held_out = [name for name in ("valid_seen", "valid_unseen") if name in splits]
  if training not in splits or not held_out:
    raise alfworld.GameError(
      data,
      "must hold games to train on (train or valid_train) and to be evaluated"
      f" on (valid_seen, valid_unseen); it holds {', '.join(splits)}",
    )
  panel = [listed(splits[name], name) for name in held_out]
  counts = [f"{len(splits[x])} {x}" for x in (training, *held_out)]
  if text.added:
    counts.append(f"{text.added} generated to train on")
  added = listed(made(text.added), "generated")
  return GameSource(
    train=listed(splits[training], training) + added,
    panel=functools.reduce(operator.add, panel),
    expert=alfworld.expert_command,
    note=f"ALFWorld games of {data}: " + ", ".join(counts),
  )


def _content(game) -> str:
  """What an ALFWorld game is: its task, and what there is at the start."""
  from crbc_jax.envs.alfworld import AlfworldEnv

  env = AlfworldEnv(game)
  return json.dumps([game.goal, env.reset().text, env.keys().state])


def _webshop(text: ml_collections.ConfigDict) -> GameSource:
  """Goals by upstream's split, in a shop of the data or a generated one."""
  data, generated = text.data, text.generated
  if text.added:
    raise ConfigError(
      f"config.text.added is {text.added}: only ALFWorld's games can be added"
      " to; a shop has thousands of goals"
    )
  if text.scenes:
    raise ConfigError(
      f"config.text.scenes is {text.scenes}: only ALFWorld's games have scenes"
    )
  try:
    from crbc_jax.envs import webshop
  except ImportError as error:  # an extra is not installed: says which
    raise ConfigError(f"config.task: {error}") from error

  shop = (
    webshop.load_shop(data)
    if data
    else webshop.generate_shop(0, num_products=generated)
  )

  def listed(split):
    goals = shop.split(split)
    return TextGames(
      ids=tuple(goal.goal_id for goal in goals),
      make=tuple(
        functools.partial(webshop.WebshopEnv, shop, goal) for goal in goals
      ),
      tags=tuple((goal.category,) for goal in goals),
      content=tuple(map(repr, goals)),
    )

  train, panel = listed("train"), listed("eval")
  origin = (
    f"WebShop products of {data}"
    if data
    else (f"no --config.text.data: a shop of {generated} generated products")
  )
  return GameSource(
    train=train,
    panel=panel,
    expert=webshop.expert_command,
    note=f"{origin}, {len(train):,} goals to train on and {len(panel):,} held"
    " out",
  )


def _sokoban(config: ml_collections.ConfigDict) -> GameSource:
  """The levels of the Sokoban task, as text."""
  from crbc_jax.envs.sokoban_text import SokobanTextEnv
  from crbc_jax.learner import task

  def listed(levels):
    return TextGames(
      ids=levels.ids,
      make=tuple(
        functools.partial(SokobanTextEnv, levels, i) for i in range(len(levels))
      ),
      tags=(("sokoban",),) * len(levels),
      content=tuple(levels.text(i) for i in range(len(levels))),
    )

  train, panel = map(listed, task.level_sets(config))
  return GameSource(
    train=train, panel=panel, expert=SokobanTextEnv.shortest, note=""
  )


def _spread(games: TextGames, count: int) -> TextGames:
  """At most `count` games, evenly over the list."""
  if len(games) <= count:
    return games
  return games.take(np.arange(count) * len(games) // count)
