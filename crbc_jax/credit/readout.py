"""From values to normalised step credit: CRBC's read-out and its variants.

Source: CRBC (arXiv 2609.35082), step credit; shrinkage, the zero rule and the
read-out without action keys are ours.
"""

import chex
import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, is_number
from crbc_jax.credit import combine
from crbc_jax.types import EmpiricalProcess, GroupArrays, StepCredit, Values

READOUTS = ("action", "state")
NOISE = 1e-5
"""Largest |Q - V| of a group, in units of its rewards, that counts as 0."""


def read_out(
  group: GroupArrays,
  process: EmpiricalProcess,
  values: Values,
  residual: chex.Array,
  *,
  sigma_min: float,
  kappa: float,
  readout: str,
  w_group: float,
  w_step: float,
  signal: str,
  trajectory: str,
) -> StepCredit:
  """w_G A^G + w_S A^S of one group.

    action  A^S = (Q(s,a) - V(s)) / max(sigma(s), sigma_min), where at least
            two actions were seen at s
    state   the same of payoff + beta V(s') - V(s), where at least two
            successors were seen at s: for actions that have no key

  sigma(s)^2 is the mean of the squared credit over the visits to s. With
  kappa, credit shrinks by N(s,a) / (N(s,a) + kappa). A group whose largest
  |Q - V| is below 1e-5 of its rewards gets exactly 0: that is rounding, which
  would otherwise be divided by its own spread.

  Args:
    group, process, values: one unbatched group.
    residual: scalar; in units of the rewards into `aux`.
    sigma_min: floor of the divisor, > 0, in units of the values (the paper's
      .1 is for outcomes in [0, 1]).
    kappa: >= 0.
    readout: "action" or "state".
    w_group, w_step: weights of the terms.
    signal: of the trajectory term and the reward scale.
    trajectory: kind of the trajectory term.
  """
  check_choice("readout", readout, READOUTS)
  if is_number(sigma_min) and not sigma_min > 0:
    raise ValueError(f"sigma_min must be > 0, got {sigma_min}")
  if is_number(kappa) and not kappa >= 0:
    raise ValueError(f"kappa must be >= 0, got {kappa}")
  by_action = readout == "action"
  scale = jnp.ones(())
  if signal == "observed":
    scale = jnp.max(jnp.where(group.mask, jnp.abs(process.row_return), 0.0))
  gap = jnp.where(process.pair_count > 0, values.gap, 0.0)
  if by_action:
    credit, gate = _by_action(process, gap, sigma_min=sigma_min)
    raw, step = gap[group.pair], credit[group.pair]
  else:
    raw = values.row_gap
    step, gate = _by_state(process, raw, sigma_min=sigma_min)
  raw = jnp.where(group.mask, raw, 0.0)
  visits = jnp.where(group.mask, process.pair_count[group.pair], 1.0)
  step = step * visits / (visits + kappa)
  signals = jnp.max(jnp.abs(raw)) >= NOISE * scale
  step = jnp.where(group.mask & signals, step, 0.0)
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  v = jnp.where(group.mask, values.v[group.state], 0.0)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=v + raw,
    v=v,
    live=group.mask & gate[group.state],
    aux={"residual": residual / jnp.where(scale > 0, scale, 1.0)},
  )


def _by_action(process: EmpiricalProcess, gap, *, sigma_min):
  """Credit of each pair [M], and which anchors may give some [N]."""
  num_states = process.state_count.shape[0]
  seen = process.pair_count > 0
  # Padded pairs may hold any number: they are at no anchor.
  state = jnp.where(seen, process.pair_state, 0)
  actions = jax.ops.segment_sum(seen.astype(jnp.int32), state, num_states)
  share = jnp.where(seen, process.behaviour, 0.0)
  variance = jax.ops.segment_sum(share * gap**2, state, num_states)
  sigma = jnp.sqrt(jnp.maximum(variance, sigma_min**2))
  gate = actions >= 2
  return jnp.where(gate[state] & seen, gap / sigma[state], 0.0), gate


def _by_state(process: EmpiricalProcess, row_gap, *, sigma_min):
  """Credit of each row [R], and which anchors may give some [N]."""
  num_states = process.state_count.shape[0]
  seen = process.count > 0
  state = jnp.where(seen, process.state, 0)
  first = jax.ops.segment_min(
    jnp.where(seen, process.leads_to, jnp.iinfo(jnp.int32).max),
    state,
    num_states,
  )
  other = seen & (process.leads_to != first[state])
  gate = jax.ops.segment_max(other.astype(jnp.int32), state, num_states) > 0
  at_row = jnp.where(process.row_mask, process.row_state, 0)
  row_gap = jnp.where(process.row_mask, row_gap, 0.0)
  square = jax.ops.segment_sum(row_gap**2, at_row, num_states)
  variance = square / jnp.maximum(process.state_count, 1.0)
  sigma = jnp.sqrt(jnp.maximum(variance, sigma_min**2))
  return jnp.where(gate[at_row], row_gap / sigma[at_row], 0.0), gate
