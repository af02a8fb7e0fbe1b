"""Docstrings render, and what they point to exists.

A name in single backticks must be an object of the package, a parameter, a
field, a registered name, a config key, an option or a file, or it must read as
a formula or a literal (anything that is not a plain dotted name does).
"""

import ast
import builtins
import functools
import itertools
import pathlib
import re
import warnings

import pytest

import crbc_jax
from crbc_jax import specs
from crbc_jax.credit import registry
from crbc_jax.learner import branching, config
from crbc_jax.rollouts import keys, readers

PACKAGE = pathlib.Path(crbc_jax.__file__).parent

_QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")

EXTERNAL = {"jit", "vmap", "jax", "jnp", "np", "rich", "experiments"}
"""Names of Python's and JAX's world, and of what stands beside the package."""


@functools.cache
def trees():
  return {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
  }


def names_in(tree):
  """Everything a module defines or takes: names, attributes, arguments."""
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
      yield node.name
    if isinstance(node, ast.arg):
      yield node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      yield node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
      yield node.attr
    if isinstance(node, ast.keyword) and node.arg:
      yield node.arg


@functools.cache
def known():
  found = {name for tree in trees().values() for name in names_in(tree)}
  found |= {part for path in trees() for part in path.with_suffix("").parts}
  found |= EXTERNAL | set(dir(builtins)) | set(config.flat_items(defaults()))
  found |= {key.split(".")[-1] for key in config.flat_items(defaults())}
  for entry in (*registry.ESTIMATORS.values(), *branching.BRANCHING.values()):
    found |= set(specs.options_of(entry.function))
  found |= {*registry.ESTIMATORS, *branching.BRANCHING}
  found |= {*keys.STATE_KEYS, *keys.ACTION_KEYS, *readers.FORMATS}
  return frozenset(found)


def defaults():
  return config.get_config()


def documented(tree):
  """(line, docstring) of the public objects of a module, and constants'."""
  yield 1, ast.get_docstring(tree)
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
      yield node.lineno, ast.get_docstring(node)
    body = getattr(node, "body", [])
    if not isinstance(body, list):  # of a lambda or a conditional expression
      continue
    for before, after in itertools.pairwise(body):
      text = getattr(getattr(after, "value", None), "value", None)
      constant = isinstance(before, ast.Assign | ast.AnnAssign)
      if constant and isinstance(after, ast.Expr) and isinstance(text, str):
        yield after.lineno, text


@functools.cache
def members():
  """Module or class -> names that may stand behind it and a dot."""
  found = {}
  for path, tree in trees().items():
    own = set(names_in(tree))
    if path.stem == "__init__":
      path = path.parent
    found.setdefault(path.stem, set()).update(own)
    found.setdefault(path.parent.name, set()).add(path.stem)
    for node in ast.walk(tree):
      if isinstance(node, ast.ClassDef):
        found.setdefault(node.name, set()).update(names_in(node))
  return found


@functools.cache
def literals(tree):
  """Identifiers among the strings of a module: fields of logs, files."""
  found = set()
  for node in ast.walk(tree):
    text = getattr(node, "value", None)
    if isinstance(node, ast.Constant) and isinstance(text, str):
      found |= set(re.findall(r"[\w.]+", text)) if len(text) < 60 else set()
  return found


def resolves(name):
  """Whether a dotted name leads somewhere."""
  parts = name.split(".")
  if name in known() or name.removeprefix("config.") in known():
    return True
  if parts[0] in EXTERNAL:
    return True
  return parts[0] in known() and all(
    after in members().get(before, known())
    for before, after in itertools.pairwise(parts)
  )


def broken(text, own=frozenset()):
  """Names in backticks that nothing explains; `own` are those of a module."""
  return [
    name
    for name in _QUOTED.findall(text)
    if _DOTTED.fullmatch(name)
    and not resolves(name)
    and name not in own
    and not own.issuperset(name.split("."))
  ]


def test_every_reference_of_a_docstring_resolves():
  found = [
    f"{path.relative_to(PACKAGE)}:{line}: `{name}`"
    for path, tree in trees().items()
    for line, text in documented(tree)
    for name in broken(text or "", literals(tree))
  ]
  assert not found, "\n".join(found)


def test_the_checker_finds_what_is_broken():
  assert (
    broken("see `closure.exact_values`, `beta`, `depth` and `x[0] > 1`") == []
  )
  assert broken("`closure.exact_vaules`") == ["closure.exact_vaules"]
  assert broken("`closure.merge`") == ["closure.merge"]
  assert broken("``not ours``, `no_such_name`") == ["no_such_name"]


def test_a_page_is_built_without_a_warning(tmp_path):
  """One page; `make docs` builds them all."""
  pdoc = pytest.importorskip("pdoc")
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc("crbc_jax.credit.closure", output_directory=tmp_path)
  text = (tmp_path / "crbc_jax/credit/closure.html").read_text(encoding="utf-8")
  assert "anchored_values" in text and "Bellman residual" in text
