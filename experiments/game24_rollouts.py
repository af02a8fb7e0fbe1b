"""Game of 24: rollouts of a log, which steps keep a puzzle solvable, groups.

Four numbers are combined two at a time into one, which should be 24. A state
is what is left: a sorted tuple of exact fractions.
"""

import collections
import csv
import functools
import itertools
import json
import operator
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from crbc_jax.rollouts.log import LogError, Place
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

Numbers = tuple[Fraction, ...]

TARGET = 24
STEPS = 3
LOG = "gpt-4_0.7_naive_cot_sample_100_start900_end1000.json"
PUZZLES = "24.csv"

_STEP = re.compile(r"(\S+) ([-+*/]) (\S+) = (\S+) \(left: ([^)]*)\)")
_OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
  "+": operator.add,
  "-": operator.sub,
  "*": operator.mul,
  "/": operator.truediv,
}


class Rollout(NamedTuple):
  """One clean attempt at a puzzle."""

  puzzle: int
  states: tuple[Numbers, ...]  # [STEPS + 1], what is left before each step
  operations: tuple[str, ...]  # [STEPS], "a op b", operands sorted if they may
  won: bool  # as the log's label says


class Groups(NamedTuple):
  """Mixed groups as a table, and the truth about its steps."""

  table: StepTable  # S rows, `STEPS` to a rollout
  puzzle: np.ndarray  # [S] int
  step: np.ndarray  # [S] int, from 0
  solvable: np.ndarray  # [S] bool, before the step
  kept: np.ndarray  # [S] bool, still solvable after it


def read_rollouts(
  folder: pathlib.Path,
) -> tuple[list[Rollout], collections.Counter[str]]:
  """The clean rollouts of the log in `folder`; what became of all of them.

  Clean: three steps that leave 3, 2 and 1 numbers, each uses two numbers that
  are there, computes right and writes down what is left.

  Raises:
    LogError: the file isn't such a log.
  """
  path = folder / LOG
  starts = [
    row["Puzzles"]
    for row in csv.DictReader((folder / PUZZLES).open(encoding="utf-8"))
  ]
  rollouts, counts = [], collections.Counter[str]()
  for number, record in enumerate(json.loads(path.read_bytes()), 1):
    try:
      puzzle = int(record["idx"])
      start = _numbers(starts[puzzle])
      attempts = [
        (text, bool(info["r"]))
        for text, info in zip(record["ys"], record["infos"], strict=True)
      ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
      raise LogError(
        Place(str(path), number, "record"), f"no puzzle with attempts: {error}"
      ) from None
    for text, won in attempts:
      try:
        rollouts.append(Rollout(puzzle, *follow(text, start), won))
        counts["clean"] += 1
      except ValueError as error:
        counts[str(error)] += 1
  return rollouts, counts


def follow(
  text: str, start: Numbers
) -> tuple[tuple[Numbers, ...], tuple[str, ...]]:
  """States and operations of an attempt.

  Raises:
    ValueError: it isn't clean; why, in a few words.
  """
  found = _STEP.findall(text)
  if [len(left.split()) for *_, left in found] != [3, 2, 1]:
    raise ValueError("not three steps that leave 3, 2, 1 numbers")
  states, operations = [start], []
  for *words, left in found:
    name = words.pop(1)
    try:
      first, second, result = (Fraction(word) for word in words)
      after = _numbers(left)
    except (ValueError, ZeroDivisionError):
      raise ValueError("a number that is none") from None
    if (name, second) == ("/", 0) or _OPERATIONS[name](first, second) != result:
      raise ValueError("a wrong result")
    rest = list(states[-1])
    try:
      rest.remove(first)
      rest.remove(second)
    except ValueError:
      raise ValueError("a number that is not left") from None
    if after != tuple(sorted([*rest, result])):
      raise ValueError("wrong numbers left")
    states.append(after)
    if name in "+*":
      first, second = sorted((first, second))
    operations.append(f"{first} {name} {second}")
  return tuple(states), tuple(operations)


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
  of_puzzle: dict[int, list[Rollout]] = {}
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


def _numbers(text: str) -> Numbers:
  return tuple(sorted(Fraction(word) for word in text.split()))
