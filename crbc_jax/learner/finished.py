"""A finished run looked at: evaluate a checkpoint, play one episode."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import ml_collections
import numpy as np

from crbc_jax.envs import sokoban_levels
from crbc_jax.envs.sokoban import Level, State
from crbc_jax.learner import loop, task, text_collect, training_step
from crbc_jax.learner.agent_task import AgentTask
from crbc_jax.learner.checkpoint import Checkpoints
from crbc_jax.policies.text import pad_tokens
from crbc_jax.types import Boundary


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
  """One episode of a trained agent."""

  name: str  # id of the level
  level: Level
  states: State  # leaves [T + 1, ...]
  actions: np.ndarray  # [T] int
  outcome: str  # "success" or "truncated"
  width: int


def evaluate_run(
  run_dir: str | pathlib.Path,
  *,
  update: int | None = None,
  levels: str | None = None,
) -> dict[str, Any]:
  """Greedy and sampled success of a checkpoint.

  Args:
    run_dir: the run folder.
    update: which checkpoint; the last by default.
    levels: file or folder to evaluate on; the run's own panel by default.

  Returns:
    success_greedy, success_sampled, length_greedy, length_sampled, and update,
    count and sha256 of the levels.

  Raises:
    RunError, CheckpointError, LevelError: with what to do.
  """
  config, current, state, update = load_run(run_dir, update)
  if levels:
    if config.task != "sokoban":
      raise loop.RunError(
        f"{run_dir} plays {config.task}: levels are of Sokoban; evaluate it on"
        " its own panel"
      )
    current = dataclasses.replace(current, panel=_fitting(levels, current))
  found = current.panel_fn(config)(state.params)
  return {
    **found,
    "update": update,
    "count": len(current.panel),
    "sha256": current.panel.digest,
  }


def play_episode(
  run_dir: str | pathlib.Path,
  index: int,
  *,
  sampled: bool = False,
  seed: int = 0,
) -> Episode:
  """Plays level `index` of the run's panel with its last checkpoint."""
  _, current, state, _ = load_run(run_dir, None)
  if not isinstance(current, task.Task):
    raise loop.RunError(f"{run_dir} plays text games: see `play_text`")
  level, name = _pick(current.panel, index)
  env = current.env
  step = jax.jit(env.step)
  logits_of = jax.jit(current.logits_fn)
  now, key = env.reset(level), jax.random.key(seed)
  states, boundary = [now], Boundary.NONE
  actions: list[int] = []
  while boundary == Boundary.NONE:
    action_key, env_key = jax.random.split(
      jax.random.fold_in(key, len(actions))
    )
    logits = logits_of(state.params, level, now)
    action = int(
      jax.random.categorical(action_key, logits)
      if sampled
      else np.argmax(logits)
    )
    after = step(level, now, np.int32(action), env_key)
    now, boundary = after.state, Boundary(int(after.boundary))
    states.append(now)
    actions.append(action)
  stacked = jax.tree.map(lambda *x: np.stack(x), *states)
  return Episode(
    name=name,
    level=level,
    states=stacked,
    actions=np.array(actions),
    outcome=boundary.name.lower(),
    width=env.width,
  )


def play_text(
  run_dir: str | pathlib.Path,
  index: int,
  *,
  sampled: bool = False,
  seed: int = 0,
) -> Iterator[str]:
  """Plays game `index` of the panel of a text run; yields lines to read."""
  config, current, state, _ = load_run(run_dir, None)
  games = current.panel
  if not 0 <= index < len(games):
    raise loop.RunError(
      f"game {index} does not exist: there are {len(games)}, from 0"
    )
  yield f"game {games.ids[index]}"
  if isinstance(current, AgentTask):
    yield from _play_agent(config, current, state.params, index, sampled, seed)
    return
  act = text_collect.make_act_fn(current.logits_fn, greedy=not sampled)
  key = jax.random.key(seed)
  episode = text_collect.begin(games.make[index], current.sizes.vocabulary)
  goals = pad_tokens([episode.env.goal], current.sizes)
  yield episode.now.text
  for t in range(config.text.step_limit):
    recorder = text_collect.Recorder(current.sizes)
    rows = recorder.rows([episode])
    states = recorder.states(rows, text_collect.width_of(rows))
    choice, _ = act(state.params, goals, states, jax.random.fold_in(key, t))
    command = episode.now.commands[int(choice[0])]
    episode.play(command)
    yield f"> {command}"
    yield episode.now.text
    if episode.now.boundary != Boundary.NONE:
      break
  end = episode.now.boundary or Boundary.TRUNCATED
  yield f"{Boundary(end).name.lower()} after {t + 1} steps"


def _play_agent(
  config, current: AgentTask, params, index: int, sampled: bool, seed: int
) -> Iterator[str]:
  """What a language model was shown and what it said, step by step."""
  (rollout,) = current.play(
    config,
    params,
    [current.panel.make[index]],
    jax.random.key(seed),
    greedy=not sampled,
  )
  for turn in rollout.turns:
    shown = current.speaker.tokenizer.decode(turn.prompt.tolist())
    yield f"{shown} {turn.text}" + ("" if turn.valid else "  (invalid)")
  end = Boundary(turn.boundary)
  yield f"{end.name.lower()} after {len(rollout.turns)} steps"


def one_level(path: str, index: int) -> tuple[Level, int, str]:
  """Level `index` of a file or folder, its grid width and its id."""
  levels = sokoban_levels.read_levels(path)
  level, name = _pick(levels, index)
  return level, levels.width, name


def load_run(
  run_dir: str | pathlib.Path, update: int | None
) -> tuple[ml_collections.ConfigDict, Any, Any, int]:
  """Config, task, learner state and update of a checkpoint (None: the last).

  Raises:
    RunError, CheckpointError, LevelError: with what to do.
  """
  config = loop.read_config(pathlib.Path(run_dir))
  current = task.make_task(config)
  with Checkpoints(
    pathlib.Path(run_dir) / "checkpoints", read_only=True
  ) as checkpoints:
    state, progress = checkpoints.restore(
      training_step.initial_state(config, current), update
    )
  return config, current, state, progress["update"]


def _fitting(path: str, current: task.Task) -> sokoban_levels.LevelSet:
  levels = sokoban_levels.read_levels(path)
  _, levels = sokoban_levels.match_sizes(current.panel, levels)
  env = current.env
  if (levels.height, levels.width, levels.num_boxes) != (
    env.height,
    env.width,
    env.boxes,
  ):
    raise loop.RunError(
      f"{path}: {levels.height}x{levels.width} levels with up to "
      f"{levels.num_boxes} boxes do not fit the run's {env.height}x"
      f"{env.width} with {env.boxes}"
    )
  return task.unsolved(levels, str(path))


def _pick(levels: sokoban_levels.LevelSet, index: int) -> tuple[Level, str]:
  if not 0 <= index < len(levels):
    raise sokoban_levels.LevelError(
      f"level {index} does not exist: there are {len(levels)}, from 0"
    )
  return (
    jax.tree.map(lambda x: x[0], levels.take([index]).as_levels()),
    levels.ids[index],
  )
