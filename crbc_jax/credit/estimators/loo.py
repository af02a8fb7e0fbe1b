"""Leave-one-out CRBC: no rollout has a say in its own baseline.

Source: ours; see `leave_one_out`.
"""

import jax
import jax.numpy as jnp

from crbc_jax.checks import is_number
from crbc_jax.credit import combine
from crbc_jax.credit.leave_one_out import leave_one_out
from crbc_jax.credit.process import discounted_returns, divisor
from crbc_jax.credit.readout import NOISE
from crbc_jax.types import GroupArrays, StepCredit


def crbc_loo(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  sigma_min: float = 0.1,
  readout: str = "own",
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "rloo",
) -> StepCredit:
  """w_G A^G + w_S (Q - V_-i(s)) / max(sigma(s), sigma_min).

  V_-i is the closure of the other rollouts, Q the row's own step valued by it
  (see `leave_one_out`). Step credit is gated on another rollout having acted
  from the anchor. sigma(s)^2 is the mean square of the credit over those rows
  at s; it is the one thing a row has a share in, and scales credit without
  moving it. With `sigma_min` >= 1 it drops out (outcome rewards).

  A group of one rollout gets 0; so does an all-fail group; in an all-success
  group A^G = 0 and A^S prefers faster routes while beta < 1.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    sigma_min: floor of the divisor, > 0, in units of the values.
    readout: "own" or "others".
    w_group, w_step: weights of the terms.
    signal, truncation: as `crbc`.
    trajectory: trajectory term; RLOO by default, which leaves out as well.

  Returns:
    StepCredit; v is V_-i(s) and q the row's Q, both 0 where nobody else was
    at s; `aux` is empty.

  Raises:
    ValueError: an option out of its range.
  """
  if is_number(sigma_min) and not sigma_min > 0:
    raise ValueError(f"sigma_min must be > 0, got {sigma_min}")
  found = leave_one_out(
    group, beta=beta, readout=readout, signal=signal, truncation=truncation
  )
  state = jnp.where(group.mask, group.state, 0)
  num_states = group.state_mask.shape[0]
  square = jax.ops.segment_sum(found.gap**2, state, num_states)
  count = jax.ops.segment_sum(found.seen.astype(jnp.float32), state, num_states)
  sigma = jnp.sqrt(jnp.maximum(square / divisor(count), sigma_min**2))
  scale = jnp.ones(())
  if signal == "observed":
    returns = discounted_returns(
      jnp.where(group.mask, group.reward, 0.0),
      group.traj,
      group.mask,
      discount=beta,
    )
    scale = jnp.max(jnp.abs(returns))
  signals = jnp.max(jnp.abs(found.gap)) >= NOISE * scale
  step = jnp.where(found.seen & signals, found.gap / sigma[state], 0.0)
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=found.v + found.gap,
    v=found.v,
    live=found.seen,
    aux={},
  )
