import math
from collections import Counter

import numpy as np
import pytest

from crbc_jax import Boundary, RolloutError, StepTable, credit_table
from crbc_jax.report import report_data
from crbc_jax.report.report_data import ReportGroup
from tests.report import logs

ESTIMATORS = ("crbc", "gigpo", "crbc(depth=3, w_step=1.0)")


@pytest.fixture(scope="module")
def views():
  return [report_data.make_view(text) for text in ESTIMATORS]


def one(group, views):
  (data,) = report_data.report_groups([group], views)
  return data


def close(shown, wanted):
  np.testing.assert_allclose(shown, wanted, rtol=5.1e-4, atol=1e-6)


def test_numbers_are_those_of_the_kernels_at_every_depth(views):
  table = logs.walk(3)
  numbers = one(ReportGroup(table), views).numbers
  for view, name in zip(
    numbers["views"], ("crbc", "gigpo", "crbc"), strict=True
  ):
    depths = {"crbc": report_data.DEPTHS, "gigpo": (None,)}[name]
    if view is numbers["views"][2]:
      depths = (0, 1, 2, 3, 4, 8, 16, math.inf)
    assert (
      len(view["v"]) == len(view["q"]) == len(view["credit"]) == len(depths)
    )
    for d, depth in enumerate(depths):
      options = {} if depth is None else {"depth": depth}
      if view is numbers["views"][2]:
        options["w_step"] = 1.0
      wanted = credit_table(table, name, **options)
      close(view["credit"][d], wanted.advantage)
      close(view["q"][d], wanted.q)
      close(np.take(view["v"][d], numbers["state"]), wanted.v)
      assert view["live"][d] == pytest.approx(wanted.live.mean(), abs=1e-4)
  differs = np.ptp(numbers["views"][0]["v"], axis=0)
  assert differs.max() > 0.01  # so depth is not ignored


def test_slider_starts_at_the_depth_that_was_asked_for(views):
  assert [view.start for view in views] == [6, 0, 3]
  assert views[0].depth_names == ["0", "1", "2", "4", "8", "16", "∞"]
  assert views[1].depth_names == []


def test_graph_is_the_merged_group(views):
  rows = logs.walk_rows(1, "g", rollouts=9)
  numbers = one(ReportGroup(StepTable.from_rows(rows)), views)
  states, actions = numbers.states, numbers.actions
  edges = numbers.numbers["edges"]
  ends = ["success", "failure", "truncated"]
  names = [*states, *ends]
  shown = {
    (states[s], actions[a], names[t]): n
    for s, a, t, n in zip(
      edges["source"],
      edges["action"],
      edges["target"],
      edges["count"],
      strict=True,
    )
  }
  wanted = Counter()
  for row, following in zip(rows, [*rows[1:], None], strict=True):
    end = row["boundary"]
    target = following["state_key"] if end == "none" else end
    wanted[row["state_key"], row["action_key"], target] += 1
  assert shown == wanted
  assert {t for _, _, t in shown} >= {"success", "truncated"}
  assert sorted(states) == sorted({row["state_key"] for row in rows})


def test_trajectories_and_summary(views):
  table = logs.walk(1, rollouts=9)
  data = one(ReportGroup(table), views)
  last = {
    t: Boundary(b) for t, b in zip(table.traj_id, table.boundary, strict=True)
  }
  assert [(t["id"], t["outcome"]) for t in data.numbers["trajs"]] == [
    (t, b.name.lower()) for t, b in last.items()
  ]
  assert [table.traj_id[t["start"]] for t in data.numbers["trajs"]] == list(
    last
  )
  summary = data.summary
  assert summary["rollouts"] == 9 and summary["steps"] == len(table)
  assert summary["success"] + summary["failure"] + summary["truncated"] == 9
  visits = Counter(table.state_key)
  assert summary["singletons"] == pytest.approx(
    sum(visits[s] == 1 for s in table.state_key) / len(table)
  )
  assert sum(summary["sizes"]) == pytest.approx(1)


def test_order_of_rows_does_not_matter(views):
  table = logs.walk(2)
  shuffled = np.random.default_rng(0).permutation(len(table))
  text = [f"text {i}" for i in range(len(table))]
  for state_text, mixed in ((None, None), (text, [text[i] for i in shuffled])):
    first = one(ReportGroup(table, state_text), views)
    again = one(ReportGroup(table.take(shuffled), mixed), views)
    assert first == again


def test_texts_stand_for_keys_and_missing_states_are_named(views):
  table = StepTable.from_columns(
    group_id=[7, 7, 7],
    traj_id=[0, 0, 1],
    step_idx=[0, 1, 0],
    state_key=["a", None, "a"],
    action_key=[1, 2, 2],
    boundary=["none", "success", "failure"],
  )
  data = one(ReportGroup(table), views)
  assert data.states == ["a", report_data.MISSING_STATE]
  assert data.actions == ["1", "2"] and data.summary["id"] == "7"
  data = one(ReportGroup(table, ["hall", "?", "hall"], ["x", "y", "z"]), views)
  assert data.states == ["hall", "?"] and data.actions == ["x", "y", "z"]


def test_rows_of_weight_zero_are_not_shown(views):
  rows = logs.walk_rows(1, "g")
  copy = {**rows[0], "weight": 0.0}
  table = StepTable.from_rows([{**r, "weight": 1.0} for r in rows] + [copy])
  assert one(ReportGroup(table), views) == one(
    ReportGroup(StepTable.from_rows(rows)), views
  )


def test_a_group_does_not_depend_on_the_others():
  views = [report_data.make_view("reinforce_pp")]  # whitened over a batch
  tables = [logs.walk(seed, seed) for seed in range(3)]
  together = list(report_data.report_groups(map(ReportGroup, tables), views))
  for data, table in zip(together, tables, strict=True):
    assert data == one(ReportGroup(table), views)


def test_refusals():
  views = [report_data.make_view("grpo")]
  rows = logs.walk_rows(0, "a") + logs.walk_rows(0, "b")
  with pytest.raises(RolloutError, match="holds 2 groups"):
    one(ReportGroup(StepTable.from_rows(rows)), views)
  with pytest.raises(ValueError, match="needs a critic"):
    report_data.make_view("gae")
  with pytest.raises(ValueError, match="unknown estimator 'crcb'"):
    report_data.make_view("crcb")
  with pytest.raises(ValueError, match="no option 'dept'"):
    report_data.make_view("crbc(dept=2)")
  with pytest.raises(ValueError, match="depth must be"):
    report_data.make_view("crbc(depth=-1)")
  with pytest.raises(ValueError, match="extra rollouts"):
    report_data.make_view("vineppo")


@pytest.mark.parametrize(
  "x, shown",
  [(0.123456, 0.1235), (-98765.4, -98770.0), (1e-7, 1e-7), (-0.0, 0.0)],
)
def test_four_significant_digits(x, shown):
  (found,) = report_data.rounded(np.array([x]))
  assert found == shown and math.copysign(1, found) == math.copysign(1, shown)


def test_a_row_without_text_shows_its_key(views):
  table = logs.walk(0, rollouts=1, steps=2)
  actions = ["a", None][: len(table)]
  data = one(ReportGroup(table, [None] * len(table), actions), views)
  assert data.states[0] == "room 0"
  assert data.actions == ["a", *table.action_key[1:]]
