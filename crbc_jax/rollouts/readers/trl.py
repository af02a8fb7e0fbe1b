"""TRL's logged completions, `completions_*.parquet` (`log_completions=True`).

Columns `step, prompt, completion`, one for each reward function, `advantage`.
Group: within a `step`, the rows of equal prompt, for TRL logs no group.
Trajectory: a row. Step: the completion, its state the prompt; where both are
chats, each message of the assistant is a step. Outcome: a column `success` (or
solved, correct, resolved, won); else the one reward column, which must be 0 or
1.

Traps: two groups of one step with the same prompt are one group here. The
weights of the reward functions are not logged, so several reward columns give
neither a reward nor an outcome without a column `success`. The format cannot be
recognised from its first bytes: name it.
"""

import json
from collections.abc import Iterator
from typing import Any

from crbc_jax.rollouts.log import Item, Place, Row
from crbc_jax.rollouts.readers import chat
from crbc_jax.rollouts.readers.fields import (
  LABELS,
  Malformed,
  field,
  identity,
  label,
  number,
  rows_of,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary

_KNOWN = {"step", "prompt", "completion", "advantage", *LABELS}


def recognises(head: str) -> bool:
  """Whether a file is Parquet with the columns of this format."""
  return head.startswith("PAR1") and '"completion"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  prompts: dict[str, int] = {}
  step: str | int | None = None

  def parse(place: Place, record: dict) -> list[Row]:
    nonlocal step
    if identity(record, "step") != step:
      step = record["step"]
      prompts.clear()
    prompt = record.get("prompt")
    key = json.dumps(prompt, sort_keys=True, default=repr)
    number_of_prompt = prompts.setdefault(key, len(prompts))
    reward = _reward(record)
    won = label(record, reward, "reward")
    turns, final = _turns(prompt, field(record, "completion", object))
    rows = [
      Row(
        place=place,
        group_id=f"{source.name}:{step}:{number_of_prompt}",
        traj_id=f"{source.name}:{place.line}",
        step_idx=t,
        state=turn.state,
        action=turn.action,
        boundary=Boundary.NONE,
        reward=None if reward is None else 0.0,
      )
      for t, turn in enumerate(turns)
    ]
    rows[-1] = rows[-1]._replace(
      boundary=Boundary.SUCCESS if won else Boundary.FAILURE,
      next_state=final,
      reward=reward,
    )
    return rows

  yield from rows_of(source.parquet_rows(), parse)


def _reward(record: dict) -> float | None:
  """The value of the only reward column; None if there are several."""
  found = {
    name: value
    for name, value in record.items()
    if name not in _KNOWN
    and isinstance(value, int | float)
    and not isinstance(value, bool)
  }
  if len(found) == 1:
    name, value = next(iter(found.items()))
    return number(value, name)
  if all(record.get(name) is None for name in LABELS):
    raise Malformed(
      f"has {len(found)} reward columns ({', '.join(found) or 'none'}), which "
      f"don't say what is a success; add a column {LABELS[0]!r} of true and "
      "false"
    )
  return None


def _turns(prompt: Any, completion: Any) -> tuple[list[chat.Turn], str | None]:
  state = _text(prompt)
  if isinstance(completion, str):
    return [chat.Turn(state, completion, {})], None
  if not isinstance(completion, list):
    raise Malformed("'completion' must be text or a list of messages")
  turns, final = chat.turns(completion)
  if not turns:
    raise Malformed("has a completion without a message of the assistant")
  return [turns[0]._replace(state=state), *turns[1:]], final or None


def _text(prompt: Any) -> str:
  if isinstance(prompt, str):
    return prompt
  if not isinstance(prompt, list):
    raise Malformed("'prompt' must be text or a list of messages")
  return "\n".join(chat.content_text(m) for m in prompt if isinstance(m, dict))
