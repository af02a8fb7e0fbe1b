"""Small decision processes with known truth."""

import jax
import numpy as np
import pytest

from crbc_jax.credit.closure import exact_values as closure_values
from crbc_jax.credit.process import build_process
from crbc_jax.envs import problems, tabular
from crbc_jax.rollouts.from_arrays import batch_arrays
from crbc_jax.types import Boundary

ALIKE = ("T-maze", "alias rooms", "fetch hidden")


def coin():
  """One state: action 0 tries (.5 success, .25 failure), action 1 waits."""
  transition = np.array([[[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]]])
  return problems.Problem(transition, np.ones(1), np.zeros(1, int), 2)


def test_values_by_hand():
  policy = np.array([[0.5, 0.5]])
  v, q = problems.exact_values(coin(), policy, beta=0.8)
  # The last step: trying is worth .8 * .5, waiting nothing.
  np.testing.assert_allclose(q[1, 0], [0.4, 0.0])
  np.testing.assert_allclose(v[1, 0], 0.2)
  # Before: .8 (.5 + .25 * .2) and .8 * .2.
  np.testing.assert_allclose(q[0, 0], [0.44, 0.16])
  np.testing.assert_allclose(v[0, 0], 0.3)


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_rollouts_are_those_of_the_process(name):
  problem = problems.PROBLEMS[name](np.random.default_rng(3))
  assert problem.hides_state == (name in ALIKE)
  policy = problems.uniform_policy(problem)
  found = problems.sample(
    problem, policy, groups=300, group_size=8, rng=np.random.default_rng(0)
  )
  steps = found.mask.sum(axis=2)
  assert (found.mask == (np.arange(problem.horizon) < steps[..., None])).all()
  # One start a group, a boundary at the last step and nowhere else.
  assert (found.state[:, :, 0] == found.state[:, :1, 0]).all()
  ends = (found.boundary != Boundary.NONE).sum(axis=2)
  assert (ends == 1).all()
  last = np.take_along_axis(found.boundary, steps[..., None] - 1, axis=2)
  assert (last != Boundary.NONE).all()
  assert (steps[last[..., 0] == Boundary.TRUNCATED] == problem.horizon).all()
  # Success is as frequent as its exact probability (five standard errors).
  v, _ = problems.exact_values(problem, policy, beta=1.0)
  truth = v[0, found.state[:, 0, 0]].mean()
  rate = found.reward.sum(axis=2).mean()
  assert abs(rate - truth) < 5 * np.sqrt(truth * (1 - truth) / steps.size)
  assert truth > 0.03  # something to learn from
  # Advantages of what was done average 0 over the policy's own actions.
  advantage = problems.exact_advantages(problem, policy, found, beta=0.95)
  spread = advantage[found.mask].std() / np.sqrt(found.mask.sum())
  assert abs(advantage[found.mask].mean()) < 6 * spread
  assert (advantage[~found.mask] == 0).all()


def test_a_grid_without_slips_agrees_with_the_solver_of_sokoban():
  policy = np.random.default_rng(0).dirichlet(np.ones(4), 9)
  moves = problems._grid(np.ones((3, 3), bool), goal=8, slip=0.2)
  problem = problems.Problem(moves, np.eye(9)[0], np.arange(9), 12)
  calm = problems._grid(np.ones((3, 3), bool), goal=8, slip=0.0)
  target = calm.argmax(axis=2)  # the goal is state 8, success is number 9
  next_state = np.where(target == 9, 8, target)
  v, q = problems.exact_values(problem, policy, beta=0.9)
  want_v, want_q = tabular.policy_values(
    next_state, np.arange(9) == 8, policy, beta=0.9, horizon=12, slip=0.2
  )
  np.testing.assert_allclose(v[:, :8], want_v[:, :8])
  np.testing.assert_allclose(q[:, :8], want_q[:, :8])


def test_closure_of_many_rollouts_is_the_truth():
  problem = problems.rare_hub(np.random.default_rng(0))
  policy = problems.uniform_policy(problem)
  found = problems.sample(
    problem, policy, groups=1, group_size=4_000, rng=np.random.default_rng(1)
  )
  batch = batch_arrays(actions=problem.num_actions, **found.columns())
  group = jax.tree.map(lambda x: x[0], batch.arrays)
  process = build_process(group, beta=0.95)
  v = np.asarray(closure_values(process, beta=0.95).v)
  truth, _ = problems.exact_values(problem, policy, beta=0.95)
  start = v[np.asarray(group.state)[0]]
  assert abs(start - truth[0, 0]) < 0.03


def test_distributions_are_checked():
  good = coin()
  with pytest.raises(ValueError, match="transition must hold distributions"):
    problems.Problem(good.transition * 0.9, good.start, good.key, 2)
  with pytest.raises(ValueError, match=r"\[S, A, S \+ 2\]"):
    problems.Problem(good.transition[..., :2], good.start, good.key, 2)
