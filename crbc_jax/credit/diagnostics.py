"""What a batch offered to credit: group sizes, live share, outcomes."""

import itertools

import numpy as np

from crbc_jax.credit.closure import RESIDUAL_LIMIT
from crbc_jax.types import Boundary, GroupArrays, StepCredit

SIZE_BINS = (1, 2, 4, 8, 16)
"""Left edges of the histogram of step-group sizes; the last one is open."""


def batch_diagnostics(
  arrays: GroupArrays, credit: StepCredit
) -> dict[str, float]:
  """Fixed-name shares of one batch (NumPy, on the host).

  A *step group* is the set of rows at one anchor; a singleton is alone there.

  Args:
    arrays: groups with leading axis [B].
    credit: their credit, arrays [B, R].

  Returns:
    success, length (mean steps of a rollout), all_fail_share and
    all_success_share (of groups), live_share, singleton_share and
    group_size_{n} (of rows, n from SIZE_BINS), residual (the largest, in units
    of the rewards), residual_warnings (groups above `RESIDUAL_LIMIT`).
  """
  mask = np.asarray(arrays.mask)
  rows = max(int(mask.sum()), 1)
  num_states = arrays.state_mask.shape[1]
  anchor = (
    np.asarray(arrays.state) + num_states * np.arange(mask.shape[0])[:, None]
  )
  visits = np.bincount(anchor[mask], minlength=mask.shape[0] * num_states)
  size = visits[anchor[mask]]  # of the step group of each row
  traj_mask = np.asarray(arrays.traj_mask)
  won = np.asarray(arrays.boundary) == Boundary.SUCCESS
  wins = (won & mask).sum(axis=1)
  rollouts = traj_mask.sum(axis=1)
  real = rollouts > 0
  groups = max(int(real.sum()), 1)
  residual = np.atleast_1d(credit.aux.get("residual", 0.0))
  result = {
    "success": wins.sum() / max(rollouts.sum(), 1),
    "length": rows / max(rollouts.sum(), 1),
    "all_fail_share": (real & (wins == 0)).sum() / groups,
    "all_success_share": (real & (wins == rollouts)).sum() / groups,
    "live_share": (np.asarray(credit.live) & mask).sum() / rows,
    "singleton_share": (size == 1).sum() / rows,
    "residual": residual.max(),
    "residual_warnings": np.sum(~(residual <= RESIDUAL_LIMIT)),
  }
  edges = (*SIZE_BINS, np.inf)
  for low, high in itertools.pairwise(edges):
    result[f"group_size_{low}"] = ((size >= low) & (size < high)).sum() / rows
  return {name: float(value) for name, value in result.items()}
