"""Estimators by name; options are checked, never swallowed."""

import ast
import dataclasses
import functools
import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax

from crbc_jax.checks import is_number, suggestion
from crbc_jax.credit import combine, conformance
from crbc_jax.credit.catalogue import BUILT_IN, Entry
from crbc_jax.types import Estimator, GroupArrays, StepCredit, Transitions

ESTIMATORS: dict[str, Entry] = dict(BUILT_IN)
"""Every estimator that can be named; `register_estimator` adds to it."""

NEED_RESTORING = ("elpo", "vineppo")
"""Estimators of `learner.branching`: no function of logged rollouts alone."""


def register_estimator(
  name: str,
  function: Estimator,
  *,
  needs: str = "states, actions",
  source: str = "yours",
  needs_critic: bool = False,
) -> Estimator:
  """Checks an estimator and makes it known by `name`.

  From then on the name works in `credit_table`, in training and in reports. A
  fresh process (the command line, `experiments.compare`) knows it by import
  path instead: "my_module:my_estimator(option=1)" registers it there.

  Args:
    name: a Python identifier that is not taken.
    function: `estimator(group, *, option=default, ...) -> StepCredit`, a pure
      function of ONE unbatched group in JAX operations.
    needs, source: words for `crbc list estimators`.
    needs_critic: it reads `group.value`.

  Returns:
    The function.

  Raises:
    ValueError: the name is taken or not an identifier, or the function fails
      a check of `conformance.check_estimator`; says which and what to do.
  """
  if not all(part.isidentifier() for part in re.split(r"[.:]", name)):
    raise ValueError(f"estimator name {name!r} is not an identifier")
  if name in ESTIMATORS and ESTIMATORS[name].function is not function:
    raise ValueError(f"estimator {name!r} is registered already")
  conformance.check_estimator(function)
  ESTIMATORS[name] = Entry(
    function,
    needs,
    source,
    singleton="?",
    all_fail="?",
    all_success="?",
    needs_critic=needs_critic,
  )
  return function


def lookup(name: str) -> Entry:
  """The entry of a name, or of an import path "module:function".

  Raises:
    ValueError: no such estimator, or one that does not pass the checks.
  """
  if ":" in name and name not in ESTIMATORS:
    register_estimator(name, _import(name))
  if name in NEED_RESTORING and name not in ESTIMATORS:
    raise ValueError(
      f"estimator {name!r} plays extra rollouts from visited states: it needs "
      "an environment that can be restored to a state, as in `crbc train`, and "
      "can't credit a logged table"
    )
  if name not in ESTIMATORS:
    hint = suggestion(name, (*ESTIMATORS, *NEED_RESTORING))
    raise ValueError(
      f"unknown estimator {name!r}{hint}; "
      f"known: {', '.join(sorted(ESTIMATORS))}; yours by import path: "
      "'module:function'"
    )
  return ESTIMATORS[name]


def estimator_options(name: str) -> dict[str, Any]:
  """Options of an estimator and their defaults, in signature order."""
  return options_of(lookup(name).function)


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
  """Keyword-only parameters of a function and their defaults."""
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def make_estimator(name: str, **options: Any) -> Estimator:
  """The estimator `name` with its options bound.

  Returns:
    A pure function of one unbatched `GroupArrays`.

  Raises:
    ValueError: unknown estimator or option (the message lists the known ones),
      one that needs an environment, or a value of the wrong type or outside
      its range.
  """
  function = lookup(name).function
  check_options(name, options, options_of(function))
  bound = functools.partial(function, **options)
  # Range checks of options run while tracing; trace once, on nothing.
  jax.eval_shape(bound, _smallest_group())
  return bound


def make_credit_fn(
  name: str, **options: Any
) -> Callable[[GroupArrays], StepCredit]:
  """Batched, jitted estimator: `GroupArrays` [B, ...] -> StepCredit [B, R]."""
  estimator = make_estimator(name, **options)
  return jax.jit(jax.vmap(estimator, axis_name=combine.BATCH_AXIS))


def parse_estimator(text: str) -> tuple[str, dict[str, Any]]:
  """Reads "crbc" or "crbc(depth=2, w_step=1.0)" as (name, options).

  The name may be an import path, "my_module:mine(depth=2)". Values are Python
  literals; `inf` is allowed. Nothing is evaluated.

  Raises:
    ValueError: the text is not of that form, or names an option twice.
  """
  form = f"estimator {text!r} is not of the form name or name(option=value)"
  path = re.match(r"\s*[A-Za-z_][\w.]*:", text)
  module = path[0].strip() if path else ""
  try:
    node = ast.parse(
      text[path.end() if path else 0 :].strip(), mode="eval"
    ).body
  except SyntaxError:
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


def check_options(
  name: str, options: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
  """Refuses options that are unknown or of another type than their default.

  Raises:
    ValueError: names the option, and the known ones.
  """
  for option, value in options.items():
    if option not in known:
      raise ValueError(
        f"estimator {name!r} has no option {option!r}"
        f"{suggestion(option, known)}; it has: {', '.join(known)}"
      )
    _check_type(name, option, value, known[option])


def _check_type(name: str, option: str, value: Any, default: Any) -> None:
  """Refuses text for a number and the other way round; traced values pass."""
  if isinstance(value, jax.core.Tracer):
    return
  wants_text = isinstance(default, str)
  if wants_text != isinstance(value, str) or not (
    wants_text or is_number(value) or isinstance(default, bool)
  ):
    kind = "text" if wants_text else "a number"
    raise ValueError(
      f"estimator {name!r}: option {option} must be {kind} (default "
      f"{default!r}), got {value!r}"
    )


def _import(path: str) -> Estimator:
  module, function = path.split(":")
  try:
    return getattr(importlib.import_module(module), function)
  except ModuleNotFoundError as error:
    raise ValueError(
      f"estimator {path!r}: no module {error.name!r}; is its folder on "
      "PYTHONPATH?"
    ) from None
  except AttributeError:
    raise ValueError(
      f"estimator {path!r}: module {module!r} has no {function!r}"
    ) from None


def _smallest_group() -> GroupArrays:
  """One row, as shapes and types only."""

  def arrays(kind, **given):
    flags = ("valid", "mask")
    dtypes = {
      field.name: "bool" if field.name.endswith(flags) else "int32"
      for field in dataclasses.fields(kind)
      if field.name not in given
    }
    return kind(
      **{n: jax.ShapeDtypeStruct((1,), d) for n, d in dtypes.items()}, **given
    )

  number = jax.ShapeDtypeStruct((1,), "float32")
  return arrays(
    GroupArrays,
    reward=number,
    value=number,
    transitions=arrays(Transitions),
  )
