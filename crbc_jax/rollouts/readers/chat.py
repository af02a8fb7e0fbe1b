"""Chat messages -> steps: an assistant's message is one step."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from crbc_jax.rollouts.readers.fields import Malformed
from crbc_jax.rollouts.readers.source import parse_json


class Turn(NamedTuple):
  """An assistant's message, and what it answered."""

  state: str  # the messages since the assistant's last, joined
  action: str  # see `action_text`
  message: dict


def turns(messages: Sequence[Any]) -> tuple[list[Turn], str]:
  """The steps of a conversation, and the state after the last one.

  System messages are left out: they are the same in every rollout of a task.

  Raises:
    Malformed: something is no message.
  """
  found: list[Turn] = []
  heard: list[str] = []
  for message in messages:
    if not isinstance(message, dict) or not isinstance(
      message.get("role"), str
    ):
      raise Malformed("has a message that is no object with a role")
    if message["role"] == "assistant":
      found.append(Turn("\n".join(heard), action_text(message), message))
      heard = []
    elif message["role"] not in ("system", "developer"):
      heard.append(content_text(message))
  return found, "\n".join(heard)


def content_text(message: dict) -> str:
  """The text of a message; of one in parts, the text of its parts."""
  content = message.get("content")
  if isinstance(content, list):
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))
  return content if isinstance(content, str) else ""


def action_text(message: dict) -> str:
  """The tool calls of a message as JSON, in one spelling; else its text.

  One call is `{"name": …, "arguments": …}`, several are a list of them.
  """
  found = message.get("tool_calls")
  calls = [_call(call) for call in found] if isinstance(found, list) else []
  if not calls:
    return content_text(message)
  return json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)


def _call(call: Any) -> dict:
  if isinstance(call, dict) and isinstance(call.get("function"), dict):
    call = call["function"]
  if not isinstance(call, dict) or not isinstance(call.get("name"), str):
    raise Malformed("has a tool call without a name")
  arguments = call.get("arguments", {})
  if isinstance(arguments, str):
    with contextlib.suppress(ValueError):  # no JSON: as the model wrote it
      arguments = parse_json(arguments)
  return {"name": call["name"], "arguments": arguments}
