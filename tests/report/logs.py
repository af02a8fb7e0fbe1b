"""Helper: small groups of rollouts for the report."""

import numpy as np

from crbc_jax import StepTable
from crbc_jax.report.report_data import ReportGroup

NASTY = (
  "<script>window.pwned = 1</script>",
  "</script><img src=x onerror='window.pwned = 1'>",
  "<!-- <script>",
  "{{program}} &lt;b&gt; \\u003c \ud800 ]]>",
)


def walk_rows(seed, group_id, *, rollouts=6, steps=9, states=7, falls=0.05):
  """Random walks along a corridor; some fall, some run out of time."""
  rng = np.random.default_rng(seed)
  rows = []
  for g in range(rollouts):
    state = 0
    for t in range(steps):
      action = int(rng.integers(-1, 3))
      after = max(state + action, 0)
      end = "none"
      if after >= states:
        end = "success"
      elif rng.random() < falls:
        end = "failure"
      elif t + 1 == steps:
        end = "truncated"
      rows.append(
        {
          "group_id": group_id,
          "traj_id": f"{group_id}/{g}",
          "step_idx": t,
          "state_key": f"room {state}",
          "action_key": f"walk {action:+d}",
          "boundary": end,
        }
      )
      if end != "none":
        break
      state = after
  return rows


def walk(seed=0, group_id="task", **sizes):
  return StepTable.from_rows(walk_rows(seed, group_id, **sizes))


def nasty_group():
  """Every text of the log tries to leave the place it is put in."""
  table = StepTable.from_rows(
    [
      {
        "group_id": NASTY[1],
        "traj_id": f"{NASTY[0]}{g}",
        "step_idx": t,
        "state_key": NASTY[(g + t) % 4] if t else NASTY[0],
        "action_key": NASTY[(g + 1) % 4],
        "boundary": "none" if t < 2 else ("success", "failure")[g % 2],
      }
      for g in range(4)
      for t in range(3)
    ]
  )
  return ReportGroup(table)
