"""`crbc credit` on bad input: a message, no output, or a side file."""

import gzip
import json
import os
import pathlib

import pytest

from crbc_jax import cli
from crbc_jax.rollouts.readers import LogReader
from crbc_jax.rollouts.readers.source import zstd
from tests.commands.credit_command import left, lines
from tests.rollouts.logs import changed, everywhere, house, text, write

pytest.importorskip("pyarrow")


def without(at, name):
  rows = house()
  del rows[at][name]
  return rows


def of_bytes(old, new):
  return text(house()).encode().replace(old, new, 1)


BAD = {
  # name: (log, where, what it says, rows rejected when skipping)
  "no order": (
    without(1, "step_idx"),
    *("log.jsonl:2", "number the steps of each trajectory", 4),
  ),
  "a row id twice": (
    everywhere(row_id=lambda i: 0 if i == 2 else i),
    *("log.jsonl:1", "give every row its own, and copies weight 0", 4),
  ),
  "a trajectory in two groups": (
    [*house(), *[row | {"group_id": "g3"} for row in house()[:2]]],
    *("log.jsonl:1", "make trajectory ids unique over the whole log", 6),
  ),
  "no end": (
    changed(1, boundary="none"),
    *("log.jsonl:2", "mark it success, failure or truncated", 4),
  ),
  "success without a terminal": (
    changed(1, boundary="none", outcome=True),
    *("log.jsonl:2", "mark it success, failure or truncated", 4),
  ),
  "rows after the end": (
    changed(0, boundary="failure"),
    *("log.jsonl:2", "end a trajectory at its first boundary", 4),
  ),
  "a group of one": (house()[:5], "log.jsonl:5", "--allow-single", 1),
  "a missing reward": (
    everywhere(reward=lambda i: None if i == 1 else 0),
    *("log.jsonl:1", "log 0 where there is none", 4),
  ),
  "NaN": (
    everywhere(reward=lambda i: float("nan") if i == 1 else 0),
    *("log.jsonl:2", "NaN is not a number in JSON: write null, or", 4),
  ),
  "inf": (
    of_bytes(b'"take"', b'"take", "reward": -1e999'),
    *("log.jsonl:2", "leave out a rollout that could not be scored", 4),
  ),
  "no UTF-8": (
    of_bytes(b"library", b"\xff"),
    *("log.jsonl:2", "write logs as UTF-8", 4),
  ),
  "half a surrogate": (
    changed(1, state_key="\ud800"),
    *("log.jsonl:2", "log whole characters", 4),
  ),
  "a bool as id": (
    changed(1, traj_id=True),
    *("log.jsonl:2", "'traj_id' that is text or a whole number", 4),
  ),
  "a huge id": (changed(1, traj_id=1 << 64), "log.jsonl:2", "64 bits", 4),
  "a huge number": (
    of_bytes(b'"library"', b"9" * 5_000),
    *("log.jsonl:2", "is not JSON: Exceeds the limit", 4),
  ),
  "deep nesting": (
    of_bytes(b'"library"', b"[" * 100_000),
    *("log.jsonl:2", "is not JSON: nested too deeply", 4),
  ),
  "a step twice": (
    [*house(), house()[3]],
    *("log.jsonl:7", "number the steps of a trajectory without repeats", 5),
  ),
  "no JSON": (
    of_bytes(b'"library"', b"library"),
    *("log.jsonl:2", "is not JSON: Expecting value", 4),
  ),
  "a long line": (
    text(house()[:5]) + "x" * (50 << 20) + "\n" + text(house()[5:]),
    *("log.jsonl:6", "the line is longer than 16 MiB: log one step a line", 1),
  ),
  "a cut archive": (
    gzip.compress(text(house()).encode())[:-8],
    *("log.jsonl:7", "is cut off or corrupt; write the file again", 1),
  ),
  "overlapping tokens": (
    everywhere(token_start=0, token_end=2),
    *("log.jsonl:2", "count tokens from the start of the trajectory", 4),
  ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_nothing_is_written(name, crbc):
  log, where, what, _ = BAD[name]
  write(pathlib.Path("log.jsonl"), log)
  status, shown, errors = crbc("log.jsonl")
  assert status == 2 and not left() and not shown
  (line,) = errors.strip().splitlines()
  assert line.startswith(f"crbc credit: {where}: ") and what in line


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_skipped_into_a_side_file(name, crbc):
  log, where, what, rejected = BAD[name]
  write(pathlib.Path("log.jsonl"), log)
  status, shown, errors = crbc("log.jsonl", "--skip-bad", "--json")
  side = "out.jsonl.rejected.jsonl"
  found, bad = json.loads(shown), lines(side)
  assert status == 3 and side in left() and found["rejected_rows"] == side
  assert f"skipped {rejected} rows, see {side}" in errors
  assert found["read"] == found["credited"] + found["rejected"]
  assert found["credited"] == len(lines()) > 0
  assert found["rejected"] == rejected == sum(row["rows"] for row in bad)
  assert any(row["place"] == where and what in row["reason"] for row in bad)


NOTHING = {
  "empty": (b"", "log.jsonl: is empty"),
  "blank": (b"\n \n", "log.jsonl: no step with weight 1"),
  "copies alone": (
    text(everywhere(weight=0)),
    "log.jsonl: no step with weight 1, nothing to credit",
  ),
  "an array": (
    json.dumps(house()),
    "log.jsonl:1: holds [{",
  ),
  "no field it needs": (
    '{"prompt": "a"}',
    "log.jsonl:1: has no field 'group_id'",
  ),
  "NUL": (b"\0" * 99, "log.jsonl:1: is not JSON"),
  "UTF-16": (text(house()).encode("utf-16"), "log.jsonl:1: byte 1 of the line"),
  "cut Zstandard": (
    zstd.compress(text(house()).encode())[:-9],
    "log.jsonl:1: from here on the file is cut off or corrupt",
  ),
}


@pytest.mark.parametrize("skip", [(), ("--skip-bad",)])
@pytest.mark.parametrize("name", NOTHING)
def test_where_nothing_is_left_the_reason_is_told(name, skip, crbc):
  content, message = NOTHING[name]
  write(pathlib.Path("log.jsonl"), content)
  status, shown, errors = crbc("log.jsonl", *skip)
  assert status == 2 and not left() and not shown
  assert message in errors and len(errors.strip().splitlines()) == 1


def test_files_that_cannot_be_read(crbc):
  write(pathlib.Path("log.jsonl"), house())
  os.mkdir("logs")
  cases = {"log2.jsonl": "No such file", "logs": "is a folder: name the files"}
  for name, message in cases.items():
    status, _, errors = crbc("log.jsonl", name)
    assert status == 2 and not left()
    assert f"crbc credit: {name}: " in errors and message in errors
  status, shown, _ = crbc("log.jsonl", *cases, "--skip-bad", "--json")
  assert status == 3 and len(lines()) == 6
  assert json.loads(shown)["rejected"] == 0  # no row is known of
  bad = lines("out.jsonl.rejected.jsonl")
  assert [(row["place"], row["rows"]) for row in bad] == [
    ("log2.jsonl", 0),
    ("logs", 0),
  ]


def test_a_file_that_changes_while_it_is_read(crbc, monkeypatch):
  write(pathlib.Path("log.jsonl"), house())
  read = LogReader.__iter__

  def slow(reader):
    for item in read(reader):
      with open("log.jsonl", "a") as file:
        file.write("\n")
      yield item

  monkeypatch.setattr(LogReader, "__iter__", slow)
  status, _, errors = crbc("log.jsonl")
  assert status == 2 and not left()
  assert "log.jsonl: changed while it was read: wait until" in errors
  assert crbc("log.jsonl", "--skip-bad")[0] == 3


def test_the_same_file_twice(crbc):
  write(pathlib.Path("log.jsonl"), house())
  status, _, errors = crbc("log.jsonl", "log.jsonl")
  assert status == 2 and "log.jsonl:1: " in errors
  assert "repeats a step: number the steps" in errors


def test_an_old_output_survives_a_log_that_is_refused(crbc):
  write(pathlib.Path("log.jsonl"), changed(1, boundary="none"))
  write(pathlib.Path("out.jsonl"), "old")
  assert crbc("log.jsonl")[0] == 2
  assert pathlib.Path("out.jsonl").read_text() == "old"
  assert left() == {"out.jsonl"}


def test_a_group_of_one_is_credited_if_that_is_allowed(crbc):
  write(pathlib.Path("log.jsonl"), house()[:5])
  assert crbc("log.jsonl", "--allow-single")[0] == 0
  assert len(lines()) == 5


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (("--out", "out.csv"), "--out must end in .jsonl, .parquet, .npz, or be -"),
    (("--estimator", "grppo"), "'grppo' (did you mean 'grpo'?); known: crbc,"),
    (("--estimator", "crbc(dept=2)"), "no option 'dept' (did you mean 'depth'"),
    (("--estimator", "crbc(depth=2"), "is not of the form name or name(opti"),
    (("--estimator", ""), "names no estimator"),
    (("--estimator", "vineppo"), "can't credit a logged table"),
    (("--estimator", "gae"), "needs a critic, but the table has no column"),
    (("--state-key", "verbatm"), "'verbatm' (did you mean 'verbatim'?)"),
    (("--action-key", "nobody:here"), "no module 'nobody'"),
    (("--state-key", "window(n=0)"), "n must be a whole number >= 1"),
    (("--format", "jsn"), "unknown format 'jsn' (did you mean 'jsonl'?)"),
    (("--format", "parquet"), "log.jsonl: is no readable Parquet file"),
    (("--format", "tau_bench"), "log.jsonl: is not JSON: Extra data: line 2"),
    (("--resume",), "there is no interrupted run to go on with"),
    (("--nonsense",), "unknown argument '--nonsense'"),
  ],
)
def test_bad_usage_is_explained_in_a_line(
  argv, message, capsys, in_an_empty_folder
):
  write(pathlib.Path("log.jsonl"), house())
  given = ["--out", "out.jsonl"] if "--out" not in argv else []
  estimator = ["--estimator", "grpo"] if "--estimator" not in argv else []
  try:
    status = cli.main(["credit", "log.jsonl", *given, *estimator, *argv])
  except SystemExit as stop:
    status = stop.code
  errors = capsys.readouterr().err
  assert status == 2 and not left()
  assert message in errors and "Traceback" not in errors


def test_an_output_must_be_named(crbc):
  write(pathlib.Path("log.jsonl"), house())
  status, _, errors = crbc("log.jsonl", out=None)
  assert status == 2 and "say where the credit goes: --out" in errors


def test_help_shows_examples_and_exit_statuses(capsys):
  with pytest.raises(SystemExit):
    cli.main(["credit", "--help"])
  shown = capsys.readouterr().out
  for part in ("crbc credit rollouts.jsonl --out", "exit status:", "130"):
    assert part in shown
