"""What the names in backticks of a docstring stand for.

A name is good if it is a parameter or field where it stands, an object of its
module, of the package (`closure.exact_values`: the end of the dotted name) or
of a library, a literal (a string constant of the same module: the fields of a
log format, the choices of an option), or a word of the package's vocabulary:
columns, config keys, estimators, keys and formats. What other programs call
their things is in `FOREIGN`. Commands, options and `make` targets must exist
too. Of other text in backticks, such as a call, the name it begins with must
be good; of a signature, `f(x) -> Type`, the type.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import pathlib
import pkgutil
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import crbc_jax

ROOT = pathlib.Path(crbc_jax.__file__).resolve().parents[1]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PLAIN = re.compile(rf"({_NAME})(?:\(\))?")
# `f(...)`, `x["y"]`, `x = 1`, `x == 1`: the name must be good.
_LEADING = re.compile(rf"({_NAME})(?:\[[^][]*\]|\([^()]*\)| ?==? ?\S+)")
_TYPE = re.compile(r"\b[A-Z]\w*[a-z]\w*\b")
_BUILT_IN = ("None", "True", "False", "inf", "repr", "hash")
_LIBRARIES = ("jax", "numpy", "optax", "rich")

FOREIGN = {
  "crbc_jax.envs.alfworld.game": ("help",),
  "crbc_jax.rollouts.keys_tools": ('get_user({"id": 7})',),
  "crbc_jax.rollouts.readers.intercode": ("summary",),
  "crbc_jax.rollouts.readers.mini_swe_agent": ("extra.actions",),
  "crbc_jax.rollouts.readers.swe_agent": (
    "replay_config.problem_statement.id",
  ),
  "crbc_jax.rollouts.readers.trl": ("log_completions=True",),
  "crbc_jax.rollouts.readers.verl_agent": ('adjust_batch("copy")',),
}
"""Names of other programs and formats, by the module that mentions them."""


@dataclasses.dataclass(frozen=True)
class Docstring:
  """A docstring, and the names that are known where it stands."""

  module: str
  owner: str  # dotted name in the module; empty for the module's own
  text: str
  local: Mapping[str, str]  # parameters, fields, nested functions: their type

  def names(self) -> list[str]:
    """Texts in backticks, in order."""
    return SPAN.findall(" ".join(self.text.split()))


@functools.cache
def modules() -> dict[str, types.ModuleType]:
  """Every module of the package by its dotted name, but `without_extra`."""
  found = {"crbc_jax": crbc_jax}
  for name in _names():
    if name not in without_extra():
      found[name] = importlib.import_module(name)
  return found


@functools.cache
def without_extra() -> tuple[str, ...]:
  """Modules whose extra is not installed: they say which one."""
  missing = []
  for name in _names():
    try:
      importlib.import_module(name)
    except ImportError as error:
      if "pip install 'crbc_jax[" not in str(error):
        raise
      missing.append(name)
  return tuple(missing)


def _names() -> list[str]:
  found = pkgutil.walk_packages(crbc_jax.__path__, "crbc_jax.")
  return [i.name for i in found if not i.name.endswith("__main__")]


def docstrings(module: str, source: str) -> Iterator[Docstring]:
  """The docstrings of a module's source, private ones too."""
  tree = ast.parse(source)
  yield from _within(module, tree, "", {})


def _within(module, node, owner, outer) -> Iterator[Docstring]:
  local = outer | _own_names(node)
  text = ast.get_docstring(node)
  if text:
    yield Docstring(module, owner, text, local)
  for before, after in zip(node.body, node.body[1:], strict=False):
    # The string below an assignment describes what was assigned.
    if isinstance(before, ast.Assign | ast.AnnAssign) and _is_text(after):
      target = getattr(before, "target", None) or before.targets[0]
      yield Docstring(
        module,
        f"{owner}.{ast.unparse(target)}".lstrip("."),
        inspect.cleandoc(after.value.value),
        local,
      )
  for child in node.body:
    if isinstance(child, ast.FunctionDef | ast.ClassDef):
      name = f"{owner}.{child.name}".lstrip(".")
      # What a module's text may say of its classes, their own may not.
      inner = {} if isinstance(node, ast.Module) else local
      yield from _within(module, child, name, inner)


def _is_text(node: ast.stmt) -> bool:
  return (
    isinstance(node, ast.Expr)
    and isinstance(node.value, ast.Constant)
    and isinstance(node.value.value, str)
  )


def _own_names(node) -> dict[str, str]:
  """Names in a function or class, or the fields of a module's classes."""
  if isinstance(node, ast.Module):
    kinds = (n for n in node.body if isinstance(n, ast.ClassDef))
    return {
      ast.unparse(field.target): ""
      for kind in kinds
      for field in kind.body
      if isinstance(field, ast.AnnAssign)
    }
  names: dict[str, str] = {}
  in_class = isinstance(node, ast.ClassDef)
  for part in ast.walk(node):
    if isinstance(part, ast.arg):
      names[part.arg] = ast.unparse(part.annotation) if part.annotation else ""
    elif isinstance(part, ast.FunctionDef | ast.ClassDef):
      names[part.name] = ""
    elif isinstance(part, ast.AnnAssign) and in_class and part in node.body:
      names[ast.unparse(part.target)] = ast.unparse(part.annotation)
    elif isinstance(part, ast.Assign) and in_class and part in node.body:
      names |= {ast.unparse(target): "" for target in part.targets}
    elif isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
      names[part.attr] = ""
  return names


@functools.cache
def literals(module: str) -> frozenset[str]:
  """String constants of a module's code, docstrings left out."""
  tree = ast.parse(inspect.getsource(modules()[module]))
  said = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
  return frozenset(
    word
    for n in ast.walk(tree)
    if isinstance(n, ast.Constant) and isinstance(n.value, str)
    if id(n) not in said
    for word in (n.value, *n.value.split())
  )


@functools.cache
def vocabulary() -> frozenset[str]:
  """Columns, config keys, estimators and their options, keys and formats."""
  from crbc_jax import specs, types
  from crbc_jax.credit import registry
  from crbc_jax.learner import branching, config
  from crbc_jax.rollouts import keys, readers, table

  entries = registry.ESTIMATORS | branching.BRANCHING
  settings = config.flat_items(config.get_config())
  shared = (types.GroupArrays, types.StepCredit, table.StepTable)
  return frozenset(
    [
      *entries,
      *(o for e in entries.values() for o in specs.options_of(e.function)),
      *settings,
      *(key.rpartition(".")[2] for key in settings),
      *(name.lower() for name in types.Boundary.__members__),
      *(field.name for kind in shared for field in dataclasses.fields(kind)),
      *keys.STATE_KEYS,
      *keys.ACTION_KEYS,
      *readers.FORMATS,
    ]
  )


@functools.cache
def commands() -> dict[str, frozenset[str]]:
  """Options of every command of `crbc`."""
  from crbc_jax import cli

  found = {}
  for name in _choices(cli._parser("")):
    parser = _choices(cli._parser(name))[name]
    found[name] = frozenset(parser._option_string_actions)
  return found


def _choices(parser: argparse.ArgumentParser) -> dict[str, Any]:
  (action,) = (
    a for a in parser._actions if isinstance(a, argparse._SubParsersAction)
  )
  return dict(action.choices)


def find(module: str, name: str) -> tuple[str, str] | None:
  """Where a dotted name of a module's docstring is defined.

  Returns:
    (module, name in it) of what is in the package, ("", name) of what is not,
    None where there is no such object.
  """
  parts = name.split(".")
  places = [(module, parts)]
  for known in modules():
    tail = known.split(".")
    for k in range(1, len(parts) + 1):
      if tail[-k:] == parts[:k]:
        places.append((known, parts[k:]))
  places += [("crbc_jax", parts), ("crbc_jax.types", parts)]
  for place, rest in places:
    if _has(modules()[place], rest):
      inside = _defined_in(place, rest)
      return inside if inside else ("", name)
  return None


def _has(thing: Any, parts: list[str]) -> bool:
  for part in parts:
    fields = {
      *getattr(thing, "__dataclass_fields__", ()),
      *getattr(thing, "__annotations__", ()),
    }
    if not hasattr(thing, part):
      return part in fields
    thing = getattr(thing, part)
  return True


def _defined_in(place: str, parts: list[str]) -> tuple[str, str] | None:
  """The module of the package that an object comes from."""
  if not parts:
    return place, ""
  first = getattr(modules()[place], parts[0], None)
  if inspect.ismodule(first):
    if first.__name__ not in modules():
      return None
    return _defined_in(first.__name__, parts[1:])
  home = getattr(first, "__module__", place)
  if home not in modules():  # a constant, or from a library
    home = place if not isinstance(first, type | types.FunctionType) else None
  if home is None:
    return None
  return home, ".".join(parts)


def problem(docstring: Docstring, text: str) -> str | None:
  """Why a text in backticks is no good reference, or None."""
  if text.startswith("crbc "):
    words = text.split()
    known = commands()
    if words[1] not in known and words[1] != "COMMAND":
      return f"crbc has no command {words[1]!r}"
    options = [w.split("=")[0] for w in words[2:] if w.startswith("--")]
    return _unknown_option(options, known.get(words[1], frozenset()))
  if text.startswith("--"):
    everywhere = frozenset().union(*commands().values())
    return _unknown_option([text.split("=")[0].split()[0]], everywhere)
  if text.startswith("make "):
    return _unknown_target(text.split()[1])
  if "->" in text:
    unknown = [n for n in _TYPE.findall(text) if not find(docstring.module, n)]
    return f"no object {unknown[0]!r}" if unknown else None
  match = _PLAIN.fullmatch(text) or _LEADING.fullmatch(text)
  if match and not (
    docstring.text.startswith(f"`{text}`")  # what the alias stands for
    or _known(docstring, match[1], text)
  ):
    return f"no object, parameter, option or literal {match[1]!r}"
  return None


def _unknown_option(options: list[str], known: frozenset[str]) -> str | None:
  for option in options:
    if option not in known and not option.startswith("--config"):
      return f"no option {option!r}"
  return None


def _unknown_target(name: str) -> str | None:
  makefile = ROOT / "Makefile"
  if not makefile.exists():  # beside an installed wheel
    return None
  found = re.search(rf"^{re.escape(name)}:", makefile.read_text(), re.M)
  return None if found else f"no make target {name!r}"


def _known(docstring: Docstring, name: str, text: str) -> bool:
  first, _, rest = name.partition(".")
  if first in ("experiments", "configs"):
    path = ROOT / pathlib.Path(*name.split("."))
    return not (ROOT / first).exists() or path.with_suffix(".py").exists()
  if first in docstring.local:
    return not rest or _is_field(docstring, docstring.local[first], rest)
  if first in _LIBRARIES:
    return _has(importlib.import_module(first), rest.split("."))
  return bool(
    name in _BUILT_IN
    or name in vocabulary()
    or re.search(r"\.(?:json|npz|parquet|traj|txt)$", name)  # a file
    or {name, text} & literals(docstring.module)
    or text in FOREIGN.get(docstring.module, ())
    or find(docstring.module, name)
  )


def _is_field(docstring: Docstring, kind: str, rest: str) -> bool:
  """Whether a parameter's type has such an attribute, if it is one of ours."""
  found = re.fullmatch(_NAME, kind) and find(docstring.module, kind)
  if not found or not found[0]:
    return True
  return find(docstring.module, f"{kind}.{rest}") is not None


def target(module: str, text: str) -> tuple[str, str] | None:
  """The module and public place in it that a text links to, if it does."""
  match = _PLAIN.fullmatch(text)
  found = match and "." in match[1] and find(module, match[1])
  if not found or not found[0]:
    return None
  page, place = found
  private = re.search(r"(?:^|\.)_", f"{page}.{place}")
  return None if private else found


def problems() -> Iterator[str]:
  """Every broken reference of the package, as one line."""
  for module, thing in modules().items():
    for docstring in docstrings(module, inspect.getsource(thing)):
      for text in docstring.names():
        found = problem(docstring, text)
        if found:
          where = f"{module}.{docstring.owner}".rstrip(".")
          yield f"{where}: `{text}`: {found}"
