"""Numbers of learning curves by hand."""

import json

import numpy as np
import pytest

statistics = pytest.importorskip("experiments.statistics")


def curve(*points):
  return statistics.Curve(
    np.array([x for x, _ in points]), np.array([y for _, y in points])
  )


def test_area_is_the_mean_height_up_to_the_budget():
  c = curve((0, 0.0), (100, 0.4), (220, 0.4))
  # A triangle of .2 over the first half, .4 over the second.
  assert c.area(200) == pytest.approx(0.3)
  # Evaluations beyond the budget only serve to interpolate at its end.
  assert curve((0, 0.0), (100, 1.0)).area(50) == pytest.approx(0.25)


def test_success_between_evaluations_is_linear():
  c = curve((0, 0.0), (100, 0.5), (200, 0.3))
  assert c.at(50) == pytest.approx(0.25)
  assert c.at(150) == pytest.approx(0.4)


def test_steps_to_a_threshold():
  c = curve((0, 0.1), (100, 0.5), (200, 0.3), (300, 0.9))
  assert c.steps_to(0.3) == pytest.approx(50)
  assert c.steps_to(0.05) == 0
  assert c.steps_to(0.6) == pytest.approx(250)
  assert c.steps_to(0.95) == np.inf


def test_interval_holds_the_mean_and_shrinks_with_agreement():
  wide = statistics.interval([0.0, 0.5, 1.0, 0.2, 0.8])
  assert wide.low < wide.mean == 0.5 < wide.high
  narrow = statistics.interval([0.49, 0.5, 0.51, 0.5, 0.5])
  assert narrow.high - narrow.low < 0.1 * (wide.high - wide.low)
  assert wide.low >= 0 and wide.high <= 1


@pytest.mark.parametrize("values", [[0.25], [0.25, 0.25, 0.25]])
def test_no_spread_no_interval(values):
  found = statistics.interval(values)
  assert found == (0.25, 0.25, 0.25)
  assert str(found) == "0.250"


def test_credit_share(tmp_path):
  rows = [
    {
      "kind": "train",
      "update": i,
      "env_steps": i,
      "seconds_credit": credit,
      "seconds_rollout": 1.0,
      "seconds_update": 8.0,
    }
    for i, credit in enumerate((11.0, 1.0, 1.0))
  ]
  (tmp_path / "metrics.jsonl").write_text(
    "".join(json.dumps(row) + "\n" for row in rows)
  )
  median, whole = statistics.credit_share(tmp_path)
  assert median == pytest.approx(0.1)  # the first update compiles
  assert whole == pytest.approx(13 / 40)
