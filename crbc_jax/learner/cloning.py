"""Behaviour cloning: a first text policy from an expert's commands."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from crbc_jax.envs.text import TextEnv
from crbc_jax.learner import text_collect
from crbc_jax.policies import text as policy
from crbc_jax.policies.text import TextSizes, TextState
from crbc_jax.types import Boundary

_MINIBATCH = 256


class Demonstrations(NamedTuple):
  """States that were visited, and what the expert would have done there."""

  goals: np.ndarray  # [R, goal] int32
  states: TextState  # leaves [R, ...]
  choice: np.ndarray  # [R] int32, which of the commands
  success: float  # share of the episodes


def demonstrate(
  games: Sequence[Callable[[], TextEnv]],
  expert: Callable[[TextEnv], str],
  sizes: TextSizes,
  *,
  episodes: int,
  noise: float,
  step_limit: int,
  seed: int,
) -> Demonstrations:
  """Plays episodes with the expert's commands, some replaced by random ones.

  Every state is labelled with what the expert would do, so mistakes are shown
  how to be mended. States where the expert's command is not admissible (a
  search in its own words) are left out.

  Args:
    games: to play, in a random order, again from the beginning if need be.
    expert: the command it would issue now.
    sizes: lengths of the texts.
    episodes: how many.
    noise: share of commands that are random.
    step_limit: of an episode.
    seed: of the order and the noise.
  """
  rng = np.random.default_rng(seed)
  recorder = text_collect.Recorder(sizes)
  order = np.concatenate(
    [rng.permutation(len(games)) for _ in range(-(-episodes // len(games)))]
  )[:episodes]
  rows, goals, choices, wins = [], [], [], 0
  for number in order:
    episode = text_collect.begin(games[number], sizes.vocabulary)
    for _ in range(step_limit):
      wanted = expert(episode.env)
      command = wanted
      if wanted in episode.now.commands:
        rows += recorder.rows([episode])
        goals.append(episode.env.goal)
        choices.append(episode.now.commands.index(wanted))
        if rng.random() < noise:
          command = episode.now.commands[
            rng.integers(len(episode.now.commands))
          ]
      episode.play(command)
      if episode.now.boundary != Boundary.NONE:
        break
    wins += episode.now.boundary == Boundary.SUCCESS
  states = recorder.states(rows, text_collect.width_of(rows))
  return Demonstrations(
    policy.pad_tokens(goals, sizes),
    states,
    np.array(choices, np.int32),
    wins / len(order),
  )


def clone(
  params: Any,
  logits_fn: Callable[..., Any],
  shown: Demonstrations,
  *,
  epochs: int,
  learning_rate: float,
  seed: int,
) -> Any:
  """Parameters after maximising the likelihood of the expert's commands.

  Args:
    params: to begin with.
    logits_fn: of `text.make_text_policy`.
    shown: the demonstrations, R rows.
    epochs: passes over them.
    learning_rate: of Adam.
    seed: of the shuffling.
  """
  optimizer = optax.adam(learning_rate)
  rows = jax.tree.map(jnp.asarray, (shown.goals, shown.states, shown.choice))
  count = len(shown.choice)
  size = min(_MINIBATCH, count)

  def loss_fn(params, goals, states, choice):
    logits = jax.vmap(logits_fn, in_axes=(None, 0, 0))(params, goals, states)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, choice)
    return losses.mean()

  def minibatch(carry, index):
    params, opt_state = carry
    grads = jax.grad(loss_fn)(params, *jax.tree.map(lambda x: x[index], rows))
    changes, opt_state = optimizer.update(grads, opt_state, params)
    return (optax.apply_updates(params, changes), opt_state), None

  @jax.jit
  def epoch(carry, key):
    order = jax.random.permutation(key, count)[: count // size * size]
    return jax.lax.scan(minibatch, carry, order.reshape(-1, size))[0]

  carry = (params, optimizer.init(params))
  for key in jax.random.split(jax.random.key(seed), epochs):
    carry = epoch(carry, key)
  return carry[0]
