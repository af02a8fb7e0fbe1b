"""Named functions with options, as text: "name(option=value)"."""

import ast
import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax

from crbc_jax.checks import is_number, suggestion


def parse_spec(kind: str, text: str) -> tuple[str, dict[str, Any]]:
  """Reads "name" or "name(option=value, ...)" as (name, options).

  The name may be an import path, "my_module:mine(option=2)". Values are Python
  literals; `inf` is allowed. Nothing is evaluated.

  Args:
    kind: what is named ("estimator", "state key"), for messages.
    text: as above.

  Raises:
    ValueError: the text is not of that form, or names an option twice.
  """
  form = f"{kind} {text!r} is not of the form name or name(option=value)"
  path = re.match(r"\s*[A-Za-z_][\w.]*:", text)
  module = path[0].strip() if path else ""
  try:
    node = ast.parse(
      text[path.end() if path else 0 :].strip(), mode="eval"
    ).body
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    raise ValueError(form) from None
  if isinstance(node, ast.Name):
    return module + node.id, {}
  if not (
    isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and not node.args
    and all(k.arg for k in node.keywords)
  ):
    raise ValueError(form)
  options: dict[str, Any] = {}
  for keyword in node.keywords:
    assert keyword.arg is not None  # `**` was refused above
    if keyword.arg in options:
      raise ValueError(f"{form}: option {keyword.arg!r} is given twice")
    if isinstance(keyword.value, ast.Name) and keyword.value.id == "inf":
      options[keyword.arg] = math.inf
      continue
    try:
      options[keyword.arg] = ast.literal_eval(keyword.value)
    except ValueError:
      raise ValueError(
        f"{form}: option {keyword.arg!r} is not a literal (quote strings)"
      ) from None
  return module + node.func.id, options


def import_function(kind: str, path: str) -> Any:
  """The function (or other object) of an import path "module:name".

  Raises:
    ValueError: no such module or function.
  """
  module, function = path.split(":")
  try:
    return getattr(importlib.import_module(module), function)
  except ModuleNotFoundError as error:
    raise ValueError(
      f"{kind} {path!r}: no module {error.name!r}; is its folder on PYTHONPATH?"
    ) from None
  except AttributeError:
    raise ValueError(
      f"{kind} {path!r}: module {module!r} has no {function!r}"
    ) from None


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
  """Keyword-only parameters of a function and their defaults."""
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def check_options(
  what: str, options: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
  """Refuses options that are unknown or of another type than their default.

  Args:
    what: the function as messages call it, "estimator 'crbc'".
    options: as given.
    known: every option and its default.

  Raises:
    ValueError: names the option, and the known ones.
  """
  for option, value in options.items():
    if option not in known:
      raise ValueError(
        f"{what} has no option {option!r}{suggestion(option, known)}; "
        f"it has: {', '.join(known) or 'none'}"
      )
    _check_type(what, option, value, known[option])


def _check_type(what: str, option: str, value: Any, default: Any) -> None:
  """Refuses text for a number and the other way round; traced values pass."""
  if isinstance(value, jax.core.Tracer):
    return
  wants_text = isinstance(default, str)
  if wants_text != isinstance(value, str) or not (
    wants_text or is_number(value) or isinstance(default, bool)
  ):
    kind = "text" if wants_text else "a number"
    raise ValueError(
      f"{what}: option {option} must be {kind} (default {default!r}), "
      f"got {value!r}"
    )
