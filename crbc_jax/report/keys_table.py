"""The comparison of keys (`rollouts.keys_report`) for the terminal."""

from collections.abc import Iterable

from rich import box
from rich.table import Table

from crbc_jax.rollouts.keys_report import KeyReport


def keys_table(reports: Iterable[KeyReport]) -> Table:
  """One row for each pair of keys."""
  table = Table(
    title="Keys",
    caption=(
      "recurs: share of steps at a state that another rollout of the group "
      "visits. choice: share of steps at states where two actions were seen: "
      "elsewhere Q - V is 0. aliasing: states of the finer key that "
      "one state stands for, 1.0 being none."
    ),
    caption_justify="left",
    box=box.SIMPLE_HEAD,
    pad_edge=False,
    show_edge=False,
  )
  table.add_column("state key", style="bold", overflow="fold")
  table.add_column("action key", overflow="fold")
  for name in ("states", "per step", "recurs", "choice", "aliasing"):
    table.add_column(name, justify="right")
  for r in reports:
    table.add_row(
      r.state_key,
      r.action_key,
      f"{r.anchors:,}",
      f"{r.anchors_per_step:.2f}",
      f"{r.recurring:.1%}",
      f"{r.gate:.1%}",
      "–" if r.aliasing is None else f"{r.aliasing:.1f} ({r.finer})",
    )
  return table
