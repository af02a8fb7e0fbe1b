"""Root calibration: does the closure promise more than rollouts earned?

A heuristic of ours for keys that hide state, beside the test of `hidden_state`.
"""

import math
from typing import NamedTuple

import numpy as np

from crbc_jax.checks import check_discount
from crbc_jax.types import Boundary, GroupArrays


class Calibration(NamedTuple):
  """What the closure promises at the start over what rollouts earned."""

  ratio: float  # 1 where it promises what was earned
  low: float  # lower end of a two-sided 95 % interval
  high: float

  @property
  def alarms(self) -> bool:
    """Whether the whole interval lies above `ALARM_RATIO`."""
    return self.low > ALARM_RATIO


ALARM_RATIO = 1.1
"""Above it a root calibration is suspicious; from ten small problems."""


def root_calibration(
  arrays: GroupArrays, v: np.ndarray, *, beta: float
) -> Calibration:
  """sum_i V(s_{i,0}) / sum_i G_{i,0}, with a jackknife over groups.

    G_{i,0} = beta^{T_i} [i succeeded]

  Impossible shortcuts make the closure promise more than was earned. Without
  them it promises as much or less: it joins rollouts into routes longer than
  the time limit, and discounts them. At beta = 1 it promises exactly what was
  earned where all rollouts of a group begin at one anchor, whatever the key
  hides. The ratio is NaN where nothing was earned, and the interval infinite
  for fewer than two groups that earned something.

  Args:
    arrays: groups with leading axis [B].
    v: [B, R], the values of the exact closure at each row (`StepCredit.v`).
    beta: discount they were computed with, in (0, 1).
  """
  check_discount("beta", beta)
  mask = np.asarray(arrays.mask)
  first = mask & (np.asarray(arrays.step) == 0)
  won = mask & (np.asarray(arrays.boundary) == Boundary.SUCCESS)
  length = np.where(won, np.asarray(arrays.step) + 1, 0)
  promised = np.where(first, np.asarray(v, np.float64), 0.0).sum(axis=1)
  earned = np.where(won, float(beta) ** length, 0.0).sum(axis=1)
  groups = int((earned > 0).sum())
  if groups == 0:
    return Calibration(math.nan, -math.inf, math.inf)
  ratio = float(promised.sum() / earned.sum())
  if groups == 1:
    return Calibration(ratio, -math.inf, math.inf)
  real = first.any(axis=1)
  count = int(real.sum())
  left = earned.sum() - earned[real]
  without = (promised.sum() - promised[real]) / left
  spread = math.sqrt((count - 1) * float(without.var()))
  return Calibration(ratio, ratio - 1.96 * spread, ratio + 1.96 * spread)
