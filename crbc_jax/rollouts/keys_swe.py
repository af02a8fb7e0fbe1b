"""Signatures of software-engineering agents, after RTMC (arXiv 2604.11037).

An action is `category[:scope]@target[:result]`. A state is what was done so
far, whatever the order: file -> set of operations, and counts of test runs
and thoughts. Two rollouts that read and changed the same things are in the
same state, though their observations differ in every byte.

`swe_commands.Parser` turns an action's text into operations, this module turns
operations into keys.
"""

from collections import defaultdict
from collections.abc import Sequence

from crbc_jax.rollouts import swe_commands
from crbc_jax.rollouts.log import Row
from crbc_jax.rollouts.table import INVALID_ACTION

_REFUSED = (
  "Your proposed edit has introduced new syntax error",
  "No replacement was performed",
  "edit was not applied",
)
_FAILED = (
  "<returncode>",  # 0 is looked for first
  "Traceback (most recent call last)",
  "command not found",
  "No such file or directory",
  "SyntaxError",
  "FAILED",
  "Error:",
)


def swe_action(
  rows: Sequence[Row], *, content: bool = True, root: str = "/testbed"
) -> list[str | int | None]:
  """`category[:scope]@target[:result]` of each command, joined by " + ".

  Categories: view, search, modify, create, execute, test, install, fileop,
  think, finish, and other. The scope of a view is its line over 100 or "full",
  of a change a tag of its text (left out with `content=False`), of a search
  its pattern. Runs and tests end in ok or error, as the observation tells; so
  does a change that was refused. Paths below `root` are written relative.
  A missing or empty action is `INVALID_ACTION`.
  """
  return [
    " + ".join(_action_text(op, content) for op in ops) or INVALID_ACTION
    for ops in _operations(rows, root)
  ]


def swe_signature(
  rows: Sequence[Row], *, content: bool = True, root: str = "/testbed"
) -> list[str | int | None]:
  """What was viewed, searched, created and changed so far, in any order.

  `file:{ops}` with Vf (viewed in full), V[b] (lines of bucket b), S
  (searched), C (created), M:tag and I:tag (changed, inserted; without the tag
  if `content=False`, which makes more states recur), then counts of failed
  tests, passed tests and thoughts. Runs, installations, moved files and
  refused changes leave no trace. Never None: it needs no observation, except
  to tell whether tests passed.
  """
  files: dict[str, set[str]] = defaultdict(set)
  counts = {"test_fail": 0, "test_pass": 0, "think": 0}
  keys: list[str | int | None] = [_state_text(files, counts)]
  for ops in _operations(rows, root):
    for op in ops:
      if op.category == "test":
        counts["test_fail" if op.result == "error" else "test_pass"] += 1
      elif op.category == "think":
        counts["think"] += 1
      elif op.mark and op.result != "error":
        tagged = content and op.mark in "MI"
        files[op.target].add(f"{op.mark}:{op.scope}" if tagged else op.mark)
    keys.append(_state_text(files, counts))
  return keys


def _operations(
  rows: Sequence[Row], root: str
) -> list[list[swe_commands.Operation]]:
  """The operations of every step, with their results."""
  parser = swe_commands.Parser(root=root)
  seen = [*(row.state for row in rows[1:]), rows[-1].next_state]
  found = []
  for row, observation in zip(rows, seen, strict=True):
    text = "" if row.action is None else str(row.action)
    result = _result("" if observation is None else str(observation))
    found.append(
      [
        op._replace(
          result=result
          if op.category in ("execute", "test")
          else "error"
          if result == "refused" and op.mark in ("M", "I", "C")
          else ""
        )
        for op in parser.parse(text)
      ]
    )
  return found


def _result(observation: str) -> str:
  """Ok or error of a run; "refused" where an editor rejected the change."""
  if any(words in observation for words in _REFUSED):
    return "refused"
  if "<returncode>0</returncode>" in observation:
    return "ok"
  return "error" if any(w in observation for w in _FAILED) else "ok"


def _action_text(op: swe_commands.Operation, content: bool) -> str:
  scope = op.scope if content or op.mark not in ("M", "I", "C") else ""
  text = op.category
  text += f":{scope}" if scope else ""
  text += f"@{op.target}" if op.target else ""
  return text + (f":{op.result}" if op.result else "")


def _state_text(files: dict[str, set[str]], counts: dict[str, int]) -> str:
  parts = [f"{name}:{{{','.join(sorted(files[name]))}}}" for name in files]
  parts.sort()
  parts += [f"{name}={count}" for name, count in counts.items() if count]
  return " ".join(parts)
