"""CRBC: Cross-Rollout Bellman Closure, exact and at finite depth.

Source: arXiv 2609.35082. Defaults are the paper's: beta .98, infinite depth,
(w_G, w_S) = (1, 5), sigma_min .1, truncation as failure.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.credit import closure, combine
from crbc_jax.credit.process import build_process
from crbc_jax.types import EmpiricalProcess, GroupArrays, StepCredit, Values


def crbc(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  depth: float = closure.EXACT,
  sigma_min: float = 0.1,
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> StepCredit:
  """w_G A^G + w_S (Q - V) / max(sigma, sigma_min), gated on >= 2 actions.

  A group of one rollout has A^G = 0 and credits its own revisits only; an
  all-fail group gets exactly 0; in an all-success group A^G = 0 and A^S
  prefers faster routes while beta < 1.

  Args:
    group: one unbatched group.
    beta: discount of the process in (0, 1]; 1 is allowed.
    depth: 0 (visit averaging), 1, 2, ... or inf (the exact closure).
    sigma_min: floor of the step term's divisor, in units of the values: scale
      it with the rewards under `signal="observed"`.
    w_group: weight w_G of the trajectory term.
    w_step: weight w_S of the step term; 0 is the trajectory term alone.
    signal: "outcome" (the paper) or "observed" rewards; see `build_process`.
    truncation: "failure" (the paper) or "bootstrap".
    trajectory: trajectory term, "grpo" or "rloo".

  Returns:
    StepCredit; `aux["residual"]` is the Bellman residual of the solve
    (0 at finite depth, which solves nothing).
  """
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  values = closure.values_at(process, beta=beta, depth=depth)
  residual = (
    closure.bellman_residual(process, values.v, beta=beta)
    if math.isinf(depth)
    else jnp.zeros(())
  )
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  return _read_out(
    group,
    process,
    values,
    term,
    residual,
    sigma_min=sigma_min,
    w_group=w_group,
    w_step=w_step,
  )


def crbc_depths(
  group: GroupArrays,
  *,
  depths: tuple[float, ...],
  beta: float = 0.98,
  sigma_min: float = 0.1,
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> StepCredit:
  """`crbc` at many depths on the same rollouts, in one program.

  Args:
    group: one unbatched group.
    depths: static tuple of D depths; inf (last or anywhere) is the closure.
    beta, sigma_min, w_group, w_step, signal, truncation, trajectory: as
      `crbc`.

  Returns:
    StepCredit with a leading axis [D] on every array, in order of `depths`.
  """
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  for depth in depths:
    closure.check_depth(depth)
  is_exact = np.array([math.isinf(d) for d in depths])
  values = closure.finite_values(
    process,
    beta=beta,
    depths=tuple(0 if math.isinf(d) else int(d) for d in depths),
  )
  residual = jnp.zeros((len(depths),))
  if is_exact.any():
    exact = closure.exact_values(process, beta=beta)
    values = jax.tree.map(
      lambda level, closed: jnp.where(is_exact[:, None], closed[None], level),
      values,
      exact,
    )
    residual = jnp.where(
      is_exact, closure.bellman_residual(process, exact.v, beta=beta), 0.0
    )
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)

  def read(values, residual):
    return _read_out(
      group,
      process,
      values,
      term,
      residual,
      sigma_min=sigma_min,
      w_group=w_group,
      w_step=w_step,
    )

  return jax.vmap(read)(values, residual)


def _read_out(
  group: GroupArrays,
  process: EmpiricalProcess,
  values: Values,
  trajectory: jax.Array,
  residual: jax.Array,
  *,
  sigma_min: float,
  w_group: float,
  w_step: float,
) -> StepCredit:
  credit, gate = combine.normalised_step_credit(
    process, values, sigma_min=sigma_min
  )
  step = jnp.where(group.mask, credit[group.pair], 0.0)
  return StepCredit(
    advantage=combine.combine(trajectory, step, w_group=w_group, w_step=w_step),
    trajectory=trajectory,
    step=step,
    q=jnp.where(group.mask, values.q[group.pair], 0.0),
    v=jnp.where(group.mask, values.v[group.state], 0.0),
    live=group.mask & gate[group.state],
    aux={"residual": residual},
  )
