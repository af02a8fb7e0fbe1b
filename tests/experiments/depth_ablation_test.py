"""Depth ablation: measures by hand, and small runs of its parts."""

import json
import math

import numpy as np
import pytest

from crbc_jax.envs import problems

depth_ablation = pytest.importorskip("experiments.depth_ablation")
depth_tabular = pytest.importorskip("experiments.depth_tabular")
measures = pytest.importorskip("experiments.depth_measures")

D = len(measures.DEPTHS)


def test_gap_is_relative_to_the_largest_credit():
  raw = np.zeros((2, D, 4))
  raw[0, -1] = [0.0, 0.5, -0.25, 0.0]
  found = measures.AtDepths(
    advantage=None,
    raw=raw,
    live=None,
    gap=np.array([[0.25] * D, [9.0] * D]),
    bound=np.array([[math.inf] + [1.0] * (D - 1), [9.0] * D]),
  )
  got = measures.gaps(found)  # the second group has no credit: left out
  assert got["gap"] == [0.5] * D
  assert got["bound"] == [None] + [2.0] * (D - 1)
  assert measures.mean_gaps([got, got]) == got


@pytest.mark.parametrize(
  ("heights", "depth"),
  [
    ((0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3), "2"),
    ((0.3,) * 7, "0"),
    ((0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2), "inf"),
    ((0.3, 0.302, 0.303, 0.304, 0.304, 0.304, 0.304), "0"),  # below .005
    ((0.5, 0.4, 0.3, 0.2, 0.2, 0.2, 0.2), "0"),
  ],
)
def test_where_depth_stops_paying(heights, depth):
  batches = [
    [{"corr": h + shift} for h in heights] for shift in (0.0, 0.1, 0.2)
  ]
  assert measures.pays_until(batches) == depth


def test_problems_fit_the_one_shape():
  for make in problems.PROBLEMS.values():
    problem = make(np.random.default_rng(0))
    assert problem.num_keys <= depth_tabular.ANCHORS
    assert problem.num_keys * problem.num_actions <= depth_tabular.PAIRS
    assert problem.horizon <= depth_tabular.LONGEST


def test_an_ascent_by_hand():
  policy = np.array([[0.5, 0.5], [0.25, 0.75]])
  mask = np.array([[[True, True, False]]])
  got = depth_tabular._ascent(
    policy,
    np.array([[[0, 1, 0]]]),
    np.array([[[1, 0, 0]]]),
    np.array([[[2.0, -2.0, 50.0]]]),  # the last is padding
    mask,
  )
  # RMS 2, two steps, two keys: +-1 (1[a] - pi), halved and doubled.
  np.testing.assert_allclose(got, [[-0.5, 0.5], [-0.75, 0.75]])
  zero = np.zeros((1, 1, 3), int)
  assert (depth_tabular._ascent(policy, zero, zero, zero, mask) == 0).all()


@pytest.mark.training
def test_tabular_part(tmp_path, monkeypatch):
  monkeypatch.setattr(
    depth_ablation,
    "PROBLEMS",
    {k: problems.PROBLEMS[k] for k in ("rooms", "tree")},
  )
  size = depth_ablation.QUICK | {"groups": 32, "tabular_seeds": 2}
  monkeypatch.setattr(depth_ablation, "QUICK", size)
  arguments = ["--quick", "--parts", "tabular", "--results", str(tmp_path)]
  depth_ablation.main(arguments)
  found = json.loads((tmp_path / "depth_ablation.json").read_text())
  cells = {
    (c["setting"], c["policy"]): c
    for c in found["parts"]["tabular"]["accuracy"]
  }
  rooms = cells["rooms", "better"]
  corr = [x[0] for x in rooms["metrics"]["corr"]]
  assert corr[-1] > corr[0] + 0.1 and rooms["pays_until"] != "0"
  assert rooms["gap"][0] > rooms["gap"][2] > rooms["gap"][-1] == 0
  for gap, bound in zip(rooms["gap"][1:], rooms["bound"][1:], strict=True):
    assert gap <= bound + 1e-6
  tree = cells["tree", "uniform"]
  assert max(tree["gap"]) < 1e-5 and tree["pays_until"] == "0"
  training = found["parts"]["tabular"]["training"]["rooms"]
  assert all(area[0] > 0.4 for area in training["area"])  # from .26
  assert found["aggregate"]["tabular"]["seeds"] == 2
  assert (tmp_path / "depth_accuracy.png").stat().st_size > 10_000
  assert "Largest gap" in (tmp_path / "depth_ablation.md").read_text()
