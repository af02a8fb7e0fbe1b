"""What a table accepts, and what it refuses with which words."""

import re

import numpy as np
import pytest

from crbc_jax.rollouts import table as table_lib
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import Boundary
from tests import groups as groups_lib


def good(**columns) -> dict:
  """Two tasks, three rollouts, six steps; `columns` replace or add."""
  return {
    "group_id": ["g", "g", "g", "h", "h", "h"],
    "traj_id": ["t1", "t1", "t2", "t3", "t3", "t3"],
    "step_idx": [0, 1, 0, 4, 5, 6],
    "state_key": ["x", "y", "x", "x", None, "z"],
    "action_key": ["a", "b", "a", "a", "b", "<invalid>"],
    "boundary": ["none", "success", "failure", "none", "none", "truncated"],
    "row_id": [10, 11, 12, 13, 14, 15],
  } | columns


def changed(name: str, row: int, value) -> dict:
  """`good` with one cell of one column replaced."""
  full = StepTable.from_columns(**good())
  column = list(getattr(full, name))
  column[row] = value
  return good(**{name: column})


def message(columns: dict) -> str:
  with pytest.raises(RolloutError) as refusal:
    validate(StepTable.from_columns(**columns))
  return str(refusal.value)


def test_a_good_table_passes_and_defaults_are_the_documented_ones():
  table = StepTable.from_columns(**good())
  validate(table)
  assert len(table) == 6
  np.testing.assert_array_equal(table.reward, np.zeros(6))
  np.testing.assert_array_equal(table.outcome, [1, 1, 0, 0, 0, 0])
  assert table.outcome.dtype == bool
  assert table.valid.all()
  np.testing.assert_array_equal(table.weight, np.ones(6))
  assert table.next_state_key.tolist() == ["y", None, None, None, "z", None]
  np.testing.assert_array_equal(table.boundary, [0, 1, 2, 0, 0, 3])
  assert table.token_start is None
  assert issubclass(RolloutError, ValueError)


def test_values_of_a_critic_are_optional_and_finite():
  assert StepTable.from_columns(**good()).value is None
  table = StepTable.from_columns(**good(value=[0, 1, 2, 3, 4, 5]))
  assert table.value.dtype == np.float64
  assert table.take(np.array([4, 1])).value.tolist() == [4, 1]
  validate(table)
  bad = good(value=[0, 1, np.nan, 3, np.inf, 5])
  said = message(bad)
  assert "trajectory 't2', step 0" in said and "(and 1 more row)" in said
  assert "has a value that is not a finite number" in said
  # Not asked of rows that count in nothing.
  validate(StepTable.from_columns(**bad, weight=[1, 1, 0, 0, 0, 0]))
  with pytest.raises(RolloutError, match="'value' must hold numbers"):
    StepTable.from_columns(**good(value=[None] * 6))


def test_row_id_defaults_to_the_position():
  columns = good()
  del columns["row_id"]
  np.testing.assert_array_equal(
    StepTable.from_columns(**columns).row_id, np.arange(6)
  )


# Each: column, row, value; then where it is found, and what is said.
CELLS = {
  "weight": (
    "weight",
    2,
    0.5,
    "group 'g', trajectory 't2', step 0",
    ["weight other than 0 or 1", "0 for copies and padding"],
  ),
  "weight nan": (
    "weight",
    2,
    np.nan,
    "group 'g', trajectory 't2', step 0",
    ["weight other than 0 or 1"],
  ),
  "row id": (
    "row_id",
    4,
    10,
    "group 'h', trajectory 't3', step 5",
    ["repeats a row_id", "its own row_id"],
  ),
  "reward nan": (
    "reward",
    5,
    np.nan,
    "group 'h', trajectory 't3', step 6",
    ["not a finite number", "0 where there is none"],
  ),
  "reward inf": (
    "reward",
    0,
    np.inf,
    "group 'g', trajectory 't1', step 0",
    ["not a finite number"],
  ),
  "two groups": (
    "group_id",
    1,
    "h",
    "group 'h', trajectory 't1', step 1",
    ["belongs to a trajectory of another group", "unique over the whole table"],
  ),
  "repeated step": (
    "step_idx",
    1,
    0,
    "group 'g', trajectory 't1', step 0",
    ["repeats a step", "without repeats", "weight 0"],
  ),
  "missing step": (
    "step_idx",
    5,
    8,
    "group 'h', trajectory 't3', step 8",
    ["follows a missing step", "log every step"],
  ),
  "goes on after the end": (
    "boundary",
    4,
    "failure",
    "group 'h', trajectory 't3', step 6",
    ["after the end of its trajectory", "first boundary"],
  ),
  "no end": (
    "boundary",
    2,
    "none",
    "group 'g', trajectory 't2', step 0",
    ["last step but has no boundary", "success, failure or truncated"],
  ),
  "failure called success": (
    "outcome",
    2,
    True,
    "group 'g', trajectory 't2', step 0",
    ["outcome that contradicts its boundary", "end in success"],
  ),
  "success called failure": (
    "outcome",
    1,
    False,
    "group 'g', trajectory 't1', step 1",
    ["outcome that contradicts its boundary"],
  ),
  "outcome on the last row only": (
    "outcome",
    0,
    False,
    "group 'g', trajectory 't1', step 1",
    ["another outcome than the step before", "repeat it on every row"],
  ),
  "successor": (
    "next_state_key",
    0,
    "elsewhere",
    "group 'g', trajectory 't1', step 0",
    [
      "not the state of its next step",
      "one key function",
      "leave next_state_key empty",
    ],
  ),
  "successor of an unknown state": (
    "next_state_key",
    3,
    "y",
    "group 'h', trajectory 't3', step 4",
    ["not the state of its next step"],
  ),
}


@pytest.mark.parametrize("name", CELLS)
def test_validate_names_the_place_the_fault_and_the_remedy(name):
  column, row, value, place, words = CELLS[name]
  text = message(changed(column, row, value))
  assert text.startswith(place), text
  assert re.search(r"\(row_id \d+\)", text)
  for word in words:
    assert word in text, text
  assert "more row" not in text


def test_validate_counts_the_other_offences():
  assert "(and 1 more row):" in message(
    good(reward=[0, np.nan, 0, np.nan, 0, 0])
  )
  assert "(and 2 more rows):" in message(good(weight=[2, 1, 2, 1, 1, 2]))


def test_validate_checks_token_spans():
  spans = good(token_start=[0, 5, 0, 0, 5, 9], token_end=[5, 9, 5, 5, 5, 12])
  text = message(spans)
  assert text.startswith("group 'h', trajectory 't3', step 5 (row_id 14)")
  assert "empty token span" in text and "one past the last token" in text
  validate(
    StepTable.from_columns(**(spans | {"token_end": [5, 9, 5, 5, 9, 12]}))
  )


def test_validate_checks_successors_of_integer_keys():
  columns = {
    "group_id": np.zeros(3, int),
    "traj_id": np.zeros(3, int),
    "step_idx": [0, 1, 2],
    "state_key": np.array([5, 6, 7]),
    "action_key": np.zeros(3, int),
    "next_state_key": np.array([6, 7, 5]),
    "boundary": ["none", "none", "failure"],
  }
  validate(StepTable.from_columns(**columns))
  columns["next_state_key"] = np.array([6, 5, 7])
  assert message(columns).startswith("group 0, trajectory 0, step 1 (row_id 1)")


def test_rows_may_come_in_any_order():
  order = [3, 0, 5, 2, 1, 4]
  table = StepTable.from_columns(**good()).take(np.array(order))
  validate(table)
  shuffled = {n: [c[i] for i in order] for n, c in good().items()}
  again = StepTable.from_columns(**shuffled)
  validate(again)
  assert again.next_state_key.tolist() == table.next_state_key.tolist()
  np.testing.assert_array_equal(again.outcome, table.outcome)


def test_an_empty_table_and_a_table_of_copies_are_refused():
  integers = {n: np.zeros(0, int) for n in table_lib.REQUIRED}
  assert "table is empty" in message(integers)
  assert "nothing to credit" in message(good(weight=[0] * 6))
  with pytest.raises(RolloutError, match="at least one step"):
    StepTable.from_rows([])


# -- weight 0 ----------------------------------------------------------------


def with_copies() -> dict:
  """`good` plus a faithful copy of row 0 and a row of rubbish."""
  columns = {n: list(c) for n, c in good().items()}
  copy = {n: c[0] for n, c in columns.items()} | {"row_id": 16}
  rubbish = {
    "group_id": "g",
    "traj_id": "t2",
    "step_idx": 7,
    "state_key": "q",
    "action_key": "a",
    "boundary": "success",
    "row_id": 16,
  }
  for row in (copy, rubbish):
    for n, c in columns.items():
      c.append(row[n])
  return columns | {"weight": [1] * 6 + [0, 0]}


def test_rows_of_weight_zero_break_no_rule():
  table = StepTable.from_columns(**with_copies())
  validate(table)
  assert 6 not in table_lib.canonical_order(table)
  assert "repeats a" in message(with_copies() | {"weight": [1] * 8})


def test_rows_of_weight_zero_decide_no_default():
  """A copy is not the next step, and a padding row's success is no success."""
  table = StepTable.from_columns(**with_copies())
  assert table.next_state_key[:6].tolist() == ["y", None, None, None, "z", None]
  np.testing.assert_array_equal(table.outcome[:6], [1, 1, 0, 0, 0, 0])


def test_rewards_of_padding_may_be_anything():
  validate(
    StepTable.from_columns(
      **(with_copies() | {"reward": [0] * 6 + [np.nan, np.inf]})
    )
  )


# -- outcome and boundary ----------------------------------------------------


def test_outcome_comes_from_the_boundary_never_from_reward():
  table = StepTable.from_columns(**good(reward=[-1, -5, 10, 1, 1, 10]))
  validate(table)
  np.testing.assert_array_equal(table.outcome, [1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize(
  "values",
  [
    [1, 1, 0, 0, 0, 0],
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    np.array([1, 1, 0, 0, 0, 0], np.int8),
  ],
)
def test_outcome_must_be_boolean(values):
  with pytest.raises(RolloutError, match=r"True or False.*never inferred"):
    StepTable.from_columns(**good(outcome=values))


def test_boundary_takes_names_members_and_numbers():
  names = ["NONE", "Success", "failure", "none", "none", "truncated"]
  members = [Boundary[n.upper()] for n in names]
  for values in (
    names,
    members,
    [int(m) for m in members],
    np.array(members, np.uint8),
  ):
    table = StepTable.from_columns(**good(boundary=values))
    np.testing.assert_array_equal(table.boundary, [0, 1, 2, 0, 0, 3])


def test_boundary_refuses_other_values():
  rest = [0, 0, 0, 0, 0]
  with pytest.raises(RolloutError, match="'won' is none of none, success"):
    StepTable.from_columns(**good(boundary=["won", *rest]))
  with pytest.raises(RolloutError, match=r"outside 0\.\.3: \[7\]"):
    StepTable.from_columns(**good(boundary=[7, *rest]))
  with pytest.raises(RolloutError, match=r"outside 0\.\.3"):
    StepTable.from_columns(**good(boundary=[None, 7, *rest[1:]]))
  with pytest.raises(RolloutError, match=r"outside 0\.\.3"):
    StepTable.from_columns(**good(boundary=[0.5, *rest]))


# -- columns and rows --------------------------------------------------------


@pytest.mark.parametrize("name", table_lib.REQUIRED)
def test_required_columns_are_named(name):
  columns = good()
  del columns[name]
  with pytest.raises(RolloutError, match=rf"missing column\(s\) \['{name}'\]"):
    StepTable.from_columns(**columns)


def test_a_log_without_an_order_is_told_why():
  columns = good() | {"step_idx": None}
  with pytest.raises(RolloutError, match="number the steps of each trajectory"):
    StepTable.from_columns(**columns)


def test_unknown_columns_and_lengths_are_named():
  with pytest.raises(RolloutError, match=r"\['state'\].*state_key"):
    StepTable.from_columns(**good(state=[0] * 6))
  with pytest.raises(RolloutError, match="'reward' has 5 rows, step_idx has 6"):
    StepTable.from_columns(**good(reward=[0] * 5))


@pytest.mark.parametrize(
  "name, values, words",
  [
    ("step_idx", [0, 1, 0, 4, 5, None], "must hold integers"),
    ("step_idx", [0.0, 1, 0, 4, 5, 6], "must hold integers"),
    ("row_id", ["a"] * 6, "must hold integers"),
    ("reward", [None] * 6, "must hold numbers"),
    ("reward", ["1"] * 6, "must hold numbers"),
    ("valid", [1] * 6, "must hold True or False"),
  ],
)
def test_types_are_checked(name, values, words):
  with pytest.raises(RolloutError, match=words):
    StepTable.from_columns(**good(**{name: values}))


@pytest.mark.parametrize("name", table_lib.KEY_COLUMNS)
def test_keys_must_be_hashable(name):
  values = ["k"] * 5 + [["a", "list"]]
  with pytest.raises(
    RolloutError, match=f"row 5 of column '{name}' holds a list.*tuples"
  ):
    StepTable.from_columns(**good(**{name: values}))


def test_from_rows_equals_from_columns():
  columns = good()
  rows = [{n: c[i] for n, c in columns.items()} for i in range(6)]
  made, wanted = StepTable.from_rows(rows), StepTable.from_columns(**columns)
  for name in columns:
    assert getattr(made, name).tolist() == getattr(wanted, name).tolist()
  del rows[3]["action_key"]
  with pytest.raises(RolloutError, match="row 3 has fields"):
    StepTable.from_rows(rows)


# -- keys --------------------------------------------------------------------


def test_tuple_keys_stay_tuples():
  keys = [("room", i % 2, ("held", "lamp")) for i in range(6)]
  table = StepTable.from_columns(**good(state_key=keys))
  validate(table)
  assert table.state_key.shape == (6,)
  assert table.state_key[3] == ("room", 1, ("held", "lamp"))


def test_integer_keys_stay_integers():
  table = StepTable.from_columns(**good(state_key=np.arange(6, dtype=np.uint8)))
  assert table.state_key.dtype == np.uint8
  validate(table)


def test_ids_of_mixed_types_are_accepted():
  table = StepTable.from_columns(
    **good(
      group_id=[1, 1, 1, "1", "1", "1"],
      traj_id=[("a", 1), ("a", 1), 7, "x", "x", "x"],
    )
  )
  validate(table)
  assert len(set(table_lib.factorize(table.group_id).tolist())) == 2
  text = message(
    good(group_id=[1, 1, 1, "1", "1", "1"], reward=[0, 0, 0, np.nan, 0, 0])
  )
  assert text.startswith("group '1', trajectory 't3', step 4")


def test_factorize_does_not_depend_on_the_row_order():
  rng = np.random.default_rng(0)
  values = table_lib.object_column(
    ["b", "a", ("b", 1), ("a",), 3, 1, "b", 3, None, ("a",), 2.5]
  )
  code = table_lib.factorize(values)
  for _ in range(20):
    order = rng.permutation(len(values))
    np.testing.assert_array_equal(
      table_lib.factorize(values[order]), code[order]
    )
  equal = code[:, None] == code[None]
  np.testing.assert_array_equal(
    equal, [[a == b for b in values] for a in values]
  )


def test_random_groups_are_valid_tables():
  validate(
    groups_lib.table_of(groups_lib.random_groups(300, seed=2, missing=(0, 0.3)))
  )
