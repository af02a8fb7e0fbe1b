"""Known truth: exact values of a policy on a small deterministic world.

The world is a table: action e leads from state s to `next_state[s, e]`, and
`solved` states end the episode with success. With beta in (0, 1] the value of
a state is

  V(s) = E[beta^(steps until success)],  0 where success never comes,

so a solved state is worth 1 and the step that solves pays one beta. With a
probability `slip` the executed action is uniform over all A actions:

  Pr(e | a) = (1 - slip) [e = a] + slip / A.

Everything here is float64 NumPy.
"""

import numpy as np


def policy_values(
  next_state: np.ndarray,
  solved: np.ndarray,
  policy: np.ndarray,
  *,
  beta: float,
  horizon: int,
  slip: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
  """Values under a step limit, by backward induction.

  With t steps taken, t = 0 .. horizon-1, and a time-out worth nothing,

    x_t(s)   = 1 if s is solved, else V_t(s);   V_horizon(s) = 0
    Q_t(s,a) = beta sum_e Pr(e|a) x_{t+1}(next_state[s, e])
    V_t(s)   = sum_a policy(a|s) Q_t(s,a);      V_t = Q_t = 1 where solved.

  Args:
    next_state: int [S, A], successors, in [0, S).
    solved: bool [S].
    policy: [S, A], probabilities of the chosen action.
    beta: discount of one step, in (0, 1].
    horizon: T >= 1, steps of an episode.
    slip: probability in [0, 1] of a uniformly random executed action.

  Returns:
    v: float64 [T, S], index t = steps already taken.
    q: float64 [T, S, A].

  Raises:
    ValueError: an argument out of its range.
  """
  policy = _check(next_state, solved, policy, beta, slip)
  if horizon < 1:
    raise ValueError(f"horizon must be at least 1, got {horizon}")
  v = np.empty((horizon, len(solved)))
  q = np.empty((horizon, *policy.shape))
  successor = solved.astype(np.float64)
  for t in reversed(range(horizon)):
    q[t] = _action_values(next_state, solved, successor, beta, slip)
    v[t] = successor = (policy * q[t]).sum(axis=1)
    v[t, solved] = 1.0
  return v, q


def stationary_values(
  next_state: np.ndarray,
  solved: np.ndarray,
  policy: np.ndarray,
  *,
  beta: float,
  slip: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
  """Values without a step limit, by one dense linear solve.

  For a few thousand states at most. The limit of `policy_values` for a growing
  horizon: the least solution of

    V(s) = beta sum_e w(e|s) x(next_state[s, e]),
    w(e|s) = sum_a policy(a|s) Pr(e|a),

  with x = 1 on solved states. States that can't reach success have V = 0 and
  leave the system, which makes it non-singular for beta = 1 too.

  Args:
    next_state: int [S, A], successors, in [0, S).
    solved: bool [S].
    policy: [S, A], probabilities of the chosen action.
    beta: discount of one step, in (0, 1].
    slip: probability in [0, 1] of a uniformly random executed action.

  Returns:
    v: float64 [S].
    q: float64 [S, A].

  Raises:
    ValueError: an argument out of its range.
  """
  policy = _check(next_state, solved, policy, beta, slip)
  size, num_actions = policy.shape
  executed = (1.0 - slip) * policy + slip / num_actions
  live = _can_reach(next_state, executed > 0, solved) & ~solved
  matrix = np.zeros((size, size))
  rows = np.repeat(np.arange(size), num_actions)
  np.add.at(matrix, (rows, next_state.reshape(-1)), executed.reshape(-1))
  v = solved.astype(np.float64)
  system = np.eye(live.sum()) - beta * matrix[np.ix_(live, live)]
  v[live] = np.linalg.solve(system, beta * (matrix[live] @ v))
  return v, _action_values(next_state, solved, v, beta, slip)


def _action_values(next_state, solved, successor, beta, slip) -> np.ndarray:
  """Q [S, A] from the successors' values [S]; 1 where solved."""
  value = successor[next_state]
  mixed = (1.0 - slip) * value + slip * value.mean(axis=1, keepdims=True)
  return np.where(solved[:, None], 1.0, beta * mixed)


def _can_reach(next_state, possible, solved) -> np.ndarray:
  """Whether a solved state can be reached with positive probability, [S]."""
  reach = solved.copy()
  while True:
    grown = reach | (possible & reach[next_state]).any(axis=1)
    if (grown == reach).all():
      return reach
    reach = grown


def _check(next_state, solved, policy, beta, slip) -> np.ndarray:
  policy = np.asarray(policy, np.float64)
  shape = (len(solved), next_state.shape[-1])
  if next_state.shape != shape or policy.shape != shape:
    raise ValueError(
      "next_state and policy must be [S, A] and solved [S], got"
      f" {next_state.shape}, {policy.shape} and {np.shape(solved)}"
    )
  if ((next_state < 0) | (next_state >= shape[0])).any():
    raise ValueError(f"next_state must lie in [0, {shape[0]})")
  if (policy < 0).any() or not np.allclose(policy.sum(axis=1), 1.0, atol=1e-6):
    raise ValueError("each row of policy must be a distribution over actions")
  if not 0.0 < beta <= 1.0:
    raise ValueError(f"beta must be in (0, 1], got {beta}")
  if not 0.0 <= slip <= 1.0:
    raise ValueError(f"slip must be in [0, 1], got {slip}")
  return policy
