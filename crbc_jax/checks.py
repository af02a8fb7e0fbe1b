"""Checks of static options, with messages that say what is allowed."""

import contextlib
import difflib
import numbers
from collections.abc import Iterable, Iterator
from typing import Any


class UsageError(ValueError):
  """A command line that cannot be carried out; one line."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
  """Inside, a ValueError is about what the user asked for."""
  try:
    yield
  except ValueError as error:
    raise UsageError(str(error)) from error


def is_number(value: Any) -> bool:
  """Whether this is a static number: not traced, not True or False."""
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_discount(name: str, value: float) -> None:
  """Raises ValueError unless a static discount lies in (0, 1].

  A traced value cannot be looked at and passes.
  """
  if is_number(value) and not 0 < value <= 1:
    raise ValueError(f"{name} must be in (0, 1], got {value}")


def check_share(name: str, value: float) -> None:
  """Raises ValueError unless a static share lies in [0, 1]."""
  if is_number(value) and not 0 <= value <= 1:
    raise ValueError(f"{name} must be in [0, 1], got {value}")


def check_count(name: str, value: float) -> int:
  """A static whole number of at least 1, as an int.

  Raises:
    ValueError: it isn't one.
  """
  if not is_number(value) or value != value // 1 or value < 1:
    raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
  return int(value)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
  """Raises ValueError unless `value` is one of `choices`."""
  if value not in choices:
    raise ValueError(
      f"{name} must be one of {', '.join(choices)}; got {value!r}"
    )


def suggestion(word: str, known: Iterable[str]) -> str:
  """Names the closest known word in brackets, or gives nothing."""
  close = difflib.get_close_matches(word, list(known), n=1)
  return f" (did you mean {close[0]!r}?)" if close else ""
