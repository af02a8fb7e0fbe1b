"""Trajectory terms: of one group, and of a whole batch of groups."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests import oracle
from tests.oracles import common
from tests.oracles.common import Group, Rows

IN_GROUP = ("none", "grpo", "rloo", "dr_grpo")
OVER_BATCH = ("reinforce_pp", "reinforce_pp_baseline")


def term(group: Group, kind: str, signal: str = "outcome") -> Rows:
  """The unweighted trajectory term of every row, by kind.

  The kinds of OVER_BATCH need the other groups: `over_batch` has them.
  """
  common.one_of("trajectory", kind, IN_GROUP)
  if kind == "none":
    return common.rows(group, lambda i, t: Fraction(0))
  if kind == "grpo":
    return oracle.grpo(group, signal=signal)
  if kind == "rloo":
    return oracle.rloo(group, signal=signal)
  return dr_grpo(group, signal=signal)["trajectory"]


def dr_grpo(group: Group, *, signal: str = "outcome") -> dict[str, Rows]:
  """R - mean, each trajectory counted once, no division (§5)."""
  oracle._check_group(group)
  scores = common.scores(group, signal)
  centre = common.mean(scores)
  return _only_trajectory(common.rows(group, lambda i, t: scores[i] - centre))


def over_batch(
  groups: Sequence[Group], kind: str, *, signal: str = "outcome", eps=1e-6
) -> list[dict[str, Rows]]:
  """REINFORCE++ with or without the group baseline (§5), per group.

    reinforce_pp           x = sum of the rewards from the row on, undiscounted
    reinforce_pp_baseline  x = R - mean of R over the group's trajectories

  then (x - mean) / (std + eps) over all rows of all groups, ddof 1.
  """
  common.one_of("kind", kind, OVER_BATCH)
  raw = []
  for group in groups:
    oracle._check_group(group)
    if kind == "reinforce_pp":
      raw.append(
        [
          common.discounted(common.step_rewards(r, signal), Fraction(1))
          for r in group
        ]
      )
    else:
      scores = common.scores(group, signal)
      centre = common.mean(scores)
      raw.append(
        [[scores[i] - centre] * len(r.steps) for i, r in enumerate(group)]
      )
  pool = [x for group in raw for row in group for x in row]
  return [
    _only_trajectory(
      [[common.score(x, pool, eps=eps) for x in row] for row in group]
    )
    for group in raw
  ]


def _only_trajectory(rows: Rows) -> dict[str, Rows]:
  return {
    "advantage": rows,
    "trajectory": rows,
    "step": [[Fraction(0) for _ in row] for row in rows],
  }
