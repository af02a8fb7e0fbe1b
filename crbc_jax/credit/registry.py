"""Estimators by name; options are checked, never swallowed."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax

from crbc_jax import specs
from crbc_jax.checks import suggestion
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
    needs_critic: it reads `GroupArrays.value`.

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
    register_estimator(name, specs.import_function("estimator", name))
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
  return specs.options_of(lookup(name).function)


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
  specs.check_options(
    f"estimator {name!r}", options, specs.options_of(function)
  )
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

  The name may be an import path, "my_module:mine(depth=2)".

  Raises:
    ValueError: as `specs.parse_spec`.
  """
  return specs.parse_spec("estimator", text)


def split_estimators(text: str) -> list[str]:
  """Estimators separated by commas, but not by those of their options.

  Raises:
    ValueError: there is none, or one that does not exist or has no such option.
  """
  parts, depth = [""], 0
  for character in text:
    depth += {"(": 1, ")": -1}.get(character, 0)
    if character == "," and depth == 0:
      parts.append("")
    else:
      parts[-1] += character
  names = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
  if not names:
    raise ValueError(f"{text!r} names no estimator")
  for name in names:
    base, options = parse_estimator(name)
    make_estimator(base, **options)
  return names


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
