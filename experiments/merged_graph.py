"""The picture of the README: four rollouts of one task, merged.

  python -m experiments.merged_graph

The worked example of the paper's equations at beta .9: the closure prefers `a`
at s0 though half of the rollouts that took it failed, because from s1 even `d`
can be rescued by the `f` that another rollout found. Writes
results/merged_graph.{png,svg}.
"""

import argparse
import pathlib
import sys

import rich

from crbc_jax import StepTable
from crbc_jax.report.graph_figure import draw_group

ROLLOUTS = (
  ("1", "s0 a s1 c", "success"),
  ("2", "s0 a s1 d s2 e", "failure"),
  ("3", "s0 b s2 f", "success"),
  ("4", "s0 b s2 e s0 b s2 e", "failure"),
)
STEP_CREDIT = "crbc(beta=0.9, w_group=0.0, w_step=1.0)"


def example() -> StepTable:
  """The four rollouts as a table."""
  rows = [
    {
      "group_id": "task",
      "traj_id": name,
      "step_idx": t,
      "state_key": state,
      "action_key": action,
      "boundary": end if 2 * t + 2 == len(path.split()) else "none",
    }
    for name, path, end in ROLLOUTS
    for t, (state, action) in enumerate(
      zip(path.split()[::2], path.split()[1::2], strict=True)
    )
  ]
  return StepTable.from_columns(**{k: [r[k] for r in rows] for k in rows[0]})


def main(argv: list[str] | None = None) -> None:
  """Writes the figure."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  draw_group(
    example(),
    args.results / "merged_graph",
    estimator=STEP_CREDIT,
    title="Four rollouts of one task, merged: V in the states, credit on the"
    " steps",
  )
  rich.print(f"wrote {args.results}/merged_graph.png and .svg")


if __name__ == "__main__":
  sys.exit(main())
