"""tau-bench's `historical_trajectories/*.json`: a list of records.

A record is `{task_id, trial, reward, info, traj}`, `traj` the chat. Group:
`task_id`. Trajectory: file, task and trial. Step: an assistant's message; its
state is the user's words or the tool's result before it (use `tool_history`
as state key: what matters is in the results so far). Outcome: `reward` = 1.

Traps: task numbers repeat between the airline and the retail domain, and
nothing in a record names the domain, so read one domain at a time. A chat that
stops at a tool's result, other than the transfer to a human, ran into the
step limit: it is truncated, not failed.
"""

from collections.abc import Iterator

from crbc_jax.rollouts.log import Item, Place, Row
from crbc_jax.rollouts.readers import chat
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  field,
  identity,
  length,
  number,
  records,
  rows_of,
  success,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary

_TRANSFER = "transfer_to_human_agents"


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"task_id"' in head and '"traj"' in head and '"reward"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""

  def parse(place: Place, record: dict) -> list[Row]:
    group = identity(record, "task_id")
    trial = identity(record, "trial")
    reward = number(record.get("reward"), "reward")
    won = success(reward, "reward")
    turns, final = chat.turns(field(record, "traj", list))
    if not turns:
      raise Malformed("has no message of the agent (did the run crash?)")
    end = Boundary.SUCCESS if won else _failure(record["traj"])
    rows = [
      Row(
        place=place,
        group_id=group,
        traj_id=f"{source.name}:{group}:{trial}",
        step_idx=t,
        state=turn.state,
        action=turn.action,
        boundary=Boundary.NONE,
        reward=0.0,
      )
      for t, turn in enumerate(turns)
    ]
    rows[-1] = rows[-1]._replace(boundary=end, next_state=final, reward=reward)
    return rows

  yield from rows_of(
    records(source), parse, steps=lambda r: length(r, "traj") // 2
  )


def _failure(messages: list[dict]) -> Boundary:
  last = messages[-1]
  cut = last["role"] == "tool" and last.get("name") != _TRANSFER
  return Boundary.TRUNCATED if cut else Boundary.FAILURE
