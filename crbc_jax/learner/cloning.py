"""Behaviour cloning: a first text policy from an expert's commands."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from crbc_jax.agents.parsing import INVALID
from crbc_jax.agents.turns import TokenRows
from crbc_jax.envs.text import TextEnv
from crbc_jax.learner import text_collect
from crbc_jax.policies import text as policy
from crbc_jax.policies.text import TextSizes, TextState
from crbc_jax.types import Boundary


class Demonstrations(NamedTuple):
  """States that were visited, and what the expert would have done there."""

  goals: np.ndarray  # [R, goal] int32
  states: TextState  # leaves [R, ...]
  choice: np.ndarray  # [R] int32, which of the commands
  success: float  # share of the episodes


def expert_steps(
  games: Sequence[Callable[[], TextEnv]],
  expert: Callable[[TextEnv], str],
  begin: Callable[[Callable[[], TextEnv]], Any],
  *,
  episodes: int,
  noise: float,
  step_limit: int,
  seed: int,
  invalid: float = 0.0,
) -> Iterator[tuple[Any, str]]:
  """Plays episodes with the expert's commands, some replaced by random ones.

  Every state is labelled with what the expert would do, so mistakes are shown
  how to be mended.

  Args:
    games: to play, in a random order, again from the beginning if need be.
    expert: the command it would issue now.
    begin: a new episode of a game, with env, now and play as in
      `text_collect.Episode`.
    episodes: how many.
    noise: share of commands that are random, where the expert's is admissible.
    step_limit: of an episode.
    seed: of the order and the noise.
    invalid: share of the other commands that are `INVALID`, as when a language
      model wrote something else; without any, a model that once did so would
      be in a state that it has never been shown.

  Yields:
    (episode before the step, the expert's command).
  """
  rng = np.random.default_rng(seed)
  order = np.concatenate(
    [rng.permutation(len(games)) for _ in range(-(-episodes // len(games)))]
  )[:episodes]
  for number in order:
    episode = begin(games[number])
    for _ in range(step_limit):
      wanted = expert(episode.env)
      command = wanted
      yield episode, wanted
      if wanted in episode.now.commands and rng.random() < noise:
        command = episode.now.commands[rng.integers(len(episode.now.commands))]
      elif invalid and rng.random() < invalid:
        command = INVALID
      episode.play(command)
      if episode.now.boundary != Boundary.NONE:
        break


def demonstrate(
  games: Sequence[Callable[[], TextEnv]],
  expert: Callable[[TextEnv], str],
  sizes: TextSizes,
  **options: Any,
) -> Demonstrations:
  """`expert_steps` as rows for a policy that scores admissible commands.

  States where the expert's command is not admissible (a search in its own
  words) are left out.
  """
  recorder = text_collect.Recorder(sizes)
  rows, goals, choices = [], [], []
  played: list[Any] = []
  for episode, wanted in expert_steps(
    games,
    expert,
    lambda make: text_collect.begin(make, sizes.vocabulary),
    **options,
  ):
    if not played or played[-1] is not episode:
      played.append(episode)
    if wanted in episode.now.commands:
      rows += recorder.rows([episode])
      goals.append(episode.env.goal)
      choices.append(episode.now.commands.index(wanted))
  wins = sum(e.now.boundary == Boundary.SUCCESS for e in played)
  states = recorder.states(rows, text_collect.width_of(rows))
  return Demonstrations(
    policy.pad_tokens(goals, sizes),
    states,
    np.array(choices, np.int32),
    wins / len(played),
  )


def clone(
  params: Any,
  logits_fn: Callable[..., Any],
  shown: Demonstrations,
  **options: Any,
) -> Any:
  """Parameters after maximising the likelihood of the expert's commands.

  Args:
    params: to begin with.
    logits_fn: of `text.make_text_policy`.
    shown: the demonstrations, R rows.
    options: of `fit`.
  """

  def loss_fn(params, goals, states, choice):
    logits = jax.vmap(logits_fn, in_axes=(None, 0, 0))(params, goals, states)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, choice)
    return losses.mean()

  return fit(params, loss_fn, tuple(shown[:3]), **options)


def clone_tokens(
  params: Any,
  logits_fn: Callable[..., Any],
  shown: TokenRows,
  **options: Any,
) -> Any:
  """The same for a language model: likelihood of the expert's responses.

  The mean over the tokens of a response, then over responses.

  Args:
    params: to begin with.
    logits_fn: `logits(params, tokens [R, L], at [R, S]) -> [R, S, V]`.
    shown: one row for each state.
    options: of `fit`.
  """

  def loss_fn(params, rows):
    logits = logits_fn(params, rows.tokens, rows.at - 1)
    wanted = jnp.take_along_axis(rows.tokens, rows.at, 1)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, wanted)
    count = jnp.maximum(jnp.sum(rows.mask, axis=-1), 1)
    total = jnp.sum(jnp.where(rows.mask, losses, 0.0), axis=-1)
    return jnp.mean(total / count)

  return fit(params, loss_fn, (shown,), **options)


def fit(
  params: Any,
  loss_fn: Callable[..., Any],
  rows: tuple[Any, ...],
  *,
  epochs: int,
  learning_rate: float,
  minibatch: int,
  seed: int,
  decay: bool = False,
) -> Any:
  """Adam on minibatches of rows.

  Args:
    params: to begin with.
    loss_fn: of params and the rows of a minibatch, a mean.
    rows: trees whose leaves lead with [R].
    epochs: passes over them.
    learning_rate: of Adam.
    minibatch: rows of a step, or all if there are fewer.
    seed: of the shuffling.
    decay: the learning rate rises in the first hundredth of the steps and falls
      to nothing by the last one (a cosine); gradients are clipped to a norm
      of 1.
  """
  rows = jax.tree.map(jnp.asarray, rows)
  count = jax.tree.leaves(rows)[0].shape[0]
  size = min(minibatch, count)
  optimizer = optax.adam(learning_rate)
  if decay:
    steps = epochs * (count // size)
    schedule = optax.warmup_cosine_decay_schedule(
      0.0, learning_rate, steps // 100, max(steps, 1)
    )
    optimizer = optax.chain(
      optax.clip_by_global_norm(1.0), optax.adam(schedule)
    )

  def one_minibatch(carry, index):
    params, opt_state = carry
    grads = jax.grad(loss_fn)(params, *jax.tree.map(lambda x: x[index], rows))
    changes, opt_state = optimizer.update(grads, opt_state, params)
    return (optax.apply_updates(params, changes), opt_state), None

  @jax.jit
  def epoch(carry, key):
    order = jax.random.permutation(key, count)[: count // size * size]
    return jax.lax.scan(one_minibatch, carry, order.reshape(-1, size))[0]

  carry = (params, optimizer.init(params))
  for key in jax.random.split(jax.random.key(seed), epochs):
    carry = epoch(carry, key)
  return carry[0]
