"""What a rollout spends its time on: environment, policy, recording texts.

A rollout is collected, then its environment is played again with the same
actions, and the policy applied again to the same states; what neither of the
two takes is left for the rest. Sokoban plays on the device inside one program,
so there the rest is the policy.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.learner import text_collect
from crbc_jax.learner.collect import Rollouts
from crbc_jax.rollouts.batching import next_rung

PARTS = ("environment", "policy", "recording")


def rollout_parts(config, current, drawn: np.ndarray, *, rounds: int):
  """Seconds of each part in each round, the first round left out.

  Args:
    config: of the run.
    current: its task.
    drawn: [P] games or levels.
    rounds: at least 1; each collects anew with a key of its own.

  Returns:
    {part: [rounds]} with "whole"; no "recording" for Sokoban.
  """
  collect = current.collect_fn(config)
  replay = (_sokoban if config.task == "sokoban" else _text)(
    config, current, drawn
  )
  taken: dict[str, list[float]] = {}
  for number in range(rounds + 1):
    key = jax.random.key(number)
    start = time.perf_counter()
    levels, rollouts = collect(current.params, drawn, key)
    whole = time.perf_counter() - start
    found = replay(levels, rollouts)
    rest = "policy" if "policy" not in found else "recording"
    # A machine that slowed down in between could leave less than nothing.
    found[rest] = max(whole - sum(found.values()), 0.0)
    if number:
      for name, value in {**found, "whole": whole}.items():
        taken.setdefault(name, []).append(value)
  return {
    name: np.array(taken[name]) for name in (*PARTS, "whole") if name in taken
  }


def _sokoban(config, current, drawn) -> Callable[..., dict[str, float]]:
  del config, drawn
  play = make_replay_fn(current.env)

  def replay(levels, rollouts: Rollouts) -> dict[str, float]:
    jax.block_until_ready(play(levels, rollouts.action))  # compiles
    start = time.perf_counter()
    jax.block_until_ready(play(levels, rollouts.action))
    return {"environment": time.perf_counter() - start}

  return replay


def make_replay_fn(env) -> Callable[..., Any]:
  """Returns jitted `replay(levels [P], action [P, G, T])`, without a policy.

  It gives (state key, reward, boundary) of every step, leaves [T, P, G, ...].
  """

  def on_group(function):
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, 0))

  def replay(levels, action):
    start = jax.tree.map(
      lambda x: jnp.repeat(x[:, None], action.shape[1], axis=1),
      jax.vmap(env.reset)(levels),
    )

    def step(state, action):
      after = on_group(lambda level, x: env.step(level, *x))(
        levels, (state, action)
      )
      key = jax.vmap(jax.vmap(env.state_key))(state)
      return after.state, (key, after.reward, after.boundary)

    return jax.lax.scan(step, start, jnp.moveaxis(action, 2, 0))[1]

  return jax.jit(replay)


def _text(config, current, drawn) -> Callable[..., dict[str, float]]:
  games = current.train.take(drawn).make
  act = text_collect.make_act_fn(current.logits_fn)
  state_key = config.text.state_key

  def replay(goals, rollouts: Rollouts) -> dict[str, float]:
    batches = policy_batches(goals, rollouts)
    for width in {batch[1].mask.shape[1] for batch in batches}:
      same = next(b for b in batches if b[1].mask.shape[1] == width)
      _apply(act, current.params, [same])  # compiles
    return {
      "environment": play_again(games, rollouts, state_key),
      "policy": _apply(act, current.params, batches),
    }

  return replay


def _apply(act, params, batches) -> float:
  key = jax.random.key(0)
  start = time.perf_counter()
  for goals, states in batches:
    jax.block_until_ready(act(params, goals, states, key))
  return time.perf_counter() - start


def play_again(games, rollouts: Rollouts, state_key: str) -> float:
  """Seconds to make the episodes, play their commands and take their keys.

  Raises:
    AssertionError: an episode does not end where it ended before.
  """
  mask, boundary = np.asarray(rollouts.mask), np.asarray(rollouts.boundary)
  actions, group = np.asarray(rollouts.action).tolist(), mask.shape[1]
  lengths = mask.sum(axis=2).tolist()
  ends = []
  start = time.perf_counter()
  for p, make in enumerate(games):
    for g in range(group):
      env = make()
      now = env.reset()
      for choice in actions[p][g][: lengths[p][g]]:
        getattr(env.keys(), state_key)
        now = env.step(now.commands[choice])
      getattr(env.keys(), state_key)
      ends.append(int(now.boundary))
  seconds = time.perf_counter() - start
  last = np.take_along_axis(
    boundary, mask.sum(axis=2, keepdims=True) - 1, axis=2
  )
  won = np.array(ends) == 1
  assert (won == (last.reshape(-1) == 1)).all(), "another episode was played"
  return seconds


def policy_batches(goals: np.ndarray, rollouts: Rollouts) -> list[tuple]:
  """What the policy was applied to at each step, padded to P x G rows."""
  mask = np.asarray(rollouts.mask)
  size, steps = mask.shape[0] * mask.shape[1], mask.shape[2]
  states = jax.tree.map(
    lambda x: np.asarray(x).reshape(size, steps, *np.shape(x)[3:]),
    rollouts.state,
  )
  goals = np.repeat(goals, mask.shape[1], axis=0)
  alive = mask.reshape(size, steps)
  batches = []
  for t in range(steps):
    rows = np.flatnonzero(alive[:, t])
    if not len(rows):
      break
    rows = np.append(rows, np.repeat(rows[:1], size - len(rows)))
    now = jax.tree.map(lambda x: x[rows, t], states)  # noqa: B023
    width = next_rung(int(now.mask.sum(axis=1).max()), smallest=64)
    cut = {n: getattr(now, n)[:, :width] for n in ("commands", "stats", "mask")}
    batches.append((goals[rows], now.replace(**cut)))
  return batches
