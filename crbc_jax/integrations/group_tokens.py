"""A group of episodes, turn by turn, to advantages of their tokens.

For agent loops that keep one flat list of tokens for each episode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crbc_jax.credit.tokens import spread_to_tokens
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

_SMALLEST = 8  # tokens to generate, where the budget allows it
_BY_CHANCE = 1e-9
"""Rollouts that are all equal with less than this probability are a fault."""


class SamplingError(RuntimeError):
  """Rollouts that cannot have been sampled independently."""


def turns(steps: Sequence[Any], tokens: int) -> list[dict[str, Any]]:
  """What credit needs of each step, and the span of its sampled tokens.

  A step that the environment never answered (it hung) is left out. If the last
  one ends nothing, the episode was cut: by the step limit, the token budget or
  the clock.

  Args:
    steps: of an episode; their info is what the environment said, with the
      names of `group_table`.
    tokens: length of its conversation behind the first prompt.

  Raises:
    SamplingError: the parts do not add up to the conversation.
  """
  found, at = [], 0
  for step in steps:
    said = _length(step.assistant_tokens)
    if step.info:
      found.append(
        {
          **step.info,
          "reward": float(step.reward),
          "token_start": at,
          "token_end": at + said,
        }
      )
    at += said + _length(step.env_tokens)
  if at != tokens:
    raise SamplingError(
      f"{len(steps)} steps hold {at} tokens, their conversation {tokens}: step"
      " credit would go to the wrong tokens"
    )
  if found and found[-1]["boundary"] == Boundary.NONE:
    found[-1]["boundary"] = int(Boundary.TRUNCATED)
  return found


def _length(tokens: Any) -> int:
  return 0 if tokens is None else len(tokens)


def group_table(steps: Sequence[Sequence[Mapping[str, Any]]]) -> StepTable:
  """The episodes of one group as rows: episode by episode, step by step."""
  rows = [(i, t, step) for i, s in enumerate(steps) for t, step in enumerate(s)]
  names = (
    "state_key",
    "action_key",
    "next_state_key",
    "reward",
    "boundary",
    "valid",
  )
  return StepTable.from_columns(
    group_id=np.zeros(len(rows), np.int64),
    traj_id=np.array([i for i, _, _ in rows]),
    step_idx=np.array([t for _, t, _ in rows]),
    **{name: [step[name] for _, _, step in rows] for name in names},
  )


def token_advantages(
  steps: Sequence[Sequence[Mapping[str, Any]]],
  advantage: np.ndarray,
  *,
  length: int,
) -> np.ndarray:
  """Advantages [G, length] float32 of the tokens of a group.

  A step's advantage on each of its sampled tokens, 0 elsewhere. A step may
  have none (the model ended its turn at once), an episode no step.

  Args:
    steps: `turns` of G episodes.
    advantage: [S] of the rows of `group_table`.
    length: of a padded response; what is behind it is cut off, by tunix too.
  """
  out = np.zeros((len(steps), length), np.float32)
  credit = iter(advantage)
  for row, episode in zip(out, steps, strict=True):
    spans = [
      (turn["token_start"], turn["token_end"], value)
      for turn, value in zip(episode, credit, strict=False)
    ]
    spans = [span for span in spans if span[1] > span[0]]
    if spans:
      start, end, values = (np.array(x) for x in zip(*spans, strict=True))
      tokens, _ = spread_to_tokens(start, end, values)
      row[: len(tokens)] = tokens[:length]
  return out


def check_varied(
  played: Sequence[Mapping[str, Any]], *, temperature: float
) -> None:
  """Refuses a group whose rollouts are all equal though they should differ.

  Sure policies do repeat themselves; the log-probabilities say how probable
  it was that every rollout repeats the first.

  Args:
    played: of a group, in tunix's "Token" mode.
    temperature: of the sampling.

  Raises:
    SamplingError: equal with a probability below 1e-9.
  """
  first = np.asarray(played[0]["conversation_tokens"])
  log_probs = played[0]["old_logprobs"]
  if temperature <= 0 or log_probs is None or len(played) < 2:
    return
  equal = all(
    np.array_equal(first, traj["conversation_tokens"]) for traj in played[1:]
  )
  chance = float(np.sum(log_probs)) * (len(played) - 1)
  if equal and chance < np.log(_BY_CHANCE):
    raise SamplingError(
      f"all {len(played)} rollouts of a group are equal, by chance one in"
      f" 10^{-chance / np.log(10):.0f}: tunix's sampler without a seed always"
      " draws the same. Use rollout_engine=SeededRollout"
    )


def rounded_budget(left: int, *, response: int | None = None) -> int:
  """Tokens to generate: `response` if that many are left, else a power of two.

  A budget that shrinks with every turn would compile the sampler for each.
  """
  if response is not None and left >= response:
    return response
  return left if left <= _SMALLEST else 1 << (left.bit_length() - 1)
