"""Names in the backticks of docstrings stand for something."""

import textwrap

import pytest

# A wheel installed elsewhere comes without the builder of the API page.
references = pytest.importorskip("tests.docs.references")

SOURCE = '''
  """The module."""

  LIMIT = 3
  """At most so many; see {0}."""


  class Box:
    """A box; see {1}."""

    girth: int
    kind = "round"


  def pack(box: Box, item, *, fast: bool = False):
    """Packs; see {2}."""

    def inner(speed):
      return speed
'''


def broken(module="crbc_jax.credit.closure", constant="", box="", pack=""):
  source = textwrap.dedent(SOURCE).format(constant, box, pack)
  return [
    (docstring.owner, text)
    for docstring in references.docstrings(module, source)
    for text in docstring.names()
    if references.problem(docstring, text)
  ]


def test_every_name_in_the_package_is_good():
  assert list(references.problems()) == []


@pytest.mark.parametrize(
  "text",
  [
    "fast",  # parameter
    "item.anything",  # of a parameter whose type is not ours
    "speed",  # of an inner function
    "EXACT",  # constant of the module
    "closure.exact_values",
    "crbc_jax.credit.closure.exact_values",
    "make_batch()",  # public name of the package
    "GroupArrays.reward",  # field
    "jax.lax.scan",  # of a library
    "learner.clip",  # config key
    "tool_history",  # state key
    "crbc_anchored",  # estimator
    "sigma_min",  # its option
    "credit",  # command, and module
    "experiments.compare",
    "crbc report",
    "crbc report --out",
    "--skip-bad",
    "--config.estimator=grpo",
    "f(x, y) -> StepCredit",
    "N(s) V(s) = total(s)",  # formula
    "<invalid>",
    "results.json",
  ],
)
def test_good(text):
  assert broken(pack=f"`{text}`") == []


@pytest.mark.parametrize(
  "text",
  [
    "fasst",
    "no_such_name",
    "closure.exact_vaules",
    "closure.exact_values.more",
    "GroupArrays.rewards",
    "no_such_function(x)",
    'no_such_option="state"',
    "jax.lax.no_such_scan",
    "experiments.no_such_experiment",
    "crbc no-such-command",
    "crbc report --no-such-option",
    "--no-such-option",
    "f(x) -> NoSuchType",
  ],
)
def test_broken(text):
  assert broken(pack=f"`{text}`") == [("pack", text)]


def test_names_are_known_where_they_stand_only():
  assert broken(pack="`girth`", box="`girth`") == [("pack", "girth")]
  assert broken(constant="`fast`", box="`kind`") == [("LIMIT", "fast")]


def test_fields_of_a_typed_parameter_are_checked():
  def broken_in(text):
    source = f'def f(group: GroupArrays):\n  """See `{text}`."""\n'
    (docstring,) = references.docstrings("crbc_jax.credit.registry", source)
    return references.problem(docstring, text)

  assert broken_in("group.value") is None
  assert "group.rewards" in broken_in("group.rewards")


def test_literals_are_those_of_the_module():
  assert broken("crbc_jax.credit.readout", pack="`action`") == []
  assert broken("crbc_jax.checks", pack="`tau_sigma`") != []


def test_two_backticks_are_not_checked():
  assert broken(pack="``no_such_name``") == []


def test_target():
  target = references.target
  closure = "crbc_jax.credit.closure"
  assert target("crbc_jax.cli", "closure.solve") == (closure, "solve")
  # The place where it is defined, not where it was imported.
  assert target("crbc_jax.cli", "crbc_jax.exact_values") == (
    closure,
    "exact_values",
  )
  assert target("crbc_jax.cli", "credit.closure") == (closure, "")
  assert target("crbc_jax.cli", "closure.no_such_name") is None
  assert target("crbc_jax.cli", "jax.jit") is None
  assert target(closure, "closure._values") is None  # not on the page
