"""Rows of a log -> tables: the same as by hand, and what is refused."""

import dataclasses
import random

import numpy as np
import pytest

from crbc_jax.rollouts import keys
from crbc_jax.rollouts.log import LogError
from crbc_jax.rollouts.log_table import log_tables
from crbc_jax.rollouts.readers import LogReader
from crbc_jax.rollouts.store import RowStore
from crbc_jax.rollouts.table import INVALID_ACTION
from crbc_jax.types import Boundary
from tests.rollouts.logs import changed, everywhere, house, step, table, write


@pytest.fixture
def tables(tmp_path):
  """Makes the tables of rows, and the store they come from."""
  stores = []

  def make(
    rows, *, skip_bad=False, state="verbatim", action="verbatim", **options
  ):
    store = RowStore(tmp_path / f"{len(stores)}.sqlite", skip_bad=skip_bad)
    stores.append(store)
    path = write(tmp_path / "log.jsonl", rows)
    list(store.add(LogReader([path])))
    store.check()
    functions = (
      f if callable(f) else find(f)
      for f, find in ((state, keys.state_key), (action, keys.action_key))
    )
    return list(log_tables(store, *functions, **options)), store

  yield make
  for store in stores:
    store.database.close()


def assert_same(found, expected):
  """Equal tables, but for the row ids."""
  for field in dataclasses.fields(expected):
    a, b = getattr(found, field.name), getattr(expected, field.name)
    if field.name != "row_id":
      assert (a is None) == (b is None), field.name
      assert a is None or (a.tolist(), a.dtype) == (b.tolist(), b.dtype)


FULL = everywhere(
  reward=lambda i: i / 8,
  value=lambda i: -i,
  valid=lambda i: i != 2,
  token_start=lambda i: 10 * i,
  token_end=lambda i: 10 * i + 4,
)


@pytest.mark.parametrize("rows", [house(), FULL])
@pytest.mark.parametrize("order", [0, 1])
def test_a_table_is_the_one_made_by_hand(rows, order, tables):
  shuffled = list(enumerate(rows))
  random.Random(order).shuffle(shuffled)
  (chunk,), _ = tables([row for _, row in shuffled])
  assert_same(chunk.table, table(rows))
  numbers = [n for n, _ in shuffled]
  assert [numbers[n] for n in chunk.table.row_id] == list(range(6))
  assert [n for n, _ in chunk.rows] == chunk.table.row_id.tolist()


def test_chunks_hold_whole_groups(tables):
  sizes = {
    size: [len(t.table) for t in tables(house(), chunk_rows=size)[0]]
    for size in (1, 4, 5, 6)
  }
  assert sizes == {1: [4, 2], 4: [4, 2], 5: [4, 2], 6: [6]}


def test_long_texts_fill_a_chunk_sooner(tables):
  rows = everywhere(state_key="x" * 100_000)
  assert len(tables(rows, chunk_rows=100)[0]) == 2
  assert len(tables(rows, chunk_rows=1_000)[0]) == 1


def test_groups_can_be_left_out(tables):
  (chunk,), _ = tables(house(), after=("g1",))
  assert set(chunk.table.group_id) == {"g2"}
  (chunk,), _ = tables(house(), only=("g1",))
  assert set(chunk.table.group_id) == {"g1"}


def test_an_action_that_was_not_parsed_is_not_valid(tables):
  (chunk,), _ = tables(changed(1, action_key=None))
  assert chunk.table.action_key[1] == INVALID_ACTION
  assert chunk.table.valid.tolist() == [True, False, True, True, True, True]


def test_an_outcome_that_is_not_logged_is_what_the_boundary_says(tables):
  (chunk,), _ = tables(changed(0, outcome=True))
  assert chunk.table.outcome.tolist() == [True, True, False, False, True, False]


def test_the_state_after_the_end_is_kept(tables):
  (chunk,), _ = tables(changed(1, next_state_key="out"))
  assert chunk.table.next_state_key.tolist() == [
    *("library", "out", "pit"),
    *(None, None, None),
  ]


def test_keys_are_made_by_the_functions(tables):
  (chunk,), _ = tables(
    house(),
    state=lambda rows: [len(rows)] * (len(rows) + 1),
    action=lambda rows: [row.step_idx for row in rows],
  )
  assert chunk.table.state_key.tolist() == [2, 2, 2, 2, 1, 1]
  assert chunk.table.action_key.tolist() == [0, 1, 0, 1, 0, 0]


WINS = {"boundary": "success"}
BAD = {
  "no end": (changed(1, boundary="none"), 2, "is the last step but has no"),
  "success without a terminal": (
    changed(1, boundary="none", outcome=True),
    *(2, "is the last step but has no boundary: mark it success, failure or"),
  ),
  "after the end": (changed(0, **WINS), 2, "comes after the end of its"),
  "a step twice": ([*house(), house()[1]], 7, "repeats a step: number the"),
  "a step is missing": (changed(1, step_idx=2), 2, "follows a missing step"),
  "steps 2^64 - 1 apart": (
    [
      *(
        house()[0] | {"step_idx": -(1 << 63)},
        house()[1] | {"step_idx": 2**63 - 1},
      ),
      *house()[2:],
    ],
    *(2, "follows a missing step: log every step"),
  ),
  "contradiction": (changed(1, outcome=False), 2, "contradicts its boundary"),
  "outcomes differ": (changed(0, outcome=False), 2, "another outcome than the"),
  "a wrong successor": (
    changed(0, next_state_key="pit"),
    *(
      1,
      "the next_state_key is not the state of the next step: write the same",
    ),
  ),
  "tokens overlap": (
    everywhere(token_start=lambda i: i, token_end=lambda i: i + 2),
    *(2, "a token span that begins before that of the step before ends"),
  ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trajectory_is_refused_by_its_line(name, tables, tmp_path):
  rows, line, reason = BAD[name]
  with pytest.raises(LogError) as error:
    tables(rows)
  assert str(error.value.place) == f"{tmp_path}/log.jsonl:{line}"
  assert reason in error.value.reason


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trajectory_is_skipped_alone(name, tables):
  rows, line, reason = BAD[name]
  # One more rollout, so that the group is no single one without the bad.
  rows = [*rows, step("g1", "e", 0, "hall", "north", "failure")]
  for number, row in enumerate(rows):
    if "token_start" in rows[0]:
      row |= {"token_start": 10 * number, "token_end": 10 * number + 1}
  if "token_start" in rows[0]:
    rows[1]["token_start"] = 0
  found, store = tables(rows, skip_bad=True)
  kept = [row for chunk in found for _, row in chunk.rows]
  assert {row.traj_id for row in kept} == {"b", "c", "d", "e"}
  rejected = list(store.rejected())
  assert {item.raw["traj_id"] for item in rejected} == {"a"}
  assert len(kept) + len(rejected) == len(rows) == store.counts().read
  assert all(reason in item.reason for item in rejected)
  assert any(
    item.place.line == line and not item.reason.startswith("with ")
    for item in rejected
  )


def test_a_group_of_one_is_refused_unless_it_is_allowed(tables):
  rows = house()[:5]
  with pytest.raises(LogError, match=r"log.jsonl:5: the group holds a single"):
    tables(rows)
  found, store = tables(rows, skip_bad=True)
  assert [len(chunk.table) for chunk in found] == [4]
  assert [item.place.line for item in store.rejected()] == [5]
  (chunk,), _ = tables(rows, allow_single=True)
  assert len(chunk.table) == 5


def test_a_group_that_is_left_with_one_goes_as_well(tables):
  found, store = tables(changed(5, boundary="none"), skip_bad=True)
  assert [len(chunk.table) for chunk in found] == [4]
  reasons = [item.reason for item in store.rejected()]
  assert "no boundary" in reasons[0] and "single rollout" in reasons[1]


@pytest.mark.parametrize(
  ("function", "reason"),
  [
    (lambda rows: 1 / 0, "ZeroDivisionError: division by zero"),
    (lambda rows: [[]] * (len(rows) + 1), "gave a list; keys are text"),
    (lambda rows: ["s"], "gave 1 keys for 2 steps; give one for each"),
    (lambda rows: None, "TypeError: 'NoneType' object is not iterable"),
  ],
)
def test_a_key_function_that_fails_is_an_error_of_the_row(
  function, reason, tables
):
  state = keys.checked_key("state key", "m:f", function, extra=1)
  message = f"log.jsonl:1: state key 'm:f' .*{reason}"
  with pytest.raises(LogError, match=message):
    tables(house(), state=state)


def test_ids_equal_but_for_their_type_stay_apart(tables):
  rows = house()
  for row in rows:
    row["group_id"] = {"g1": 1, "g2": "1"}[row["group_id"]]
    row["traj_id"] = {"a": 1, "b": "1", "c": 2, "d": "2"}[row["traj_id"]]
  (chunk,), _ = tables(rows)
  ids = list(zip(chunk.table.group_id, chunk.table.traj_id, strict=True))
  assert ids == [(1, 1), (1, 1), (1, "1"), (1, "1"), ("1", 2), ("1", "2")]
  assert chunk.table.boundary[[1, 3]].tolist() == [
    Boundary.SUCCESS,
    Boundary.FAILURE,
  ]
  assert len(np.unique(chunk.table.group_codes)) == 2
