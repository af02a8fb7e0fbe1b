"""Closures held by visit averages, for states that may hide something.

Source: this project. Where histories that should differ share an anchor, the
closure makes shortcuts that nobody could walk; these two keep part of every
value on what visits to the anchor really returned.
"""

from crbc_jax.checks import check_share
from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process
from crbc_jax.credit.readout import read_out
from crbc_jax.types import GroupArrays, StepCredit


def crbc_anchored(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  anchor_weight: float = 0.3,
  sigma_min: float = 0.1,
  kappa: float = 0.0,
  readout: str = "action",
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> StepCredit:
  """CRBC with soft depth: recommended where state keys may alias.

    V = (1 - w) T V + w V^0,   Q = (1 - w) B V + w Q^0

  a geometric mixture of all finite depths: w = 0 is `crbc`, w = 1 is
  `crbc(depth=0)`. Degenerate groups get what they get from `crbc`.

  Args:
    group: one unbatched group.
    beta: discount of the process in (0, 1].
    anchor_weight: w in [0, 1], the share of visit averages.
    sigma_min, kappa, readout, w_group, w_step, signal, truncation,
      trajectory: as `crbc`.

  Returns:
    StepCredit; `aux["residual"]` is that of the anchored equation.
  """
  check_share("anchor_weight", anchor_weight)
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  values = closure.anchored_values(
    process, beta=beta, anchor_weight=anchor_weight
  )
  return read_out(
    group,
    process,
    values,
    closure.centring_residual(process, values),
    sigma_min=sigma_min,
    kappa=kappa,
    readout=readout,
    w_group=w_group,
    w_step=w_step,
    signal=signal,
    trajectory=trajectory,
  )


def crbc_lambda(
  group: GroupArrays,
  *,
  beta: float = 0.98,
  lam: float = 0.8,
  sigma_min: float = 0.1,
  kappa: float = 0.0,
  readout: str = "action",
  w_group: float = 1.0,
  w_step: float = 5.0,
  signal: str = "outcome",
  truncation: str = "failure",
  trajectory: str = "grpo",
) -> StepCredit:
  """The TD(lambda) relative of `crbc_anchored`: averaged lambda-returns.

    G_t = payoff + beta ((1 - lam) V(s_{t+1}) + lam G_{t+1})
    V(s), Q(s,a) = mean of G over the visits

  lam = 0 is `crbc`, lam = 1 is `crbc(depth=0)`.

  Args:
    group: one unbatched group.
    beta: discount of the process in (0, 1].
    lam: in [0, 1].
    sigma_min, kappa, readout, w_group, w_step, signal, truncation,
      trajectory: as `crbc`.

  Returns:
    StepCredit; `aux["residual"]` is the largest |mean G - V| after the sweeps.
  """
  check_share("lam", lam)
  process = build_process(
    group, beta=beta, signal=signal, truncation=truncation
  )
  values = closure.lambda_values(process, group.traj, beta=beta, lam=lam)
  return read_out(
    group,
    process,
    values,
    closure.centring_residual(process, values),
    sigma_min=sigma_min,
    kappa=kappa,
    readout=readout,
    w_group=w_group,
    w_step=w_step,
    signal=signal,
    trajectory=trajectory,
  )
