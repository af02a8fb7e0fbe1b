"""The readers on the public logs themselves."""

import collections
import json
import shutil

import pytest

from crbc_jax.rollouts import keys, keys_game24
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary
from tests.rollouts.readers.reading import module, read_file

pytestmark = pytest.mark.real_data

NONE, SUCCESS, FAILURE, TRUNCATED = Boundary


def counts(rows):
  """Groups, rollouts, and how they ended."""
  ends = collections.Counter(r.boundary for r in rows if r.boundary)
  groups, rollouts = (
    len({getattr(r, name) for r in rows}) for name in ("group_id", "traj_id")
  )
  assert ends.total() == rollouts
  return groups, rollouts, dict(ends)


def recognised(name, path):
  return module(name).recognises(Source(str(path)).head())


def test_game24(real_data):
  (path,) = (real_data / "game24").glob("*.json")
  assert recognised("game24", path)
  rows, rejected = read_file("game24", path)
  assert counts(rows) == (100, 4445, {SUCCESS: 393, FAILURE: 4052})
  assert len(rejected) == 10_000 - 4445
  puzzles = (real_data / "game24" / "24.csv").read_text().splitlines()[1:]
  for row in rows:
    if row.step_idx == 0:
      numbers = puzzles[row.group_id].split(",")[1]
      assert keys_game24.parse_numbers(numbers) == (
        keys_game24.parse_numbers(row.state)
      )
  # The label checks the answer's formula, so the last number may disagree.
  disagree = sum(
    (r.next_state == "24") != (r.boundary == SUCCESS)
    for r in rows
    if r.boundary
  )
  assert disagree == 92


def test_tau_bench(real_data):
  (path,) = (real_data / "tau_bench").glob("*.json")
  assert recognised("tau_bench", path)
  rows, rejected = read_file("tau_bench", path)
  assert not rejected
  assert counts(rows) == (10, 40, {SUCCESS: 12, FAILURE: 27, TRUNCATED: 1})
  calls = keys.action_key("tool_call")(rows)
  assert sum(call != "<message>" for call in calls) == 267


def test_intercode(real_data):
  rows = []
  for path in sorted((real_data / "intercode_bash").glob("*.json")):
    assert recognised("intercode", path)
    found, rejected = read_file("intercode", path)
    assert not rejected and counts(found)[:2] == (27, 27)
    rows += found
  assert counts(rows) == (27, 189, {SUCCESS: 68, FAILURE: 38, TRUNCATED: 83})


def test_swe_agent(real_data, tmp_path):
  paths = sorted((real_data / "swe_agent").glob("*.traj"))
  rows, rejected = read_file("swe_agent", paths[0])
  assert not rows and "results.json" in rejected[0].reason
  assert rejected[0].rows == 11
  labels = {"marshmallow-code__marshmallow-1867": True}
  (tmp_path / "results.json").write_text(json.dumps(labels))
  runs = []
  for path in paths:
    assert recognised("swe_agent", path)
    found, rejected = read_file("swe_agent", shutil.copy(path, tmp_path))
    assert not rejected
    runs.append(found)
  assert counts([*runs[0], *runs[1]]) == (
    1,
    2,
    {SUCCESS: 2},
  )
  # The two runs differ in line ends only; signatures do not see them.
  one, two = (keys.action_key("swe_signature")(run) for run in runs)
  assert one == two and one[6].endswith("@src/marshmallow/fields.py:error")
  assert keys.state_key("swe_signature")(runs[0])[-1] == (
    ".:{S} reproduce.py:{C,M:4172} src/marshmallow/fields.py:{M:04e4,V[14]} "
    "src:{S}"
  )


def test_mini_swe_agent(real_data, tmp_path):
  (path,) = (real_data / "mini_swe_agent").glob("*.json")
  assert recognised("mini_swe_agent", path)
  (tmp_path / "results.json").write_text('{"github_issue": false}')
  rows, rejected = read_file("mini_swe_agent", shutil.copy(path, tmp_path))
  assert not rejected and counts(rows) == (1, 1, {FAILURE: 1})
  assert len(rows) == 10 and all(row.valid for row in rows)
  actions = keys.action_key("swe_signature")(rows)
  assert actions[3] == "view:full@tests/missing_colon.py"
  assert actions[6:8] == [
    "execute@tests/missing_colon.py:ok",
    "execute:09ab@python3:error",
  ]


def test_the_webshop_dump_is_refused(real_data):
  (path,) = (real_data / "verl_agent_webshop").glob("*.json")
  assert recognised("verl_agent", path)
  rows, rejected = read_file("verl_agent", path)
  assert not rows and len(rejected) == 32
  assert all("has no task id" in r.reason for r in rejected)
  assert "reward stands on row 4 of 7" in rejected[17].reason
