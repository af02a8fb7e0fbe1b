"""State and action keys by name: what makes two steps "the same".

A state key gets one trajectory in order, T rows, and gives T + 1 keys: of the
state before each step, and of the state after the last one (None = not known).
An action key gives T keys. Keys are compared inside a group only.

No key function raises on odd text. What it cannot read becomes its verbatim
text where that is a fair key, else None (a state that is an anchor of its own)
or `INVALID_ACTION`; each function says which.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crbc_jax import specs
from crbc_jax.checks import check_count, suggestion
from crbc_jax.rollouts import keys_game24, keys_swe, keys_tools
from crbc_jax.rollouts.log import LogError, Row
from crbc_jax.rollouts.table import INVALID_ACTION

Key = str | int | None
StateKey = Callable[[Sequence[Row]], Sequence[Key]]
ActionKey = Callable[[Sequence[Row]], Sequence[Key]]


def states(rows: Sequence[Row]) -> list[Key]:
  """The states of a trajectory as logged, [T + 1], None where missing."""
  return [*(row.state for row in rows), rows[-1].next_state]


def verbatim(rows: Sequence[Row]) -> list[Key]:
  """The state as logged."""
  return states(rows)


def normalized(rows: Sequence[Row]) -> list[Key]:
  """The state's text, every number written <n>, white space collapsed."""
  return [_normalize(state) for state in states(rows)]


def window(rows: Sequence[Row], *, n: int = 2) -> list[Key]:
  """The last n steps (state, action) and the current state, as logged.

  Finer than `verbatim`: two visits are the same only if what led to them is.
  """
  n = check_count("window: n", n)
  seen = states(rows)
  keys: list[Key] = []
  for t, state in enumerate(seen):
    past = [(row.state, row.action) for row in rows[max(t - n, 0) : t]]
    keys.append(
      None if state is None else json.dumps([*past, state], ensure_ascii=False)
    )
  return keys


def verbatim_action(rows: Sequence[Row]) -> list[Key]:
  """The action as logged."""
  return [_or_invalid(row.action) for row in rows]


def normalized_action(rows: Sequence[Row]) -> list[Key]:
  """The action's text, every number written <n>, white space collapsed."""
  return [_or_invalid(_normalize(row.action)) for row in rows]


STATE_KEYS: dict[str, StateKey] = {
  "verbatim": verbatim,
  "normalized": normalized,
  "window": window,
  "tool_history": keys_tools.tool_history,
  "swe_signature": keys_swe.swe_signature,
  "game24": keys_game24.numbers_left,
}
"""State keys that can be named; keyword-only arguments are options."""

ACTION_KEYS: dict[str, ActionKey] = {
  "verbatim": verbatim_action,
  "normalized": normalized_action,
  "tool_call": keys_tools.tool_call,
  "swe_signature": keys_swe.swe_action,
  "game24": keys_game24.operation,
}
"""Action keys that can be named; keyword-only arguments are options."""


def state_key(text: str) -> StateKey:
  """The state key of "name", "name(option=value)" or "module:function".

  Raises:
    ValueError: no such key or option; the message lists the known ones.
  """
  return _resolve("state key", text, STATE_KEYS, extra=1)


def action_key(text: str) -> ActionKey:
  """The action key of "name", "name(option=value)" or "module:function".

  Raises:
    ValueError: no such key or option; the message lists the known ones.
  """
  return _resolve("action key", text, ACTION_KEYS, extra=0)


def _resolve(
  kind: str, text: str, known: Mapping[str, Callable], *, extra: int
) -> Callable[[Sequence[Row]], Sequence[Key]]:
  name, options = specs.parse_spec(kind, text)
  if name in known:
    function = known[name]
  elif ":" in name:
    function = specs.import_function(kind, name)
  else:
    raise ValueError(
      f"unknown {kind} {name!r}{suggestion(name, known)}; known: "
      f"{', '.join(sorted(known))}; yours by import path: 'module:function'"
    )
  specs.check_options(f"{kind} {name!r}", options, specs.options_of(function))
  bound = functools.partial(function, **options) if options else function
  return checked_key(kind, name, bound, extra=extra)


def checked_key(
  kind: str, name: str, function: Callable, *, extra: int
) -> Callable[[Sequence[Row]], Sequence[Key]]:
  """A key function whose result is looked at before it is trusted.

  It raises a LogError with the place of the trajectory, whatever goes wrong.

  Args:
    kind, name: what messages call it.
    function: rows of a trajectory [T] -> T + extra keys.
    extra: 1 for a state key, 0 for an action key.
  """

  @functools.wraps(function)
  def checked(rows: Sequence[Row]) -> list[Key]:
    try:
      found = list(function(rows))
    except Exception as error:  # a user's own function may raise anything
      problem = f"fails on this trajectory: {type(error).__name__}: {error}"
      raise LogError(rows[0].place, f"{kind} {name!r} {problem}") from error
    problem = ""
    if len(found) != len(rows) + extra:
      problem = (
        f"gave {len(found)} keys for {len(rows)} steps; give one for each step"
        f"{' and one for the end' if extra else ''}"
      )
    odd = [key for key in found if not isinstance(key, str | int | None)]
    if odd:
      problem = (
        f"gave a {type(odd[0]).__name__}; keys are text, whole numbers or None"
      )
    if problem:
      raise LogError(rows[0].place, f"{kind} {name!r} {problem}")
    return found

  return checked


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def _normalize(value: Key) -> Key:
  if not isinstance(value, str):
    return value
  return " ".join(_NUMBER.sub("<n>", value).split())


def _or_invalid(value: Any) -> Key:
  return INVALID_ACTION if value is None else value
