"""A training run for the report: its curve, and fresh rollouts of its end."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from crbc_jax.envs.sokoban_levels import board_text
from crbc_jax.learner import collect, finished, loop, records
from crbc_jax.report.report_data import ReportGroup
from crbc_jax.rollouts.from_arrays import table_from_arrays
from crbc_jax.rollouts.table import object_column

LEVELS = 12
"""Held-out levels to show, one group each."""

_ACTIONS = ("up", "down", "left", "right")


class RunReport(NamedTuple):
  """What a report says of one run."""

  groups: Iterator[ReportGroup]
  curve: list[dict[str, Any]]  # evaluations, as in metrics.jsonl
  note: str


def read_run(run_dir: str | pathlib.Path) -> RunReport:
  """Plays the first held-out levels with the last checkpoint of a run.

  Rollouts are sampled, as many of a level as a training group has.

  Raises:
    RunError, CheckpointError, LevelError: with what to do.
  """
  config, current, state, update = finished.load_run(run_dir, None)
  if config.task != "sokoban":
    raise loop.RunError(
      f"{run_dir}: reports show runs on Sokoban only; {config.task} has `crbc"
      " view` and metrics.jsonl"
    )
  panel = current.panel.take(np.arange(min(LEVELS, len(current.panel))))
  rollouts = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=config.rollout.group_size
  )(state.params, panel.as_levels(), jax.random.key(config.seed))
  note = (
    f"Run {run_dir}: {config.estimator}, seed {config.seed}. Groups are "
    f"{config.rollout.group_size} sampled rollouts of update {update} on each "
    f"of {len(panel)} held-out levels."
  )
  return RunReport(
    groups=_groups(jax.device_get(rollouts), panel, current.env.width),
    curve=records.read_metrics(pathlib.Path(run_dir), "eval"),
    note=note,
  )


def _groups(rollouts, panel, width: int) -> Iterator[ReportGroup]:
  for p, name in enumerate(panel.ids):
    of_level = jax.tree.map(lambda x, p=p: x[p : p + 1], rollouts)
    table = table_from_arrays(
      state_key=of_level.key,
      final_key=of_level.final_key,
      action=of_level.action,
      reward=of_level.reward,
      boundary=of_level.boundary,
      mask=of_level.mask,
    )
    played = of_level.mask.reshape(-1)
    player = of_level.state.player.reshape(-1)[played]
    boxes = of_level.state.boxes.reshape(len(played), -1)[played]
    yield ReportGroup(
      table=dataclasses.replace(
        table, group_id=object_column([name] * len(table))
      ),
      state_text=[
        board_text(
          panel.walls[p], panel.targets[p], player[i], boxes[i], width=width
        )
        for i in range(len(table))
      ],
      action_text=[_ACTIONS[a] for a in table.action_key],
    )
