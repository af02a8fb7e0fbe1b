"""Rewards from a potential of the state: by how much each step lowers it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from crbc_jax.rollouts.table import StepTable
from crbc_jax.rollouts.validation import refuse_rows, validate
from crbc_jax.types import Boundary


def potential_rewards(
  table: StepTable, potential: Callable[[Any], float]
) -> StepTable:
  """The table with r_t = potential(s_t) - potential(s_{t+1}) as its reward.

  The potential is a distance to the goal, smaller is better, 0 at success:
  MICA's reward (arXiv 2603.06194). The rewards of a rollout sum to potential
  of its first state less that of its last.

  The successor is the state of the next step, and `next_state_key` on the last
  step of a trajectory. A last step that succeeded may leave it out: its
  successor is then worth 0. A recorded one is always evaluated.

  Args:
    table: S rows in any order. The rewards it holds are not looked at.
    potential: from a state key to a finite number; called once per distinct
      key. It sees the key alone: where the goal differs between tasks the key
      has to name it, or each task needs a call of its own.

  Returns:
    A new table with other rewards; rows of weight 0 keep theirs.

  Raises:
    RolloutError: as `validation.validate`; a state is missing (None), a last
      step without success has no recorded successor, or a potential is not a
      finite number. The message names the row.
  """
  validate(dataclasses.replace(table, reward=np.zeros(len(table))))
  order = table.order
  t = table.in_order
  state = t.state_key.tolist()
  last = t.boundary != Boundary.NONE
  recorded = t.next_state_key.tolist()
  successor = [
    recorded[i] if ends else state[i + 1] for i, ends in enumerate(last)
  ]
  refuse_rows(
    t,
    np.array([key is None for key in state]),
    "has no state to take the potential of",
    "give every step a state_key",
  )
  unknown = np.array([key is None for key in successor])
  refuse_rows(
    t,
    unknown & (t.boundary != Boundary.SUCCESS),
    "is the last step of a rollout that did not succeed and has no recorded"
    " successor",
    "write the state it led to as its next_state_key",
  )
  known: dict[Any, float] = {}
  before = _evaluate(potential, state, known)
  refuse_rows(
    t,
    ~np.isfinite(before),
    "has a state whose potential is not a finite number",
    "let the potential return one for every state",
  )
  after = _evaluate(potential, successor, known, missing=0.0)
  refuse_rows(
    t,
    ~np.isfinite(after),
    "leads to a state whose potential is not a finite number",
    "let the potential return one for every state",
  )
  reward = table.reward.copy()
  reward[order] = before - after
  return dataclasses.replace(table, reward=reward)


def _evaluate(
  potential: Callable[[Any], float],
  keys: list,
  known: dict[Any, float],
  missing: float = np.nan,
) -> np.ndarray:
  """Potentials of `keys`, NaN where they are no numbers; fills `known`."""
  values = np.full(len(keys), missing)
  for i, key in enumerate(keys):
    if key is None:
      continue
    if key not in known:
      value = potential(key)
      try:
        known[key] = float(value)
      except (TypeError, ValueError):
        known[key] = np.nan  # refused by the caller, with the row's name
    values[i] = known[key]
  return values
