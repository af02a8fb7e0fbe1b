"""Keys of the Game of 24: the numbers left, and the operation on them."""

import re
from collections.abc import Sequence
from fractions import Fraction

from crbc_jax.rollouts.log import Row
from crbc_jax.rollouts.table import INVALID_ACTION

_NUMBER = r"-?\d+(?:\.\d+)?(?:/\d+)?"
_LEFT = re.compile(r"\(\s*left:\s*([^()]*)\)")
OPERATION = re.compile(
  rf"^\s*\(?({_NUMBER})\)?\s*([-+*x×/÷])\s*\(?({_NUMBER})\)?"
  rf"\s*=\s*({_NUMBER})"
)
"""a, op, b, c of "a op b = c" at the start of a line."""

_SYMBOL = {"x": "*", "×": "*", "÷": "/"}


def numbers_left(rows: Sequence[Row]) -> list[str | int | None]:
  """The multiset of numbers left, from "4 6 8" or "… (left: 4 6 8)".

  A state without numbers is its verbatim text.
  """
  seen = [*(row.state for row in rows), rows[-1].next_state]
  return [_state_key(state) for state in seen]


def operation(rows: Sequence[Row]) -> list[str | int | None]:
  """The step as "a op b", + and * with sorted operands; else `<invalid>`."""
  return [_action_key(row.action) for row in rows]


def parse_numbers(text: str) -> list[Fraction] | None:
  """The numbers of "4 6 8" or "… (left: 4 6 8)", sorted; None if none."""
  left = _LEFT.findall(text)
  words = (left[-1] if left else text).replace(",", " ").split()
  if not words or not all(re.fullmatch(_NUMBER, word) for word in words):
    return None
  try:
    return sorted(map(Fraction, words))
  except (ZeroDivisionError, ValueError):
    return None


def parse_operation(
  text: str,
) -> tuple[Fraction, str, Fraction, Fraction] | None:
  """(a, op, b, c) of "a op b = c", op one of + - * /; None if unreadable."""
  found = OPERATION.match(text)
  if not found:
    return None
  a, symbol, b, c = found.groups()
  try:
    return Fraction(a), _SYMBOL.get(symbol, symbol), Fraction(b), Fraction(c)
  except (ZeroDivisionError, ValueError):
    return None


def _state_key(state: str | int | None) -> str | int | None:
  numbers = parse_numbers(state) if isinstance(state, str) else None
  return state if numbers is None else " ".join(map(str, numbers))


def _action_key(action: str | int | None) -> str:
  parsed = parse_operation(action) if isinstance(action, str) else None
  if parsed is None:
    return INVALID_ACTION
  a, symbol, b, _ = parsed
  if symbol in "+*":
    a, b = sorted((a, b))
  return f"{a} {symbol} {b}"
