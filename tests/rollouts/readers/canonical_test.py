"""Our own format: every field, and what is wrong with a row of it."""

import json

import pytest

from crbc_jax.rollouts.log import Place, Rejected, Row
from crbc_jax.rollouts.readers import canonical
from crbc_jax.types import Boundary
from tests.rollouts.logs import step

PLACE = Place("log", 3)
ROW = step("g", "t", 0, "hall", "north", "success")


def read(fields):
  return canonical.row_of(fields, PLACE)


def test_a_row_with_every_field():
  more = {
    "next_state_key": "end",
    "reward": 1,
    "outcome": True,
    "valid": False,
    "weight": 0,
    "row_id": 5,
    "token_start": 0,
    "token_end": 9,
    "value": 0.25,
    "mine": "ignored",
  }
  assert read(ROW | more) == Row(
    place=PLACE,
    group_id="g",
    traj_id="t",
    step_idx=0,
    state="hall",
    action="north",
    boundary=Boundary.SUCCESS,
    next_state="end",
    reward=1.0,
    outcome=True,
    valid=False,
    weight=0.0,
    row_id=5,
    token_start=0,
    token_end=9,
    value=0.25,
  )


def test_a_row_with_no_more_than_it_needs():
  assert read(ROW) == Row(PLACE, "g", "t", 0, "hall", "north", Boundary.SUCCESS)
  assert read(ROW | dict.fromkeys(canonical.FIELDS[6:])) == read(ROW)


@pytest.mark.parametrize(
  ("key", "expected"),
  [
    ("hall", "hall"),
    (None, None),
    (3, 3),
    (1 << 63, str(1 << 63)),
    (0.5, "0.5"),
    (True, "true"),
    ({"b": 1, "a": [None]}, '{"a":[null],"b":1}'),
    ("a\0", "a\0"),
  ],
)
def test_a_key_may_be_any_json(key, expected):
  row = read(ROW | {"state_key": key, "action_key": key, "next_state_key": key})
  assert [row.state, row.action, row.next_state] == [expected] * 3
  assert {type(row.state)} == {type(expected)}


@pytest.mark.parametrize("name", canonical.REQUIRED)
def test_a_required_field_that_is_missing_is_named(name):
  fields = {n: x for n, x in ROW.items() if n != name}
  assert f"has no field {name!r}" in read(fields).reason
  close = fields | {f"{name}s": 0}
  assert (
    f"has no field {name!r} (did you mean '{name}s'?)" in read(close).reason
  )


def test_a_row_without_an_order_says_why_that_is_too_little():
  fields = {n: x for n, x in ROW.items() if n != "step_idx"}
  assert "number the steps of each trajectory" in read(fields).reason


@pytest.mark.parametrize(
  ("change", "reason"),
  [
    ({"group_id": True}, "has no 'group_id' that is text or a whole number"),
    ({"traj_id": 1.0}, "has no 'traj_id' that is text or a whole number"),
    ({"traj_id": None}, "has no 'traj_id' that is text or a whole number"),
    ({"group_id": 1 << 63}, "'group_id' is beyond 64 bits"),
    ({"group_id": "\ud800"}, "holds half of a surrogate pair"),
    ({"state_key": "\udfff"}, "holds half of a surrogate pair"),
    ({"step_idx": 1.5}, "'step_idx' must be an integer, got float"),
    ({"step_idx": True}, "'step_idx' must be an integer, got bool"),
    ({"step_idx": 1 << 63}, "'step_idx' is beyond 64 bits"),
    ({"boundary": "won"}, 'boundary "won": it must be one of none, success,'),
    ({"boundary": 1}, "boundary 1: it must be one of none, success,"),
    ({"boundary": ["success"]}, "it must be one of none, success,"),
    ({"outcome": 1}, "outcome 1: it must be true or false, never a number"),
    ({"valid": "yes"}, 'valid "yes": it must be true or false'),
    ({"weight": 0.5}, "weight 0.5: use 1, or 0 for copies and padding"),
    ({"weight": -1}, "weight -1: use 1, or 0 for copies and padding"),
    ({"weight": True}, "'weight' must be a number, got bool"),
    ({"reward": "1"}, "'reward' must be a number, got str"),
    ({"reward": float("nan")}, "'reward' must be a finite number"),
    ({"reward": 1e39}, "a finite number of 32 bits, got 1e+39"),
    ({"reward": 10**400}, "a finite number of 32 bits, got inf"),
    ({"value": float("-inf")}, "'value' must be a finite number"),
    ({"row_id": False}, "has no 'row_id' that is text or a whole number"),
    ({"token_start": 0}, "has one of token_start and token_end: log both"),
    ({"token_end": 4}, "has one of token_start and token_end: log both"),
    (
      {"token_start": -1, "token_end": 4},
      "has tokens -1 to 4: they must begin",
    ),
    ({"token_start": 4, "token_end": 4}, "hold at least one token"),
    ({"token_start": 0, "token_end": 1 << 40}, "and end by 16777216"),
  ],
)
def test_a_bad_field_is_named_with_what_it_should_hold(change, reason):
  fields = ROW | change
  found = read(fields)
  assert isinstance(found, Rejected) and reason in found.reason
  assert (found.place, found.raw, found.rows) == (PLACE, fields, 1)


@pytest.mark.parametrize("value", [None, 3, "a", [ROW], [1] * 1_000])
def test_what_is_no_object_is_rejected_and_shown_in_short(value):
  reason = read(value).reason
  assert "not an object with the fields of a step" in reason
  assert "write one JSON object a line" in reason and len(reason) < 150


def test_the_format_is_recognised_though_its_first_line_is_bad():
  good = json.dumps(ROW)
  assert canonical.recognises(good)
  assert canonical.recognises(f"what?\n{good}")
  assert canonical.recognises(good.replace("step_idx", "turn"))
  assert canonical.recognises(f"{good[:-1]}, {'x' * 90}")  # a part of a line
  assert not canonical.recognises('{"group_id": 1, "traj_id": 2, "text": ""}')
  assert not canonical.recognises("")
