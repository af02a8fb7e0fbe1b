"""verifiers / prime-rl traces: JSON lines, one rollout or one episode a line.

A trace is `{id, task: {key, hash, …}, nodes, rewards, stop_condition, errors,
…}`; an episode is `{traces: [trace, …]}`. `nodes` is the message graph: each
`{parent, message, sampled, token_ids, mask, …}`, `parent` being the index of
the message before it. Group: the task's `key`, else its `hash`. Trajectory:
`id`. Step: a sampled node; its state is the messages since the sampled node
before it, system messages left out. Token spans are positions in the
concatenated `token_ids` of the path.

Outcome: a field `success` (or solved, correct, resolved, won) in `metrics` or
`info`; else the weighted sum of `rewards`, if it is exactly 0 or 1. `None` is
no reward: scoring didn't run, and the trace is rejected, as is one with errors.
A `stop_condition` that starts with "max_" is a truncation.

Traps: saved traces carry no advantages. A graph with several leaves
(compaction, sub-agents) is not one sequence of steps and is rejected.
"""

from collections.abc import Iterator
from typing import Any

from crbc_jax.rollouts.log import Item, Place, Rejected, Row
from crbc_jax.rollouts.readers import chat
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  field,
  identity,
  json_lines,
  label,
  number,
  rows_of,
  typed,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  return '"nodes"' in head and '"sampled"' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  yield from rows_of(_traces(source), _rows, steps=_sampled)


def _traces(source: Source) -> Iterator[tuple[Place, Any] | Rejected]:
  for item in json_lines(source):
    if isinstance(item, Rejected):
      yield item
      continue
    place, record = item
    traces = record.get("traces") if isinstance(record, dict) else None
    for trace in traces if isinstance(traces, list) else [record]:
      yield place, trace


def _sampled(record: dict) -> int:
  nodes = record.get("nodes")
  found = nodes if isinstance(nodes, list) else []
  return sum(isinstance(n, dict) and n.get("sampled") is True for n in found)


def _rows(place: Place, record: dict) -> list[Row]:
  task = field(record, "task", dict)
  group = identity(task, "key" if task.get("key") is not None else "hash")
  name = identity(record, "id")
  if record.get("errors"):
    raise Malformed("stopped at an error, so its outcome says nothing")
  path = _path(field(record, "nodes", list))
  reward = _reward(record)
  labels: dict[str, Any] = {}
  for where in ("info", "metrics"):
    if isinstance(record.get(where), dict):
      labels |= record[where]
  if label(labels, reward, "reward"):
    end = Boundary.SUCCESS
  elif str(record.get("stop_condition")).startswith("max_"):
    end = Boundary.TRUNCATED
  else:
    end = Boundary.FAILURE
  rows: list[Row] = []
  heard: list[str] = []
  position = 0
  for node in path:
    message = node["message"]
    tokens = node.get("token_ids")
    size = len(tokens) if isinstance(tokens, list) else 0
    if node.get("sampled") is True:
      start = position + _first_sampled(node, size)
      rows.append(
        Row(
          place=place,
          group_id=group,
          traj_id=name,
          step_idx=len(rows),
          state="\n".join(heard),
          action=chat.action_text(message),
          boundary=Boundary.NONE,
          reward=0.0,
          token_start=start if size else None,
          token_end=position + size if size else None,
        )
      )
      heard = []
    elif message.get("role") not in ("system", "developer"):
      heard.append(chat.content_text(message))
    position += size
  if not rows:
    raise Malformed("has no sampled node")
  rows[-1] = rows[-1]._replace(
    boundary=end, next_state="\n".join(heard), reward=reward
  )
  return rows


def _path(nodes: list[Any]) -> list[dict]:
  """The nodes from root to leaf.

  Raises:
    Malformed: a node is malformed, or the graph is no path.
  """
  for i, node in enumerate(nodes):
    typed(field(typed(node, dict, "node"), "message", dict), dict, "message")
    if node.get("parent") != (i - 1 if i else None):
      raise Malformed(
        f"has a message graph that branches at node {i}; export one trace for "
        "each branch"
      )
  return nodes


def _reward(record: dict) -> float:
  """The weighted sum of the rewards, as verifiers has it."""
  total = 0.0
  for name, reward in field(record, "rewards", dict).items():
    if reward is None:
      raise Malformed(f"was not scored: its reward {name!r} is null")
    reward = typed(reward, dict, f"rewards: {name}")
    weight = number(reward.get("weight", 1.0), f"rewards: {name}: weight")
    total += weight * number(reward.get("score"), f"rewards: {name}: score")
  return number(total, "reward")


def _first_sampled(node: dict, size: int) -> int:
  """Where the sampled tokens of a node begin: its mask is 0…0 1…1."""
  mask = node.get("mask")
  if not isinstance(mask, list) or len(mask) != size:
    raise Malformed("has a node whose mask is not as long as its token_ids")
  if not size:
    return 0
  start = next((i for i, m in enumerate(mask) if m), size)
  if start == size or not all(mask[start:]):
    raise Malformed("has a node whose sampled tokens are not its last ones")
  return start
