"""Conformance: every built-in passes, and what is refused says why."""

import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax import cli
from crbc_jax.credit import conformance, registry
from crbc_jax.credit.catalogue import BUILT_IN
from crbc_jax.credit.table_credit import credit_table
from crbc_jax.learner import config as config_lib
from crbc_jax.types import Boundary, StepCredit
from tests import groups
from tests import groups as groups_lib


def credit_of(group, advantage, **fields):
  zero = jnp.zeros_like(group.reward)
  given = {"trajectory": zero, "step": zero, "q": zero, "v": zero} | fields
  return StepCredit(
    **{"advantage": advantage, "live": group.mask, "aux": {}} | given
  )


def succeeded(group):
  success = group.mask & (group.boundary == Boundary.SUCCESS)
  return success.astype(jnp.float32)


def mine(group, *, weight: float = 1.0, shape: str = "flat"):
  """Ten lines or so: the last step of a success gets its weight."""
  if shape not in ("flat", "squared"):
    raise ValueError(f"shape must be one of flat, squared; got {shape!r}")
  advantage = weight * succeeded(group)
  return credit_of(group, advantage**2 if shape == "squared" else advantage)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
  """Whatever a test registers is gone after it."""
  monkeypatch.setattr(registry, "ESTIMATORS", dict(registry.ESTIMATORS))


@pytest.fixture
def module(tmp_path, monkeypatch):
  """A user's module, `credit_of_mine`, on the import path."""
  (tmp_path / "credit_of_mine.py").write_text(
    textwrap.dedent("""
      from tests.credit.conformance_test import mine

      def unmasked(group, *, weight: float = 1.0):
        return mine(group, weight=weight).replace(advantage=group.reward)
    """)
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield "credit_of_mine"
  sys.modules.pop("credit_of_mine", None)


# -- check_estimator ---------------------------------------------------------


@pytest.mark.parametrize("name", groups.core_first(BUILT_IN))
def test_every_built_in_passes(name):
  conformance.check_estimator(BUILT_IN[name].function)


def test_options_are_those_given():
  conformance.check_estimator(mine, weight=2.0, shape="squared")
  with pytest.raises(ValueError, match="shape must be one of flat, squared"):
    conformance.check_estimator(mine, shape="round")


def no_options(group, weight=1.0):
  return mine(group, weight=weight)


def no_default(group, *, weight):
  return mine(group, weight=weight)


def nothing():
  return None


def other_type(group, *, weight: float = 1.0):
  return {"advantage": weight * group.reward}


def one_number(group, *, weight: float = 1.0):
  return credit_of(group, weight * jnp.sum(succeeded(group)))


def per_anchor(group, *, weight: float = 1.0):
  """[N] where the probe has N != R."""
  return credit_of(group, weight * group.state_mask.astype(jnp.float32)[:3])


def whole_numbers(group, *, weight: int = 1):
  return credit_of(group, weight * group.mask.astype(jnp.int32))


def live_is_a_number(group, *, weight: float = 1.0):
  return credit_of(group, weight * succeeded(group), live=succeeded(group))


def divides_by_successes(group, *, weight: float = 1.0):
  won = succeeded(group)
  return credit_of(group, weight * won / jnp.sum(won))


def not_zero_in_padding(group, *, weight: float = 1.0):
  return credit_of(group, weight * jnp.ones_like(group.reward))


def reads_padding(group, *, weight: float = 1.0):
  """Finite and 0 in padding, but counts the padded rows that look won."""
  won = jnp.sum(group.boundary == Boundary.SUCCESS)
  return credit_of(group, jnp.where(group.mask, weight * won, 0.0))


def reads_padded_transitions(group, *, weight: float = 1.0):
  most = jnp.max(group.transitions.pair * group.transitions.boundary)
  return credit_of(group, jnp.where(group.mask, weight * most, 0.0))


def sums_nan(group, *, weight: float = 1.0):
  return credit_of(
    group, jnp.where(group.mask, weight * jnp.sum(group.reward), 0.0)
  )


def by_number_of_rollout(group, *, weight: float = 1.0):
  return credit_of(group, jnp.where(group.mask, weight * group.traj, 0.0))


def branches_on_values(group, *, weight: float = 1.0):
  if jnp.sum(group.reward) > 0:
    return mine(group, weight=weight)
  return mine(group)


def asks_numpy(group, *, weight: float = 1.0):
  return credit_of(group, jnp.asarray(weight * np.asarray(group.reward)))


def knows_of_jit(group, *, weight: float = 1.0):
  traced = jax.config.jax_disable_jit
  return mine(group, weight=weight + traced)


REFUSED = [
  (no_options, r"no_options must take one group and then keyword-only"),
  (no_default, r"def no_default\(group, \*, option=1.0\)"),
  (nothing, "nothing must take one group"),
  (other_type, "must return a StepCredit, got dict"),
  (one_number, r"advantage must be float \[R\].*got float32 \(\)"),
  (per_anchor, r"advantage must be float \[R\].*got float32 \(3,\)"),
  (whole_numbers, r"advantage must be float \[R\].*got int32"),
  (live_is_a_number, r"live must be bool \[R\].*got float32"),
  (divides_by_successes, "advantage is not finite on a degenerate group"),
  (not_zero_in_padding, "advantage is not 0 on padding"),
  (reads_padding, "advantage depends on what padding holds"),
  (reads_padded_transitions, "advantage depends on what padding holds"),
  (sums_nan, "advantage is not finite"),
  (by_number_of_rollout, "advantage depends on the order of the rollouts"),
  (branches_on_values, "does not run under jit and vmap"),
  (asks_numpy, "does not run under jit and vmap"),
  (knows_of_jit, "advantage changes without jit"),
]


@pytest.mark.parametrize("function, words", REFUSED)
def test_what_breaks_a_rule_is_refused_by_name(function, words):
  with pytest.raises(ValueError, match=words) as refused:
    registry.register_estimator("broken", function)
  assert function.__name__ in str(refused.value)
  assert "broken" not in registry.ESTIMATORS


# -- register_estimator ------------------------------------------------------


def golden():
  return groups_lib.table_of([groups_lib.golden()])


WON = np.isin(np.arange(11), (1, 6))  # last steps of the golden successes


def test_a_registered_name_works_everywhere(capsys):
  returned = registry.register_estimator(
    "mine", mine, needs="outcomes", source="this test"
  )
  assert returned is mine
  got = credit_table(golden(), "mine(weight=3.0)")
  np.testing.assert_array_equal(got.advantage, 3.0 * WON)
  np.testing.assert_array_equal(
    credit_table(golden(), "mine", shape="squared", weight=2.0).advantage,
    4.0 * WON,
  )
  batch = groups_lib.make_batch(golden())
  rows = registry.make_credit_fn("mine", weight=2.0)(batch.arrays).advantage
  np.testing.assert_array_equal(batch.to_rows(rows, 11), 2.0 * WON)
  assert registry.estimator_options("mine") == {"weight": 1.0, "shape": "flat"}
  config = config_lib.get_config()
  config.estimator = "mine(weight=0.5)"
  config_lib.validate(config)
  assert cli.main(["list", "estimators"]) == 0
  listed = capsys.readouterr().out
  assert "mine" in listed and "this test" in listed
  assert "weight=1.0, shape='flat'" in listed


def test_its_options_are_checked():
  registry.register_estimator("mine", mine)
  for options, words in (
    ({"weigth": 2.0}, r"no option 'weigth' \(did you mean 'weight'\?\)"),
    ({"weight": "2"}, "option weight must be a number"),
    ({"shape": 2.0}, "option shape must be text"),
    ({"shape": "round"}, "shape must be one of flat, squared"),
  ):
    with pytest.raises(ValueError, match=words):
      registry.make_credit_fn("mine", **options)


def test_it_may_need_a_critic():
  def over_value(group, *, weight: float = 1.0):
    value = jnp.where(group.mask, group.value, 0.0)
    return credit_of(group, weight * (succeeded(group) - value), v=value)

  registry.register_estimator("over_value", over_value, needs_critic=True)
  columns = groups_lib.columns_of([groups_lib.golden()])
  got = credit_table(groups_lib.StepTable.from_columns(**columns), "over_value")
  np.testing.assert_allclose(got.advantage, WON - np.array(columns["value"]))
  del columns["value"]
  table = groups_lib.StepTable.from_columns(**columns)
  with pytest.raises(ValueError, match="'over_value' needs a critic"):
    credit_table(table, "over_value")


def test_names_that_cannot_be_given():
  with pytest.raises(ValueError, match="'crbc' is registered already"):
    registry.register_estimator("crbc", mine)
  assert registry.lookup("crbc") is BUILT_IN["crbc"]
  for name in ("", "my estimator", "2nd", "mine()", "a-b"):
    with pytest.raises(ValueError, match="is not an identifier"):
      registry.register_estimator(name, mine)
  registry.register_estimator("mine", mine)
  registry.register_estimator("mine", mine)  # the same again
  with pytest.raises(ValueError, match="'mine' is registered already"):
    registry.register_estimator("mine", no_options)
  with pytest.raises(ValueError, match=r"unknown .* 'mina' \(did you mean 'mi"):
    registry.lookup("mina")


# -- by import path ----------------------------------------------------------


def test_an_import_path_is_a_name(module):
  text = f"{module}:mine(weight=2.0, shape='squared')"
  name, options = registry.parse_estimator(text)
  assert name == f"{module}:mine"
  assert options == {"weight": 2.0, "shape": "squared"}
  assert registry.parse_estimator(f" {module}:mine ") == (name, {})
  assert registry.parse_estimator("a.b:c(d=inf)") == ("a.b:c", {"d": np.inf})
  np.testing.assert_array_equal(
    credit_table(golden(), text).advantage, 4.0 * WON
  )
  config = config_lib.get_config()
  config.estimator = text
  config_lib.validate(config)
  assert name in registry.ESTIMATORS


def test_import_paths_that_lead_nowhere(module):
  for text, words in (
    ("no_such_module:mine", "no module 'no_such_module'; is its folder on"),
    (f"{module}:yours", f"module '{module}' has no 'yours'"),
    (f"{module}:unmasked", "unmasked: advantage is not finite"),
    (f"{module}:mine(weigth=1.0)", "no option 'weigth'"),
  ):
    config = config_lib.get_config()
    config.estimator = text
    with pytest.raises(config_lib.ConfigError) as refused:
      config_lib.validate(config)
    message = str(refused.value)
    assert message.startswith("config.estimator: ") and words in message
    with pytest.raises(ValueError, match="estimator"):
      credit_table(golden(), text)
  for text in (f"{module}:", f"{module}:mine(2.0)", f"{module}:a.b", ":mine"):
    with pytest.raises(ValueError, match="is not of the form name or name"):
      registry.parse_estimator(text)
