"""`crbc credit`: what it writes, from where, and after an interruption."""

import gzip
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import crbc_jax
from crbc_jax import credit_table
from crbc_jax.rollouts.readers.source import zstd
from tests.commands.credit_command import left, lines
from tests.rollouts.logs import everywhere, house, step, table, text, write

pytest.importorskip("pyarrow")


# -- what it writes ----------------------------------------------------------


def test_the_numbers_are_those_of_credit_table(crbc):
  write(pathlib.Path("log.jsonl"), house())
  status, shown, errors = crbc("log.jsonl")
  assert (status, errors, left()) == (0, "", {"out.jsonl"})
  assert "6 read = 6 credited + 0 rejected" in shown
  expected = credit_table(table(house()), "grpo").advantage.tolist()
  found = [np.float32(row["advantage"]).tolist() for row in lines()]
  assert found == expected and any(found)


def test_the_same_numbers_from_any_order_files_and_compression(crbc):
  rows = house()
  write(pathlib.Path("log.jsonl"), rows)
  crbc("log.jsonl")
  key = lambda row: (row["traj_id"], row["step_idx"])  # noqa: E731
  expected = sorted(lines(), key=key)
  write(pathlib.Path("log1.gz"), gzip.compress(text(rows[4::-2]).encode()))
  write(pathlib.Path("log2.zst"), zstd.compress(text(rows[1::2]).encode()))
  assert crbc("log2.zst", "log1.gz")[0] == 0
  assert sorted(lines(), key=key) == expected
  assert [row["traj_id"] for row in lines()] == ["a", "b", "d", "c", "b", "a"]


def test_a_key_that_hides_state_is_warned_of(crbc):
  ways = [("a", "success"), ("b", "failure")] * 3
  rows = [
    step(f"g{g}", f"{g}-{i}", t, state, "go", end)
    for g in range(8)
    for i, (way, last) in enumerate(ways)
    for t, (state, end) in enumerate([(way, "none"), ("door", last)])
  ]
  write(pathlib.Path("log.jsonl"), rows)
  status, shown, errors = crbc("log.jsonl", "--json", estimator="crbc")
  found = json.loads(shown)
  assert status == 0 and found["hidden_state_p"] < 1e-3
  assert " ".join(errors.split()) == f"warning: {found['warning']}"
  assert "'door' of group g0" in errors and "crbc_anchored" in errors
  assert crbc("log.jsonl", estimator="crbc_anchored")[2] == ""


def test_a_summary_as_json(crbc):
  copies = [row | {"weight": 0} for row in house()[:2]]
  write(pathlib.Path("log.jsonl"), [*house(), *copies])
  status, shown, _ = crbc("log.jsonl", "--json", estimator="grpo,gigpo")
  found = json.loads(shown)
  assert status == 0
  assert found | {"seconds": 0} == {
    "logs": ["log.jsonl"],
    "read": 8,
    "credited": 8,
    "rejected": 0,
    "copies": 2,
    "groups": 2,
    "rollouts": 4,
    "mixed_share": 1.0,
    "singleton_share": 2 / 6,
    "live_share": found["live_share"],
    "hidden_state_p": 1.0,
    "warning": None,
    "estimators": ["grpo", "gigpo"],
    "state_key": "verbatim",
    "action_key": "verbatim",
    "out": ["out.jsonl"],
    "rejected_rows": None,
    "seconds": 0,
  }
  assert set(found["live_share"]) == {"grpo", "gigpo"}
  assert {"grpo.advantage", "gigpo.advantage"} <= set(lines()[0])


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_tokens_are_written_with_the_steps(suffix, crbc):
  rows = everywhere(token_start=lambda i: 5 * i, token_end=lambda i: 5 * i + 2)
  write(pathlib.Path("log.jsonl"), rows)
  out = f"out{suffix}"
  status, shown, _ = crbc("log.jsonl", "--json", out=out)
  paths = [out] if suffix == ".npz" else [out, f"out.tokens{suffix}"]
  assert (status, json.loads(shown)["out"]) == (0, paths)
  assert left() == set(paths)


def test_standard_input_and_output(crbc, monkeypatch):
  stdin = types.SimpleNamespace(
    buffer=io.BufferedReader(io.BytesIO(gzip.compress(text(house()).encode())))
  )
  monkeypatch.setattr(sys, "stdin", stdin)
  status, shown, errors = crbc("-", out="-")
  assert status == 0 and not left()
  assert "6 read = 6 credited" in errors  # not among the lines
  write(pathlib.Path("log.jsonl"), house())
  crbc("log.jsonl")
  assert shown == pathlib.Path("out.jsonl").read_text()


def test_a_pipe_that_has_a_name(crbc):
  os.mkfifo("log.pipe")
  content = text(house())
  feed = threading.Thread(
    target=pathlib.Path("log.pipe").write_text, args=(content,)
  )
  feed.start()
  assert crbc("log.pipe")[0] == 0
  feed.join()
  assert len(lines()) == 6


def test_keys_by_name_and_a_report_on_them(crbc):
  write(pathlib.Path("log.jsonl"), house())
  argv = ("--state-key", "window(n=1)", "--json")
  found = json.loads(crbc("log.jsonl", *argv)[1])
  assert found["state_key"] == "window(n=1)"
  status, shown, _ = crbc("log.jsonl", "--keys-report", *argv, out=None)
  reports = json.loads(shown)
  assert status == 0
  assert reports[0]["state_key"] == "window(n=1)"
  assert {report["steps"] for report in reports} == {6}


# -- a run that is killed ----------------------------------------------------

_KILLER = """
import os, signal
from crbc_jax.credit import log_credit
from crbc_jax.rollouts import keys

log_credit.CHUNK_ROWS = 1  # every group is a step of its own

def state(rows):
  with open("seen", "a") as file:
    print(rows[0].traj_id, file=file)
  if rows[0].traj_id == os.environ.get("KILL_AT"):
    os.kill(os.getpid(), signal.SIGKILL)
  return keys.verbatim(rows)
"""


def killed(*argv, at=None):
  """Runs the command in a process that kills itself at a trajectory."""
  source = pathlib.Path(crbc_jax.__file__).parents[1]
  more = {"KILL_AT": at} if at else {}
  argv = ["credit", "log.jsonl", "--estimator", "grpo", *argv]
  return subprocess.run(
    [sys.executable, "-m", "crbc_jax", *argv, "--state-key", "killer:state"],
    env=os.environ | {"PYTHONPATH": f"{source}:."} | more,
    capture_output=True,
    text=True,
    timeout=300,
  )


def seen():
  return pathlib.Path("seen").read_text().split()


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(crbc):
  rows = [
    row
    | {"group_id": f"{g}{row['group_id']}", "traj_id": f"{g}{row['traj_id']}"}
    for g in range(2)
    for row in house()
  ]
  write(pathlib.Path("log.jsonl"), rows[::-1])
  pathlib.Path("killer.py").write_text(_KILLER)
  crbc("log.jsonl", out="whole.jsonl")
  done = killed("--out", "out.jsonl", at="1b")
  assert done.returncode == -signal.SIGKILL
  assert ".out.jsonl.work" in left() and "out.jsonl" not in left()
  assert seen() == ["0a", "0b", "0c", "0d", "1a", "1b"]

  again = ("--out", "out.jsonl", "--resume")
  write(pathlib.Path("log.jsonl"), rows)  # other bytes, and another time
  done = killed(*again)
  assert done.returncode == 2
  assert re.search("logs have changed since: run without --resume", done.stderr)

  write(pathlib.Path("log.jsonl"), rows[::-1])
  assert killed("--out", "out.jsonl", at="1b").returncode < 0
  os.remove("seen")
  done = killed(*again)
  assert done.returncode == 0, done.stderr
  assert seen() == ["1a", "1b", "1c", "1d"]  # the groups that were not done
  whole = pathlib.Path("whole.jsonl").read_bytes()
  assert pathlib.Path("out.jsonl").read_bytes() == whole
  assert ".out.jsonl.work" not in left()
