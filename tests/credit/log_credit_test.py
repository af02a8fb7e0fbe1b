"""Credit of a log: the bits of `credit_table`, in any order and any chunks."""

import functools
import random

import numpy as np
import pytest

from crbc_jax import credit_table
from crbc_jax.credit import log_credit
from crbc_jax.rollouts import keys
from crbc_jax.rollouts.log import LogError
from crbc_jax.rollouts.readers import LogReader
from crbc_jax.rollouts.store import RowStore
from crbc_jax.rollouts.table import RolloutError
from tests.rollouts.logs import changed, everywhere, house, step, table, write

ESTIMATORS = ("grpo", "gigpo(step_weight=0.5)")
FIELDS = ("v", "q", "step", "trajectory", "advantage", "live")


def town(houses=3):
  """Houses in which other rooms are reached, so that groups differ."""
  rows = []
  for i in range(houses):
    rows += [
      row
      | {"group_id": f"{i}{row['group_id']}", "traj_id": f"{i}{row['traj_id']}"}
      for row in house()
    ]
    rows += [step(f"{i}g1", f"{i}e", t, "hall", t % 2) for t in range(i + 1)]
    rows[-1]["boundary"] = "failure"
  return rows


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
  """Programs that credit one log are there for the next."""
  cached = functools.cache(log_credit.make_table_credit_fn)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(log_credit, "make_table_credit_fn", cached)
    yield


@pytest.fixture
def open_store(tmp_path):
  """Makes a store of files of rows."""
  stores = []

  def make(*files, skip_bad=False):
    paths = [
      write(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate(files)
    ]
    path = tmp_path / f"{len(stores)}.sqlite"
    stores.append(RowStore(path, skip_bad=skip_bad))
    list(stores[-1].add(LogReader(paths)))
    return stores[-1]

  yield make
  for store in stores:
    store.database.close()


def credit(store, estimators=ESTIMATORS, *, state="verbatim", **options):
  functions = keys.state_key(state), keys.action_key("verbatim")
  return log_credit.credit_log(store, estimators, *functions, **options)


def found(store):
  """The credit of every row by (trajectory, step)."""
  query = "SELECT traj_id, step_idx, credit.* FROM rows JOIN credit USING (n)"
  return {row[:2]: row[3:] for row in store.database.execute(query)}


@pytest.fixture(scope="module")
def expected():
  """The same from a table that is made by hand."""
  rows = town()
  columns = [
    getattr(credit, field).tolist()
    for credit in (credit_table(table(rows), name) for name in ESTIMATORS)
    for field in FIELDS
  ]
  values = zip(*columns, strict=True)
  ids = [(row["traj_id"], row["step_idx"]) for row in rows]
  return dict(zip(ids, values, strict=True))


@pytest.mark.parametrize("chunk", [1, 8, 1_000])
def test_the_same_bits_whatever_the_order_and_the_chunks(
  chunk, expected, open_store, monkeypatch
):
  monkeypatch.setattr(log_credit, "CHUNK_ROWS", chunk)
  rows = town()
  random.Random(chunk).shuffle(rows)
  store = open_store(rows[:7], rows[7:])
  done = list(credit(store))
  assert done[-1] == 6 and len(done) == {1: 6, 8: 4, 1_000: 1}[chunk]
  assert found(store) == expected


def test_estimators_do_tell_these_rows_apart(expected):
  values = np.array(list(expected.values()))
  assert (values[:, 4] != 0).all()
  assert (values[:, 4] != values[:, 10]).any()


def test_an_interrupted_log_goes_on_where_it_was(
  expected, open_store, monkeypatch
):
  monkeypatch.setattr(log_credit, "CHUNK_ROWS", 1)
  store = open_store(town())
  for done in credit(store):
    if done == 4:
      break
  assert 0 < len(found(store)) < len(expected)
  assert list(credit(store)) == [5, 6]
  assert found(store) == expected
  assert not list(credit(store))
  assert log_credit.summary(store, ESTIMATORS).groups == 6


def test_a_term_over_the_batch_sees_the_whole_log(open_store, monkeypatch):
  monkeypatch.setattr(log_credit, "CHUNK_ROWS", 1)
  store = open_store(house())
  assert list(credit(store, ["reinforce_pp"])) == [2]
  whole = credit_table(table(house()), "reinforce_pp").advantage.tolist()
  assert [values[4] for values in found(store).values()] == whole


def test_a_summary_counts_what_was_credited(open_store):
  missing = [step("g2", x, 0, None, "north", "failure") for x in ("x", "y")]
  rows = [*house(), *missing]
  copy = rows[0] | {"weight": 0}
  store = open_store([*rows, copy])
  list(credit(store, ["grpo"]))
  found_summary = log_credit.summary(store, ["grpo"])
  assert found_summary._replace(live_share=None) == (
    *(2, 6, 8),
    *(1.0, 4 / 8, None),  # alone: library, pit, both missing states
    *(1.0, None),  # nothing says that the keys hide state
  )
  assert set(found_summary.live_share) == {"grpo"}


def aliased(count) -> list[dict]:
  """Groups where the way taken decides what happens at an anchor."""
  return [
    step(f"g{g}", f"{g}-{i}", t, state, "go", end)
    for g in range(count)
    for i, (way, last) in enumerate([("a", "success"), ("b", "failure")] * 3)
    for t, (state, end) in enumerate([(way, "none"), ("door", last)])
  ]


@pytest.mark.parametrize("chunk", [1, log_credit.CHUNK_ROWS])
def test_hidden_state_is_told_of_where_it_matters(
  open_store, monkeypatch, chunk
):
  monkeypatch.setattr(log_credit, "CHUNK_ROWS", chunk)
  store = open_store(aliased(8))
  list(credit(store, ["grpo"]))
  for name in ("grpo", "crbc_anchored", "crbc(depth=0)"):
    assert log_credit.summary(store, [name]).warning is None
  found_summary = log_credit.summary(store, ["crbc"])
  assert found_summary.hidden_state_p < 1e-3
  assert "'door' of group g0" in found_summary.warning


def test_a_bad_row_stops_or_is_skipped(open_store):
  rows = changed(1, boundary="none")
  with pytest.raises(LogError, match=r"0.jsonl:2: .* has no boundary"):
    list(credit(open_store(rows), ["grpo"]))
  store = open_store(rows, skip_bad=True)
  assert list(credit(store, ["grpo"])) == [1]
  assert set(found(store)) == {("c", 0), ("d", 0)}
  assert store.counts() == (6, 2, 4, 0)


def test_all_are_skipped(open_store):
  store = open_store(house()[:2], skip_bad=True)
  assert not list(credit(store, ["grpo"]))
  assert log_credit.summary(store, ["grpo"]).rows == 0


@pytest.mark.parametrize("name", ["mica", "grpo(signal='observed')"])
def test_rewards_that_are_read_must_have_been_logged(name, open_store):
  with pytest.raises(RolloutError, match=r"reads the rewards .* log has none"):
    list(credit(open_store(house()), ["grpo", name]))
  store = open_store(everywhere(reward=lambda i: float(i == 1)))
  assert list(credit(store, [name])) == [2]
  assert any(advantage for *_, advantage, _ in found(store).values())
