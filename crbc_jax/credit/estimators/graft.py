"""GRAFT: temporal-difference residuals of the closure, step by step.

Source: arXiv 2609.28963, of which a part was read. The paper sweeps the values
to their fixed point; here one solve gives it.
"""

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, is_number
from crbc_jax.credit import closure, combine
from crbc_jax.credit.process import build_process
from crbc_jax.credit.transitions import RESIDUE, scores_beyond_rounding
from crbc_jax.types import EmpiricalProcess, GroupArrays, StepCredit

SINGLETONS = ("sign", "zero")


def graft(
  group: GroupArrays,
  *,
  beta: float = 0.99,
  lam: float = 0.0,
  hops: int = 8,
  norm: str = "mean_std",
  singleton: str = "sign",
  trajectory: str = "none",
  w_group: float = 1.0,
  w_step: float = 1.0,
  signal: str = "outcome",
  eps: float = 1e-6,
) -> StepCredit:
  """w_G A^G + w_S z(A), z over the rows that left the same anchor.

    delta = gain + beta V(s') - V(s)          V the exact closure
    A     = delta + sum_{k=1..hops} (beta lam)^k mean{delta of the rows that
            leave an anchor k hops on}         Graph-GAE

  Two parts of the paper have nothing to work on at the fixed point, where the
  residuals of all rows that leave an anchor sum to 0. A lone row is its
  anchor's whole value, so delta = 0 and "sign" gives 0; and the mean over all
  rows that leave a set of anchors is 0, so `lam` moves A by rounding only. The
  paper's values are stopped sweeps, and it divides what they leave. Residuals
  below `RESIDUE` of the group's values count as 0 here.

  A group of one rollout credits its own revisits only. An all-fail group gets
  exactly 0. In an all-success group A prefers faster routes while beta < 1.

  Args:
    group: one unbatched group.
    beta: discount of the process in (0, 1].
    lam: weight in [0, 1] of the residuals further on; static, and 0 leaves
      that computation out. It is quadratic in the anchors.
    hops: how many hops Graph-GAE looks ahead, >= 1; static.
    norm: "mean_std" (z with ddof 1) or "mean".
    singleton: the row alone at its anchor gets its "sign", A/(|A| + eps), or
      "zero"; see above.
    trajectory: trajectory term; see `combine.trajectory_term`.
    w_group, w_step: weights of the two terms.
    signal: "outcome" or "observed" rewards; see `build_process`.
    eps: added to standard deviations.

  Returns:
    StepCredit with q - v = delta and v the closure's V; `aux["residual"]` is
    max_s |mean delta|, how well the solve closed. A row is live when its
    anchor was visited at least twice.

  Raises:
    ValueError: an option is out of range, or `lam` or `hops` is not static.
  """
  _check_horizon(lam, hops)
  check_choice("singleton", singleton, SINGLETONS)
  process = build_process(group, beta=beta, signal=signal)
  v = closure.exact_values(process, beta=beta).v
  following = jnp.append(v, 0.0)[process.row_next]
  target = jnp.where(group.mask, process.row_gain + beta * following, 0.0)
  here = jnp.where(group.mask, v[group.state], 0.0)
  delta = target - here
  tail = jnp.zeros_like(delta)
  if lam != 0:
    ahead = residuals_ahead(process, delta, discount=beta * lam, hops=hops)
    tail = jnp.where(group.mask, ahead[process.row_next], 0.0)

  # V(s) is the same for all rows that left s: scores of the targets are the
  # scores of the residuals, before the subtraction loses digits.
  size = jnp.full_like(
    target, jnp.maximum(jnp.max(jnp.abs(target)), jnp.max(jnp.abs(here)))
  )
  num_states = group.state_mask.shape[0]
  step = scores_beyond_rounding(
    target + tail,
    group.state,
    group.mask,
    num_states,
    size=size,
    norm=norm,
    eps=eps,
  )
  visits = process.state_count[group.state]
  if singleton == "sign":
    value = delta + tail
    value = jnp.where(jnp.abs(value) > RESIDUE * size, value, 0.0)
    alone = group.mask & (visits == 1)
    step = jnp.where(alone, value / (jnp.abs(value) + eps), step)
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=target,
    v=here,
    live=group.mask & (visits >= 2),
    aux={"residual": _largest_mean(process, delta)},
  )


def residuals_ahead(
  process: EmpiricalProcess, delta: jax.Array, *, discount: float, hops: int
) -> jax.Array:
  """Graph-GAE's sum over what lies ahead of each anchor.

    X_1 = {x},  X_{k+1} = observed interior successors of X_k
    sum_{k=1..hops} discount^k mean{delta_j : rows j that leave X_k}

  Each row counts, however often its transition was seen; an empty X_k adds 0.

  Args:
    process: one unbatched process.
    delta: [R] residual of each row, 0 on padding.
    discount: beta lam.
    hops: static, >= 1.

  Returns:
    [N + 1]; the last entry, the absorbed successor, is 0.
  """
  num_states = process.state_count.shape[0]
  edge = (
    jnp.zeros((num_states, num_states + 1))
    .at[process.row_state, process.row_next]
    .max(process.row_mask.astype(jnp.float32))[:, :num_states]
  )
  total = jax.ops.segment_sum(delta, process.row_state, num_states)

  def hop(reached, k):
    rows = jnp.sum(jnp.where(reached, process.state_count[None], 0.0), axis=1)
    sums = jnp.sum(jnp.where(reached, total[None], 0.0), axis=1)
    # Products and sums of zeros and ones: > 0 holds at any precision.
    following = jnp.matmul(reached.astype(jnp.float32), edge) > 0
    return following, discount**k * sums / jnp.maximum(rows, 1.0)

  _, terms = jax.lax.scan(
    hop, jnp.eye(num_states, dtype=bool), jnp.arange(1, hops + 1)
  )
  return jnp.append(jnp.sum(terms, axis=0), 0.0)


def _largest_mean(process: EmpiricalProcess, delta: jax.Array) -> jax.Array:
  total = jax.ops.segment_sum(
    delta, process.row_state, process.state_count.shape[0]
  )
  return jnp.max(jnp.abs(total) / jnp.maximum(process.state_count, 1.0))


def _check_horizon(lam: float, hops: int) -> None:
  if not (is_number(lam) and 0 <= lam <= 1):
    raise ValueError(f"lam must be a static number in [0, 1], got {lam!r}")
  if not (isinstance(hops, int) and not isinstance(hops, bool) and hops >= 1):
    raise ValueError(f"hops must be a static whole number >= 1, got {hops!r}")
