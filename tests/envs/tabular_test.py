import itertools
from fractions import Fraction

import numpy as np
import pytest

from crbc_jax.envs import sokoban_levels, sokoban_solver, tabular

RIGHT = 3


def graph_of(text):
  levels = sokoban_levels.parse_levels(text, "test")
  return sokoban_solver.enumerate_states(levels, 0)


CORRIDOR = graph_of("#####\n#@$.#\n#####")  # right solves, the rest bumps
ROOM = graph_of("######\n#@ $.#\n#    #\n######")


def uniform(graph):
  return np.full(graph.next_state.shape, 0.25)


def test_corridor_by_hand():
  beta, horizon = 0.9, 4
  v, q = tabular.policy_values(
    CORRIDOR.next_state,
    CORRIDOR.solved,
    uniform(CORRIDOR),
    beta=beta,
    horizon=horizon,
  )
  assert v.shape == (4, 2)
  assert q.shape == (4, 2, 4)
  for t in range(horizon):
    left = horizon - t
    want = sum(beta**n * 0.75 ** (n - 1) * 0.25 for n in range(1, left + 1))
    assert v[t, 0] == pytest.approx(want, abs=1e-15)
    assert q[t, 0, RIGHT] == pytest.approx(beta)
    bump = beta * v[t + 1, 0] if t + 1 < horizon else 0.0
    np.testing.assert_allclose(q[t, 0, :RIGHT], bump)
  np.testing.assert_array_equal(v[:, 1], 1.0)
  np.testing.assert_array_equal(q[:, 1], 1.0)


def test_corridor_stationary_by_hand():
  for beta in (0.9, 1.0):
    v, q = tabular.stationary_values(
      CORRIDOR.next_state, CORRIDOR.solved, uniform(CORRIDOR), beta=beta
    )
    want = 0.25 * beta / (1 - 0.75 * beta)
    assert v[0] == pytest.approx(want, abs=1e-13)
    np.testing.assert_allclose(q[0], [beta * want] * 3 + [beta])


def test_slip_by_hand():
  always_right = np.eye(4)[[RIGHT, RIGHT]]
  v, q = tabular.policy_values(
    CORRIDOR.next_state,
    CORRIDOR.solved,
    always_right,
    beta=0.5,
    horizon=2,
    slip=0.2,
  )
  right = 0.85  # 0.8 + 0.2 / 4
  assert v[1, 0] == pytest.approx(0.5 * right)
  assert v[0, 0] == pytest.approx(0.5 * right + 0.25 * (1 - right) * right)
  # Another action: solves with 0.2 / 4.
  assert q[1, 0, 0] == pytest.approx(0.5 * 0.05)


def brute_force(graph, policy, *, beta, horizon, slip):
  """Sums over every sequence of executed actions, in exact fractions."""
  size, num_actions = graph.next_state.shape
  executed = [
    [(1 - slip) * policy[s][e] + slip / num_actions for e in range(num_actions)]
    for s in range(size)
  ]
  values = []
  for start in range(size):
    total = Fraction(int(graph.solved[start]))
    if not total:
      for length in range(1, horizon + 1):
        for actions in itertools.product(range(num_actions), repeat=length):
          state, probability = start, Fraction(1)
          visited = []
          for action in actions:
            probability *= executed[state][action]
            state = int(graph.next_state[state, action])
            visited.append(graph.solved[state])
          if visited[-1] and not any(visited[:-1]):
            total += beta**length * probability
    values.append(total)
  return values


@pytest.mark.parametrize("slip", [Fraction(0), Fraction(1, 5)])
def test_equals_brute_force_over_action_sequences(slip):
  rng = np.random.default_rng(0)
  weights = rng.integers(0, 5, ROOM.next_state.shape)
  weights[:, 0] += 1
  policy = [[Fraction(int(w), int(sum(row))) for w in row] for row in weights]
  horizon, beta = 4, Fraction(9, 10)
  v, _ = tabular.policy_values(
    ROOM.next_state,
    ROOM.solved,
    np.array(policy, np.float64),
    beta=float(beta),
    horizon=horizon,
    slip=float(slip),
  )
  for t in (0, 2):
    want = brute_force(ROOM, policy, beta=beta, horizon=horizon - t, slip=slip)
    np.testing.assert_allclose(v[t], np.array(want, np.float64), atol=1e-15)
  assert 0 < v[0, 0] < 1


@pytest.mark.parametrize("beta, slip", [(0.95, 0.0), (0.95, 0.3), (1.0, 0.0)])
def test_stationary_is_the_limit_of_a_long_horizon(beta, slip):
  rng = np.random.default_rng(1)
  policy = 0.5 * rng.dirichlet(np.ones(4), len(ROOM.solved)) + 0.125
  args = ROOM.next_state, ROOM.solved, policy
  v, q = tabular.stationary_values(*args, beta=beta, slip=slip)
  long_v, long_q = tabular.policy_values(
    *args, beta=beta, slip=slip, horizon=3000
  )
  np.testing.assert_allclose(v, long_v[0], atol=1e-12)
  np.testing.assert_allclose(q, long_q[0], atol=1e-12)
  np.testing.assert_allclose(v, (policy * q).sum(axis=1), atol=1e-12)


def test_dead_states_are_worth_exactly_nothing():
  graph = graph_of("#######\n#  @  #\n#  $ .#\n#     #\n#######")
  policy = uniform(graph)
  v, _ = tabular.stationary_values(
    graph.next_state, graph.solved, policy, beta=1.0
  )
  stuck = np.isin(graph.boxes[:, 0], (8, 12, 22, 26))  # corners
  assert stuck.any()
  assert (v[stuck] == 0).all()
  assert ((v > 0) & (v < 1))[0]
  # A policy that bumps for ever reaches nothing at all.
  bump = np.eye(4)[np.zeros(len(v), int)]
  v, _ = tabular.stationary_values(
    graph.next_state, graph.solved, bump, beta=1.0
  )
  np.testing.assert_array_equal(v, graph.solved.astype(float))


@pytest.mark.parametrize(
  "change, word",
  [
    ({"beta": 0.0}, "beta"),
    ({"beta": 1.1}, "beta"),
    ({"slip": -0.1}, "slip"),
    ({"horizon": 0}, "horizon"),
    ({"policy": np.full((2, 4), 0.3)}, "policy"),
    ({"policy": np.full((2, 3), 1 / 3)}, r"\[S, A\]"),
    ({"next_state": np.full((2, 4), 2)}, "next_state"),
  ],
)
def test_bad_arguments(change, word):
  arguments = {
    "next_state": CORRIDOR.next_state,
    "solved": CORRIDOR.solved,
    "policy": uniform(CORRIDOR),
    "beta": 0.9,
    "horizon": 3,
  } | change
  with pytest.raises(ValueError, match=word):
    tabular.policy_values(**arguments)
