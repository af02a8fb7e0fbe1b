"""mini-swe-agent's `.traj.json`: one run of one issue, its chat.

Either a list of messages, or an object with `messages`, `info` (its
`exit_status`) and, from the batch runner, `instance_id`. Group: `instance_id`,
else the name of the file up to its first ".". Trajectory: the file. Step: an
assistant's message; its action is the command in `extra.actions`, else in its
one fenced block (none or several are a format error: an unparsable action); its
state is what it answered. Use `swe_signature` for both keys.

Whether the issue was solved is not in the file: `results.json` in the same
folder says so, as for `swe_agent`, else the run is rejected. Of an unsolved run
the boundary is a failure if it submitted, else truncated.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

from crbc_jax.rollouts.log import Item, Place, Row
from crbc_jax.rollouts.readers import chat
from crbc_jax.rollouts.readers.fields import (
  Malformed,
  field,
  length,
  resolved,
  rows_of,
)
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.rollouts.readers.swe_agent import ending
from crbc_jax.types import Boundary

_BLOCK = re.compile(r"```(?:mswea_bash_command|bash|sh)\s*\n(.*?)\n?```", re.S)
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def recognises(head: str) -> bool:
  """Whether the start of a file looks like this format."""
  fenced = head.lstrip().startswith("[") and "```mswea_bash_command" in head
  return fenced or '"mini_version"' in head or '"mini-swe-agent' in head


def read(source: Source) -> Iterator[Item]:
  """Rows of one file."""
  found = source.json()
  record = {"messages": found} if isinstance(found, list) else found

  def parse(place: Place, record: dict) -> list[Row]:
    turns, final = chat.turns(field(record, "messages", list))
    if not turns:
      raise Malformed("has no message of the agent; leave the file out")
    name = pathlib.PurePath(source.name).name
    issue = record.get("instance_id")
    if not isinstance(issue, str):
      issue = name.split(".")[0]
    won = resolved(source, name, issue)
    actions = [_command(turn.message) for turn in turns]
    info = record.get("info")
    status = info.get("exit_status") if isinstance(info, dict) else None
    submitted = status == "Submitted" or _SUBMIT in (actions[-1] or "")
    rows = [
      Row(
        place=place,
        group_id=issue,
        traj_id=source.name,
        step_idx=t,
        state=turn.state,
        action=action,
        boundary=Boundary.NONE,
        valid=action is not None,
      )
      for t, (turn, action) in enumerate(zip(turns, actions, strict=True))
    ]
    rows[-1] = rows[-1]._replace(
      boundary=ending(won, submitted), next_state=final
    )
    return rows

  yield from rows_of(
    [(source.place(1, "record"), record)],
    parse,
    steps=lambda r: length(r, "messages") // 2,
  )


def _command(message: dict) -> str | None:
  extra: Any = message.get("extra")
  actions = extra.get("actions") if isinstance(extra, dict) else None
  if isinstance(actions, list):
    found = [a.get("command") for a in actions if isinstance(a, dict)]
    commands = [c for c in found if isinstance(c, str) and c.strip()]
    return "\n".join(commands) or None
  blocks = _BLOCK.findall(chat.content_text(message))
  return blocks[0] if len(blocks) == 1 and blocks[0].strip() else None
