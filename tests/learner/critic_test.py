"""The critic: its values, its step, its place in an update and in a run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crbc_jax.learner import critic as critic_lib
from crbc_jax.learner import (
  finished,
  loop,
  records,
  task,
  training_step,
  update,
)
from crbc_jax.learner.collect import Rollouts
from tests import tiny_runs
from tests.learner.updates import make_action_update
from tests.tiny_runs import compiled_programs  # noqa: F401

P, G, T, A = 3, 2, 5, 4
LENGTHS = np.array([[5, 2], [1, 3], [4, 4]])  # 19 of 30 steps were played
MASK = np.arange(T) < LENGTHS[..., None]
LEARNER = {
  "minibatch": 19,
  "epochs": 1,
  "clip": 0.2,
  "entropy_weight": 0.01,
  "kl_weight": 0.0,
  "aggregation": "step",
  "advantage_scale": "rms",
}


def logits_fn(params, level, state):
  return params["w"] @ state["x"] + level["bias"]


def value_fn(params, level, state):
  return params["u"] @ state["x"] + params["b"] * level["bias"][0]


def make_critic(optimizer=None, clip=0.2):
  return critic_lib.Critic(value_fn, optimizer or optax.sgd(1.0), clip)


def make_batch(seed=0):
  """(policy, critic, levels, rollouts, advantage, value) of one update."""
  rng = np.random.default_rng(seed)

  def draw(*shape):
    return rng.normal(size=shape).astype(np.float32)

  policy, critic = {"w": draw(A, 3)}, {"u": draw(3), "b": draw()}
  rollouts = Rollouts(
    state={"x": draw(P, G, T, 3)},
    key=np.zeros((P, G, T, 1), np.int32),
    final_key=np.zeros((P, G, 1), np.int32),
    action=rng.integers(A, size=(P, G, T)).astype(np.int32),
    log_prob=-1 - 0.1 * np.abs(draw(P, G, T)),
    reward=np.zeros((P, G, T), np.float32),
    boundary=np.zeros((P, G, T), np.int32),
    moved=np.ones((P, G, T), bool),
    mask=MASK,
  )
  return (
    policy, critic, {"bias": draw(P, A)}, rollouts,
    draw(P, G, T), draw(P, G, T),
  )  # fmt: skip


def run(batch, critic, *, state=None, **options):
  """(LearnerState, metrics) after one update."""
  policy, values, levels, rollouts, advantage, value = batch
  optimizer = optax.adam(1e-2)
  if state is None:
    trained = jax.tree.map(jnp.array, values) if critic else ()
    policy = jax.tree.map(jnp.array, policy)  # the update donates its state
    state = update.LearnerState(
      params=policy,
      opt_state=optimizer.init(policy),
      reference=(),
      key=jax.random.key_data(jax.random.key(7)),
      critic_params=trained,
      critic_opt_state=critic.optimizer.init(trained) if critic else (),
    )
  function = make_action_update(
    logits_fn, optimizer, critic=critic, **LEARNER | options
  )
  args = (state, levels, rollouts, advantage, jax.random.key(0))
  return function(*args, value) if critic else function(*args)


def loss_by_hand(params, batch, clip=0.2):
  """Mean value loss over the played steps, one at a time."""
  _, _, levels, rollouts, advantage, value = batch
  total = 0.0
  for p, g, t in np.argwhere(rollouts.mask):
    level = {"bias": levels["bias"][p]}
    new = value_fn(params, level, {"x": rollouts.state["x"][p, g, t]})
    old = value[p, g, t]
    target = advantage[p, g, t] + old
    near = jnp.clip(new, old - clip, old + clip)
    total += 0.5 * jnp.maximum((new - target) ** 2, (near - target) ** 2)
  return total / rollouts.mask.sum()


def test_values_are_those_of_each_state():
  _, params, levels, rollouts, *_ = make_batch()
  got = critic_lib.make_values_fn(value_fn)(params, levels, rollouts.state)
  assert got.shape == (P, G, T) and got.dtype == np.float32
  for p, g, t in np.ndindex(P, G, T):
    level = {"bias": levels["bias"][p]}
    wanted = value_fn(params, level, {"x": rollouts.state["x"][p, g, t]})
    np.testing.assert_allclose(got[p, g, t], wanted, atol=1e-6)


@pytest.mark.parametrize("aggregation", update.AGGREGATIONS)
def test_one_step_on_the_mean_value_loss_whatever_the_aggregation(aggregation):
  batch = make_batch()
  params = batch[1]
  loss, gradient = jax.value_and_grad(loss_by_hand)(params, batch)
  state, metrics = run(batch, make_critic(), aggregation=aggregation)
  for name in params:
    np.testing.assert_allclose(
      state.critic_params[name], params[name] - gradient[name], atol=2e-6
    )
    assert np.abs(gradient[name]).max() > 0.01
  np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-5)
  np.testing.assert_allclose(
    metrics["critic_grad_norm"], optax.tree.norm(gradient), rtol=1e-5
  )
  assert 0 < metrics["value_clip_share"] < 1


def test_metrics_are_means_over_the_played_steps():
  batch = make_batch()
  still = make_critic(optax.sgd(0.0))
  wanted = loss_by_hand(batch[1], batch)
  for minibatch in (4, 19, 64):
    _, metrics = run(batch, still, minibatch=minibatch, epochs=2)
    np.testing.assert_allclose(metrics["value_loss"], wanted, rtol=1e-5)
  *_, advantage, value = batch
  target = (advantage + value)[MASK]
  np.testing.assert_allclose(
    metrics["explained_variance"],
    1 - np.var(advantage[MASK]) / np.var(target),
    rtol=1e-4,
  )


def test_the_policy_does_not_feel_the_critic():
  batch = make_batch()
  options = {"minibatch": 4, "epochs": 3}
  alone, seen = run(batch, None, **options)
  state, metrics = run(batch, make_critic(), **options)
  np.testing.assert_array_equal(state.params["w"], alone.params["w"])
  jax.tree.map(np.testing.assert_array_equal, state.opt_state, alone.opt_state)
  assert alone.critic_params == alone.critic_opt_state == ()
  extra = {*critic_lib.MEANS, critic_lib.NORM, "explained_variance"}
  assert set(metrics) - set(seen) == extra and set(seen) < set(metrics)
  for name, value in seen.items():
    np.testing.assert_array_equal(metrics[name], value, err_msg=name)


def test_masked_rows_have_no_influence():
  *parts, rollouts, advantage, value = make_batch()
  gone = ~MASK
  filled = rollouts.replace(
    state={"x": np.where(gone[..., None], 1e3, rollouts.state["x"])},
    log_prob=np.where(gone, np.nan, rollouts.log_prob),
  )
  dirty = [np.where(gone, np.nan, x) for x in (advantage, value)]
  for options in ({}, {"minibatch": 4, "epochs": 2}):
    critic = make_critic(optax.adam(1e-2))
    wanted = run((*parts, rollouts, advantage, value), critic, **options)
    got = run((*parts, filled, *dirty), critic, **options)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))


def test_the_value_loss_falls():
  """Updates on one batch of targets, each clipped round the last values."""
  *parts, rollouts, _, _ = make_batch()
  _, params, levels = parts
  goal = {"u": np.float32([1, -1, 0.5]), "b": np.float32(2)}
  values = critic_lib.make_values_fn(value_fn)
  target = values(goal, levels, rollouts.state)
  critic = make_critic(optax.adam(3e-2))
  state, losses, explained = None, [], []
  for _ in range(20):
    now = state.critic_params if state else params
    value = values(now, levels, rollouts.state)
    state, metrics = run(
      (*parts, rollouts, target - value, value),
      critic,
      state=state,
      epochs=5,
      minibatch=8,
    )
    losses.append(float(metrics["value_loss"]))
    explained.append(float(metrics["explained_variance"]))
  assert losses[-1] < 0.01 * losses[0]
  assert explained[0] < 0.5 and explained[-1] > 0.99
  for name in goal:
    np.testing.assert_allclose(state.critic_params[name], goal[name], atol=0.1)


def test_explained_variance_by_hand():
  def of(value, target, mask=(True,) * 4):
    return float(
      critic_lib.explained_variance(
        jnp.array(value, jnp.float32), jnp.array(target), jnp.array(mask)
      )
    )

  target = [0.0, 1.0, 0.0, 1.0]
  assert of(target, target) == 1
  assert of([0.5] * 4, target) == 0  # no better than a constant
  assert of([7.0, 8.0, 7.0, 8.0], target) == 1  # nor worse for its place
  assert of([1.0, 0.0, 1.0, 0.0], target) == -3
  assert of([0.0, 0.5, 0.0, 0.5], target) == 0.75
  assert of([1.0, 2.0, 3.0, 4.0], [0.1] * 4) == 0  # nothing to explain
  nan = float("nan")
  masked = [0.0, 1.0, nan, nan], [0.0, 1.0, nan, 5.0]
  assert of(*masked, (True, True, False, False)) == 1
  assert of(*masked, (False,) * 4) == 0


def test_parameters_of_the_critic_that_are_not_finite_are_reported():
  batch = make_batch()
  _, metrics = run(batch, make_critic(optax.sgd(float("inf"))))
  assert not metrics["params_finite"]
  _, metrics = run(batch, make_critic())
  assert metrics["params_finite"]


# -- a run -------------------------------------------------------------------


@pytest.fixture(scope="module")
def gae_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("gae")
  config = tiny_runs.make_config(
    folder, estimator="gae(gamma=0.99, lam=0.95)", learner__kl=0.01
  )
  loop.start_run(config, folder / "run")
  return config, folder / "run"


@pytest.mark.training
def test_a_run_records_its_critic(gae_run):
  _, folder = gae_run
  train = records.read_metrics(folder, "train")
  for record in train:
    for name in (*critic_lib.MEANS, critic_lib.NORM, "explained_variance"):
      assert np.isfinite(record[name]), name
    assert record["live_share"] == 1
  assert train[-1]["explained_variance"] > train[0]["explained_variance"]
  found = finished.evaluate_run(folder)
  assert found["update"] == len(train)
  assert finished.play_episode(folder, 0).outcome in ("success", "truncated")


@pytest.mark.training
def test_a_checkpoint_holds_the_critic_and_its_optimiser(gae_run):
  config, folder = gae_run
  current = task.make_task(config)
  began = training_step.initial_state(config, current)
  leaves, _ = tiny_runs.last_checkpoint(folder)
  ended = jax.tree.unflatten(jax.tree.structure(began), leaves)
  for name in ("critic_params", "critic_opt_state"):
    pairs = zip(
      jax.tree.leaves(getattr(began, name)),
      jax.tree.leaves(getattr(ended, name)),
      strict=True,
    )
    assert all((a != b).any() for a, b in pairs), name
  steps = ended.critic_opt_state[1][0].count  # of Adam behind the clip
  assert steps == ended.opt_state[1][0].count > 0


def test_without_a_critic_the_state_tree_has_nothing_of_it(tmp_path):
  states = {}
  for name in ("grpo", "gae"):
    config = tiny_runs.make_config(tmp_path, estimator=name, learner__kl=0.01)
    current = task.make_task(config)
    states[name] = training_step.initial_state(config, current)
    assert (current.value_fn is None) == (name == "grpo")
  grpo, gae = states["grpo"], states["gae"]
  assert grpo.critic_params == grpo.critic_opt_state == ()
  paths = {
    name: [jax.tree_util.keystr(p) for p, _ in flat]
    for name, state in states.items()
    for flat in [jax.tree_util.tree_flatten_with_path(state)[0]]
  }
  assert not any("critic" in path for path in paths["grpo"])
  assert [p for p in paths["gae"] if "critic" not in p] == paths["grpo"]
  # The policy starts from the same weights either way.
  jax.tree.map(np.testing.assert_array_equal, grpo.params, gae.params)


@pytest.mark.training
def test_values_that_are_not_finite_are_named(tmp_path, monkeypatch):
  def bad(function):
    good = make_values_fn(function)
    return lambda *args: good(*args).at[2, 0, 0].set(jnp.nan)

  make_values_fn = critic_lib.make_values_fn
  monkeypatch.setattr(critic_lib, "make_values_fn", bad)
  config = tiny_runs.make_config(tmp_path, estimator="gae")
  message = r"update 1: estimator gae gave 1 advantages .* in groups \[2\]"
  with pytest.raises(loop.NonFiniteError, match=message):
    loop.start_run(config, tmp_path / "run")
