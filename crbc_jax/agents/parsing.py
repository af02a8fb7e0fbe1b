"""From a model's response to a command.

A response is `<think>...</think><action>...</action>`, or with a bare format
the command alone. What cannot be read, or is not admissible, is the command
`INVALID`, the same for all such responses: they share one action of an anchor
and none of them can win credit by looking new.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from crbc_jax.checks import check_choice

INVALID = "<invalid>"
FORMATS = ("tags", "bare")

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_SEARCH = re.compile(r"search\[.*\S.*\]")


class Parsed(NamedTuple):
  """What a response asks for."""

  command: str  # `INVALID` where it asks for nothing that can be done
  valid: bool
  thought: str = ""


def parse_response(
  text: str,
  commands: Sequence[str],
  *,
  form: str = "tags",
  need_thought: bool = False,
) -> Parsed:
  """Reads the command of a response.

  Case and spacing do not matter. A command must be among the admissible ones;
  where one of those is of the form `search[...]`, any words will do inside.

  Args:
    text: the response.
    commands: admissible now.
    form: "tags", exactly one `<action>`; or "bare", the text is the command.
    need_thought: without `<think>...</think>` before it a command is invalid.

  Raises:
    ValueError: an unknown form.
  """
  check_choice("form", form, FORMATS)
  thought = ""
  if form == "tags":
    thoughts = _THINK.findall(text)
    thought = thoughts[0].strip() if thoughts else ""
    # What a model writes while it thinks is not yet its action.
    asked = _ACTION.findall(_THINK.sub("", text))
    if len(asked) != 1 or (need_thought and not thought):
      return Parsed(INVALID, False, thought)
    text = asked[0]
  wanted = _plain(text)
  for command in commands:
    if wanted == _plain(command):
      return Parsed(command, True, thought)
  can_search = any(
    _plain(command).startswith("search[") for command in commands
  )
  if can_search and _SEARCH.fullmatch(wanted):
    return Parsed(wanted, True, thought)
  return Parsed(INVALID, False, thought)


def _plain(text: str) -> str:
  return " ".join(text.lower().split())
