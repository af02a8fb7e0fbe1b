"""GAE: temporal differences against a learned critic, along one rollout.

Source: arXiv 1506.02438, eq. 16, as PPO uses it (arXiv 1707.06347, eq. 11-12).
"""

import chex
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount, check_share
from crbc_jax.credit import combine
from crbc_jax.credit.process import SIGNALS, check_group, discounted_returns
from crbc_jax.types import Boundary, GroupArrays, StepCredit


def gae(
  group: GroupArrays,
  *,
  gamma: float = 0.99,
  lam: float = 0.95,
  trajectory: str = "none",
  w_group: float = 1.0,
  signal: str = "outcome",
) -> StepCredit:
  """PPO's advantage from a learned critic; rollouts are never compared.

    delta_t = r_t + gamma V_{t+1} - V_t
    A_t     = delta_t + gamma lam A_{t+1}

  V is `group.value`, the critic's value of the state before the step. It is 0
  after the last step of a rollout however that ended: a truncation counts as a
  failure, as in the other estimators' default, and nothing is bootstrapped.
  lam = 1 gives the discounted return less V, lam = 0 gives delta. Without
  values (all 0) it is the return itself. There is no trajectory term and no
  normalisation: whitening is the learner's `advantage_scale`.

  Args:
    group: one unbatched group.
    gamma: discount in (0, 1].
    lam: weight of longer differences, in [0, 1].
    trajectory: trajectory term, "none" in PPO.
    w_group: its weight.
    signal: "outcome" (r = 1 on the step that succeeds) or "observed" rewards.

  Returns:
    StepCredit; v is V and q = A + V the target the critic learns from. Every
    row is live: it is compared with the critic, not with other rows.

  Raises:
    ValueError: an option is out of range.
  """
  check_group(group)
  check_discount("gamma", gamma)
  check_choice("signal", signal, SIGNALS)
  check_share("lam", lam)
  succeeded = (group.boundary == Boundary.SUCCESS).astype(jnp.float32)
  row = succeeded if signal == "outcome" else group.reward
  reward = jnp.where(group.mask, row, 0.0)
  value = jnp.where(group.mask, group.value, 0.0)
  delta = reward + gamma * _following(value, group) - value
  advantage = discounted_returns(
    delta, group.traj, group.mask, discount=gamma * lam
  )
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return StepCredit(
    advantage=combine.combine(term, advantage, w_group=w_group, w_step=1.0),
    trajectory=term,
    step=advantage,
    q=advantage + value,
    v=value,
    live=group.mask,
    aux={},
  )


def _following(value: chex.Array, group: GroupArrays) -> chex.Array:
  """V of the rollout's next row, 0 after its last; [R]."""
  goes_on = (group.traj[1:] == group.traj[:-1]) & group.mask[1:]
  return jnp.append(jnp.where(goes_on, value[1:], 0.0), 0.0)
