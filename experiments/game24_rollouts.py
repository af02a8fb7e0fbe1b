"""Game of 24: rollouts of a log, steps that keep a puzzle solvable, groups.

Four numbers are combined two at a time into one, which should be 24. A state
is what is left: a sorted tuple of exact fractions.
"""

import functools
import itertools
import operator
import pathlib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from crbc_jax.rollouts import keys_game24
from crbc_jax.rollouts.log import Row
from crbc_jax.rollouts.readers import game24
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

Numbers = tuple[Fraction, ...]

TARGET = 24
STEPS = 3

_OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
  "+": operator.add,
  "-": operator.sub,
  "*": operator.mul,
  "/": operator.truediv,
}


class Rollout(NamedTuple):
  """One clean attempt at a puzzle."""

  puzzle: str | int
  states: tuple[Numbers, ...]  # [STEPS + 1], what is left before each step
  operations: tuple[str, ...]  # [STEPS], "a op b", operands sorted if they may
  won: bool  # as the log's label says


class Groups(NamedTuple):
  """Mixed groups as a table, and the truth about its steps."""

  table: StepTable  # S rows, `STEPS` to a rollout
  puzzle: np.ndarray  # [S]
  step: np.ndarray  # [S] int, from 0
  solvable: np.ndarray  # [S] bool, before the step
  kept: np.ndarray  # [S] bool, still solvable after it


def read_rollouts(path: pathlib.Path) -> tuple[list[Rollout], int]:
  """The clean rollouts of a log, and how many others it holds.

  Clean is what the reader takes: see `crbc_jax.rollouts.readers.game24`.

  Raises:
    LogError: the file isn't JSON.
  """
  steps: dict[str | int, list[Row]] = {}
  rejected = 0
  for item in game24.read(Source(str(path))):
    if isinstance(item, Row):
      steps.setdefault(item.traj_id, []).append(item)
    else:
      rejected += 1
  return [_rollout(rows) for rows in steps.values()], rejected


def _rollout(rows: Sequence[Row]) -> Rollout:
  return Rollout(
    puzzle=rows[0].group_id,
    states=tuple(
      tuple(map(Fraction, str(left).split()))
      for left in keys_game24.numbers_left(rows)
    ),
    operations=tuple(map(str, keys_game24.operation(rows))),
    won=rows[-1].boundary == Boundary.SUCCESS,
  )


@functools.cache
def is_solvable(left: Numbers) -> bool:
  """Whether what is left can still make 24; brute force in exact numbers."""
  if len(left) == 1:
    return left[0] == TARGET
  return any(is_solvable(after) for after in successors(left))


def successors(left: Numbers) -> Iterator[Numbers]:
  """What every legal operation on two of the numbers leaves."""
  for i, j in itertools.permutations(range(len(left)), 2):
    rest = [x for k, x in enumerate(left) if k not in (i, j)]
    for name, operation in _OPERATIONS.items():
      if (name, left[j]) != ("/", 0):
        yield tuple(sorted([*rest, operation(left[i], left[j])]))


def regroup(
  rollouts: Sequence[Rollout], *, size: int, seed: int, action_key: str
) -> Groups:
  """Deals the rollouts of each puzzle into groups at random; mixed ones only.

  What is left of a puzzle after the last full group is left out.

  Args:
    rollouts: clean ones.
    size: rollouts of a group.
    seed: of the deal; the groups don't depend on `action_key`.
    action_key: "operation", or "result" for the numbers it leaves.
  """
  rng = np.random.default_rng(seed)
  rows, truth = [], []
  of_puzzle: dict[str | int, list[Rollout]] = {}
  for rollout in rollouts:
    of_puzzle.setdefault(rollout.puzzle, []).append(rollout)
  for puzzle, some in sorted(of_puzzle.items()):
    dealt = [some[i] for i in rng.permutation(len(some))]
    for number in range(len(dealt) // size):
      group = dealt[number * size : (number + 1) * size]
      if len({rollout.won for rollout in group}) < 2:
        continue
      for member, rollout in enumerate(group):
        name = f"{puzzle}.{number}"
        for step, operation in enumerate(rollout.operations):
          before, after = rollout.states[step : step + 2]
          rows.append(
            {
              "group_id": name,
              "traj_id": f"{name}.{member}",
              "step_idx": step,
              "state_key": before,
              "action_key": operation if action_key == "operation" else after,
              "next_state_key": after,
              "boundary": _boundary(rollout, step),
            }
          )
          truth.append((puzzle, step, is_solvable(before), is_solvable(after)))
  table = StepTable.from_rows(rows)
  puzzles, steps, solvable, kept = (
    np.array(x) for x in zip(*truth, strict=True)
  )
  return Groups(table, puzzles, steps, solvable, kept)


def _boundary(rollout: Rollout, step: int) -> Boundary:
  if step < STEPS - 1:
    return Boundary.NONE
  return Boundary.SUCCESS if rollout.won else Boundary.FAILURE
