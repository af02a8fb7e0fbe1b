import jax
import numpy as np
import pytest

from crbc_jax.envs import sokoban_levels
from crbc_jax.learner import collect
from crbc_jax.types import Boundary
from tests import tiny_runs

GROUP_SIZE = 6


def logits_of_cell(params, level, state):
  """A policy of the player's cell and the first box, with a favourite."""
  del level
  return params[state.player] + 0.5 * params[state.boxes[0]]


def make_params(levels):
  shape = (levels.height * levels.width, 4)
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def pick(tree, *index):
  return jax.tree.map(lambda x: x[index], tree)


@pytest.fixture(scope="module")
def levels():
  return tiny_runs.make_levels()[0].take(np.arange(0, 48, 9))


@pytest.fixture(scope="module")
def played(levels):
  """(env, collect, rollouts with the key 1)."""
  env = tiny_runs.make_env(levels)
  function = collect.make_collect_fn(env, logits_of_cell, group_size=GROUP_SIZE)
  found = function(make_params(levels), levels.as_levels(), jax.random.key(1))
  return env, function, jax.device_get(found)


def test_replayed_actions_give_the_same_rollouts(levels, played):
  env, _, rollouts = played
  params = make_params(levels)
  step, key_of = jax.jit(env.step), jax.jit(env.state_key)
  log_probs = jax.jit(
    lambda *arguments: jax.nn.log_softmax(logits_of_cell(*arguments))
  )
  for p, g in np.ndindex(len(levels), GROUP_SIZE):
    level = pick(levels.as_levels(), p)
    state = env.reset(level)
    ended = False
    for t in range(env.step_limit):
      at = (p, g, t)
      assert rollouts.mask[at] == (not ended)
      np.testing.assert_array_equal(rollouts.key[at], key_of(state))
      jax.tree.map(
        np.testing.assert_array_equal, pick(rollouts.state, *at), state
      )
      if ended:  # nothing happens after the end
        assert rollouts.reward[at] == 0 and not rollouts.moved[at]
        assert rollouts.boundary[at] == Boundary.NONE
        continue
      action = rollouts.action[at]
      np.testing.assert_allclose(
        rollouts.log_prob[at],
        log_probs(params, level, state)[action],
        rtol=1e-5,
      )
      after = step(level, state, action)
      assert rollouts.reward[at] == after.reward
      assert rollouts.boundary[at] == after.boundary
      assert rollouts.moved[at] == after.moved
      state, ended = after.state, after.boundary != Boundary.NONE
    assert ended
    np.testing.assert_array_equal(rollouts.final_key[p, g], key_of(state))
  boundaries = set(rollouts.boundary[rollouts.mask].tolist())
  assert boundaries == {Boundary.NONE, Boundary.SUCCESS, Boundary.TRUNCATED}
  assert not rollouts.moved[rollouts.mask].all()


def test_a_group_shares_its_first_anchor_and_differs_after(levels, played):
  _, _, rollouts = played
  first = rollouts.key[:, :, 0]
  np.testing.assert_array_equal(
    first, np.broadcast_to(first[:, :1], first.shape)
  )
  for p in range(len(levels)):
    actions = {row.tobytes() for row in rollouts.action[p]}
    assert len(actions) == GROUP_SIZE
  # Groups differ too, in levels and in draws.
  assert len({row.tobytes() for row in rollouts.action[:, 0]}) == len(levels)


def test_the_key_alone_decides(levels, played):
  _, function, rollouts = played
  arguments = make_params(levels), levels.as_levels()
  same = jax.device_get(function(*arguments, jax.random.key(1)))
  jax.tree.map(np.testing.assert_array_equal, rollouts, same)
  other = jax.device_get(function(*arguments, jax.random.key(2)))
  assert (rollouts.action != other.action).any()
  assert function._cache_size() == 1


def test_actions_follow_the_policy(levels):
  env = tiny_runs.make_env(levels, step_limit=1)
  params = make_params(levels)
  rollouts = collect.make_collect_fn(env, logits_of_cell, group_size=4_000)(
    params, levels.as_levels(), jax.random.key(0)
  )
  for p in range(len(levels)):
    level = pick(levels.as_levels(), p)
    wanted = jax.nn.softmax(logits_of_cell(params, level, env.reset(level)))
    got = np.bincount(rollouts.action[p, :, 0], minlength=4) / 4_000
    np.testing.assert_allclose(got, wanted, atol=0.035)  # four deviations


def test_a_rollout_that_ended_does_not_begin_again():
  # One push solves it; the next would push the box off its target.
  levels = sokoban_levels.parse_levels("#######\n#@$.  #\n#######", "x")
  params = np.zeros((21, 4), np.float32)
  params[:, 3] = 30
  rollouts = collect.make_collect_fn(
    tiny_runs.make_env(levels), logits_of_cell, group_size=2
  )(params, levels.as_levels(), jax.random.key(0))
  assert (rollouts.boundary[..., 0] == Boundary.SUCCESS).all()
  assert not rollouts.mask[..., 1:].any()
  assert rollouts.mask[..., 0].all()
  assert rollouts.reward.sum() == 2


def test_slips_are_drawn_for_each_rollout_and_step():
  # One corridor, twice, and a policy that walks right: only slips differ.
  levels = sokoban_levels.parse_levels("#########\n#@     $.#\n" + "#" * 9, "x")
  levels = levels.take([0, 0])
  params = np.zeros((27, 4), np.float32)
  params[:, 3] = 30
  env = tiny_runs.make_env(levels, slip=0.4)
  function = collect.make_collect_fn(env, logits_of_cell, group_size=500)
  arguments = params, levels.as_levels(), jax.random.key(0)
  rollouts = jax.device_get(function(*arguments))
  assert (rollouts.action == 3).all()  # the chosen action, not the executed
  for t in (0, 1):  # from the start only right moves: 0.6 + 0.4 / 4
    at_start = rollouts.state.player[:, :, t] == levels.player[0]
    share = rollouts.moved[:, :, t][at_start].mean()
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / at_start.sum())
  won = (rollouts.boundary == Boundary.SUCCESS).any(-1)
  assert 0.05 < won.mean() < 0.9
  assert (rollouts.moved[0] != rollouts.moved[1]).any()
  np.testing.assert_array_equal(rollouts.key, function(*arguments).key)
