"""`crbc explain` on groups that stand in for a log."""

import argparse
import json
import types

import pytest

from crbc_jax import RolloutError, StepTable
from crbc_jax.commands import explain


def group(name, ends=("success", "failure")):
  table = StepTable.from_columns(
    group_id=[name] * 4,
    traj_id=[f"{name}-a"] * 2 + [f"{name}-b"] * 2,
    step_idx=[0, 1, 0, 1],
    state_key=["hall", "end", "hall", "pit"],
    action_key=["north", "stop", "south", "stop"],
    boundary=["none", ends[0], "none", ends[1]],
  )
  return types.SimpleNamespace(table=table, state_text=None, action_text=None)


@pytest.fixture
def run(monkeypatch):
  """Runs the command on a log of the groups t1 and t2, or those given."""

  def call(*argv, groups=("t1", "t2")):
    monkeypatch.setattr(
      explain, "open_groups", lambda args: iter(map(group, groups))
    )
    parser = argparse.ArgumentParser()
    explain.add_arguments(parser)
    return explain.run(parser.parse_args(["log.jsonl", *argv]))

  return call


def test_group_in_lines(run, capsys):
  assert run("--group", "t2") == 0
  shown = capsys.readouterr().out
  assert "Group t2: 1 of 2 rollouts succeeded" in shown
  assert "t2-a" in shown and "t1-a" not in shown


def test_the_only_group_needs_no_name(run, capsys):
  assert run("--traj", "t1-b", groups=["t1"]) == 0
  assert "trajectory t1-b: failure" in capsys.readouterr().out


def test_one_step_as_json(run, capsys):
  run(
    *("--group", "t1", "--traj", "t1-a", "--step", "0", "--json"),
    *("--estimators", "crbc(beta=1.0, depth=2),grpo"),
  )
  found = json.loads(capsys.readouterr().out)
  (step,) = found["steps"]
  assert found["estimators"] == ["crbc(beta=1.0, depth=2)", "grpo"]
  assert (step["v"], step["q"]) == (0.5, 1.0)
  assert {c["action"]: c["q"] for c in step["choices"]} == {
    "north": 1.0,
    "south": 0.0,
  }


def test_text_of_one_step(run, capsys):
  run("--group", "t1", "--traj", "t1-a", "--step", "1")
  assert "state: end" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--group", "t9"], "no group 't9'; it has: t1, t2"),
    ([], "choose a group with --group; the log has: t1, t2"),
    (["--group", "t1", "--traj", "x"], "no trajectory 'x'; it has: t1-a, t1-b"),
    (["--group", "t1", "--step", "0"], "--step needs --traj"),
    (
      ["--group", "t1", "--traj", "t1-a", "--step", "7"],
      "has no step 7; its steps are 0 to 1",
    ),
  ],
)
def test_what_is_not_there_is_named(run, argv, message):
  with pytest.raises(RolloutError, match=message):
    run(*argv)


def test_many_groups_are_not_all_listed(run):
  with pytest.raises(RolloutError, match=r"t0, .*, t9 and 5 more$"):
    run("--group", "x", groups=[f"t{i}" for i in range(15)])
