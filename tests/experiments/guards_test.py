"""What the guards of an experiment do to keys."""

import numpy as np
import pytest

from crbc_jax.envs import problems

# A wheel installed elsewhere comes without the experiments.
guards = pytest.importorskip("experiments.guards")
hidden_state = pytest.importorskip("experiments.hidden_state")


def played():
  problem = problems.alias_rooms(np.random.default_rng(0))
  return problem, problems.sample(
    problem,
    problems.uniform_policy(problem),
    groups=guards.GROUPS,
    group_size=guards.GROUP_SIZE,
    rng=np.random.default_rng(1),
  )


def test_flagged_keys_are_told_apart_by_their_predecessor():
  problem, rollouts = played()
  flagged = np.zeros((guards.GROUPS, problem.num_keys), bool)
  flagged[0, 1] = True
  key = rollouts.state_key[..., 0]
  new = guards.split(rollouts, flagged)[..., 0]
  np.testing.assert_array_equal(new[1:], key[1:])
  at = np.argwhere(rollouts.mask[0] & (key[0] == 1))
  assert len(at) > 8
  before = {}
  for g, t in at:
    way = (key[0, g, t - 1], rollouts.action[0, g, t - 1]) if t else None
    assert before.setdefault(new[0, g, t], way) == way
  assert len(set(before.values())) == len(before) > 1
  other = rollouts.mask[0] & (key[0] != 1)
  np.testing.assert_array_equal(new[0][other], key[0][other])


def test_keys_fail_where_the_problem_hides_state():
  problem, rollouts = played()
  batch = guards.padded(problem, rollouts)
  failing = guards.failing_keys(batch, num_keys=problem.num_keys)
  assert failing.mean() > 0.1


def test_wilson_interval_by_hand():
  share, low, high = hidden_state.wilson(0, 10)
  assert (share, low) == (0.0, 0.0)
  np.testing.assert_allclose(high, 1.96**2 / (10 + 1.96**2), atol=1e-3)
  assert hidden_state.wilson(5, 10)[0] == 0.5
