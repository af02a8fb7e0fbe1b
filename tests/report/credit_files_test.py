"""Credit in files: the same numbers in every format."""

import functools
import itertools
import json
import pathlib

import numpy as np
import pytest

from crbc_jax.credit import log_credit
from crbc_jax.report import credit_files
from crbc_jax.rollouts import keys
from crbc_jax.rollouts.readers import LogReader
from crbc_jax.rollouts.store import RowStore
from tests.rollouts.logs import everywhere, house, write

parquet = pytest.importorskip("pyarrow.parquet")

NUMBERS = [
  *("v", "q", "step_credit", "trajectory_credit", "advantage", "live"),
]
TOKENS = {
  "token_start": lambda i: 4 * (i % 2),
  "token_end": lambda i: 4 * (i % 2) + 3,
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
  """Programs that credit one log are there for the next."""
  cached = functools.cache(log_credit.make_table_credit_fn)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(log_credit, "make_table_credit_fn", cached)
    yield


@pytest.fixture
def credited(tmp_path):
  """Makes a store whose rows are credited."""
  stores = []

  def make(rows, estimators=("grpo",), *, skip_bad=False):
    path = tmp_path / f"{len(stores)}.sqlite"
    stores.append(RowStore(path, skip_bad=skip_bad))
    log = write(tmp_path / "log.jsonl", rows)
    list(stores[-1].add(LogReader([log])))
    functions = keys.state_key("verbatim"), keys.action_key("verbatim")
    list(log_credit.credit_log(stores[-1], estimators, *functions))
    return stores[-1]

  yield make
  for store in stores:
    store.database.close()


def load(path):
  """A file's columns as lists."""
  path = str(path)
  if path.endswith(".npz"):
    with np.load(path, allow_pickle=False) as archive:
      return {name: archive[name].tolist() for name in archive.files}
  if path.endswith(".parquet"):
    return parquet.read_table(path).to_pydict()
  rows = [
    json.loads(line) for line in pathlib.Path(path).read_text().splitlines()
  ]
  return {name: [row[name] for row in rows] for name in rows[0]}


def written(store, folder, estimators=("grpo",)):
  """The columns of each format."""
  found = {}
  for suffix in credit_files.SUFFIXES:
    out = folder / f"credit{suffix}"
    paths = credit_files.write_credit(store, str(out), estimators)
    found[suffix] = [load(path) for path in paths]
  return found


def joined(lists):
  return list(itertools.chain.from_iterable(lists))


def as_float32(columns):
  """JSON has as many digits as tell float32 apart."""
  return {
    name: np.array(values, np.float32).tolist()
    if name.split(".")[-1] in NUMBERS
    else values
    for name, values in columns.items()
  }


def test_every_format_holds_the_same_rows_in_the_order_of_the_log(
  credited, tmp_path
):
  rows = everywhere(row_id=lambda i: 7 * i)[::-1]
  found = written(credited(rows), tmp_path)
  (lines,), (table,), (arrays,) = found.values()
  assert list(lines) == ["group_id", "traj_id", "step_idx", "row_id", *NUMBERS]
  assert as_float32(lines) == as_float32(table) == as_float32(arrays)
  for name in ("group_id", "traj_id", "step_idx", "row_id"):
    assert lines[name] == [row[name] for row in rows]
  assert lines["live"] == [False] * 6  # of grpo, which has no step term
  assert lines["advantage"] == lines["trajectory_credit"]
  assert lines["advantage"][-1] > 0 > lines["advantage"][2]


def test_no_digit_of_float32_is_lost_in_json(credited, tmp_path):
  store = credited(house())
  found = written(store, tmp_path)
  exact = [
    x
    for (x,) in store.database.execute(
      "SELECT advantage0 FROM credit ORDER BY n"
    )
  ]
  assert as_float32(found[".jsonl"][0])["advantage"] == exact
  assert found[".npz"][0]["advantage"] == exact


def test_several_estimators_have_a_set_of_columns_each(credited, tmp_path):
  names = ("grpo", "gigpo(step_weight=2.0)")
  found = written(credited(house(), names), tmp_path, names)
  for (columns,) in found.values():
    assert [n for n in columns if n.endswith("advantage")] == [
      "grpo.advantage",
      "gigpo(step_weight=2.0).advantage",
    ]
    assert len(columns) == 3 + 2 * len(NUMBERS)


@pytest.mark.parametrize("ids", [(5, None), ("x", None), ("x", 5)])
def test_ids_of_several_kinds_and_missing_ones(ids, credited, tmp_path):
  rows = house()
  rows[1]["row_id"], rows[4]["row_id"] = ids
  rows[4]["traj_id"] = 9
  found = written(credited(rows), tmp_path)
  assert found[".jsonl"][0]["row_id"] == [
    *(None, ids[0], None, None, ids[1], None),
  ]
  assert found[".jsonl"][0]["traj_id"] == ["a", "a", "b", "b", 9, "d"]
  text = [None if x is None else str(x) for x in found[".jsonl"][0]["row_id"]]
  assert found[".parquet"][0]["row_id"] == text
  assert found[".npz"][0]["row_id"] == [x or "" for x in text]


def test_a_batch_without_any_id_does_not_decide_the_column(
  credited, tmp_path, monkeypatch
):
  rows = house()
  rows[5]["row_id"] = "last"
  monkeypatch.setattr(credit_files, "_BATCH", 2)
  found = written(credited(rows), tmp_path)
  assert found[".parquet"][0]["row_id"] == [None] * 5 + ["last"]
  assert len(found[".jsonl"][0]["v"]) == 6


def test_copies_are_there_with_credit_0(credited, tmp_path):
  rows = house()
  found = written(credited([rows[0] | {"weight": 0}, *rows]), tmp_path)
  for (columns,) in found.values():
    assert columns["traj_id"] == ["a", "a", "a", "b", "b", "c", "d"]
    assert columns["advantage"][0] == 0 != columns["advantage"][1]


def test_tokens_hold_the_advantage_of_their_step(credited, tmp_path):
  rows = everywhere(**TOKENS)
  store = credited([*rows, rows[0] | {"weight": 0}])
  found = written(store, tmp_path)
  steps, tokens = found[".jsonl"]
  assert list(tokens) == ["group_id", "traj_id", "mask", "advantage"]
  assert tokens["traj_id"] == ["a", "b", "c", "d"]
  first, second = steps["advantage"][:2]
  assert tokens["advantage"][0] == [first] * 3 + [0] + [second] * 3
  assert tokens["mask"][0] == [True] * 3 + [False] + [True] * 3
  assert tokens["mask"][3] == [False] * 4 + [True] * 3
  as_table = found[".parquet"][1]
  assert as_table["mask"] == tokens["mask"]
  assert [np.array(x, np.float32).tolist() for x in tokens["advantage"]] == (
    as_table["advantage"]
  )
  arrays = found[".npz"][0]
  assert arrays["token_offset"] == [0, 7, 14, 17, 24]
  assert arrays["token_mask"] == joined(tokens["mask"])
  assert arrays["token_advantage"] == joined(as_table["advantage"])
  assert arrays["token_traj_id"] == ["a", "b", "c", "d"]
  assert len(arrays["advantage"]) == 7


def test_tokens_come_a_few_rollouts_at_a_time(credited, tmp_path, monkeypatch):
  store = credited(everywhere(**TOKENS))
  whole = written(store, tmp_path)
  monkeypatch.setattr(credit_files, "_ROLLOUTS", 3)
  assert written(store, tmp_path) == whole


def test_standard_output_gets_lines(credited, tmp_path, capsys):
  store = credited(house())
  assert credit_files.write_credit(store, "-", ["grpo"]) == []
  out = tmp_path / "c.jsonl"
  credit_files.write_credit(store, str(out), ["grpo"])
  assert capsys.readouterr().out == out.read_text()


@pytest.mark.parametrize("suffix", credit_files.SUFFIXES)
def test_an_old_file_stays_whole_when_writing_fails(
  suffix, credited, tmp_path, monkeypatch
):
  store = credited(house())
  out = tmp_path / "out" / f"c{suffix}"
  credit_files.write_credit(store, str(out), ["grpo"])
  before = out.read_bytes()
  monkeypatch.setattr(credit_files, "_BATCH", 2)
  steps = credit_files._steps

  def cut(*args):
    yield next(steps(*args))
    raise OSError("no space left")

  monkeypatch.setattr(credit_files, "_steps", cut)
  with pytest.raises(OSError, match="no space left"):
    credit_files.write_credit(store, str(out), ["grpo"])
  assert out.read_bytes() == before
  assert [file.name for file in out.parent.iterdir()] == [out.name]


def test_rejected_rows_are_written_with_their_reasons(credited, tmp_path):
  rows = house()
  rows[1]["boundary"] = "won"
  store = credited(rows, skip_bad=True)
  credit_files.write_rejected(store, str(tmp_path / "bad.jsonl"))
  found = [
    json.loads(line)
    for line in (tmp_path / "bad.jsonl").read_text().splitlines()
  ]
  assert len(found) == store.counts().rejected == 4
  assert found[0]["place"] == f"{tmp_path}/log.jsonl:2"
  assert found[0]["reason"].startswith('has boundary "won"')
  assert found[0]["raw"] == rows[1]
  assert {(x["rows"], x["raw"]["traj_id"]) for x in found} == {
    (1, "a"),
    (1, "b"),
  }


@pytest.mark.parametrize("out", ["c.csv", "c", "jsonl", "c.jsonl.gz"])
def test_other_formats_are_refused_before_any_work(out):
  with pytest.raises(ValueError, match=f"--out must end in .*got '{out}'"):
    credit_files.check_output(out)
  for known in ("-", "a.jsonl", "b/c.parquet", "d.npz"):
    credit_files.check_output(known)
