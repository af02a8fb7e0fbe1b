import jax
import numpy as np
import pytest

from crbc_jax.envs import sokoban, sokoban_levels
from crbc_jax.learner import collect, truth

BETA = 0.9
ROOM = "#####\n#@  #\n# $ #\n# . #\n#####\n"
PASSAGE = "######\n#@ $.#\n# ####\n######\n"


def make_env(levels, *, step_limit, slip):
  return sokoban.Sokoban(
    height=levels.height,
    width=levels.width,
    boxes=levels.num_boxes,
    step_limit=step_limit,
    slip=slip,
  )


def logits_of_cell(params, level, state):
  """A policy that depends on the player's cell and the first box."""
  del level
  return params[state.player] + 0.5 * params[state.boxes[0]]


def random_params(levels):
  rng = np.random.default_rng(0)
  return rng.normal(size=(levels.height * levels.width, 4)).astype(np.float32)


def brute_force(env, level, params):
  """Plays out every sequence of executed actions with the rules themselves.

  Returns `values(state, t) -> (V, Q [4])`.
  """
  rules = sokoban.Sokoban(
    height=env.height, width=env.width, boxes=env.boxes, step_limit=10**6
  )
  step, logits = jax.jit(rules.step), jax.jit(logits_of_cell)

  def values(state, t):
    if t == env.step_limit:
      return 0.0, np.zeros(4)
    after = [step(level, state, np.int32(e)) for e in range(4)]
    worth = np.array(
      [1.0 if bool(x.reward == 1) else values(x.state, t + 1)[0] for x in after]
    )
    q = BETA * ((1 - env.slip) * worth + env.slip * worth.mean())
    policy = np.asarray(jax.nn.softmax(logits(params, level, state)))
    return float(policy @ q), q

  return values


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_values_equal_brute_force(slip):
  levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
  env = make_env(levels, step_limit=4, slip=slip)
  params = random_params(levels)
  rollouts = collect.make_collect_fn(env, logits_of_cell, group_size=6)(
    params, levels.as_levels(), jax.random.key(1)
  )
  true_values = truth.make_true_values_fn(env, logits_of_cell, beta=BETA)
  got = true_values(params, levels, rollouts)
  mask, action = np.asarray(rollouts.mask), np.asarray(rollouts.action)
  worth = set()
  for p, g in np.ndindex(mask.shape[:2]):
    level = jax.tree.map(lambda x, p=p: x[p], levels.as_levels())
    values = brute_force(env, level, params)
    for t in range(mask.shape[2]):
      if not mask[p, g, t]:
        assert got.q[p, g, t] == got.v[p, g, t] == 0
        continue
      state = jax.tree.map(lambda x, i=(p, g, t): x[i], rollouts.state)
      v, q = values(state, t)
      worth.add(round(v, 9))
      np.testing.assert_allclose(got.v[p, g, t], v, atol=1e-6)
      np.testing.assert_allclose(got.q[p, g, t], q[action[p, g, t]], atol=1e-6)
  assert len(worth) > 4  # the comparison saw more than zeros
  np.testing.assert_array_equal(got.advantage, got.q - got.v)


def test_advantages_average_to_nothing_under_the_policy():
  levels = sokoban_levels.parse_levels(ROOM, "test")
  env = make_env(levels, step_limit=8, slip=0.0)
  params = random_params(levels)
  rollouts = collect.make_collect_fn(env, logits_of_cell, group_size=4_096)(
    params, levels.as_levels(), jax.random.key(0)
  )
  found = truth.make_true_values_fn(env, logits_of_cell)(
    params, levels, rollouts
  )
  first = found.advantage[0, :, 0]
  assert abs(first.mean()) < 4 * first.std() / np.sqrt(first.size)
  # V_0 is the mean return of what was played.
  reward = np.asarray(rollouts.reward)[0]
  returns = (reward * 0.98 ** np.arange(1, 9)).sum(axis=1)
  error = abs(returns.mean() - found.v[0, 0, 0])
  assert error < 4 * returns.std() / np.sqrt(returns.size)


def test_refuses_levels_of_another_batch():
  levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
  env = make_env(levels, step_limit=4, slip=0.0)
  params = random_params(levels)
  rollouts = collect.make_collect_fn(env, logits_of_cell, group_size=2)(
    params, levels.as_levels(), jax.random.key(0)
  )
  true_values = truth.make_true_values_fn(env, logits_of_cell)
  with pytest.raises(ValueError, match="not the levels of the rollouts"):
    true_values(params, levels.take([1, 0]), rollouts)


def test_refuses_a_level_solved_at_its_start():
  levels = sokoban_levels.parse_levels("#####\n#@ *#\n#####\n", "test")
  env = make_env(levels, step_limit=4, slip=0.0)
  params = random_params(levels)
  rollouts = collect.make_collect_fn(env, logits_of_cell, group_size=2)(
    params, levels.as_levels(), jax.random.key(0)
  )
  true_values = truth.make_true_values_fn(env, logits_of_cell)
  with pytest.raises(ValueError, match="test:0 is solved at its start"):
    true_values(params, levels, rollouts)


def test_aliased_keys_have_no_exact_values():
  options = {"height": 5, "width": 5, "boxes": 1, "step_limit": 5}
  env = sokoban.Sokoban(keys="player", **options)
  with pytest.raises(ValueError, match="keys='exact'"):
    truth.make_true_values_fn(env, lambda *_: None)
