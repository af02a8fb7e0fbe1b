"""What is demonstrated, and how a clone is fitted to it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crbc_jax.agents.parsing import INVALID
from crbc_jax.agents.play import AgentEpisode
from crbc_jax.envs import alfworld
from crbc_jax.learner import cloning


def played(**options):
  """Commands of ten expert episodes, and the texts that answered them."""
  games = alfworld.generate_games(10, seed=0)
  options = {"noise": 0.0, "step_limit": 30, "seed": 0} | options
  episodes = []
  for episode, wanted in cloning.expert_steps(
    [functools.partial(alfworld.AlfworldEnv, game) for game in games],
    alfworld.expert_command,
    AgentEpisode,
    episodes=10,
    **options,
  ):
    assert wanted in episode.now.commands
    if episode not in episodes:
      episodes.append(episode)
  return [
    (past.command, answer.text)
    for e in episodes
    for past, answer in zip(e.past, [*e.past[1:], e.now], strict=True)
  ]


def test_an_expert_is_not_disturbed():
  assert INVALID not in [command for command, _ in played()]


def test_inadmissible_commands_come_as_often_as_asked_for():
  steps = played(invalid=0.5)
  said = [text for command, text in steps if command == INVALID]
  assert 0.35 < len(said) / len(steps) < 0.65
  assert set(said) == {"Nothing happens."}
  only = played(invalid=1.0)
  assert len(only) == 10 * 30 and {c for c, _ in only} == {INVALID}


def test_noise_comes_before_inadmissible_commands():
  assert INVALID not in [c for c, _ in played(noise=1.0, invalid=1.0)]


@pytest.mark.parametrize("decay", [False, True])
def test_the_learning_rate_falls_where_asked(decay):
  """Of a constant gradient Adam's steps are as long as the learning rate."""
  rate, epochs, rows, size = 1e-3, 5, 43, 2
  found = cloning.fit(
    jnp.zeros(3),
    lambda params, x: jnp.mean(x @ params),
    (np.ones((rows, 3), np.float32),),
    epochs=epochs,
    learning_rate=rate,
    minibatch=size,
    seed=0,
    decay=decay,
  )
  steps = epochs * (rows // size)
  rates = np.full(steps, rate)
  if decay:
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, 1, steps)
    rates = np.array([schedule(i) for i in range(steps)])
    assert rates.sum() < 0.55 * rate * steps and rates[-1] < 0.01 * rate
  np.testing.assert_allclose(found, -rates.sum(), rtol=1e-3)


def test_one_step_can_decay():
  found = cloning.fit(
    jnp.zeros(3),
    lambda params, x: jnp.mean(x @ params),
    (jnp.ones((2, 3)),),
    epochs=1,
    learning_rate=1e-3,
    minibatch=2,
    seed=0,
    decay=True,
  )
  assert jax.device_get(jnp.isfinite(found)).all()
