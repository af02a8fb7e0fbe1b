import json

import pytest

from crbc_jax import cli
from crbc_jax.learner import loop, task
from crbc_jax.report import run_data
from tests import tiny_runs
from tests.report import logs
from tests.report.html_test import Page
from tests.tiny_runs import compiled_programs  # noqa: F401


@pytest.fixture
def log(tmp_path):
  path = tmp_path / "some.jsonl"
  rows = [
    row for seed in range(3) for row in logs.walk_rows(seed, f"task {seed}")
  ]
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  return path


@pytest.fixture
def run(capsys):
  """Runs `crbc report`; returns (status, standard output, errors)."""

  def call(*arguments):
    status = cli.main(["report", *map(str, arguments)])
    return status, *capsys.readouterr()

  return call


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run")
  config = tiny_runs.make_config(folder)
  loop.start_run(config, folder / "run")
  return folder / "run"


def page_of(path):
  return Page(path.read_text(encoding="utf-8"))


def test_report_of_a_log(run, log, tmp_path):
  out = tmp_path / "a report.html"
  status, printed, _ = run(log, "--out", out)
  assert status == 0
  assert "3 groups, 18 rollouts" in printed and str(out) in printed
  page = page_of(out)
  assert page.overview["title"] == "Step credit of some.jsonl"
  assert page.overview["notes"] == [] and page.overview["curves"] == []
  names = [view["name"] for view in page.overview["views"]]
  assert names == ["crbc", "gigpo", "graphgpo", "grpo"]
  assert page.groups[0]["states"][0] == "room 0"


def test_options(run, log, tmp_path):
  out = tmp_path / "report.html"
  status, printed, _ = run(
    log,
    *("--out", out, "--groups", 2, "--title", "Mine", "--json"),
    *("--estimators", "crbc(depth=2, w_step=1.0), rloo"),
  )
  found = json.loads(printed)
  assert status == 0
  assert found["groups"] == 2 and found["out"] == str(out)
  assert found["bytes"] == out.stat().st_size
  overview = page_of(out).overview
  assert overview["title"] == "Mine"
  assert [g["id"] for g in overview["groups"]] == ["task 0", "task 1"]
  assert overview["notes"] == [
    "The first 2 groups are shown; more with --groups."
  ]
  names = [view["name"] for view in overview["views"]]
  assert names == ["crbc(depth=2, w_step=1.0)", "rloo"]


@pytest.mark.parametrize(
  "options, reason",
  [
    (("--groups", 0), "at least 1"),
    (
      ("--estimators", "crcb"),
      "unknown estimator 'crcb' (did you mean 'crbc'?)",
    ),
    (("--estimators", "gae"), "needs a critic"),
  ],
)
def test_refusals(run, log, tmp_path, options, reason):
  out = tmp_path / "report.html"
  status, printed, errors = run(log, "--out", out, *options)
  assert status == 2 and printed == "" and not out.exists()
  assert errors.startswith("crbc report: ") and reason in errors
  assert errors.count("\n") == 1


def test_a_log_and_a_run_are_refused(run, log, tmp_path, finished_run):
  out = tmp_path / "report.html"
  status, _, errors = run(log, finished_run, "--out", out)
  assert status == 2 and "cannot share a report" in errors
  assert not out.exists()


@pytest.mark.training
def test_report_of_a_run(run, tmp_path, finished_run):
  out = tmp_path / "report.html"
  assert run(finished_run, "--out", out)[0] == 0
  page = page_of(out)
  current = task.make_task(loop.read_config(finished_run))
  shown = min(run_data.LEVELS, len(current.panel))
  ids = [group["id"] for group in page.overview["groups"]]
  assert ids == list(current.panel.ids[:shown])
  for i, group in enumerate(page.groups):
    assert group["states"][group["state"][0]] == current.panel.text(i)
    assert len(group["trajs"]) == 4
    assert set(group["actions"]) <= {"up", "down", "left", "right"}
  (curve,) = page.overview["curves"]
  assert curve["name"] == str(finished_run)
  assert curve["points"][0]["env_steps"] == 0
  (note,) = page.overview["notes"]
  assert "crbc, seed 0" in note


@pytest.mark.training
def test_boards_are_the_states_that_were_seen(finished_run):
  """A move leads from one board to the next: the player is where it says."""
  found = run_data.read_run(finished_run)
  move = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
  moved = 0
  for table, boards, actions in found.groups:
    for i in range(len(table) - 1):
      if table.traj_id[i] != table.traj_id[i + 1]:
        continue
      before, after = (player(board) for board in boards[i : i + 2])
      down, right = move[actions[i]]
      if boards[i] == boards[i + 1]:
        assert table.state_key[i] == table.state_key[i + 1]
      else:
        assert after == (before[0] + down, before[1] + right)
        moved += 1
  assert moved > 20


def player(board):
  for row, line in enumerate(board.split("\n")):
    for column, cell in enumerate(line):
      if cell in "@+":
        return row, column
  raise AssertionError(board)
