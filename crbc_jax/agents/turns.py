"""What an agent sampled, and which token of a training row belongs to it.

Token ids are kept as they were sampled; nothing is tokenised a second time, so
no span can shift (huggingface/trl #5144).
"""

import dataclasses
from collections.abc import Sequence

import chex
import numpy as np

from crbc_jax.types import Boundary


@dataclasses.dataclass(frozen=True, eq=False)
class Turn:
  """One step: prompt and response in tokens, and what came of it."""

  prompt: np.ndarray  # [L] int32, all that the model was shown
  response: np.ndarray  # [S] int32, as sampled, the end token included
  log_prob: np.ndarray  # [S] float32, of each sampled token then
  text: str  # the response in words
  command: str  # `parsing.INVALID` where it is none
  valid: bool
  state_key: str
  reward: float  # a penalty for an invalid command included
  boundary: Boundary  # of the step; TRUNCATED at the step limit
  moved: bool  # the observation changed


@dataclasses.dataclass(frozen=True, eq=False)
class AgentRollout:
  """One episode that was played to its end or to the step limit."""

  game_id: str
  turns: tuple[Turn, ...]
  final_key: str  # of the state after the last step


@chex.dataclass(frozen=True)
class TokenRows:
  """R rows of L tokens; the sampled ones are listed, S of them at most.

  One row holds one step (`rows_of_steps`) or a whole conversation
  (`rows_of_conversations`). All else in a row was given to the model: prompts
  and observations are never trained on.
  """

  tokens: chex.Array  # [R, L] int32, padding behind the last sampled token
  at: chex.Array  # [R, S] int32, where the sampled tokens stand, at least 1
  mask: chex.Array  # [R, S] bool, False on padding
  log_prob: chex.Array  # [R, S] float32, when sampled
  step: chex.Array  # [R, S] int32, which step of the row; 0 on padding


def rows_of_steps(
  rollouts: Sequence[AgentRollout], *, length: int = 0, sampled: int = 0
) -> TokenRows:
  """One row for each step, in the order of rollouts and steps.

  Args:
    rollouts: to lay out.
    length: L, at least the longest row; 0 takes that.
    sampled: S, at least the longest response; 0 takes that.

  Raises:
    ValueError: a row is longer than `length` or `sampled` allow, or a step has
      no sampled token; names it.
  """
  return _rows(
    [[turn] for rollout in rollouts for turn in rollout.turns],
    length=length,
    sampled=sampled,
  )


def rows_of_conversations(
  rollouts: Sequence[AgentRollout], *, length: int = 0, sampled: int = 0
) -> TokenRows:
  """One row for each rollout, whose prompts each go on from the last response.

  Raises:
    ValueError: as `rows_of_steps`; or a prompt does not begin with all that was
      said before, so that one row cannot hold both.
  """
  for rollout in rollouts:
    for t in range(1, len(rollout.turns)):
      before, now = rollout.turns[t - 1], rollout.turns[t].prompt
      said = np.concatenate([before.prompt, before.response])
      if len(now) < len(said) or (now[: len(said)] != said).any():
        raise ValueError(
          f"{rollout.game_id}: the prompt of step {t} does not go on from step"
          f" {t - 1}; lay it out with rows_of_steps, or play with"
          " layout='conversation'"
        )
  return _rows(
    [list(rollout.turns) for rollout in rollouts],
    length=length,
    sampled=sampled,
  )


def spread_steps(rows: TokenRows, values: np.ndarray) -> np.ndarray:
  """Every sampled token gets the value of its step; padding gets 0.

  Args:
    rows: R rows.
    values: [R, T] of the steps of each row; [R] where a row is one step.

  Returns:
    [R, S].

  Raises:
    ValueError: a row has more steps than `values`.
  """
  values = np.asarray(values)
  if values.ndim == 1:
    values = values[:, None]
  step, mask = np.asarray(rows.step), np.asarray(rows.mask)
  if len(step) != len(values) or (step[mask] >= values.shape[1]).any():
    raise ValueError(
      f"values {values.shape} do not hold every step of {len(step)} rows with"
      f" up to {int(step[mask].max(initial=-1)) + 1} steps"
    )
  return np.where(mask, np.take_along_axis(values, step, 1), 0)


def dense(rows: TokenRows, values: np.ndarray) -> np.ndarray:
  """Values [R, S] of sampled tokens at their places in the row [R, L]."""
  out = np.zeros(np.shape(rows.tokens), np.asarray(values).dtype)
  row, slot = np.nonzero(np.asarray(rows.mask))
  out[row, np.asarray(rows.at)[row, slot]] = np.asarray(values)[row, slot]
  return out


def token_weights(rows: TokenRows) -> np.ndarray:
  """Weight [R, S] of a token: 1 / tokens of its step.

  Steps weigh alike, and the sum over a row is the number of its steps, in
  either layout.
  """
  step, mask = np.asarray(rows.step), np.asarray(rows.mask)
  weight = np.zeros(step.shape, np.float32)
  for i, (steps, live) in enumerate(zip(step, mask, strict=True)):
    count = np.bincount(steps[live], minlength=1)
    weight[i, live] = 1.0 / count[steps[live]]
  return weight


def _rows(
  groups: Sequence[Sequence[Turn]], *, length: int, sampled: int
) -> TokenRows:
  """Rows that end with the last turn's response; spans of all turns."""
  lengths = [len(t[-1].prompt) + len(t[-1].response) for t in groups]
  counts = [sum(len(turn.response) for turn in turns) for turns in groups]
  length = length or max(lengths, default=1)
  sampled = sampled or max(counts, default=1)
  size = len(groups)
  tokens = np.zeros((size, length), np.int32)
  at = np.ones((size, sampled), np.int32)
  mask = np.zeros((size, sampled), bool)
  log_prob = np.zeros((size, sampled), np.float32)
  step = np.zeros((size, sampled), np.int32)
  for i, turns in enumerate(groups):
    if lengths[i] > length or counts[i] > sampled:
      raise ValueError(
        f"row {i} has {lengths[i]} tokens, {counts[i]} of them sampled: longer"
        f" than length={length}, sampled={sampled}"
      )
    filled = 0
    for t, turn in enumerate(turns):
      first, count = len(turn.prompt), len(turn.response)
      if not (count and first and len(turn.log_prob) == count):
        raise ValueError(
          f"row {i}, step {t}: needs a prompt, a sampled token and one log"
          f" probability for each; has {first}, {count} and"
          f" {len(turn.log_prob)}"
        )
      slots = slice(filled, filled + count)
      at[i, slots] = np.arange(first, first + count)
      mask[i, slots] = True
      log_prob[i, slots] = turn.log_prob
      step[i, slots] = t
      filled += count
    said = np.concatenate([turns[-1].prompt, turns[-1].response])
    tokens[i, : len(said)] = said
  return TokenRows(
    tokens=tokens, at=at, mask=mask, log_prob=log_prob, step=step
  )
