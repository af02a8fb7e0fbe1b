"""Calibration, leaving one out and careful training: what they compute."""

import functools

import jax
import numpy as np
import pytest

from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib
from tests.oracles import weighted

# A wheel installed elsewhere comes without the experiments.
calibration = pytest.importorskip("experiments.credit_calibration")
leave_one_out = pytest.importorskip("experiments.leave_one_out")
training = pytest.importorskip("experiments.careful_training")


def test_an_update_of_one_inverse_is_the_refit():
  """Woodbury in float32 and the dense refit against the oracle."""
  groups = groups_lib.random_groups(12, 91, max_rollouts=6, max_steps=6)
  shape = BatchShape(12, 48, 24, 32, 6, 48, 16)
  batch = make_batch(groups_lib.table_of(groups), shape)
  update = functools.partial(
    leave_one_out.values_by_update, beta=0.9, longest=6
  )
  got = np.asarray(jax.jit(jax.vmap(update))(batch.arrays))
  for b, group in enumerate(groups):
    arrays = jax.tree.map(lambda x, b=b: x[b], batch.arrays)
    refit = leave_one_out.refitted(arrays, beta=0.9)
    states = [s.state for s in groups_lib.steps(group)]
    for i in range(len(group)):
      weights = np.arange(len(group)) != i
      want = weighted.closure(group, weights, beta=0.9).v
      for row, state in enumerate(states):
        s = arrays.state[row]
        value = want.get(state, 0.0)
        np.testing.assert_allclose(refit[i, s], value, atol=1e-12)
        np.testing.assert_allclose(got[b, i, s], value, atol=2e-5)


def test_coverage_of_honest_and_of_narrow_intervals():
  rng = np.random.default_rng(0)
  n = 20_000
  true = {kind: rng.normal(size=n) for kind in calibration.KINDS}
  noise = rng.normal(size=n)
  quantiles = tuple(
    true["gap"] + noise + z
    for z in (-0.6745, -1.2816, -1.96, 0.6745, 1.2816, 1.96)
  )

  def found(sd):
    return {
      "estimate": {k: x + noise for k, x in true.items()},
      "sd": {k: np.full(n, sd) for k in true},
      "quantiles": dict.fromkeys(true, quantiles),
      "credit": {
        "closure": true["gap"] + noise,
        "by pair": true["gap"],
        "by anchor": true["gap"],
      },
      "visits": np.full(n, 3.0),
    }

  live = np.ones(n, bool)
  got = calibration.statistics_of(found(1.0), true, live, live)
  for level in calibration.LEVELS:
    for method in calibration.METHODS:
      assert abs(got[f"{method} {level} gap live"] - level) < 0.02
  assert got["jackknife 0.95 gap 2-3"] == got["jackknife 0.95 gap live"]
  assert np.isnan(got["jackknife 0.95 gap 1"]) and got["rows 1"] == 0
  assert abs(got["spread gap live"] - 1) < 0.03
  assert abs(got["rmse by pair less closure"] + 1) < 0.03
  narrow = calibration.statistics_of(found(0.5), true, live, live)
  assert narrow["jackknife 0.95 gap live"] < 0.8
  assert abs(narrow["spread gap live"] - 2) < 0.05


def test_lead_is_paired_by_seed():
  curve = training.statistics.Curve

  def flat(height):
    return curve(np.array([0, 100]), np.array([height, height]))

  rows = training.summary(
    {
      training.PLAIN: [flat(0.1), flat(0.5)],
      "other": [flat(0.2), flat(0.6)],
    },
    100,
  )
  np.testing.assert_allclose(rows["other"]["lead"], 0.1, atol=1e-6)
  assert rows["other"]["ahead"] == 2
