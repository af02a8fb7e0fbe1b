"""Frozen data types and callable aliases shared by every part; no logic.

Axis names used in shape comments everywhere:

  B  task groups in a batch            R  rows (environment steps) of a group
  N  anchors (distinct states)         M  observed (state, action) pairs
  E  distinct transitions              A  branching anchors
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
class Transitions:
  """The rows of a group with equal (state, action, successor, end) merged.

  Counting them once on the host makes every later sum short, exact and linear
  in memory. `hop` and `slot` say how the merged graph contracts: an anchor
  with one live successor other than itself hops there; anchors with several
  (and one of every cycle of hops) are the branching ones, numbered by `slot`,
  that are left to solve for; an anchor without any is resolved where it is.
  Padded transitions have `count = 0`.
  """

  row: chex.Array  # [R] int32, transition of the row, in [0, E)
  pair: chex.Array  # [E] int32, (state, action) pair, in [0, M)
  next_state: chex.Array  # [E] int32, successor, in [0, N]
  boundary: chex.Array  # [E] int32, a `Boundary`
  count: chex.Array  # [E] int32, rows merged into it
  hop: chex.Array  # [N] int32, only live successor, or the anchor itself
  slot: chex.Array  # [N] int32, number of a branching anchor, else A
  slot_mask: chex.Array  # [A] bool


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
  action: chex.Array  # [R] int32, equal where the action keys are
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
  transitions: Transitions


@chex.dataclass(frozen=True)
class EmpiricalProcess:
  """The merged group as a Markov process with absorbing success and failure.

  Transitions are counts in row form, exact and linear in the number of steps
  (of weighted rollouts, sums of their weights);
  `process.transition_probs` gives P(x|s,a) as a dense array where one is
  wanted.
  """

  state_count: chex.Array  # [N] float32, N(s)
  pair_count: chex.Array  # [M] float32, N(s,a)
  behaviour: chex.Array  # [M] float32, mu(a|s) of the pair
  pair_state: chex.Array  # [M] int32, anchor of the pair
  count: chex.Array  # [E] float32, N(s,a,x), 0 on padding
  gain: chex.Array  # [E] float32, mean immediate payoff of the transition
  pair: chex.Array  # [E] int32
  state: chex.Array  # [E] int32
  next_state: chex.Array  # [E] int32, interior successor, N = absorbed
  leads_to: chex.Array  # [E] int32, successor, or N + `Boundary` if absorbed
  hop: chex.Array  # [N] int32, as in `Transitions`
  slot: chex.Array  # [N] int32
  slot_mask: chex.Array  # [A] bool
  row_transition: chex.Array  # [R] int32
  row_pair: chex.Array  # [R] int32
  row_state: chex.Array  # [R] int32
  row_next: chex.Array  # [R] int32, interior successor, N = absorbed
  row_gain: chex.Array  # [R] float32, immediate payoff, 0 on padding
  row_return: chex.Array  # [R] float32, discounted payoff from the row onward
  row_weight: chex.Array  # [R] float32, what a row counts: 1, 0 on padding
  row_mask: chex.Array  # [R] bool


@chex.dataclass(frozen=True)
class Values:
  """Values of the behaviour policy on one group.

  The gaps are summed from differences along transitions: q and v as float32
  numbers have lost the digits that a small difference needs.
  """

  v: chex.Array  # [N] float32
  q: chex.Array  # [M] float32
  gap: chex.Array  # [M] float32, Q(s,a) - V(s), the raw step credit
  row_gap: chex.Array  # [R] float32, the same by the row's own successor


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
