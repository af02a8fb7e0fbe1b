"""The command line of an experiment, as results record it."""

import shlex
import sys
from collections.abc import Sequence

_PLACES = ("--out", "--results")
_ASSIGNED = tuple(f"{place}=" for place in _PLACES)


def recorded(module: str, argv: Sequence[str] | None) -> str:
  """`python -m MODULE ARGUMENTS`, without where runs and results were put.

  Nor `--report`: tables of finished runs are those of the runs.

  Args:
    module: "experiments.compare", say.
    argv: what `main` was given; None is the process's own arguments.
  """
  kept: list[str] = []
  rest = iter(sys.argv[1:] if argv is None else argv)
  for word in rest:
    if word in _PLACES:
      next(rest, None)
    elif word != "--report" and not word.startswith(_ASSIGNED):
      kept.append(word)
  return shlex.join(["python", "-m", module, *kept])
