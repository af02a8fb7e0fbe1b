"""`crbc bench`: what it runs, skips and tells, with stubs for experiments."""

import json
import os
import pathlib
import subprocess
import textwrap
import time

import pytest

from crbc_jax import cli
from crbc_jax.commands import bench_runs
from crbc_jax.commands.bench_runs import Bench, Data

STUB = """\
import argparse, json, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--results", type=pathlib.Path)
parser.add_argument("--out", default="")
parser.add_argument("--data", default="")
parser.add_argument("--value", type=float, default=0.5)
args = parser.parse_args()
with open("calls.txt", "a") as file:
  file.write(" ".join(sys.argv[1:]) + "\\n")
print("a line\\nthe last line")
if pathlib.Path("broken").exists():
  sys.exit("no such luck")
if not pathlib.Path("silent").exists():
  args.results.mkdir(parents=True, exist_ok=True)
  row = {"label": "ours", "area": [args.value, 0.1, 0.9]}
  (args.results / "good.json").write_text(json.dumps({"rows": [row]}))
"""
TABLE = """\
from crbc_jax.commands.bench_runs import Bench, Data
BENCHES = {
  "good": Bench(
    "experiments.stub", "Results", ("good.json",), ("rows/*/area",),
    full=("--value", "0.7"), trains=True, minutes=(60, 1),
    data=(Data("extra.json", "--data", required=False),),
  ),
  "needs": Bench(
    "experiments.stub", "Results", ("good.json",),
    data=(Data("big.json", "--data"),),
  ),
  "bad": Bench("experiments.fails", "Results", ("bad.json",)),
}
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
  """A folder with three benches: one works, one lacks data, one fails."""
  folder = tmp_path / "experiments"
  folder.mkdir()
  (folder / "__init__.py").touch()
  (folder / "stub.py").write_text(STUB)
  (folder / "fails.py").write_text(
    "print('so far')\nraise SystemExit('why not')"
  )
  (folder / "benches.py").write_text(TABLE)
  (tmp_path / "data").mkdir()
  monkeypatch.setenv("CRBC_REAL_DATA", "data")
  monkeypatch.setenv("COLUMNS", "200")
  # Where `python -m` would look first in a process started elsewhere.
  monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
  root = str(pathlib.Path(cli.__file__).parents[1])
  monkeypatch.setenv("PYTHONPATH", root)
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.fixture
def crbc(capsys, checkout):
  def run(*arguments):
    status = cli.main(["bench", *arguments])
    return status, *capsys.readouterr()

  return run


def calls():
  path = pathlib.Path("calls.txt")
  return path.read_text().splitlines() if path.exists() else []


def commit(value, low=0.4, high=0.6):
  pathlib.Path("results").mkdir(exist_ok=True)
  row = {"label": "ours", "area": [value, low, high]}
  pathlib.Path("results/good.json").write_text(json.dumps({"rows": [row]}))


def test_quick_goes_into_a_folder_of_its_own(crbc):
  commit(0.55)
  before = pathlib.Path("results/good.json").read_text()
  status, printed, _ = crbc("good", "--quick")
  assert status == 0
  assert calls() == ["--quick --results results/quick --out runs/quick/good"]
  assert pathlib.Path("results/good.json").read_text() == before
  assert "[1/1] good: without data/extra.json" in printed
  assert "0.55 [0.4, 0.6]" in printed and "-0.05" in printed
  assert "1 of 1 values inside the committed interval" in printed
  changes = pathlib.Path("results/quick/changes/good.md").read_text()
  assert "| rows, ours, area | 0.55 [0.4, 0.6] | 0.5 [0.1, 0.9] |" in changes
  log = pathlib.Path("results/quick/logs/good.txt").read_text()
  assert log == "a line\nthe last line\n"


def test_full_compares_with_what_was_there_before(crbc):
  commit(0.55)
  status, printed, _ = crbc("good")
  assert status == 0 and calls() == ["--value 0.7 --results results"]
  assert "0.55 [0.4, 0.6]" in printed and "+0.15" in printed and "NO" in printed


def test_nothing_committed_yet(crbc):
  status, printed, _ = crbc("good", "--quick", "--out", "elsewhere")
  assert status == 0 and "no committed good.json" in printed
  assert pathlib.Path("elsewhere/good.json").exists()


def test_optional_data_is_named_where_it_is_there(crbc):
  pathlib.Path("data/extra.json").touch()
  assert crbc("good", "--quick")[0] == 0
  assert "--data data/extra.json" in calls()[0]


def test_what_fails_is_told_and_the_others_run(crbc):
  pathlib.Path("data/big.json").touch()
  status, printed, _ = crbc("all", "--quick", "--skip", "needs")
  assert status == 1 and len(calls()) == 1
  assert "[2/2] bad: FAILED" in printed and "exit status 1" in printed
  assert "so far\nwhy not" in printed
  assert "1 done, 1 failed (bad), 0 skipped" in printed


def test_absent_data_is_no_failure(crbc):
  status, printed, _ = crbc("needs", "good", "--quick")
  assert status == 0 and len(calls()) == 1
  assert "[2/2] needs: skipped, needs data/big.json" in printed
  assert "1 done, 0 failed, 1 skipped (needs)" in printed


def test_a_result_that_is_not_there_is_a_failure(crbc):
  pathlib.Path("silent").touch()
  status, printed, _ = crbc("good", "--quick")
  assert status == 1 and "did not write good.json" in printed


def test_what_is_finished_is_not_repeated(crbc):
  for _ in range(2):
    status, printed, _ = crbc("good", "--quick")
  assert status == 0 and "finished before" in printed and len(calls()) == 1
  assert crbc("good", "--quick", "--again")[0] == 0 and len(calls()) == 2
  os.remove("results/quick/good.json")
  assert crbc("good", "--quick")[0] == 0 and len(calls()) == 3
  pathlib.Path("data/extra.json").touch()  # another command
  assert crbc("good", "--quick")[0] == 0 and len(calls()) == 4
  (entry,) = json.loads(
    pathlib.Path("results/quick/bench_times.json").read_text()
  ).values()
  assert entry["seconds"] > 0 and entry["cpu_seconds"] > 0


def test_what_failed_is_repeated(crbc):
  pathlib.Path("broken").touch()
  assert crbc("good", "--quick")[0] == 1
  os.remove("broken")
  assert crbc("good", "--quick")[0] == 0 and len(calls()) == 2


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    ((), "say which"),
    (("god",), "unknown bench 'god' (did you mean 'good'?)"),
    (("all", "--skip", "x"), "unknown bench 'x'"),
    (("all", "--quick", "--out", "results"), "would overwrite"),
    (("all", "--quick", "--out", "results/quick/.."), "would overwrite"),
  ],
)
def test_bad_usage(crbc, arguments, words):
  status, _, errors = crbc(*arguments)
  assert status == 2 and words in errors and not calls()


def test_outside_of_a_checkout(crbc, tmp_path, monkeypatch):
  (tmp_path / "empty").mkdir()
  monkeypatch.chdir(tmp_path / "empty")
  status, _, errors = crbc("all")
  assert status == 2 and "run this in a checkout" in errors


def test_list_runs_nothing(crbc):
  status, printed, _ = crbc("--list")
  assert status == 0 and not calls()
  assert "big.json: MISSING" in printed
  assert "extra.json (optional): MISSING" in printed
  assert "together 60 minutes, quick 1" in printed


def test_the_last_commit_counts_where_there_is_git(checkout):
  commit(0.5)
  git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", "."]
  try:
    subprocess.run([*git, "init", "-q"], check=True)
  except OSError:
    pytest.skip("no git")
  subprocess.run([*git, "add", "results"], check=True)
  subprocess.run([*git, "commit", "-qm", "x"], check=True)
  commit(0.9)
  path = pathlib.Path("results/good.json")
  found = json.loads(bench_runs.committed(path))
  assert found["rows"][0]["area"][0] == 0.5
  assert bench_runs.committed(pathlib.Path("results/none.json")) is None


def test_an_interrupted_experiment_is_stopped(checkout):
  script = textwrap.dedent("""
    import pathlib, signal, time
    try:
      pathlib.Path("began").touch()
      time.sleep(60)
    except KeyboardInterrupt:
      pathlib.Path("stopped").touch()
  """)

  def interrupt(_):
    if pathlib.Path("began").exists():
      raise KeyboardInterrupt

  began = time.monotonic()
  with pytest.raises(KeyboardInterrupt):
    bench_runs.run_process(
      ["-c", script], pathlib.Path("log.txt"), wait=interrupt
    )
  assert pathlib.Path("stopped").exists() and time.monotonic() - began < 60


def test_commands():
  made = Bench(
    "experiments.x",
    "Results",
    ("x.json",),
    arguments=("--task", "a"),
    data=(Data("there", "--one"), Data("gone", "--two"), Data("there")),
  )
  words = bench_runs.command_of(
    "x",
    made,
    quick=True,
    results=pathlib.Path("r"),
    data=pathlib.Path(__file__).parent,
  )
  assert words == [
    *("-m", "experiments.x", "--task", "a", "--quick", "--results", "r")
  ]
  assert len(bench_runs.missing(made, pathlib.Path(__file__).parent)) == 3
  assert bench_runs.data_folder({}) == pathlib.Path("../shared/data")
  assert bench_runs.data_folder({"CRBC_REAL_DATA": "x"}) == pathlib.Path("x")
