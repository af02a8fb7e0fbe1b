"""Estimators by name; options are checked, never swallowed."""

import ast
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax

from crbc_jax.checks import is_number, suggestion
from crbc_jax.credit.estimators.crbc import crbc
from crbc_jax.credit.estimators.gigpo import gigpo
from crbc_jax.credit.estimators.graphgpo import graphgpo
from crbc_jax.credit.estimators.group_outcome import grpo, rloo
from crbc_jax.credit.estimators.rtmc import rtmc
from crbc_jax.types import Estimator, GroupArrays, StepCredit

ESTIMATORS: dict[str, Estimator] = {
  "crbc": crbc,
  "gigpo": gigpo,
  "graphgpo": graphgpo,
  "grpo": grpo,
  "rloo": rloo,
  "rtmc": rtmc,
}

NEED_RESTORING = ("elpo", "vineppo")
"""Estimators of `learner.branching`: no function of logged rollouts alone."""


def estimator_options(name: str) -> dict[str, Any]:
  """Options of an estimator and their defaults, in signature order."""
  return options_of(_lookup(name))


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
  """Keyword-only arguments and their defaults, in signature order."""
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def check_options(
  name: str, function: Callable[..., Any], options: dict[str, Any]
) -> None:
  """Raises ValueError for an option `function` lacks or one of a wrong type."""
  known = options_of(function)
  for option in options:
    if option not in known:
      raise ValueError(
        f"estimator {name!r} has no option {option!r}"
        f"{suggestion(option, known)}; it has: {', '.join(known)}"
      )
    _check_type(name, option, options[option], known[option])


def make_estimator(name: str, **options: Any) -> Estimator:
  """The estimator `name` with its options bound.

  Returns:
    A pure function of one unbatched `GroupArrays`.

  Raises:
    ValueError: unknown estimator or option (the message lists the known ones),
      one that needs an environment, or a value of the wrong type or outside
      its range.
  """
  function = _lookup(name)
  check_options(name, function, options)
  bound = functools.partial(function, **options)
  # Range checks of options run while tracing; trace once, on nothing.
  jax.eval_shape(bound, _smallest_group())
  return bound


def make_credit_fn(
  name: str, **options: Any
) -> Callable[[GroupArrays], StepCredit]:
  """Batched, jitted estimator: `GroupArrays` [B, ...] -> StepCredit [B, R]."""
  return jax.jit(jax.vmap(make_estimator(name, **options)))


def parse_estimator(text: str) -> tuple[str, dict[str, Any]]:
  """Reads "crbc" or "crbc(depth=2, w_step=1.0)" as (name, options).

  Values are Python literals; `inf` is allowed. Nothing is evaluated.

  Raises:
    ValueError: the text is not of that form, or names an option twice.
  """
  form = f"estimator {text!r} is not of the form name or name(option=value)"
  try:
    node = ast.parse(text.strip(), mode="eval").body
  except SyntaxError:
    raise ValueError(form) from None
  if isinstance(node, ast.Name):
    return node.id, {}
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
  return node.func.id, options


def _lookup(name: str) -> Estimator:
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
      f"known: {', '.join(sorted(ESTIMATORS))}"
    )
  return ESTIMATORS[name]


def _check_type(name: str, option: str, value: Any, default: Any) -> None:
  """Refuses text for a number and the other way round; traced values pass."""
  if isinstance(value, jax.core.Tracer):
    return
  wants_text = isinstance(default, str)
  if wants_text != isinstance(value, str) or not (
    wants_text or is_number(value)
  ):
    kind = "text" if wants_text else "a number"
    raise ValueError(
      f"estimator {name!r}: option {option} must be {kind} (default "
      f"{default!r}), got {value!r}"
    )


def _smallest_group() -> GroupArrays:
  def array(dtype):
    return jax.ShapeDtypeStruct((1,), dtype)

  integers = (
    "state",
    "pair",
    "next_state",
    "traj",
    "step",
    "boundary",
    "pair_state",
  )
  flags = ("valid", "mask", "pair_mask", "state_mask", "traj_mask")
  return GroupArrays(
    reward=array("float32"),
    **{n: array("int32") for n in integers},
    **{n: array("bool") for n in flags},
  )
