"""Names, options and values are checked; defaults are the published ones."""

import math

import jax
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.credit.catalogue import BUILT_IN
from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib

CLOSURE = {
  "sigma_min": 0.1,
  "kappa": 0.0,
  "readout": "action",
  "w_group": 1.0,
  "w_step": 5.0,
  "signal": "outcome",
  "truncation": "failure",
  "trajectory": "grpo",
}
GIGPO_EPISODE = {
  "success_reward": 10.0,
  "invalid_penalty": 0.1,
  "signal": "outcome",
  "singleton": "raw",
  "trajectory": "episode",
  "eps": 1e-6,
}
WEIGHTS = {"w_group": 1.0, "w_step": 1.0}

DEFAULTS = {
  "crbc": {"beta": 0.98, "depth": math.inf} | CLOSURE,
  "crbc_anchored": {"beta": 0.98, "anchor_weight": 0.3} | CLOSURE,
  "crbc_lambda": {"beta": 0.98, "lam": 0.8} | CLOSURE,
  "crbc_loo": {
    "beta": 0.98,
    "sigma_min": 0.1,
    "readout": "own",
    "w_group": 1.0,
    "w_step": 5.0,
    "signal": "outcome",
    "truncation": "failure",
    "trajectory": "rloo",
  },
  "crbc_shrunk": {
    "beta": 0.98,
    "level": "pair",
    "strength": 1.0,
    "sigma_min": 0.1,
    "w_group": 1.0,
    "w_step": 5.0,
    "signal": "outcome",
    "truncation": "failure",
    "trajectory": "grpo",
  },
  "dr_grpo": {"signal": "outcome", "singleton": "zero"},
  "g2po": {
    "gamma": 0.95,
    "success_reward": 10.0,
    "invalid_penalty": 0.1,
    "norm": "mean_std",
    "statistics": "row",
    "anchor_weight": 1.0,
    "edge_weight": 1.0,
    "episode_weight": 1.0,
    "signal": "outcome",
    "singleton": "raw",
    "trajectory": "episode",
    "eps": 1e-6,
  },
  "gae": {
    "gamma": 0.99,
    "lam": 0.95,
    "trajectory": "none",
    "w_group": 1.0,
    "signal": "outcome",
  },
  "gagpo": {
    "gamma": 0.95,
    "lam": 0.95,
    "norm": "mean_std",
    "trajectory": "none",
    **WEIGHTS,
    "signal": "outcome",
    "eps": 1e-6,
  },
  "gigpo": {
    "gamma": 0.95,
    "norm": "mean_std",
    "statistics": "row",
    "step_weight": 1.0,
    **GIGPO_EPISODE,
  },
  "graft": {
    "beta": 0.99,
    "lam": 0.0,
    "hops": 8,
    "norm": "mean_std",
    "singleton": "sign",
    "trajectory": "none",
    **WEIGHTS,
    "signal": "outcome",
    "eps": 1e-6,
  },
  "graphgpo": {
    "omega": 0.8,
    "exponent": "code",
    "norm": "mean_std",
    "statistics": "row",
    "graph_weight": 1.0,
    "episode_weight": 1.0,
    **GIGPO_EPISODE,
  },
  "graphhca": {
    "beta": 0.95,
    "floor": 1e-2,
    "power": 1.0,
    "norm": "mean_std",
    "trajectory": "grpo",
    **WEIGHTS,
    "eps": 1e-6,
  },
  "grpo": {"signal": "outcome", "singleton": "zero", "eps": 1e-6},
  "hgpo": {
    "history": 2,
    "alpha": 1.0,
    "gamma": 0.95,
    "weights": "paper",
    "norm": "mean_std",
    "trajectory": "none",
    **WEIGHTS,
    "success_reward": 10.0,
    "invalid_penalty": 0.1,
    "signal": "outcome",
    "eps": 1e-6,
  },
  "mica": {
    "gamma": 1.0,
    "w_return": 0.5,
    "w_reward": 0.5,
    "norm": "mean_std",
    "trajectory": "none",
    "w_group": 1.0,
    "eps": 1e-6,
  },
  "reinforce_pp": {"signal": "outcome", "eps": 1e-6},
  "reinforce_pp_baseline": {"signal": "outcome", "eps": 1e-6},
  "rewardflow": {
    "gamma": 0.9,
    "norm": "mean_std",
    "trajectory": "grpo",
    **WEIGHTS,
    "signal": "outcome",
    "eps": 1e-6,
  },
  "rloo": {"signal": "outcome", "singleton": "zero"},
  "rtmc": {
    "gamma": 0.99,
    "n_prior": 2.0,
    "prior": "success_rate",
    "visits": "first",
    "scale": "none",
    "trajectory": "none",
    **WEIGHTS,
    "signal": "outcome",
    "eps": 1e-6,
  },
  "salt": {
    "history": 3,
    "trajectory": "grpo",
    **WEIGHTS,
    "signal": "outcome",
  },
}

# Options that several estimators share, with a value that each refuses.
BAD_EVERYWHERE = {
  "signal": ("reward", "one of outcome, observed; got 'reward'"),
  "norm": ("std", "one of mean_std, mean"),
  "statistics": ("rows", "one of row, trajectory"),
  "trajectory": ("ppo", "none, grpo, dr_grpo, rloo, reinforce_pp, reinforce"),
  "truncation": ("success", "one of failure, bootstrap"),
  "readout": ("edge", "readout must be one of"),
  "singleton": ("one", "singleton must be one of"),
  "beta": (1.01, "beta must be in"),
  "gamma": (0.0, "gamma must be in"),
  "sigma_min": (0.0, "sigma_min must be > 0"),
  "kappa": (-0.5, "kappa must be >= 0"),
  "lam": (1.1, "lam must be "),
  "history": (-1, "history must be an integer >="),
}

BAD_VALUES = [
  *(
    (name, {option: BAD_EVERYWHERE[option][0]}, BAD_EVERYWHERE[option][1])
    for name, options in DEFAULTS.items()
    for option in options
    if option in BAD_EVERYWHERE
  ),
  ("crbc", {"beta": 0.0}, "beta must be in"),
  ("crbc", {"beta": math.nan}, "beta must be in"),
  ("crbc", {"depth": -1}, "depth must be"),
  ("crbc", {"depth": 2.5}, "depth must be"),
  ("crbc", {"truncation": "bootstrap", "beta": 1.0}, "needs beta < 1"),
  ("crbc_anchored", {"anchor_weight": 1.5}, r"anchor_weight must be in \[0"),
  ("crbc_anchored", {"anchor_weight": -0.1}, r"anchor_weight must be in \[0"),
  ("crbc_lambda", {"lam": -0.1}, r"lam must be in \[0, 1\]"),
  ("crbc", {"readout": "own"}, "one of action, state"),
  ("crbc_loo", {"readout": "action"}, "one of own, others"),
  ("crbc_shrunk", {"level": "row"}, "one of pair, anchor"),
  ("crbc_shrunk", {"strength": -1.0}, "strength must be >= 0"),
  ("gae", {"gamma": 1.5}, "gamma must be in"),
  ("gae", {"lam": -0.1}, "lam must be in"),
  ("gae", {"lam": math.nan}, "lam must be in"),
  ("gagpo", {"lam": math.nan}, "lam must be in"),
  ("graft", {"hops": 0}, "hops must be a static whole number >= 1"),
  ("graft", {"hops": 2.5}, "hops must be a static whole number >= 1"),
  ("graphgpo", {"omega": 1.2}, "omega must be in"),
  ("graphgpo", {"exponent": "log"}, "one of code, paper, normalized"),
  ("graphhca", {"floor": 0.0}, "floor must be in"),
  ("graphhca", {"floor": 2.0}, "floor must be in"),
  ("graphhca", {"power": 2.0}, "power must be 1 or inf"),
  ("hgpo", {"alpha": -1.0}, "alpha must be >= 0 and finite"),
  ("hgpo", {"alpha": math.inf}, "alpha must be >= 0 and finite"),
  ("hgpo", {"history": 1.5}, "history must be an integer >= 0"),
  ("hgpo", {"weights": "log"}, "one of paper, code"),
  ("rtmc", {"gamma": -1.0}, "gamma must be in"),
  ("rtmc", {"n_prior": -1.0}, "n_prior must be >= 0"),
  ("rtmc", {"prior": "zero"}, "one of success_rate, discounted"),
  ("rtmc", {"visits": "last"}, "one of first, every"),
  ("rtmc", {"scale": "mean"}, "one of none, std"),
  ("salt", {"history": 0}, "history must be an integer >= 1"),
  # A text for a number, a number for a text.
  ("crbc", {"beta": "high"}, "option beta must be a number"),
  ("salt", {"history": "3"}, "option history must be a number"),
  ("gigpo", {"norm": 1.0}, "option norm must be text"),
]


def test_every_built_in_has_its_defaults_here():
  assert set(DEFAULTS) == set(BUILT_IN)


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


def test_one_estimator_needs_a_critic():
  critics = {
    n for n, entry in registry.ESTIMATORS.items() if entry.needs_critic
  }
  assert critics == {"gae"}


@pytest.mark.parametrize("name", registry.NEED_RESTORING)
def test_estimators_that_branch_are_known_but_credit_no_table(name):
  for make in (registry.lookup, registry.make_estimator):
    with pytest.raises(ValueError, match=r"restored to a state.*crbc train"):
      make(name)


@pytest.mark.parametrize("name", sorted(registry.ESTIMATORS))
def test_every_estimator_has_options_with_defaults(name):
  options = registry.estimator_options(name)
  assert options
  for value in options.values():
    assert isinstance(value, (str, int, float)), "an option without a default"
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


def test_estimators_are_split_outside_brackets():
  split = registry.split_estimators
  assert split("crbc(depth=2, w_step=1.0), grpo,,grpo") == [
    "crbc(depth=2, w_step=1.0)",
    "grpo",
  ]
  with pytest.raises(ValueError, match="names no estimator"):
    split(" , ")
  with pytest.raises(ValueError, match="has no option"):
    split("grpo, crbc(width=2)")
