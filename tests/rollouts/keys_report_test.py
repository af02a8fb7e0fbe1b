"""The comparison of keys on two groups worked out by hand."""

import io

import pytest
from rich.console import Console

from crbc_jax.report.keys_table import keys_table
from crbc_jax.rollouts.keys_report import compare_keys
from crbc_jax.rollouts.log import LogError
from tests.rollouts.trajectories import trajectory

# "a" is visited by both rollouts of the first group with two actions, "b 1"
# and "b 2" by one each; the second group's "a" by one rollout, twice.
GROUPS = [
  [
    trajectory(["a", "b 1", "end"], ["x", "y"], traj="1"),
    trajectory(["a", "b 2", "end"], ["z", "y"], traj="2"),
  ],
  [trajectory(["a", "a", None, "end"], ["x", "z", "x"], traj="3")],
]


def test_counts_by_hand():
  exact, coarse = compare_keys(
    GROUPS, [("verbatim", "verbatim"), ("normalized", "verbatim")]
  )
  assert (exact.steps, exact.anchors, coarse.anchors) == (7, 5, 4)
  assert exact.recurring == pytest.approx(2 / 7)
  assert coarse.recurring == pytest.approx(4 / 7)
  assert (exact.gated, coarse.gated) == (2, 2)
  assert exact.gate == coarse.gate == pytest.approx(4 / 7)
  assert exact.anchors_per_step == pytest.approx(5 / 7)
  assert (exact.finer, exact.aliasing) == (None, None)
  assert (coarse.finer, coarse.aliasing) == ("verbatim", 5 / 4)


def test_a_key_that_only_crosses_another_is_not_finer():
  first, second = compare_keys(
    GROUPS,
    [(f"{__name__}:parity", "verbatim"), ("normalized", "verbatim")],
  )
  assert first.finer is None and second.finer is None


def parity(rows):
  return [row.step_idx % 2 for row in rows] + [None]


def broken(rows):
  raise RuntimeError("no such room")


def test_a_key_function_that_fails_is_refused():
  with pytest.raises(LogError, match=r"fails on .*RuntimeError: no such room"):
    compare_keys(GROUPS, [(f"{__name__}:broken", "verbatim")])


def test_rows_of_weight_zero_and_empty_logs_count_nothing():
  rows = GROUPS[0][0]
  copies = [row._replace(weight=0.0) for row in rows]
  candidates = [("verbatim", "verbatim")]
  with_copies = [[[*rows, *copies], GROUPS[0][1], copies]]
  assert compare_keys(with_copies, candidates) == compare_keys(
    GROUPS[:1], candidates
  )
  assert compare_keys([], candidates)[0].recurring == 0.0
  with pytest.raises(ValueError, match="unknown state key 'verbatm'"):
    compare_keys(GROUPS, [("verbatm", "verbatim")])


def test_the_table_shows_every_candidate():
  console = Console(width=120, record=True, file=io.StringIO())
  candidates = [("verbatim", "verbatim"), ("normalized", "normalized")]
  console.print(keys_table(compare_keys(GROUPS, candidates)))
  text = console.export_text()
  assert "normalized" in text and "1.2 (verbatim)" in text and "57.1%" in text
