"""The scratch database: rows in, groups out, and rules over the whole log."""

import pytest

from crbc_jax.rollouts.log import LogError, Place, Rejected, Row
from crbc_jax.rollouts.readers import LogReader, canonical
from crbc_jax.rollouts.store import RowStore
from crbc_jax.types import Boundary
from tests.rollouts.logs import changed, everywhere, house, step, write


@pytest.fixture
def filled(tmp_path):
  """Makes a store of rows, file by file."""
  stores = []

  def make(*files, skip_bad=False):
    store = RowStore(tmp_path / f"{len(stores)}.sqlite", skip_bad=skip_bad)
    stores.append(store)
    paths = [
      write(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate(files)
    ]
    list(store.add(LogReader(paths)))
    return store

  yield make
  for store in stores:
    store.database.close()


def shape(groups):
  """Ids and steps in the order they come."""
  return [
    [(r.group_id, r.traj_id, r.step_idx) for _, r in group] for group in groups
  ]


def test_a_row_comes_back_as_it_was_logged(filled):
  rows = [
    step("g", "t\0", 0, None, 1 << 62, next_state_key="é", reward=0.1),
    step(1, "1", -5, 0, None, "truncated", outcome=False, row_id="x"),
    step("1", 1, 7, "", "", "success", valid=False, value=2, row_id=0),
  ]
  rows[0] |= {"token_start": 2, "token_end": 3}
  store = filled(rows)
  found = [numbered for group in store.groups() for numbered in group]
  for n, row in found:
    assert row == canonical.row_of(rows[n], row.place)
    assert row.place.line == n + 1
    assert isinstance(row.boundary, Boundary)
  assert {type(row.valid) for _, row in found} == {bool}


def test_groups_and_steps_are_in_order_whatever_the_files(filled):
  expected = [
    [("g1", "a", 0), ("g1", "a", 1), ("g1", "b", 0), ("g1", "b", 1)],
    [("g2", "c", 0), ("g2", "d", 0)],
  ]
  rows = house()
  assert shape(filled(rows).groups()) == expected
  store = filled(rows[::-2], rows[::2])
  assert shape(store.groups()) == expected
  assert shape(store.groups(after=("g1",))) == expected[1:]
  assert shape(store.groups(only=("g1",))) == expected[:1]
  assert store.num_groups() == 2


def test_ids_of_another_type_are_other_ids(filled):
  rows = [step(g, t, 0, "s", "a") for g, t in ((1, 1), ("1", "1"), (2, 2))]
  store = filled(rows)
  store.check()
  assert shape(store.groups()) == [[(1, 1, 0)], [(2, 2, 0)], [("1", "1", 0)]]
  assert shape(store.groups(after=(2,))) == [[("1", "1", 0)]]


def test_copies_are_in_no_group_and_in_the_counts(filled):
  rows = everywhere(row_id=lambda i: i)
  store = filled(rows, [row | {"weight": 0} for row in rows])
  store.check()
  assert shape(store.groups()) == shape(filled(rows).groups())
  assert store.counts() == (12, 12, 0, 6)


RULES = {
  "is also in another group: make trajectory ids unique": changed(
    4, traj_id="a"
  ),
  "holds a row_id that another row has": everywhere(row_id=lambda i: i % 5),
  "a step without a reward, while others have one: log 0": changed(1, reward=1),
  "a step without a value, while others have one": changed(1, value=1),
  "a step without a token_start, while others have one": changed(
    1, token_start=0, token_end=2
  ),
}


@pytest.mark.parametrize("reason", RULES)
def test_what_only_the_whole_log_can_tell(reason, filled):
  rows = RULES[reason]
  with pytest.raises(LogError, match=f"0.jsonl:1: trajectory 'a' .*{reason}"):
    filled(rows).check()
  store = filled(rows, skip_bad=True)
  store.check()
  counts, rejected = store.counts(), list(store.rejected())
  assert counts.read == 6 == counts.kept + len(rejected)
  assert counts.rejected == len(rejected) > 0
  assert all(reason in item.reason for item in rejected)
  assert {item.raw["traj_id"] for item in rejected}.isdisjoint(
    row.traj_id for group in store.groups() for _, row in group
  )


def test_row_ids_of_another_type_are_other_row_ids(filled):
  filled(everywhere(row_id=lambda i: i // 2 if i % 2 else str(i // 2))).check()


def test_a_rejected_row_names_the_row_it_suffers_for(filled):
  store = filled(
    RULES["is also in another group: make trajectory ids unique"], skip_bad=True
  )
  store.check()
  first, second, third = store.rejected()
  assert first.reason.startswith("trajectory 'a' is also in another group")
  assert second.reason == f"with {first.place}: {first.reason}"
  assert third.place.line == 5
  assert first.raw["state"] == "hall"


def test_the_first_bad_item_stops_and_nothing_of_its_batch_is_kept(tmp_path):
  row = Row(Place("log", 1), "g", "t", 0, "s", "a", Boundary.NONE)
  items = [row, Rejected(Place("log", 2), "is bad"), row]
  with RowStore(tmp_path / "s") as store:
    with pytest.raises(LogError, match="log:2: is bad"):
      list(store.add(items))
    assert store.counts() == (0, 0, 0, 0)
  with RowStore(tmp_path / "s", skip_bad=True) as store:
    assert list(store.add(items)) == [2]
    assert store.counts() == (3, 2, 1, 0)


def test_a_rejected_record_counts_its_steps(tmp_path):
  items = [Rejected(Place("log", 1, "record"), "is bad", {"a": {1, 2}}, rows=7)]
  with RowStore(tmp_path / "s", skip_bad=True) as store:
    list(store.add(items))
    assert store.counts() == (7, 0, 7, 0)
    assert [str(item.place) for item in store.rejected()] == ["log, record 1"]


def test_a_store_is_there_when_it_is_opened_again(tmp_path):
  path = tmp_path / "s"
  with RowStore(path) as store:
    list(store.add([canonical.row_of(row, Place("x", 1)) for row in house()]))
    store.note("last", ["g", 1])
    before = list(store.groups())
  with RowStore(path) as store:
    assert store.fact("last") == ["g", 1] and store.fact("none") is None
    assert list(store.groups()) == before
    assert str(store.place_of("c")) == "x:1"


def test_a_transaction_is_written_or_not(tmp_path):
  with RowStore(tmp_path / "s") as store:
    with pytest.raises(KeyError), store.transaction():
      store.note("a", 1)
      raise KeyError
    assert store.fact("a") is None
    with store.transaction():
      store.note("a", 1)
    assert store.fact("a") == 1
