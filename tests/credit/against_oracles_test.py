"""Kernel against oracle: every newer estimator, every named option value.

The oracles of tests/oracles are exact arithmetic written from the formulas by
other hands than the kernels. FINE and COARSE are those of estimators_test.py,
where they are derived.
"""

import functools
import inspect
import math

import jax
import numpy as np
import pytest

from crbc_jax.credit import combine, registry
from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib
from tests.oracles import closures, graphs, histories, trajectory, visits

FINE, COARSE = 1e-5, 1e-4
SHAPE = BatchShape(128, 40, 40, 40, 8, 40, 40)
COUNT = 120

ORACLES = {
  "crbc": closures.crbc,
  "crbc_anchored": closures.crbc_anchored,
  "crbc_lambda": closures.crbc_lambda,
  "g2po": visits.g2po,
  "gagpo": visits.gagpo,
  "graft": graphs.graft,
  "graphhca": graphs.graphhca,
  "hgpo": histories.hgpo,
  "mica": visits.mica,
  "rewardflow": graphs.rewardflow,
  "salt": histories.salt,
}

NAMED = {
  "norm": {"mean_std", "mean"},
  "signal": {"outcome", "observed"},
  "trajectory": {"none", "grpo", "rloo", "dr_grpo"},
  "truncation": {"failure", "bootstrap"},
  "readout": {"action", "state"},
  "statistics": {"row", "trajectory"},
  "weights": {"paper", "code"},
}
SINGLETONS = {"graft": {"sign", "zero"}, "g2po": {"raw", "zero"}}
"""Values of text options; every one is compared (see the last test)."""


def graft_sets():
  return [
    {},
    {"norm": "mean", "beta": 0.9},
    {"singleton": "zero", "trajectory": "grpo", "w_group": 0.5, "w_step": 2.0},
    {"signal": "observed", "beta": 0.9, "trajectory": "rloo"},
    {"lam": 0.8, "beta": 0.95, "singleton": "zero"},
    {"lam": 0.8, "beta": 0.95, "hops": 2, "singleton": "zero", "norm": "mean"},
    {"lam": 0.5, "singleton": "sign", "trajectory": "dr_grpo"},
    {"eps": 1e-2, "beta": 1.0, "trajectory": "grpo"},
  ]


def graphhca_sets():
  return [
    {},
    {"power": math.inf},
    {"power": math.inf, "norm": "mean", "beta": 0.5, "trajectory": "none"},
    {"norm": "mean", "floor": 0.2, "trajectory": "dr_grpo"},
    {"trajectory": "rloo", "w_group": 0.5, "w_step": 2.0},
    {"eps": 1e-2, "beta": 0.9},
  ]


def rewardflow_sets():
  return [
    {},
    {"norm": "mean", "trajectory": "none", "gamma": 0.5},
    {"signal": "observed", "trajectory": "rloo"},
    {"signal": "observed", "norm": "mean", "trajectory": "dr_grpo"},
    {"eps": 1e-2, "w_group": 0.5, "w_step": 2.0, "gamma": 1.0},
  ]


def g2po_sets():
  return [
    {},
    {"norm": "mean"},
    {"statistics": "trajectory", "singleton": "zero"},
    {"signal": "observed", "gamma": 1.0},
    {"signal": "observed", "norm": "mean", "singleton": "zero"},
    {"invalid_penalty": 0.0, "success_reward": 1.0, "gamma": 0.8},
    {"trajectory": "dr_grpo", "singleton": "zero"},
    {
      "anchor_weight": 0.5,
      "edge_weight": 2.0,
      "episode_weight": 0.25,
      "eps": 1e-2,
      "invalid_penalty": 0.5,
    },
  ]


def gagpo_sets():
  return [
    {},
    {"norm": "mean", "trajectory": "grpo"},
    {"lam": 0.0, "trajectory": "rloo", "w_group": 0.5, "w_step": 2.0},
    {"lam": 1.0, "gamma": 1.0, "eps": 1e-2, "trajectory": "grpo"},
    {"signal": "observed", "trajectory": "dr_grpo", "gamma": 0.9},
  ]


def hgpo_sets():
  return [
    {},
    {"weights": "code"},
    {"weights": "code", "invalid_penalty": 0.0},
    {"history": 0, "norm": "mean", "trajectory": "grpo"},
    {"history": 4, "alpha": 0.0, "gamma": 1.0, "trajectory": "rloo"},
    {"history": 1, "alpha": 2.5, "success_reward": 1.0},
    {"signal": "observed", "weights": "code", "norm": "mean"},
    {"signal": "observed", "trajectory": "dr_grpo", "w_step": 2.0},
    {"invalid_penalty": 0.5, "eps": 1e-2, "w_group": 0.5, "trajectory": "grpo"},
  ]


def salt_sets():
  return [
    {},
    {"history": 1, "trajectory": "rloo"},
    {"history": 2, "trajectory": "dr_grpo", "w_group": 0.5, "w_step": 2.0},
    {"history": 5, "signal": "observed"},
    {"history": 1, "trajectory": "none"},
  ]


def mica_sets():
  return [
    {},
    {"norm": "mean", "gamma": 0.9, "trajectory": "grpo", "w_group": 2.0},
    {"w_return": 2.0, "w_reward": 0.25, "eps": 1e-2},
  ]


def closure_sets():
  return [
    {},
    {"beta": 0.9, "kappa": 2.0, "trajectory": "rloo"},
    {"signal": "observed", "sigma_min": 0.3, "trajectory": "none"},
    {"truncation": "bootstrap", "w_group": 0.5, "w_step": 2.0},
    {"signal": "observed", "truncation": "bootstrap", "kappa": 0.5},
    {"trajectory": "dr_grpo", "beta": 1.0},
  ]


def crbc_sets():
  state = {"readout": "state"}
  return [
    *closure_sets(),
    state,
    state | {"signal": "observed", "sigma_min": 0.3},
    state | {"truncation": "bootstrap", "kappa": 2.0},
    state | {"depth": 2, "beta": 0.9},
    state | {"depth": 0, "beta": 0.9},
    {"depth": 0, "kappa": 1.0, "readout": "action"},
  ]


def anchored_sets():
  weights = ({"anchor_weight": w} for w in (0.0, 0.5, 1.0))
  return [*closure_sets(), *weights, {"readout": "state", "kappa": 1.0}]


def lambda_sets():
  by_state = {"readout": "state", "signal": "observed"}
  return [*closure_sets(), by_state, *({"lam": x} for x in (0.0, 0.5, 1.0))]


SETS = {
  "crbc": crbc_sets(),
  "crbc_anchored": anchored_sets(),
  "crbc_lambda": lambda_sets(),
  "g2po": g2po_sets(),
  "gagpo": gagpo_sets(),
  "graft": graft_sets(),
  "graphhca": graphhca_sets(),
  "hgpo": hgpo_sets(),
  "mica": mica_sets(),
  "rewardflow": rewardflow_sets(),
  "salt": salt_sets(),
}
CASES = [(name, options) for name in SETS for options in SETS[name]]


def limit_of(name, options):
  """Allowed |error|.

  COARSE where a penalty of .1 or a small spread may be all the deviation there
  is; times the largest weight.
  """
  coarse = name in ("g2po", "hgpo", "graft", "graphhca", "gagpo", "rewardflow")
  weights = [v for k, v in options.items() if k.endswith(("weight", "_step"))]
  return (COARSE if coarse else FINE) * max(1.0, *weights, 1.0)


@functools.cache
def crowd(dyadic: bool):
  """Messy groups of at most 6 rollouts of 6 steps; some states missing."""
  sizes = {"max_rollouts": 6, "max_steps": 6, "max_states": 5}
  return groups_lib.random_groups(
    COUNT, seed=77, missing=(0, 0, 0, 0.2), dyadic=dyadic, **sizes
  )


@functools.cache
def batch_of(dyadic: bool):
  return make_batch(groups_lib.table_of(crowd(dyadic)), SHAPE)


def kernel(name):
  return registry.ESTIMATORS[name].function


def options_of(function):
  parameters = inspect.signature(function).parameters.values()
  return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def observes(name, options):
  return name == "mica" or options.get("signal") == "observed"


def credit(name, options, dyadic):
  """Every field of the kernel's result on the crowd, in table order."""
  batch = batch_of(dyadic)
  function = functools.partial(kernel(name), **options)
  result = jax.jit(jax.vmap(function))(batch.arrays)
  size = int(batch.row_index.max()) + 1
  return {
    field: batch.to_rows(getattr(result, field), size)
    for field in groups_lib.FIELDS
  }


def wanted(name, options, dyadic):
  found = [ORACLES[name](g, **options) for g in crowd(dyadic)]
  return {
    field: groups_lib.flat(group[field] for group in found)
    for field in found[0]
  }


def where(row, dyadic):
  """Which (group, rollout, step) of the crowd a row of the table is."""
  for g, group in enumerate(crowd(dyadic)):
    for i, rollout in enumerate(group):
      if row < len(rollout.steps):
        return g, i, row
      row -= len(rollout.steps)
  raise AssertionError("no such row")


def label(case):
  name, options = case
  return name + "".join(f"-{k}={v}" for k, v in options.items())


@pytest.mark.parametrize("case", CASES, ids=label)
def test_kernel_is_the_oracle(case):
  name, options = case
  dyadic = observes(name, options)
  got, want = credit(name, options, dyadic), wanted(name, options, dyadic)
  limit = limit_of(name, options)
  for field, values in want.items():
    error = np.abs(got[field] - values)
    if dyadic and field in ("q", "v"):  # values of rewards up to 12, that add
      error /= max(1.0, np.abs(values).max() / 5)
    worst = int(error.argmax())
    assert error[worst] <= limit, (
      field,
      where(worst, dyadic),
      float(got[field][worst]),
      float(values[worst]),
      int((error > limit).sum()),
    )
  if name != "salt" or options.get("trajectory") != "none":
    assert np.abs(want["step"]).max() > 0.1


@pytest.mark.parametrize("name", SETS)
def test_kernel_and_oracle_have_the_same_options(name):
  got, want = options_of(kernel(name)), options_of(ORACLES[name])
  assert got == want


@pytest.mark.parametrize("name", SETS)
def test_every_named_value_is_compared(name):
  for option, default in options_of(ORACLES[name]).items():
    used = {options.get(option, default) for options in SETS[name]}
    if isinstance(default, str):
      values = SINGLETONS[name] if option == "singleton" else NAMED[option]
      if option != "trajectory":  # `combination_test` has every kind
        assert used == values, option
    else:
      assert len(used) > 1, option


@pytest.mark.parametrize(
  "name, options",
  [
    ("graphhca", {"power": 2.0}),
    ("graft", {"singleton": "raw"}),
    ("hgpo", {"weights": "theirs"}),
    ("g2po", {"statistics": "rows"}),
    ("gagpo", {"norm": "std"}),
    ("salt", {"trajectory": "theirs"}),
    ("rewardflow", {"signal": "reward"}),
  ],
)
def test_both_refuse_other_values(name, options):
  with pytest.raises(ValueError, match=next(iter(options))):
    ORACLES[name](crowd(False)[0], **options)
  with pytest.raises(ValueError):
    credit(name, options, dyadic=False)


@pytest.mark.parametrize("signal", ["outcome", "observed"])
@pytest.mark.parametrize("kind", ["none", "dr_grpo"])
def test_trajectory_terms_of_a_group(kind, signal):
  dyadic = signal == "observed"
  batch = batch_of(dyadic)
  term = functools.partial(combine.trajectory_term, kind=kind, signal=signal)
  rows = batch.to_rows(
    jax.jit(jax.vmap(term))(batch.arrays), int(batch.row_index.max()) + 1
  )
  want = groups_lib.flat(
    trajectory.term(g, kind, signal) for g in crowd(dyadic)
  )
  np.testing.assert_allclose(rows, want, atol=FINE)


@pytest.mark.parametrize("signal", ["outcome", "observed"])
@pytest.mark.parametrize("kind", trajectory.OVER_BATCH)
def test_trajectory_terms_of_a_batch(kind, signal):
  """Through the registry: these two need the other groups."""
  dyadic = signal == "observed"
  batch = batch_of(dyadic)
  result = registry.make_credit_fn(kind, signal=signal)(batch.arrays)
  rows = batch.to_rows(result.advantage, int(batch.row_index.max()) + 1)
  found = trajectory.over_batch(crowd(dyadic), kind, signal=signal)
  want = groups_lib.flat(group["advantage"] for group in found)
  np.testing.assert_allclose(rows, want, atol=FINE)
