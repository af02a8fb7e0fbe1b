"""Keys of agents that call tools: the call, and the calls made so far.

An action is the JSON text of one call or of a list of calls, each
`{"name": …, "arguments": …}` or OpenAI's `{"function": {"name": …,
"arguments": …}}`, or of a chat message with `tool_calls`; arguments may be
JSON text themselves. Anything else is a message in words.
"""

import json
from collections.abc import Sequence
from typing import Any

import xxhash

from crbc_jax.rollouts.log import Row
from crbc_jax.rollouts.table import INVALID_ACTION

MESSAGE = "<message>"
"""The one action key of everything said in words."""


def tool_call(rows: Sequence[Row]) -> list[str | int | None]:
  """Tool name and arguments, keys sorted: `get_user({"id": 7})`.

  All messages in words are one action, `<message>`: their wording hardly ever
  recurs (`verbatim` keeps it). A missing action is `INVALID_ACTION`.
  """
  return [
    INVALID_ACTION if row.action is None else _call_text(row.action) or MESSAGE
    for row in rows
  ]


def tool_history(
  rows: Sequence[Row], *, ordered: bool = True
) -> list[str | int | None]:
  """The tool calls so far with a digest of each result, and who spoke last.

  Words leave no trace but the last speaker: a step after a message is not the
  same state as a step after a tool's result. `ordered=False` forgets the order
  of the calls and repetitions of one with the same result, which is coarser
  and right where calls only look things up.
  """
  results = [*(row.state for row in rows[1:]), rows[-1].next_state]
  history: list[str] = []
  keys: list[str | int | None] = []
  speaker = "user"
  for row, result in zip(rows, results, strict=True):
    keys.append(_history_key(speaker, history, ordered))
    call = _call_text(row.action)
    speaker = "user" if call is None else "tool"
    if call is not None:
      history.append(f"{call} -> {_digest(result)}")
  known = rows[-1].next_state is not None
  keys.append(_history_key(speaker, history, ordered) if known else None)
  return keys


def _history_key(speaker: str, history: list[str], ordered: bool) -> str:
  calls = history if ordered else sorted(set(history))
  return "\n".join([*calls, speaker])


def _call_text(action: str | int | None) -> str | None:
  """Canonical text of the call or calls of an action; None for words."""
  try:
    found = json.loads(action) if isinstance(action, str) else None
  except (ValueError, RecursionError):
    return None
  if isinstance(found, dict) and "tool_calls" in found:
    found = found["tool_calls"]
  calls = found if isinstance(found, list) else [found]
  names = [_one_call(call) for call in calls]
  if not names or None in names:
    return None
  return " + ".join(map(str, names))


def _one_call(call: Any) -> str | None:
  if isinstance(call, dict) and isinstance(call.get("function"), dict):
    call = call["function"]
  if not isinstance(call, dict) or not isinstance(call.get("name"), str):
    return None
  arguments = call.get("arguments", {})
  try:
    if isinstance(arguments, str):
      arguments = json.loads(arguments)
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
  except (ValueError, RecursionError):
    text = str(call["arguments"])
  return f"{call['name']}({text})"


def _digest(result: str | int | None) -> str:
  return xxhash.xxh3_64_hexdigest(repr(result).encode())
