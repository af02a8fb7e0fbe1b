"""Aggregates by rliable, checked by hand."""

import numpy as np
import pytest

reliable = pytest.importorskip("experiments.reliable")
pytest.importorskip("rliable")

LOW = np.array([[0.0, 0.1], [0.2, 0.3], [0.4, 0.5], [0.6, 0.7]])


def test_interquartile_mean_leaves_out_the_outer_quarters():
  found = reliable.iqm({"a": LOW, "b": LOW + 0.2})
  # Eight scores 0 .. .7: the middle four are .2 .. .5.
  assert found["a"].mean == pytest.approx(0.35)
  assert found["b"].mean == pytest.approx(0.55)
  assert found["a"].low < 0.35 < found["a"].high
  before = np.random.get_state()[1].copy()  # noqa: NPY002
  assert reliable.iqm({"a": LOW, "b": LOW + 0.2}) == found
  assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_probability_of_improvement_counts_pairs():
  ours = np.array([[0.25, 0.25]] * 4)
  found = reliable.improvement({"ours": ours, "a": LOW, "b": ours}, "ours")
  # Ahead of two of four in one setting, of one in the other; a tie is half.
  assert found["a"].mean == pytest.approx(0.375)
  assert found["b"] == pytest.approx((0.5, 0.5, 0.5))
  assert set(found) == {"a", "b"}


def test_profile_is_the_share_above():
  found = reliable.profiles({"a": LOW}, [0.15, 0.45, 1.0])
  assert [x.mean for x in found["a"]] == pytest.approx([0.75, 0.375, 0.0])


def test_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "rliable", None)
  with pytest.raises(ImportError, match=r"crbc_jax\[statistics\]"):
    reliable.iqm({"a": LOW})
