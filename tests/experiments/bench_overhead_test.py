"""Stages of the overhead benchmark: what is timed gives the right tokens."""

import json

import numpy as np
import pytest

# A wheel installed elsewhere comes without the experiments.
overhead = pytest.importorskip("experiments.bench_overhead")


def test_rows_carry_their_advantage_on_their_own_tokens():
  mask = np.array([[True, True, False], [True, False, False]])
  advantage = np.array([2.0, -1.0], np.float32)
  got = overhead.tokens_of_rows(advantage, mask)
  np.testing.assert_array_equal(got, [[2, 2, 0], [-1, 0, 0]])
  assert got.dtype == np.float32


def test_conversations_carry_it_on_their_spans():
  got = overhead.tokens_of_conversations(
    np.array([[1.0, -2.0]], np.float32),
    np.array([[1, 4]]),
    np.array([[3, 5]]),
    7,
  )
  np.testing.assert_array_equal(got, [[0, 1, 1, 0, -2, 0, 0]])


def test_it_runs_and_writes(tmp_path, monkeypatch):
  monkeypatch.setattr(overhead, "GROUPS", 2)
  overhead.main(["--rounds", "1", "--results", str(tmp_path)])
  found = json.loads((tmp_path / "overhead.json").read_text())
  assert set(found["layouts"]) == set(overhead.LAYOUTS)
  for layout in found["layouts"].values():
    assert 0 < layout["seconds"] < layout["host_seconds"] * 100
  assert "Goal:" in (tmp_path / "overhead.md").read_text()
