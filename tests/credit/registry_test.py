"""Names, options and values are checked; defaults are the published ones."""

import math

import jax
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib

DEFAULTS = {
  "crbc": {
    "beta": 0.98,
    "depth": math.inf,
    "sigma_min": 0.1,
    "w_group": 1.0,
    "w_step": 5.0,
    "signal": "outcome",
    "truncation": "failure",
    "trajectory": "grpo",
  },
  "gae": {"gamma": 0.99, "lam": 0.95, "signal": "outcome"},
  "grpo": {"signal": "outcome", "singleton": "zero", "eps": 1e-6},
  "rloo": {"signal": "outcome", "singleton": "zero"},
  "gigpo": {
    "gamma": 0.95,
    "norm": "mean_std",
    "statistics": "row",
    "step_weight": 1.0,
    "success_reward": 10.0,
    "invalid_penalty": 0.1,
    "signal": "outcome",
    "singleton": "raw",
    "eps": 1e-6,
  },
  "graphgpo": {
    "omega": 0.8,
    "exponent": "code",
    "norm": "mean_std",
    "statistics": "row",
    "graph_weight": 1.0,
    "episode_weight": 1.0,
    "success_reward": 10.0,
    "invalid_penalty": 0.1,
    "signal": "outcome",
    "singleton": "raw",
    "eps": 1e-6,
  },
  "rtmc": {
    "gamma": 0.99,
    "n_prior": 2.0,
    "prior": "success_rate",
    "visits": "first",
    "scale": "none",
    "signal": "outcome",
    "eps": 1e-6,
  },
}

BAD_VALUES = [
  ("crbc", {"beta": 0.0}, "beta must be in"),
  ("crbc", {"beta": 1.01}, "beta must be in"),
  ("crbc", {"beta": math.nan}, "beta must be in"),
  ("crbc", {"depth": -1}, "depth must be"),
  ("crbc", {"depth": 2.5}, "depth must be"),
  ("crbc", {"sigma_min": 0.0}, "sigma_min must be > 0"),
  ("crbc", {"signal": "reward"}, "one of outcome, observed; got 'reward'"),
  ("crbc", {"truncation": "success"}, "one of failure, bootstrap"),
  ("crbc", {"truncation": "bootstrap", "beta": 1.0}, "needs beta < 1"),
  ("crbc", {"trajectory": "ppo"}, "one of grpo, rloo"),
  ("gae", {"gamma": 1.5}, "gamma must be in"),
  ("gae", {"lam": -0.1}, "lam must be in"),
  ("gae", {"lam": 1.1}, "lam must be in"),
  ("gae", {"lam": math.nan}, "lam must be in"),
  ("gae", {"signal": "x"}, "one of outcome, observed"),
  ("grpo", {"signal": "x"}, "one of outcome, observed"),
  ("grpo", {"singleton": "one"}, "one of zero, raw"),
  ("rloo", {"signal": "x"}, "one of outcome, observed"),
  ("rloo", {"singleton": "one"}, "one of zero, raw"),
  ("gigpo", {"gamma": 0.0}, "gamma must be in"),
  ("gigpo", {"norm": "std"}, "one of mean_std, mean"),
  ("gigpo", {"statistics": "rows"}, "one of row, trajectory"),
  ("gigpo", {"singleton": "one"}, "one of zero, raw"),
  ("gigpo", {"signal": "x"}, "one of outcome, observed"),
  ("graphgpo", {"omega": 1.2}, "omega must be in"),
  ("graphgpo", {"exponent": "log"}, "one of code, paper, normalized"),
  ("graphgpo", {"norm": "std"}, "one of mean_std, mean"),
  ("graphgpo", {"statistics": "x"}, "one of row, trajectory"),
  ("graphgpo", {"signal": "x"}, "one of outcome, observed"),
  ("rtmc", {"gamma": -1.0}, "gamma must be in"),
  ("rtmc", {"n_prior": -1.0}, "n_prior must be >= 0"),
  ("rtmc", {"prior": "zero"}, "one of success_rate, discounted"),
  ("rtmc", {"visits": "last"}, "one of first, every"),
  ("rtmc", {"scale": "mean"}, "one of none, std"),
  ("rtmc", {"signal": "x"}, "one of outcome, observed"),
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_published_ones(name):
  assert registry.estimator_options(name) == DEFAULTS[name]
  assert list(registry.estimator_options(name)) == list(DEFAULTS[name])


@pytest.mark.parametrize("name, options, words", BAD_VALUES)
def test_values_out_of_range_are_refused_at_once(name, options, words):
  with pytest.raises(ValueError, match=words):
    registry.make_estimator(name, **options)
  with pytest.raises(ValueError, match=words):
    registry.make_credit_fn(name, **options)


def test_unknown_estimators_are_named_with_the_known_ones():
  with pytest.raises(ValueError, match=r"'gipo' \(did you mean 'gigpo'\?\)"):
    registry.make_estimator("gipo")
  with pytest.raises(ValueError, match=r"known: .*crbc.*grpo"):
    registry.estimator_options("zzz")


def test_unknown_options_are_named_with_the_known_ones():
  with pytest.raises(
    ValueError,
    match=r"no option 'betta' \(did you mean "
    r"'beta'\?\); it has: beta, depth",
  ):
    registry.make_estimator("crbc", betta=0.9)
  with pytest.raises(ValueError, match="'grpo' has no option 'gamma'"):
    registry.make_credit_fn("grpo", gamma=0.9)


def test_estimators_that_need_a_critic_are_registered():
  assert set(registry.ESTIMATORS) >= registry.NEEDS_CRITIC == {"gae"}


@pytest.mark.parametrize("name", sorted(registry.ESTIMATORS))
def test_every_estimator_has_options_with_defaults(name):
  options = registry.estimator_options(name)
  assert options
  for value in options.values():
    assert isinstance(value, (str, float)), "an option without a default"
  # Naming every default changes nothing.
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]))
  np.testing.assert_array_equal(
    registry.make_credit_fn(name, **options)(batch.arrays).advantage,
    registry.make_credit_fn(name)(batch.arrays).advantage,
  )


@pytest.mark.parametrize("name", sorted(registry.ESTIMATORS))
def test_results_have_the_documented_shapes_and_types(name):
  batch = make_batch(groups_lib.table_of([groups_lib.golden()] * 2))
  got = jax.eval_shape(registry.make_credit_fn(name), batch.arrays)
  for field in groups_lib.FIELDS:
    array = getattr(got, field)
    assert array.shape == batch.row_index.shape, field
    assert array.dtype == (bool if field == "live" else np.float32), field
  for value in got.aux.values():
    assert value.shape == (2,)
