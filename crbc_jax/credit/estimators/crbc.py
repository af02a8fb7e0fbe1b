"""CRBC: Cross-Rollout Bellman Closure, exact and at finite depth.

Source: arXiv 2609.35082. Defaults are the paper's: beta .98, infinite depth,
(w_G, w_S) = (1, 5), sigma_min .1, truncation as failure.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process
from crbc_jax.credit.readout import read_out
from crbc_jax.types import GroupArrays, StepCredit


def crbc(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  depth: float = closure.EXACT,
  sigma_min: float = 0.1,
  kappa: float = 0.0,
  readout: str = "action",
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
    kappa: shrinks the step term by N(s,a) / (N(s,a) + kappa); 0 in the paper.
    readout: "action" (the paper) or "state", which needs no action keys; see
      `readout.read_out`.
    w_group: weight w_G of the trajectory term.
    w_step: weight w_S of the step term; 0 is the trajectory term alone.
    signal: "outcome" (the paper) or "observed" rewards; see `build_process`.
    truncation: "failure" (the paper) or "bootstrap".
    trajectory: trajectory term; see `combine.trajectory_term`.

  Returns:
    StepCredit; `aux["residual"]` is the Bellman residual of the solve
    (0 at finite depth, which solves nothing).
  """
  credit = crbc_depths(
    group,
    depths=(depth,),
    beta=beta,
    sigma_min=sigma_min,
    kappa=kappa,
    readout=readout,
    w_group=w_group,
    w_step=w_step,
    signal=signal,
    truncation=truncation,
    trajectory=trajectory,
  )
  return jax.tree.map(lambda x: x[0], credit)


def crbc_depths(
  group: GroupArrays,
  *,
  depths: tuple[float, ...],
  beta: float = 0.98,
  sigma_min: float = 0.1,
  kappa: float = 0.0,
  readout: str = "action",
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
    beta, sigma_min, kappa, readout, w_group, w_step, signal, truncation,
      trajectory: as `crbc`.

  Returns:
    StepCredit with a leading axis [D] on every array, in order of `depths`.
  """
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  levels = closure.values_at(process, beta=beta, depths=depths)
  is_exact = np.array([math.isinf(d) for d in depths])

  def read(values, exact):
    residual = closure.centring_residual(process, values)
    return read_out(
      group,
      process,
      values,
      jnp.where(exact, residual, 0.0),
      sigma_min=sigma_min,
      kappa=kappa,
      readout=readout,
      w_group=w_group,
      w_step=w_step,
      signal=signal,
      trajectory=trajectory,
    )

  return jax.vmap(read)(levels, is_exact)
