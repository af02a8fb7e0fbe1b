"""CRBC shrunk by its own uncertainty.

Source: ours.
"""

import dataclasses

import jax
import jax.numpy as jnp

from crbc_jax.checks import check_choice, is_number
from crbc_jax.credit import closure, combine, posterior
from crbc_jax.credit.process import build_process, divisor
from crbc_jax.credit.readout import read_out
from crbc_jax.types import EmpiricalProcess, GroupArrays, StepCredit

LEVELS = ("pair", "anchor")


def crbc_shrunk(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  level: str = "pair",
  strength: float = 1.0,
  sigma_min: float = 0.1,
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> StepCredit:
  """`crbc` with credit that it is not sure of made small.

    A^S = c (Q - V) / max(sigma, sigma_min),   c = x / (x + strength y)

    pair    x = gap(s,a)^2,                  y = sd(s,a)^2
    anchor  x = sigma^2 = sum_a mu gap^2,    y = sum_a mu sd^2

  Of an unbiased estimate g of theta with variance sd^2, c g has the squared
  error c^2 sd^2 + (1 - c)^2 theta^2, least at c = theta^2 / (theta^2 + sd^2);
  g^2 stands for theta^2 here. Shrinking by anchor keeps sum_a mu A = 0, by
  pair it does not. sigma is that of the unshrunk credit: divided by its own,
  shrinkage would cancel. sd is `posterior.standard_errors`, which draws
  nothing. Degenerate groups get what they get from `crbc`.

  Args:
    group: one unbatched group.
    beta: discount of the process in (0, 1].
    level: "pair" or "anchor".
    strength: >= 0; 0 is `crbc`.
    sigma_min, w_group, w_step, signal, truncation, trajectory: as `crbc`.

  Returns:
    StepCredit; q and v are those of the closure, unshrunk.

  Raises:
    ValueError: an option out of its range.
  """
  check_choice("level", level, LEVELS)
  if is_number(strength) and not strength >= 0:
    raise ValueError(f"strength must be >= 0, got {strength}")
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  values = closure.exact_values(process, beta=beta)
  plain = read_out(
    group,
    process,
    values,
    closure.centring_residual(process, values),
    sigma_min=sigma_min,
    kappa=0.0,
    readout="action",
    w_group=w_group,
    w_step=w_step,
    signal=signal,
    trajectory=trajectory,
  )
  sd = posterior.standard_errors(group, process, values, beta=beta).gap
  signals = posterior.of_rows(group, values).gap ** 2
  noise = sd**2
  if level == "anchor":
    signals, noise = (_anchor_mean(process, x) for x in (signals, noise))
  whole = signals + strength * noise
  share = jnp.where(whole > 0, signals / jnp.where(whole > 0, whole, 1.0), 1.0)
  step = share * plain.step
  return dataclasses.replace(
    plain,
    step=step,
    advantage=combine.combine(
      plain.trajectory, step, w_group=w_group, w_step=w_step
    ),
  )


def _anchor_mean(process: EmpiricalProcess, rows):
  """Mean over the visits to each row's anchor; [R]."""
  state = jnp.where(process.row_mask, process.row_state, 0)
  total = jax.ops.segment_sum(rows, state, len(process.state_count))
  return (total / divisor(process.state_count))[state]
