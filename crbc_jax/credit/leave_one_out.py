"""The closure without oneself: each rollout valued by the others.

Source: ours; for the closure what RLOO (arXiv 2402.14740) is for the group
mean.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice
from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process, discounted_returns
from crbc_jax.types import EmpiricalProcess, GroupArrays, Values

READOUTS = ("own", "others")


class LeftOut(NamedTuple):
  """Each row by the values of the other rollouts; 0 where not `seen`."""

  v: chex.Array  # [R] float32, V_-i(s)
  gap: chex.Array  # [R] float32, the row's Q less V_-i(s)
  seen: chex.Array  # [R] bool, another rollout acted from the row's anchor


def values_without(
  group: GroupArrays,
  *,
  beta: float,
  signal: str = "outcome",
  truncation: str = "failure",
) -> tuple[EmpiricalProcess, Values]:
  """The exact closure without rollout i, for every i.

  Each is solved afresh, by contraction, with weight 0 for rollout i. Updating
  one factorisation (Woodbury) gives the same values, but subtracts, and needs
  the inverse of the uncontracted system: see `experiments.leave_one_out`.

  Args:
    group: one unbatched group.
    beta, signal, truncation: as `build_process`.

  Returns:
    (processes, values) with a leading axis [G] on every array: memory is that
    of G processes. An anchor or pair that only i saw has count 0 and value 0.
  """

  def without(weight):
    process = build_process(
      group, beta=beta, signal=signal, truncation=truncation, weight=weight
    )
    return process, closure.exact_values(process, beta=beta)

  return jax.vmap(without)(1.0 - jnp.eye(group.traj_mask.shape[0]))


def leave_one_out(
  group: GroupArrays,
  *,
  beta: float,
  readout: str = "own",
  signal: str = "outcome",
  truncation: str = "failure",
) -> LeftOut:
  """Q and V of each row with V of the other rollouts alone.

    own     Q = sum_(k<n) beta^k payoff_(t+k) + beta^n V_-i(s_(t+n)),
            s_(t+n) the next anchor of rollout i that another rollout acted
            from: the row's own path until it meets the others, or ends
    others  Q = Q_-i(s,a) where another rollout took a at s, else as "own"

  V_-i(s), and whether another rollout acted at s, do not depend on what rollout
  i did at s. As sum_a grad pi(a|s) = 0, the expected policy gradient of `own`
  with baseline V_-i(s) is that without a baseline: self-influence adds no bias.
  (The plain closure counts the row's own action in V(s) and shrinks its credit
  by about (N-1)/N: by half where an anchor was visited twice.) What remains is
  the error of V_-i(s_(t+n)) as a critic, and of an anchor that no other saw
  there is no credit at all: its rows keep the trajectory term alone.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    readout: "own" or "others".
    signal, truncation: as `build_process`.

  Returns:
    LeftOut.
  """
  check_choice("readout", readout, READOUTS)
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  others, values = values_without(
    group, beta=beta, signal=signal, truncation=truncation
  )
  num_states, mask = group.state_mask.shape[0], group.mask
  traj, state, pair = (
    jnp.where(mask, x, 0) for x in (group.traj, group.state, group.pair)
  )
  after = jnp.where(process.row_next < num_states, process.row_next, 0)
  seen = mask & (others.state_count[traj, state] > 0)
  meets = (
    mask
    & (process.row_next < num_states)
    & (others.state_count[traj, after] > 0)
  )
  v = jnp.where(seen, values.v[traj, state], 0.0)
  v_after = jnp.where(meets, values.v[traj, after], 0.0)
  path = discounted_returns(
    process.row_gain + beta * v_after,
    traj,
    mask,
    discount=jnp.where(meets, 0.0, beta),
  )
  # Of like values one step apart the difference is what is accurate.
  one_step = process.row_gain + (v_after - v) - (1.0 - beta) * v_after
  gap = jnp.where(meets, one_step, path - v)
  if readout == "others":
    known = others.pair_count[traj, pair] > 0
    gap = jnp.where(known, values.gap[traj, pair], gap)
  return LeftOut(v=v, gap=jnp.where(seen, gap, 0.0), seen=seen)
