"""Every reader on a small log of its format: rows, ends, and refusals."""

import json

import numpy as np
import pytest

from crbc_jax.rollouts.log import LogError, Row
from crbc_jax.rollouts.readers import Format, LogReader, default_keys
from crbc_jax.rollouts.readers.source import Source
from crbc_jax.types import Boundary
from tests.rollouts.readers import samples
from tests.rollouts.readers.reading import module, read_text

NONE, SUCCESS, FAILURE, TRUNCATED = Boundary


def ends(rows):
  return {r.traj_id.split(":")[-1]: r.boundary for r in rows if r.boundary}


@pytest.mark.parametrize("name", samples.TEXTS)
def test_a_format_recognises_itself_and_no_other(name, tmp_path):
  path = tmp_path / "log"
  content = samples.TEXTS[name]()
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  head = Source(str(path)).head()
  assert [n for n in samples.TEXTS if module(n).recognises(head)] == [name]


def test_a_canonical_log_that_quotes_them_is_none_of_them():
  texts = [c for c in (s() for s in samples.TEXTS.values()) if type(c) is str]
  head = json.dumps({"traj_id": "t", "step_idx": 0, "state_key": texts})
  assert not [n for n in samples.TEXTS if module(n).recognises(head)]


def words(source):
  """A format of one's own: "task rollout state action won" in each line."""
  for place, line in source.lines():
    task, rollout, state, action, won = line.split()
    end = SUCCESS if won == "yes" else FAILURE
    yield Row(place, task, rollout, 0, state, action, end)


WORDS = Format("a step in each line", words, lambda head: False)


def test_a_format_of_ones_own_by_import_path(tmp_path):
  path = tmp_path / "log.txt"
  path.write_text("t a hall north yes\nt b hall south no\n")
  own = f"{__name__}:WORDS"
  rows = list(LogReader([str(path)], own))
  assert [row.action for row in rows] == ["north", "south"]
  assert [row.boundary for row in rows] == [SUCCESS, FAILURE]
  assert default_keys([str(path)], own) == ("verbatim", "verbatim")
  with pytest.raises(ValueError, match="Format, got function"):
    LogReader([str(path)], f"{__name__}:words")
  with pytest.raises(ValueError, match="has no 'WORD'"):
    LogReader([str(path)], f"{__name__}:WORD")


# -- Game of 24 --------------------------------------------------------------


def test_game24_keeps_clean_rollouts_and_says_why_not(tmp_path):
  rows, rejected = read_text("game24", tmp_path, samples.game24())
  assert [r.state for r in rows] == [
    "1 2 3 4",
    "2 4 4",
    "4 6",
    "1 2 3 4",
    "3 3 4",
    "4 6",
  ]
  assert [r.action for r in rows][:3] == [
    "1 + 3 = 4",
    "2 + 4 = 6",
    "4 * 6 = 24",
  ]
  assert [r.boundary for r in rows] == [
    NONE,
    NONE,
    SUCCESS,
    NONE,
    NONE,
    FAILURE,
  ]
  assert rows[2].next_state == "24" and rows[2].reward == 1.0
  assert {r.group_id for r in rows} == {7}
  assert [r.reason.split(":")[0] for r in rejected] == [
    "rollout 2 has a wrong sum",
    "rollout 3 leaves [3, 2] numbers after its steps, not 3, 2, 1",
    "rollout 4 has a step that does not follow from the numbers left",
    "rollout 5 has a step that is not 'a op b = c (left",
  ]
  assert [r.rows for r in rejected] == [3, 2, 3, 3]


# -- chats -------------------------------------------------------------------


def test_tau_bench(tmp_path):
  rows, rejected = read_text("tau_bench", tmp_path, samples.tau_bench())
  assert not rejected
  assert ends(rows) == {
    "0": SUCCESS,
    "1": FAILURE,
    "2": TRUNCATED,
    "3": FAILURE,
  }
  first = rows[0]
  assert first.state == "Cancel my flight."
  assert json.loads(first.action) == {
    "name": "get_user",
    "arguments": {"id": "x"},
  }
  assert rows[1].state == "no flights" and rows[1].action == "Done."
  assert rows[1].next_state == "###STOP###" and rows[1].reward == 1.0
  assert {r.group_id for r in rows} == {3}


@pytest.mark.parametrize(
  ("change", "reason"),
  [
    ({"task_id": None}, "has no 'task_id' that is text or a whole number"),
    ({"task_id": 1 << 70}, "beyond 64 bits"),
    ({"reward": 0.5}, "neither 0 nor 1"),
    ({"reward": None}, "'reward' must be a number, got NoneType"),
    ({"traj": []}, "no message of the agent"),
    ({"traj": ["hi"]}, "no object with a role"),
    ({"traj": "hi"}, "'traj' must be a list, got str"),
    ({"task_id": "\ud800"}, "half of a surrogate pair"),
  ],
)
def test_a_malformed_record_is_rejected_and_reading_goes_on(
  change, reason, tmp_path
):
  first, second, *_ = samples.tau_records()
  text = json.dumps([first | change, second, 5])
  rows, rejected = read_text("tau_bench", tmp_path, text)
  assert ends(rows) == {"1": FAILURE}
  assert reason in rejected[0].reason
  assert str(rejected[0].place).endswith("log, record 1")
  assert "'record' must be an object, got int" in rejected[1].reason


def test_intercode(tmp_path):
  rows, rejected = read_text("intercode", tmp_path, samples.intercode())
  assert not rejected
  assert ends(rows) == {
    "0": SUCCESS,
    "1": TRUNCATED,
    "2": FAILURE,
    "3": FAILURE,
  }
  assert [r.state for r in rows[:3]] == ["task 0", "task 1", "out"]
  assert rows[0].next_state == "out" and rows[0].group_id == "fs_4:0"
  blocked = rows[-1]
  assert blocked.action is None and not blocked.valid
  assert blocked.next_state is None


def test_two_intercode_files_are_two_rollouts_of_a_task(tmp_path):
  one, _ = read_text("intercode", tmp_path, samples.intercode(), "one")
  two, _ = read_text("intercode", tmp_path, samples.intercode(), "two")
  assert one[0].group_id == two[0].group_id
  assert one[0].traj_id != two[0].traj_id


def test_intercode_lists_must_be_parallel(tmp_path):
  records = samples.intercode_records()
  records["1"]["turn_history"]["rewards"].pop()
  rows, rejected = read_text("intercode", tmp_path, json.dumps(records))
  assert "1" not in ends(rows) and len(ends(rows)) == 3
  assert "2 actions, 2 observations, 1 rewards" in rejected[0].reason
  assert rejected[0].rows == 2


# -- runs of one issue -------------------------------------------------------


@pytest.mark.parametrize(
  ("name", "content", "file", "issue"),
  [
    ("swe_agent", samples.swe_agent, "x.traj", "org__repo-1"),
    ("mini_swe_agent", samples.mini_swe_agent, "org__repo-1.traj.json", None),
  ],
)
def test_runs_need_a_label_beside_them(name, content, file, issue, tmp_path):
  text, results = content(), tmp_path / "results.json"
  rows, rejected = read_text(name, tmp_path, text, file)
  assert not rows and rejected[0].rows >= 3
  assert "doesn't say whether the run succeeded" in rejected[0].reason
  assert f"{{{file!r} or 'org__repo-1': true or false}}" in rejected[0].reason
  for label, end in ((True, SUCCESS), (False, FAILURE)):
    results.write_text(json.dumps({"org__repo-1": label}))
    rows, rejected = read_text(name, tmp_path, text, file)
    assert not rejected and [r.boundary for r in rows] == [NONE, NONE, end]
  results.write_text(json.dumps({"org__repo-1": False, file: True}))
  rows, _ = read_text(name, tmp_path, text, file)
  assert rows[-1].boundary == SUCCESS, "the file's own name decides"
  assert [r.group_id for r in rows] == ["org__repo-1"] * 3
  assert next(r.state for r in rows) == "It breaks."
  assert [r.action for r in rows][:2] == ["ls", None]
  assert [r.valid for r in rows] == [True, False, True]
  assert rows[-1].next_state == "diff"
  results.write_text(json.dumps({"other": True}))
  rows, rejected = read_text(name, tmp_path, text, file)
  assert not rows and "is not in results.json" in rejected[0].reason
  results.write_text("{")
  rows, rejected = read_text(name, tmp_path, text, file)
  assert not rows and "results.json beside it is not JSON" in rejected[0].reason


def test_a_run_that_did_not_submit_was_cut_short(tmp_path):
  (tmp_path / "results.json").write_text('{"org__repo-1": false}')
  record = json.loads(samples.swe_agent())
  record["info"]["exit_status"] = "exit_cost"
  rows, _ = read_text("swe_agent", tmp_path, json.dumps(record))
  assert rows[-1].boundary == TRUNCATED
  run = {
    "messages": [
      {"role": "user", "content": "It breaks."},
      {"role": "assistant", "extra": {"actions": [{"command": "ls"}]}},
      {"role": "exit", "content": "limit"},
    ],
    "info": {"exit_status": "LimitsExceeded"},
    "instance_id": "org__repo-1",
    "trajectory_format": "mini-swe-agent-1.1",
  }
  rows, _ = read_text("mini_swe_agent", tmp_path, json.dumps(run))
  assert [(r.action, r.boundary) for r in rows] == [("ls", TRUNCATED)]


# -- traces ------------------------------------------------------------------


def test_verifiers(tmp_path):
  rows, rejected = read_text("verifiers", tmp_path, samples.verifiers())
  assert not rejected
  assert ends(rows) == {"t0": SUCCESS, "t1": FAILURE}
  assert [r.state for r in rows[:2]] == ["What is 2 + 2?", "4"]
  assert json.loads(rows[0].action) == {"name": "add", "arguments": {"a": 2}}
  assert [(r.token_start, r.token_end) for r in rows[:2]] == [(7, 9), (14, 15)]
  assert {r.group_id for r in rows} == {"sum-1"}


@pytest.mark.parametrize(
  ("changes", "reason"),
  [
    ({"score": None}, "was not scored: its reward 'correct' is null"),
    ({"score": 0.5}, "neither 0 nor 1"),
    ({"task": {}}, "has no 'hash'"),
    ({"errors": [{"type": "x"}]}, "stopped at an error"),
    ({"nodes": []}, "no sampled node"),
    ({"nodes": [{"parent": 3, "message": {}}]}, "branches at node 0"),
  ],
)
def test_traces_that_say_too_little(changes, reason, tmp_path):
  text = json.dumps(samples.trace(**changes))
  rows, rejected = read_text("verifiers", tmp_path, text + "\n{")
  assert not rows
  assert reason in rejected[0].reason and "is not JSON" in rejected[1].reason


def test_a_label_beats_the_reward_and_a_limit_truncates(tmp_path):
  kwargs = {"score": 0.5, "stop_condition": "max_turns"}
  for metrics, end in (({"solved": 1.0}, SUCCESS), ({"solved": 0}, TRUNCATED)):
    text = json.dumps(samples.trace(metrics=metrics, **kwargs))
    rows, _ = read_text("verifiers", tmp_path, text)
    assert rows[-1].boundary == end and rows[-1].reward == 0.5


# -- columns -----------------------------------------------------------------


def test_roll(tmp_path):
  rows, rejected = read_text("roll", tmp_path, samples.roll())
  assert not rejected
  assert [(r.traj_id, r.step_idx, r.boundary) for r in rows] == [
    ("a", 1, SUCCESS),
    ("a", 0, NONE),
    ("b", 0, FAILURE),
  ]
  assert rows[1].state == "hall" and rows[1].action == "north"


def test_roll_refuses_turn_numbers_as_states(tmp_path):
  rows = [r | {"state_hash": f"step_{r['step']}"} for r in samples.roll_rows()]
  found, rejected = read_text(
    "roll", tmp_path, "\n".join(map(json.dumps, rows))
  )
  assert not found and rejected[0].rows == 3
  assert "turn's number as state_hash on every row" in rejected[0].reason
  rows[0]["state_hash"] = "library"
  assert read_text("roll", tmp_path, "\n".join(map(json.dumps, rows)))[0]


@pytest.mark.parametrize("bad", ['{"traj_id": "a", ', '{"step": 2}'])
def test_roll_with_a_row_of_nobody_has_no_known_ends(bad, tmp_path):
  found, rejected = read_text("roll", tmp_path, f"{samples.roll()}\n{bad}")
  assert not found and [item.rows for item in rejected] == [1, 3]
  assert "does not mark the last step" in rejected[1].reason


def test_roll_needs_actions(tmp_path):
  row = samples.roll_rows()[0]
  del row["action"]
  _, rejected = read_text("roll", tmp_path, json.dumps(row))
  assert "has no field 'action'" in rejected[0].reason


def test_verl_agent(tmp_path):
  rows, rejected = read_text("verl_agent", tmp_path, samples.verl_agent())
  assert not rejected
  assert [r.weight for r in rows] == [1, 0, 1, 1]
  assert [r.boundary for r in rows] == [NONE, NONE, FAILURE, SUCCESS]
  assert [r.state for r in rows] == ["hall", "hall", "hall", "library"]
  assert [r.reward for r in rows] == [0, 0, 0, 10]
  assert str(rows[0].place).endswith("log, row 1")


def test_verl_agent_options(tmp_path):
  columns = samples.verl_columns() | {
    "active_masks": np.array([True, True, True, False]),
    "truncated": np.array([False, False, True, False]),
    "next_obs": np.array(["a", "a", "b", "c"]),
    "anchor_obs": np.arange(16.0).reshape(4, 2, 2) // 8,  # images
  }
  rows, _ = read_text("verl_agent", tmp_path, samples.npz(columns))
  assert [r.weight for r in rows] == [1, 0, 1, 0]
  assert [r.boundary for r in rows][:3] == [SUCCESS, SUCCESS, TRUNCATED]
  assert [r.next_state for r in rows] == ["a", "a", "b", "c"]
  assert rows[0].state == rows[1].state != rows[2].state


def test_verl_agent_refuses_two_contents_of_one_step(tmp_path):
  columns = samples.verl_columns()
  columns["text_actions"][1] = "south"
  rows, rejected = read_text("verl_agent", tmp_path, samples.npz(columns))
  assert len(rows) == 3
  assert "repeats step 0 of trajectory 'a' with other" in rejected[0].reason
  assert rejected[0].raw["traj_id"] == "a"  # so that all of it is left out


@pytest.mark.parametrize(
  ("change", "reason"),
  [
    ({"step_idx": None}, "has no column 'step_idx', and verl-agent reorders"),
    ({"success": None}, "has no column 'success'; export it"),
    ({"success": np.ones(4)}, "column 'success' is float64"),
    ({"uid": np.array(["u"])}, "one value of kind"),
    (
      {"rewards": np.array([0, np.nan, 0, 0])},
      "row 2 has a reward that is not",
    ),
    ({"anchor_obs": np.array(["\ud800"] * 4)}, "text that is not Unicode"),
    (
      {"anchor_obs": np.full(4, 0x7FFFFFFF, np.uint32).view("U1")},
      "text that is not Unicode",
    ),
    ({"uid": np.array(["u", 1, 2, 3], object)}, "nothing is ever unpickled"),
  ],
)
def test_verl_agent_refuses_columns(change, reason, tmp_path):
  columns = {
    k: v for k, v in (samples.verl_columns() | change).items() if v is not None
  }
  with pytest.raises(LogError, match=reason):
    read_text("verl_agent", tmp_path, samples.npz(columns))


def test_verl_agents_dump_is_refused(tmp_path):
  steps = [{"step_reward": 0.0}, {"step_reward": 10.0}, {"step_reward": 0.0}]
  dump = {
    "trajectories": [
      {"episode_reward": 10.0, "steps": steps},
      {"episode_reward": 10.0, "steps": steps[:2]},
    ]
  }
  rows, rejected = read_text("verl_agent", tmp_path, json.dumps(dump))
  assert not rows and [r.rows for r in rejected] == [3, 2]
  assert all("has no task id" in r.reason for r in rejected)
  assert "reward stands on row 2 of 3" in rejected[0].reason
  assert "reward stands" not in rejected[1].reason


# -- Parquet -----------------------------------------------------------------


def write_parquet(path, rows):
  pyarrow = pytest.importorskip("pyarrow")
  parquet = pytest.importorskip("pyarrow.parquet")
  parquet.write_table(pyarrow.Table.from_pylist(rows), path)
  return path.read_bytes()


def completion(prompt, text, reward, step=1, **more):
  return {
    "step": step,
    "prompt": prompt,
    "completion": text,
    "accuracy": reward,
    "advantage": 0.1,
  } | more


def test_trl(tmp_path):
  rows = [
    completion("p", "x", 1.0),
    completion("q", "y", 0.0),
    completion("p", "z", 0.0),
    completion("p", "x", 1.0, step=2),
    completion("p", "x", 0.5, step=2),
  ]
  content = write_parquet(tmp_path / "log", rows)
  found, rejected = read_text("trl", tmp_path, content)
  groups = [r.group_id.split(":", 1)[1] for r in found]
  assert groups == ["1:0", "1:1", "1:0", "2:0"]
  assert [r.boundary for r in found] == [SUCCESS, FAILURE, FAILURE, SUCCESS]
  assert next((r.state, r.action, r.reward) for r in found) == ("p", "x", 1.0)
  assert "neither 0 nor 1" in rejected[0].reason
  assert str(rejected[0].place).endswith("log, row 5")


def test_trl_chats_have_a_step_for_each_message(tmp_path):
  chat = [
    {"role": "assistant", "content": "look"},
    {"role": "tool", "content": "found"},
    {"role": "assistant", "content": "done"},
  ]
  prompt = [{"role": "user", "content": "go"}]
  content = write_parquet(tmp_path / "log", [completion(prompt, chat, 1.0)])
  found, _ = read_text("trl", tmp_path, content)
  assert [(r.state, r.action) for r in found] == [
    ("go", "look"),
    ("found", "done"),
  ]
  assert [r.boundary for r in found] == [NONE, SUCCESS]


def test_trl_with_several_rewards_needs_a_label(tmp_path):
  row = completion("p", "x", 1.0, length=0.2)
  content = write_parquet(tmp_path / "log", [row])
  _, rejected = read_text("trl", tmp_path, content)
  assert "has 2 reward columns (accuracy, length)" in rejected[0].reason
  content = write_parquet(tmp_path / "log", [row | {"success": True}])
  found, _ = read_text("trl", tmp_path, content)
  assert found[0].boundary == SUCCESS and found[0].reward is None


def test_roll_as_parquet(tmp_path):
  content = write_parquet(tmp_path / "log", samples.roll_rows())
  found, _ = read_text("roll", tmp_path, content)
  expected, _ = read_text("roll", tmp_path, samples.roll())
  assert [r._replace(place=None) for r in found] == [
    r._replace(place=None) for r in expected
  ]
