"""GroupArrays -> EmpiricalProcess: merge a group's rollouts by anchor.

Source: CRBC (arXiv 2609.35082), section on the empirical process.
"""

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, check_discount, is_number
from crbc_jax.types import Boundary, EmpiricalProcess, GroupArrays

SIGNALS = ("outcome", "observed")
TRUNCATIONS = ("failure", "bootstrap")


def build_process(
  group: GroupArrays,
  *,
  beta: float,
  signal: str = "outcome",
  truncation: str = "failure",
) -> EmpiricalProcess:
  """Counts, behaviour policy, transitions and payoffs of one group.

    mu(a|s) = N(s,a) / N(s)
    M(s,s') = N(s,s') / N(s)            interior successors only
    gain    = mean over the visits to s of the payoff of the step taken

  With `signal="outcome"` a step that reaches success pays beta * V(z+) = beta
  and every other step pays nothing: the paper's b(s) with V(z+) = 1, V(z-) = 0.
  With `signal="observed"` a step pays its observed reward and both absorbing
  states are worth 0. The second reduces to the first when the only reward is
  `beta` on the step that succeeds; with the usual reward 1 there, every value
  is the paper's divided by beta.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    signal: "outcome" (default, the paper) or "observed" (general rewards).
    truncation: "failure" (default, the paper: the last step of a truncated
      rollout is absorbed in failure) or "bootstrap" (it leads to the anchor it
      showed last, if the group ever acted from there; needs beta < 1 and a
      recorded successor: without one it is the same as "failure"). Returns,
      and so depth 0, never bootstrap.

  Returns:
    The process; anchors that nobody acted from and padding have count 0.
  """
  check_discount("beta", beta)
  check_choice("signal", signal, SIGNALS)
  check_choice("truncation", truncation, TRUNCATIONS)
  if truncation == "bootstrap" and is_number(beta) and beta >= 1:
    raise ValueError(
      "truncation='bootstrap' needs beta < 1: at 1 a truncated "
      "loop never ends and its value is not defined"
    )
  check_group(group)
  num_states, num_pairs = group.state_mask.shape[0], group.pair_mask.shape[0]
  visits = group.mask.astype(jnp.float32)
  state_count = jax.ops.segment_sum(visits, group.state, num_states)
  pair_count = jax.ops.segment_sum(visits, group.pair, num_pairs)
  per_visit = 1.0 / jnp.maximum(state_count, 1.0)

  succeeded = group.boundary == Boundary.SUCCESS
  payoff = (
    beta * succeeded.astype(jnp.float32)
    if signal == "outcome"
    else group.reward
  )
  row_gain = jnp.where(group.mask, payoff, 0.0)
  goes_on = group.boundary == Boundary.NONE
  if truncation == "bootstrap":
    goes_on |= group.boundary == Boundary.TRUNCATED
  row_next = jnp.where(group.mask & goes_on, group.next_state, num_states)

  successors = (
    jnp.zeros((num_states, num_states + 1))
    .at[group.state, row_next]
    .add(visits)
  )
  return EmpiricalProcess(
    state_count=state_count,
    pair_count=pair_count,
    behaviour=pair_count * per_visit[group.pair_state],
    matrix=successors[:, :num_states] * per_visit[:, None],
    gain=jax.ops.segment_sum(row_gain, group.state, num_states) * per_visit,
    pair_state=group.pair_state,
    row_pair=group.pair,
    row_state=group.state,
    row_next=row_next,
    row_gain=row_gain,
    row_return=discounted_returns(
      row_gain, group.traj, group.mask, discount=beta
    ),
    row_mask=group.mask,
  )


def discounted_returns(
  reward: chex.Array, traj: chex.Array, mask: chex.Array, *, discount: float
) -> chex.Array:
  """G_t = r_t + discount * G_{t+1} inside each trajectory.

  Args:
    reward: [R] rewards, rows sorted by (trajectory, step).
    traj: [R] trajectory of each row.
    mask: [R] False on padding (which comes last).
    discount: in [0, 1].

  Returns:
    [R] returns, 0 on padding.
  """
  chex.assert_equal_shape([reward, traj, mask])
  goes_on = jnp.append((traj[1:] == traj[:-1]) & mask[1:], False)
  factor = jnp.where(goes_on, discount, 0.0)

  def compose(later, earlier):  # affine maps G -> reward + factor * G
    return (earlier[0] + earlier[1] * later[0], earlier[1] * later[1])

  returns, _ = jax.lax.associative_scan(
    compose, (jnp.where(mask, reward, 0.0), factor), reverse=True
  )
  return returns


def transition_probs(
  group: GroupArrays, process: EmpiricalProcess
) -> chex.Array:
  """P(x|s,a) as a dense array [M, N + 2]: interior, success, failure.

  Truncation as failure unless the process bootstraps it. Rows of padded pairs
  are zero. For inspection and tests; the estimators never build it.
  """
  num_pairs, num_states = group.pair_mask.shape[0], group.state_mask.shape[0]
  success = group.boundary == Boundary.SUCCESS
  target = jnp.where(
    process.row_next < num_states,
    process.row_next,
    jnp.where(success, num_states, num_states + 1),
  )
  counts = (
    jnp.zeros((num_pairs, num_states + 2))
    .at[group.pair, target]
    .add(group.mask.astype(jnp.float32))
  )
  return counts / jnp.maximum(process.pair_count, 1.0)[:, None]


def check_group(group: GroupArrays) -> None:
  """Static shape and type checks on entry to a kernel."""
  rows = [
    group.state,
    group.pair,
    group.next_state,
    group.traj,
    group.step,
    group.boundary,
    group.reward,
    group.value,
    group.valid,
    group.mask,
  ]
  chex.assert_rank(rows, 1)
  chex.assert_equal_shape(rows)
  chex.assert_equal_shape([group.pair_state, group.pair_mask])
  chex.assert_rank([group.state_mask, group.traj_mask], 1)
