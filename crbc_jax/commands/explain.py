"""`crbc explain`: a group or rollout of a log, and why it got its credit."""

import argparse
import dataclasses
import json
from collections.abc import Mapping

import rich.console

from crbc_jax.checks import usage_errors
from crbc_jax.commands import logs
from crbc_jax.commands.groups import open_groups
from crbc_jax.credit import registry
from crbc_jax.credit.table_credit import TableCredit, credit_table
from crbc_jax.report import explain, explain_view
from crbc_jax.rollouts.table import RolloutError

EXAMPLES = """\
examples:
  crbc explain rollouts.jsonl --group task-7
  crbc explain rollouts.jsonl --group task-7 --traj a
  crbc explain rollouts.jsonl --group task-7 --traj a --step 3
  crbc explain rollouts.jsonl --group task-7 --traj a \\
    --estimators "crbc(depth=2),gigpo,grpo" --json
"""

ESTIMATORS = "crbc,gigpo,grpo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Arguments of the command."""
  logs.add_log_arguments(parser)
  parser.add_argument("--group", help="which group (default: the only one)")
  parser.add_argument("--traj", help="which rollout (default: a line for each)")
  parser.add_argument(
    "--step", type=int, help="which step of --traj, in full (default: all)"
  )
  parser.add_argument(
    "--estimator",
    "--estimators",
    dest="estimators",
    default=ESTIMATORS,
    help="separated by commas; V and Q are those of the first (default:"
    " %(default)s)",
  )
  parser.add_argument(
    "--json", action="store_true", help="print JSON instead of tables"
  )


def run(args: argparse.Namespace) -> int:
  """Prints the explanation; returns the exit status.

  Raises:
    RolloutError: no such group, rollout or step; says which there are.
    UsageError: an estimator that isn't one.
  """
  if args.step is not None and args.traj is None:
    raise RolloutError("--step needs --traj: a step belongs to a rollout")
  with usage_errors():
    estimators = registry.split_estimators(args.estimators)
  group = find_group(open_groups(args), args.group)
  credits = {name: credit_table(group.table, name) for name in estimators}
  found, view = _explanation(args, group, credits)
  if args.json:
    print(json.dumps(dataclasses.asdict(found), indent=2, default=str))
  else:
    rich.console.Console(highlight=False).print(view)
  return 0


def _explanation(
  args: argparse.Namespace, group, credits: Mapping[str, TableCredit]
):
  """What was asked for, as a dataclass and as it is printed."""
  if args.traj is None:
    lines = explain.explain_group(
      group.table, credits, action_text=group.action_text
    )
    return lines, explain_view.group_view(lines)
  found = explain.explain_trajectory(
    group.table,
    credits,
    args.traj,
    state_text=group.state_text,
    action_text=group.action_text,
  )
  if args.step is None:
    return found, explain_view.trajectory_view(found)
  step = find_step(found, args.step)
  return (
    dataclasses.replace(found, steps=(step,)),
    explain_view.step_view(found, step),
  )


def find_group(opened, wanted: str | None):
  """The group of that id, or the only one.

  Raises:
    RolloutError: there is none, or it would have to be chosen.
  """
  names: list[str] = []
  for group in opened:
    names.append(str(group.table.group_id[:1].tolist()[0]))
    if names[-1] == wanted:
      return group
  if wanted is None and len(names) == 1:
    return group
  known = explain.listed(names)
  if wanted is None:
    raise RolloutError(f"choose a group with --group; the log has: {known}")
  raise RolloutError(f"the log has no group {wanted!r}; it has: {known}")


def find_step(
  found: explain.TrajectoryExplanation, wanted: int
) -> explain.StepExplanation:
  """The step of that number.

  Raises:
    RolloutError: there is none.
  """
  for step in found.steps:
    if step.step == wanted:
      return step
  first, last = found.steps[0].step, found.steps[-1].step
  raise RolloutError(
    f"trajectory {str(found.traj)!r} has no step {wanted}; its steps are"
    f" {first} to {last}"
  )
