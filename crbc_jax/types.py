"""Frozen data types and callable aliases shared by every part; no logic.

Axis names used in shape comments everywhere:

  B  task groups in a batch            R  rows (environment steps) of a group
  N  anchors (distinct states)         M  observed (state, action) pairs
  G  rollouts (trajectories) of a task T  steps of one rollout
"""

import enum
from collections.abc import Callable, Mapping

import chex


class Boundary(enum.IntEnum):
  """What ended the trajectory after a step; `NONE` when it went on."""

  NONE = 0
  SUCCESS = 1
  FAILURE = 2
  TRUNCATED = 3


@chex.dataclass(frozen=True)
class GroupArrays:
  """One task group as padded arrays: what every estimator sees.

  Rows are sorted by (trajectory, step) and the padding comes last. Padded rows
  hold zeros and `mask = False`; nothing may depend on what they hold.
  `next_state = N` (one past the last anchor) says that the successor was never
  acted from: it left the observed process.
  """

  state: chex.Array  # [R] int32, anchor of the row, in [0, N)
  pair: chex.Array  # [R] int32, (state, action) pair of the row, in [0, M)
  next_state: chex.Array  # [R] int32, observed successor, in [0, N]
  traj: chex.Array  # [R] int32, trajectory of the row, in [0, G)
  step: chex.Array  # [R] int32, position inside the trajectory, from 0
  boundary: chex.Array  # [R] int32, a `Boundary`
  reward: chex.Array  # [R] float32, observed reward of the step
  value: chex.Array  # [R] float32, a critic's V of the row's state; 0 without
  valid: chex.Array  # [R] bool, the action could be parsed and executed
  mask: chex.Array  # [R] bool, False on padding
  pair_state: chex.Array  # [M] int32, anchor of each pair, in [0, N)
  pair_mask: chex.Array  # [M] bool
  state_mask: chex.Array  # [N] bool
  traj_mask: chex.Array  # [G] bool


@chex.dataclass(frozen=True)
class EmpiricalProcess:
  """The merged group as a Markov process with absorbing success and failure.

  Transitions stay in row form (one row per observed transition), which is
  exact and linear in the number of steps; `process.transition_probs` gives
  P(x|s,a) as a dense array where one is wanted.
  """

  state_count: chex.Array  # [N] float32, N(s)
  pair_count: chex.Array  # [M] float32, N(s,a)
  behaviour: chex.Array  # [M] float32, mu(a|s) of the pair
  matrix: chex.Array  # [N, N] float32, M(s,s') = sum_a mu(a|s) P(s'|s,a)
  gain: chex.Array  # [N] float32, mean immediate payoff of one step at s
  pair_state: chex.Array  # [M] int32, anchor of the pair
  row_pair: chex.Array  # [R] int32
  row_state: chex.Array  # [R] int32
  row_next: chex.Array  # [R] int32, interior successor, N = absorbed
  row_gain: chex.Array  # [R] float32, immediate payoff, 0 on padding
  row_return: chex.Array  # [R] float32, discounted payoff from the row onward
  row_mask: chex.Array  # [R] bool


@chex.dataclass(frozen=True)
class Values:
  """Values of the behaviour policy on one group."""

  v: chex.Array  # [N] float32
  q: chex.Array  # [M] float32


@chex.dataclass(frozen=True)
class StepCredit:
  """What an estimator returns for one group; every array is per row."""

  advantage: chex.Array  # [R] float32, what the learner uses; 0 on padding
  trajectory: chex.Array  # [R] float32, unweighted trajectory term A^G
  step: chex.Array  # [R] float32, unweighted, normalised step term A^S
  q: chex.Array  # [R] float32, value of the row's (state, action)
  v: chex.Array  # [R] float32, value of the row's state
  live: chex.Array  # [R] bool, the step term could differ from 0 (see each)
  aux: Mapping[str, chex.Array]  # scalars, e.g. the solve residual


Estimator = Callable[..., StepCredit]
"""`estimator(group: GroupArrays, *, option=default, ...) -> StepCredit`."""
