"""What moved between two results: by hand."""

import pytest

from crbc_jax.report import result_changes
from crbc_jax.report.result_changes import Value, find_changes, find_values


def result(**areas):
  return {
    "seeds": [0, 1, 2],
    "settings": {
      "6x6": {
        "rows": [{"label": k, "area": v, "seeds": 5} for k, v in areas.items()]
      }
    },
  }


AREA = ("settings/*/rows/*/area",)


def place(label):
  return ("settings", "6x6", "rows", label, "area")


def test_rows_match_by_label_and_not_by_order():
  before = result(ours=[0.5, 0.4, 0.6], theirs=[0.2, 0.1, 0.3])
  now = result(theirs=[0.35, 0.3, 0.4], ours=[0.45, 0.4, 0.5])
  found = find_changes(before, now, AREA)
  assert (found.gone, found.added) == (0, 0)
  theirs, ours = found.found
  assert theirs.place == place("theirs") and ours.place == place("ours")
  assert ours.inside is True and theirs.inside is False
  assert ours.difference == pytest.approx(-0.05)
  assert theirs.difference == pytest.approx(0.15)
  assert "1 of 2 values inside" in found.summary()
  assert "theirs, area +0.15" in found.summary()


def test_rows_that_came_and_went_are_counted():
  found = find_changes(
    result(a=[1, 0, 2], gone=[1, 0, 2]), result(a=[1, 0, 2], b=[1, 0, 2]), AREA
  )
  assert len(found.found) == 1 and (found.gone, found.added) == (1, 1)
  assert "1 committed but not in this run; 1 new" in found.summary()


def test_nothing_in_common():
  found = find_changes({}, result(a=[1, 0, 2]), AREA)
  assert found.found == () and found.added == 1
  assert found.summary() == "1 new"
  assert find_changes({}, {}, AREA).summary() == "nothing to compare"


@pytest.mark.parametrize(
  ("leaf", "value"),
  [
    (3, Value(3.0)),
    (0.25, Value(0.25)),
    ([0.5, 0.4, 0.6], Value(0.5, 0.4, 0.6)),
    ({"median": 2.0, "q1": 1.0, "q3": 4.0, "low": 0.0}, Value(2.0, 1.0, 4.0)),
    ([0, 1, 2], None),  # 0 is not between 1 and 2: not an interval
    ([0.5, 0.4], None),
    ([0.5, None, 0.6], None),
    (True, None),
    (None, None),
    ("0.5", None),
    (float("nan"), None),
  ],
)
def test_what_is_a_value(leaf, value):
  found = find_values({"x": leaf}, ["x"])
  assert found == ({} if value is None else {("x",): value})


def test_lists_over_seeds():
  patterns = ["samples:final/*"]
  found = find_values(
    {"final": {"a": [1, 2, 6], "b": [], "c": [1, "x"]}}, patterns
  )
  assert found == {("final", "a"): Value(3.0, 1.0, 6.0)}


def test_an_interval_without_width_says_nothing():
  before, now = {"x": [1.0, 1.0, 1.0]}, {"x": [2.0, 1.0, 3.0]}
  (change,) = find_changes(before, now, ["x"]).found
  assert change.inside is None
  assert find_changes(now, before, ["x"]).found[0].inside is True  # on the edge


def test_rows_that_nothing_tells_apart_are_numbered():
  rows = {"rows": [{"label": "a", "x": 1}, {"label": "a", "x": 2}]}
  assert list(find_values(rows, ["rows/*/x"])) == [
    ("rows", "0", "x"),
    ("rows", "1", "x"),
  ]


def test_several_fields_name_a_row():
  rows = {
    "rows": [{"levels": "7x7", "estimator": "GRPO", "slip": 0.25, "x": 1}]
  }
  assert list(find_values(rows, ["rows/*/x"])) == [
    ("rows", "0.25, 7x7, GRPO", "x")
  ]


def test_tables_show_every_value():
  before, now = result(ours=[0.5, 0.4, 0.6]), result(ours=[0.7, 0.6, 0.8])
  found = find_changes(before, now, AREA)
  text = result_changes.as_markdown("compare", found)
  assert text.startswith("## compare\n")
  assert (
    "| settings, 6x6, rows, ours, area | 0.5 [0.4, 0.6] | 0.7 [0.6, 0.8] |"
    " +0.2 | NO |" in text
  )
  assert result_changes.as_table("compare", found).row_count == 1
