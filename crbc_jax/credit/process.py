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
  weight: chex.Array | None = None,
) -> EmpiricalProcess:
  """Counts, behaviour policy, transitions and payoffs of one group.

    mu(a|s)  = N(s,a) / N(s),   P(x|s,a) = N(s,a,x) / N(s,a)
    gain     = mean payoff over the visits of a transition

  With `signal="outcome"` a step that reaches success pays beta * V(z+) = beta
  and every other step pays nothing: the paper's b(s) with V(z+) = 1, V(z-) = 0.
  With `signal="observed"` a step pays its observed reward and both absorbing
  states are worth 0. The second reduces to the first when the only reward is
  `beta` on the step that succeeds; with the usual reward 1 there, every value
  is the paper's divided by beta.

  With a `weight` of each rollout every count N is the sum of the weights of
  the rows counted; weights of 1 give the unweighted process bit for bit. An
  anchor or pair that only rollouts of weight 0 saw has count 0 and value 0,
  and a bootstrapped truncation that shows such an anchor is a failure.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    signal: "outcome" (default, the paper) or "observed" (general rewards).
    truncation: "failure" (default, the paper: the last step of a truncated
      rollout is absorbed in failure) or "bootstrap" (it leads to the anchor it
      showed last, if the group ever acted from there; needs beta < 1 and a
      recorded successor: without one it is the same as "failure"). Returns,
      and so depth 0, never bootstrap.
    weight: [G] >= 0, what each rollout counts; None is 1.

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
  merged = group.transitions
  seen = merged.count > 0
  count = jnp.where(seen, merged.count, 0).astype(jnp.float32)
  row_transition = jnp.where(group.mask, merged.row, 0)
  row_weight = group.mask.astype(jnp.float32)
  if weight is not None:
    chex.assert_equal_shape([weight, group.traj_mask])
    of_traj = jnp.asarray(weight, jnp.float32)
    traj = jnp.where(group.mask, group.traj, 0)
    row_weight = jnp.where(group.mask, of_traj[traj], 0.0)
    count = jax.ops.segment_sum(row_weight, row_transition, len(count))
    seen = count > 0
  pair = jnp.where(seen, merged.pair, 0)
  state = jnp.asarray(group.pair_state)[pair]

  def goes_on(boundary):
    live = boundary == Boundary.NONE
    if truncation == "bootstrap":
      live |= boundary == Boundary.TRUNCATED
    return live

  row_succeeded = group.boundary == Boundary.SUCCESS
  if signal == "outcome":
    row_gain = jnp.where(group.mask & row_succeeded, beta, 0.0)
    gain = jnp.where(seen & (merged.boundary == Boundary.SUCCESS), beta, 0.0)
  else:
    row_gain = jnp.where(group.mask, group.reward, 0.0)
    total = jax.ops.segment_sum(
      row_weight * row_gain, row_transition, len(count)
    )
    gain = total / divisor(count)

  next_state = jnp.where(
    seen & goes_on(merged.boundary), merged.next_state, num_states
  )
  pair_count = jax.ops.segment_sum(count, pair, num_pairs)
  state_count = jax.ops.segment_sum(count, state, num_states)
  row_next = jnp.where(
    group.mask & goes_on(group.boundary), group.next_state, num_states
  )
  if weight is not None:
    known = jnp.append(state_count > 0, False)
    next_state = jnp.where(known[next_state], next_state, num_states)
    row_next = jnp.where(known[row_next], row_next, num_states)
  return EmpiricalProcess(
    state_count=state_count,
    pair_count=pair_count,
    behaviour=pair_count / divisor(state_count[group.pair_state]),
    pair_state=group.pair_state,
    count=count,
    gain=gain,
    pair=pair,
    state=state,
    next_state=next_state,
    leads_to=jnp.where(
      next_state < num_states, next_state, num_states + merged.boundary
    ),
    hop=jnp.where(group.state_mask, merged.hop, jnp.arange(num_states)),
    slot=jnp.where(group.state_mask, merged.slot, len(merged.slot_mask)),
    slot_mask=merged.slot_mask,
    row_transition=row_transition,
    row_pair=group.pair,
    row_state=group.state,
    row_next=row_next,
    row_gain=row_gain,
    row_return=discounted_returns(
      row_gain, group.traj, group.mask, discount=beta
    ),
    row_weight=row_weight,
    row_mask=group.mask,
  )


def divisor(count: chex.Array) -> chex.Array:
  """What to divide a total by: the count, 1 where nothing was counted."""
  return jnp.where(count > 0, count, 1.0)


def discounted_returns(
  reward: chex.Array,
  traj: chex.Array,
  mask: chex.Array,
  *,
  discount: chex.Numeric,
) -> chex.Array:
  """G_t = r_t + discount * G_{t+1} inside each trajectory.

  Args:
    reward: [R] rewards, rows sorted by (trajectory, step).
    traj: [R] trajectory of each row.
    mask: [R] False on padding (which comes last).
    discount: in [0, 1], or [R] discounts of what follows each row.

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
  success = group.transitions.boundary == Boundary.SUCCESS
  target = jnp.where(
    process.next_state < num_states,
    process.next_state,
    jnp.where(success, num_states, num_states + 1),
  )
  counts = (
    jnp.zeros((num_pairs, num_states + 2))
    .at[process.pair, target]
    .add(process.count)
  )
  return counts / divisor(process.pair_count)[:, None]


def check_group(group: GroupArrays) -> None:
  """Static shape and type checks on entry to a kernel."""
  rows = [
    group.state,
    group.pair,
    group.action,
    group.next_state,
    group.traj,
    group.step,
    group.boundary,
    group.reward,
    group.value,
    group.valid,
    group.mask,
    group.transitions.row,
  ]
  chex.assert_rank(rows, 1)
  chex.assert_equal_shape(rows)
  chex.assert_equal_shape([group.pair_state, group.pair_mask])
  chex.assert_rank([group.state_mask, group.traj_mask], 1)
