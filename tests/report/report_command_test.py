import argparse
import json
import sys
import types

import pytest

from crbc_jax import RolloutError
from crbc_jax.commands import report
from crbc_jax.learner import loop, task
from crbc_jax.report import run_data
from crbc_jax.report.report_data import ReportGroup
from tests import tiny_runs
from tests.report import logs
from tests.report.html_test import Page
from tests.tiny_runs import compiled_programs  # noqa: F401


@pytest.fixture
def run(monkeypatch, capsys):
  """Runs the command on a log of three groups; returns what it printed."""
  parser = argparse.ArgumentParser()
  parser.add_argument("logs", nargs="+")
  report.add_arguments(parser)

  def open_groups(args):
    assert [str(log) for log in args.logs] == ["some.jsonl"]
    for seed in range(3):
      yield ReportGroup(logs.walk(seed, f"task {seed}"))

  fake = types.SimpleNamespace(open_groups=open_groups)
  monkeypatch.setitem(sys.modules, "crbc_jax.commands.groups", fake)
  monkeypatch.setattr("crbc_jax.commands.groups", fake, raising=False)

  def call(*arguments):
    assert report.run(parser.parse_args(list(map(str, arguments)))) == 0
    return capsys.readouterr().out

  return call


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run")
  config = tiny_runs.make_config(folder)
  loop.start_run(config, folder / "run")
  return folder / "run"


def page_of(path):
  return Page(path.read_text(encoding="utf-8"))


def test_report_of_a_log(run, tmp_path):
  out = tmp_path / "a report.html"
  printed = run("some.jsonl", "--out", out)
  assert "3 groups, 18 rollouts" in printed and str(out) in printed
  overview = page_of(out).overview
  assert overview["title"] == "Step credit of some.jsonl"
  assert overview["notes"] == [] and overview["curves"] == []
  names = [view["name"] for view in overview["views"]]
  assert names == ["crbc", "gigpo", "graphgpo", "grpo"]


def test_options(run, tmp_path):
  out = tmp_path / "report.html"
  printed = run(
    "some.jsonl",
    *("--out", out, "--groups", 2, "--title", "Mine", "--json"),
    *("--estimators", "crbc(depth=2, w_step=1.0), rloo"),
  )
  found = json.loads(printed)
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


def test_refusals(run, tmp_path, finished_run):
  out = ("--out", tmp_path / "report.html")
  with pytest.raises(RolloutError, match="at least 1"):
    run("some.jsonl", "--groups", 0, *out)
  with pytest.raises(RolloutError, match="cannot share a report"):
    run("some.jsonl", finished_run, *out)
  with pytest.raises(ValueError, match="unknown estimator 'crcb'"):
    run("some.jsonl", "--estimators", "crcb", *out)
  assert not list(tmp_path.iterdir())


@pytest.mark.training
def test_report_of_a_run(run, tmp_path, finished_run):
  out = tmp_path / "report.html"
  run(finished_run, "--out", out)
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
