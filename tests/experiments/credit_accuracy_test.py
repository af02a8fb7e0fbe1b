"""A small credit-accuracy experiment: the initial policy, one seed."""

import itertools
import json
import math

import numpy as np
import pytest

from crbc_jax.learner import task

# A wheel installed elsewhere comes without the experiments.
credit_accuracy = pytest.importorskip("experiments.credit_accuracy")
credit_measures = pytest.importorskip("experiments.credit_measures")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
  wanted = credit_accuracy.run_config(seed=0, slip=0.0)
  wanted.generator.folder = str(tmp_path_factory.mktemp("levels"))
  wanted.generator.layouts, wanted.generator.held_out_layouts = 40, 1
  current = task.make_task(wanted)
  measure = credit_measures.make_measure_fn(
    current, credit_measures.make_credit_fn()
  )
  samples, facts = measure(current.params, seed=0, batches=4)
  cell = {"stage": "initial", "slip": 0.0, "env_steps": 0, **facts}
  return samples, cell | credit_measures.summarise(samples)


def mean(cell, name, metric, kind="raw"):
  return cell["estimators"][name][kind]["live"][metric].mean


def test_correlation_rises_with_depth(measured):
  _, cell = measured
  corr = [mean(cell, f"crbc {d}", "corr") for d in (0, 1, 2, 4, "inf")]
  assert corr == sorted(corr)
  assert corr[-1] > corr[0] + 0.15
  # Flat behind: the step limit of the truth favours 16 steps by a little.
  assert abs(mean(cell, "crbc 16", "corr") - corr[-1]) < 0.01


def test_error_falls_with_depth(measured):
  _, cell = measured
  for metric in ("error", "rmse"):
    error = [mean(cell, f"crbc {d}", metric) for d in (0, 1, 2, 4, "inf")]
    assert error == sorted(error, reverse=True)


@pytest.mark.parametrize("kind", ["raw", "advantage"])
@pytest.mark.parametrize("other", ["grpo", "rloo", "gigpo", "rtmc"])
def test_closure_beats(measured, other, kind):
  samples, cell = measured
  for metric in ("corr", "sign"):
    assert (
      samples["crbc inf", kind, "live", metric]
      > samples[other, kind, "live", metric]
    ).all()
  assert cell["exact_minus"][kind]["live"][other]["corr"].low > 0.1


def test_closure_has_nearly_all_signs_right(measured):
  _, cell = measured
  assert mean(cell, "crbc inf", "sign") > 0.9
  assert mean(cell, "crbc inf", "sign") > mean(cell, "crbc 0", "sign") + 0.1
  assert mean(cell, "crbc inf", "signed") > mean(cell, "crbc 0", "signed")


def test_constant_factors_change_nothing(measured):
  samples, _ = measured
  for a, b in (("graphgpo", "graphgpo paper"), ("gigpo", "gigpo mean")):
    for metric in ("corr", "sign", "error"):
      np.testing.assert_allclose(
        samples[a, "raw", "live", metric],
        samples[b, "raw", "live", metric],
        atol=1e-5,
      )


def test_every_number_is_finite_and_in_range(measured):
  samples, _ = measured
  for key, values in samples.items():
    assert np.isfinite(values).all(), key
    bound = 4 if key[-1] == "rmse" else 1
    assert (np.abs(values) <= bound + 1e-9).all(), key


def test_metrics_by_hand():
  exact = np.array([0.5, -0.5, 0.5, -0.5, 0.0])
  credit = np.array([1.0, -1.0, -1.0, 0.0, 1.0])
  found = credit_measures.metrics(credit, exact, same_unit=True)
  assert found["sign"] == pytest.approx(2 / 3)
  assert found["signed"] == 0.75
  cosine = 0.5 / math.sqrt(4 * 1)
  assert found["cosine"] == pytest.approx(cosine)
  assert found["corr"] == pytest.approx(cosine)  # the truth has mean 0
  scale = (credit @ exact) / (credit @ credit)
  left = np.sqrt(((scale * credit - exact) ** 2).mean() / (exact**2).mean())
  assert found["error"] == pytest.approx(left)
  wrong = np.sqrt(((credit - exact) ** 2).mean() / (exact**2).mean())
  assert found["rmse"] == pytest.approx(wrong)


def test_no_credit_has_no_sign():
  found = credit_measures.metrics(
    np.zeros(3), np.array([0.1, -0.2, 0.3]), same_unit=False
  )
  assert math.isnan(found.pop("sign"))
  assert found == {"corr": 0, "signed": 0, "error": 1, "cosine": 0}


def test_report(measured, tmp_path):
  _, cell = measured
  # A made-up fall must be told.
  steps = dict(cell["deeper"]["raw"]["live"])
  down = credit_accuracy.Interval(-0.02, -0.03, -0.01)
  worse = cell | {
    "slip": 0.25,
    "deeper": {
      kind: {"live": steps | {"crbc 2 - crbc 1": down}}
      for kind in credit_measures.KINDS
    },
  }
  assert "crbc 2 - crbc 1" not in credit_accuracy.falls(cell, "raw")
  assert credit_accuracy.falls(worse, "raw")["crbc 2 - crbc 1"] == down
  text = credit_accuracy.depth_verdict([cell, worse])
  assert "rises in every setting up to crbc 1;" in text
  assert "largest fall is 0.0200" in text
  assert "crbc 2 - crbc 1" in text
  assert credit_accuracy.verdicts([cell, worse]).row_count == 4
  table = credit_accuracy.as_table(cell)
  assert table.row_count == len(credit_accuracy.NAMES)
  credit_accuracy.draw([cell, worse], tmp_path)
  assert {p.suffix for p in tmp_path.iterdir()} == {".png", ".svg"}
  assert json.loads(json.dumps(cell))["stage"] == "initial"


def test_depths_are_compared_in_order():
  assert list(credit_accuracy.DEPTHS) == sorted(credit_accuracy.DEPTHS)
  pairs = list(itertools.pairwise(credit_accuracy.DEPTH_NAMES))
  assert pairs[0] == ("crbc 0", "crbc 1")
  assert pairs[-1] == ("crbc 16", "crbc inf")
