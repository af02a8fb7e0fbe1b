"""SALT: steps that rollouts share get the mean of their rollouts' advantages.

Source: arXiv 2510.20022, from notes on the paper (the code was not read); see
methods.md section 6.
"""

import jax.numpy as jnp

from crbc_jax.checks import check_choice
from crbc_jax.credit import combine
from crbc_jax.credit.history import (
  check_history,
  dense_ids,
  history_ids,
  previous_row,
)
from crbc_jax.credit.process import SIGNALS, check_group
from crbc_jax.types import GroupArrays, StepCredit


def salt(
  group: GroupArrays,
  *,
  history: int = 3,
  trajectory: str = "grpo",
  w_group: float = 1.0,
  w_step: float = 1.0,
  signal: str = "outcome",
) -> StepCredit:
  """w_G A^G + w_S (merged - A^G), merged = mean of A^G over equal edges.

  Rows are the same edge when they agree in their past, action, successor and
  boundary. The past is the last `history` (action, observation) pairs that
  lead to the current observation, or all of them where there are fewer; the
  first observation counts as a pair without an action, and a past that reaches
  the start never equals one that does not. With w_G = w_S = 1 the advantage is
  the merged value; an edge that nobody shares keeps A^G.

  Successors that nobody acted from count as one and the same.

  A group of one rollout, an all-fail and an all-success group get 0: the
  trajectory term is 0 there ("grpo" and "rloo").

  Args:
    group: one unbatched group.
    history: static, pairs of the past that must agree, >= 1 (3 in the paper).
    trajectory: the trajectory term to start from, "grpo" or "rloo"; "none"
      leaves nothing to merge.
    w_group: weight w_G of the trajectory term.
    w_step: weight w_S of the difference that merging makes.
    signal: "outcome" or "observed" rewards.

  Returns:
    StepCredit; q and v are 0, there are no values. A row is live when its edge
    was taken at least twice in the group.

  Raises:
    ValueError: an option is out of its range.
  """
  check_group(group)
  check_history(history, least=1)
  check_choice("signal", signal, SIGNALS)
  term = combine.trajectory_term(group, kind=trajectory, signal=signal)
  rows = group.state.shape[0]
  arrived_by = previous_row(group, group.action, first=-1)
  past = history_ids(group, (arrived_by, group.state), length=history)[-1]
  edge = dense_ids(
    (past, group.action, group.next_state, group.boundary), group.mask
  )
  from_mean = combine.centred_scores(term, edge, group.mask, rows, norm="mean")
  step = 0.0 - from_mean  # never -0
  count, _, _ = combine.segment_moments(term, edge, group.mask, rows)
  zero = jnp.zeros_like(term)
  return StepCredit(
    advantage=combine.combine(term, step, w_group=w_group, w_step=w_step),
    trajectory=term,
    step=step,
    q=zero,
    v=zero,
    live=group.mask & (count >= 2)[edge],
    aux={},
  )
