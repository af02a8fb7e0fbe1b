"""Who is compared on Sokoban, and what is tuned for each.

Every contestant gets the same learning rates and at most two to five settings
of the options that matter most for it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Contestant:
  """An estimator in the settings that are tried for it."""

  label: str
  estimators: tuple[str, ...]
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  """Config values that it needs besides, by dotted key."""


_FEWER_LEVELS = {"rollout.levels": 16}
"""Of methods that branch: an update costs many times its own steps, and with
64 levels a budget would be a handful of updates."""

CONTESTANTS = (
  Contestant("CRBC exact", ("crbc(w_step=1.0)", "crbc(w_step=5.0)")),
  Contestant(
    "CRBC depth 2", ("crbc(depth=2, w_step=1.0)", "crbc(depth=2, w_step=5.0)")
  ),
  Contestant(
    "CRBC depth 0", ("crbc(depth=0, w_step=1.0)", "crbc(depth=0, w_step=5.0)")
  ),
  Contestant(
    "CRBC anchored", ("crbc_anchored(w_step=1.0)", "crbc_anchored(w_step=5.0)")
  ),
  Contestant(
    "CRBC by state",
    ("crbc(readout='state', w_step=1.0)",),
  ),
  Contestant(
    "GraphGPO",
    (
      "graphgpo(omega=0.5)",
      "graphgpo(omega=0.8)",
      "graphgpo(omega=0.95)",
      "graphgpo(omega=0.5, graph_weight=5.0)",
      "graphgpo(omega=0.8, graph_weight=5.0)",
    ),
  ),
  Contestant("GiGPO", ("gigpo(step_weight=1.0)", "gigpo(step_weight=5.0)")),
  Contestant(
    "GiGPO mean",
    (
      "gigpo(norm='mean', step_weight=1.0)",
      "gigpo(norm='mean', step_weight=5.0)",
    ),
  ),
  Contestant(
    "RTMC", ("rtmc(prior='success_rate')", "rtmc(prior='discounted')")
  ),
  Contestant("RLOO", ("rloo",)),
  Contestant("GRPO", ("grpo",)),
  Contestant("GRAFT", ("graft", "graft(trajectory='grpo')")),
  Contestant("GraphHCA", ("graphhca", "graphhca(w_step=5.0)")),
  Contestant("RewardFlow", ("rewardflow", "rewardflow(w_step=5.0)")),
  Contestant("G2PO", ("g2po", "g2po(anchor_weight=5.0, edge_weight=5.0)")),
  Contestant("GAGPO", ("gagpo", "gagpo(trajectory='grpo')")),
  Contestant("HGPO", ("hgpo", "hgpo(trajectory='grpo')")),
  Contestant("SALT", ("salt",)),
  Contestant(
    "MICA",
    ("mica",),
    {"env.reward": "distance"},
  ),
  Contestant("Dr. GRPO", ("dr_grpo",)),
  Contestant("REINFORCE++", ("reinforce_pp", "reinforce_pp_baseline")),
  Contestant("PPO + GAE", ("gae(lam=0.95)", "gae(lam=0.8)")),
  Contestant("VinePPO", ("vineppo(samples=2)",), _FEWER_LEVELS),
  Contestant("ELPO", ("elpo",), _FEWER_LEVELS),
)

LABELS = tuple(c.label for c in CONTESTANTS)


def chosen(labels: list[str]) -> list[Contestant]:
  """The contestants of these labels, in the order of the list above."""
  return [c for c in CONTESTANTS if c.label in labels]
