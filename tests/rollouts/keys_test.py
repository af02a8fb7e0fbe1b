"""Keys by name: what they merge, what they keep apart, and odd text."""

import json

import hypothesis
import hypothesis.strategies as st
import pytest

from crbc_jax.rollouts import keys
from crbc_jax.rollouts.table import INVALID_ACTION
from tests.rollouts.trajectories import trajectory


def state_keys(name, states, actions=None):
  actions = actions or ["a"] * (len(states) - 1)
  return list(keys.state_key(name)(trajectory(states, actions)))


def action_keys(name, actions, states=None):
  states = states or ["s"] * (len(actions) + 1)
  return list(keys.action_key(name)(trajectory(states, actions)))


def call(name, **arguments):
  return json.dumps({"name": name, "arguments": arguments})


# -- names -------------------------------------------------------------------


def of_length(rows):
  return [len(str(row.state)) for row in rows] + [None]


def too_few(rows):
  return ["only one"]


def of_lists(rows):
  return [[] for _ in rows]


def test_a_users_own_function_is_a_key():
  here = __name__
  assert state_keys(f"{here}:of_length", ["ab", "c", "d"]) == [2, 1, None]
  with pytest.raises(ValueError, match="gave 1 keys for 2 steps; give one for"):
    state_keys(f"{here}:too_few", ["a", "b", "c"])
  with pytest.raises(ValueError, match="gave a list; keys are text, whole"):
    action_keys(f"{here}:of_lists", ["a", "b"])


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("verbatm", r"unknown state key 'verbatm' \(did you mean 'verbatim'\?\)"),
    ("window(m=2)", r"'window' has no option 'm'.*it has: n"),
    ("window(n='2')", "option n must be a number"),
    ("window(n=0)", "n must be a whole number >= 1"),
    ("window(2)", "is not of the form name or name"),
    ("verbatim(n=1)", "it has: none"),
    ("no_such_module:f", "no module 'no_such_module'"),
    ("json:no_such", "module 'json' has no 'no_such'"),
  ],
)
def test_what_cannot_be_named(name, message):
  with pytest.raises(ValueError, match=message):
    state_keys(name, ["a", "b"])


# -- text --------------------------------------------------------------------


def test_verbatim_keeps_missing_states_missing():
  assert state_keys("verbatim", ["a", None, 3]) == ["a", None, 3]
  assert action_keys("verbatim", ["go", None, 3]) == ["go", INVALID_ACTION, 3]


def test_normalized_forgets_numbers_and_space_but_not_case():
  found = state_keys("normalized", ["Room  12\n", "Room 7", "room 7", None, 5])
  assert found == ["Room <n>", "Room <n>", "room <n>", None, 5]
  assert action_keys("normalized", ["pay 1,200.50 $"]) == ["pay <n> $"]


def test_window_tells_apart_what_led_to_a_state():
  actions = ["a", "b", "c"]
  one, two = (
    state_keys("window(n=1)", [x, y, "s", "end"], actions)
    for x, y in (("p", "q"), ("r", "q"))
  )
  assert one[0] != two[0] and one[2:] == two[2:]
  assert (
    state_keys("window", ["p", "q", "s", "e"], actions)[2]
    != (state_keys("window", ["r", "q", "s", "e"], actions)[2])
  )
  assert state_keys("window", ["p", None, "s"])[1] is None


# -- Game of 24 --------------------------------------------------------------


def test_game24_is_the_multiset_left():
  found = state_keys(
    "game24", ["10 4 6", "4 - 6 = -2 (left: -2 10)", "(left: 0.5)", "none"]
  )
  assert found == ["4 6 10", "-2 10", "1/2", "none"]
  assert (
    action_keys("game24", ["6 + 4 = 10", "4+6 = 10 (left: 1)"]) == ["4 + 6"] * 2
  )
  assert action_keys("game24", ["6 - 4 = 2", "8 ÷ 2 = 4", "6 x 2 = 12"]) == [
    "6 - 4",
    "8 / 2",
    "2 * 6",
  ]
  assert (
    action_keys("game24", ["stop", None, "1/0 + 2 = 2"]) == [INVALID_ACTION] * 3
  )


# -- tools -------------------------------------------------------------------


def test_tool_call_sorts_arguments_and_merges_words():
  spellings = [
    call("find", b=1, a="x"),
    call("find", a="x", b=1),
    json.dumps({"function": {"name": "find", "arguments": '{"b":1,"a":"x"}'}}),
    json.dumps(
      {"tool_calls": [{"name": "find", "arguments": {"a": "x", "b": 1}}]}
    ),
  ]
  assert set(action_keys("tool_call", spellings)) == {
    'find({"a": "x", "b": 1})'
  }
  assert action_keys("tool_call", ["Hello!", "{}", "[]", None]) == [
    "<message>",
    "<message>",
    "<message>",
    INVALID_ACTION,
  ]
  broken = json.dumps({"name": "find", "arguments": "{a"})
  assert action_keys("tool_call", [broken]) == ["find({a)"]


def test_tool_history_is_calls_and_results():
  one, two = call("one"), call("two")
  states = ["hi", "1", "2", "thanks"]
  first = state_keys("tool_history", states, [one, two, "Done."])
  other = state_keys("tool_history", ["hey", "2", "1", "ok"], [two, one, "OK"])
  assert first[0] == other[0] and first[2] != other[2]
  assert first[1] != state_keys("tool_history", ["hi", "0"], [one])[1]
  assert first[2] != first[3], "the user speaks after words"
  unordered = [
    state_keys("tool_history(ordered=False)", s, a)
    for s, a in (
      (states, [one, two, "Done."]),
      (["hey", "2", "1", "ok"], [two, one, "OK"]),
    )
  ]
  assert unordered[0][2:] == unordered[1][2:]
  assert unordered[0][1] != unordered[1][1]
  assert state_keys("tool_history", ["hi", None], [one])[1] is None


# -- software engineering ----------------------------------------------------


@pytest.mark.parametrize(
  ("command", "key"),
  [
    ("open src/a.py 250", "view:2@src/a.py"),
    ("cat src/a.py | head -50", "view:full@src/a.py"),
    ("cd /testbed && sed -n '120,140p' src/a.py", "view:1@src/a.py"),
    ("str_replace_editor view /testbed/a.py", "view:full@a.py"),
    ("grep -rn 'a|b' src 2>/dev/null", "search:a|b@src"),
    ("find_file 'f.py' src", "search:f.py@src"),
    ("ls -la", "search@."),
    ("touch a.py", "create@a.py"),
    (
      "python -m pytest tests/test_a.py -q 2>&1 | tail",
      "test@tests/test_a.py:ok",
    ),
    ("python a.py", "execute@a.py:ok"),
    ("pip install -e .", "install@."),
    ("rm a.py && mkdir b", "fileop:rm@a.py + fileop:mkdir@b"),
    ("think it over", "think"),
    ("submit", "finish"),
    ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "finish"),
    ("frobnicate", "other@frobnicate:".rstrip(":")),
    ("cat 'open quote", "view:full@quote"),
    ("", INVALID_ACTION),
    (None, INVALID_ACTION),
  ],
)
def test_swe_actions(command, key):
  assert action_keys("swe_signature", [command]) == [key]


def test_swe_changes_carry_a_tag_of_their_text():
  edit = "sed -i 's/-> float$/-> float:/' a.py"
  same, other = action_keys(
    "swe_signature", [edit, edit.replace("a.py", "b.py")]
  )
  assert same.startswith("modify:") and same.endswith("@a.py")
  assert other.endswith("@b.py")
  assert action_keys("swe_signature(content=False)", [edit]) == ["modify@a.py"]
  heredoc = "cat <<'EOF' > a.py\nx > y\nEOF\npython a.py"
  found = action_keys("swe_signature", [heredoc])[0]
  assert found.startswith("create:") and found.endswith(
    "@a.py + execute@a.py:ok"
  )


def test_swe_results_come_from_the_observation():
  states = ["issue", "<returncode>1</returncode>", "<returncode>0</returncode>"]
  assert action_keys("swe_signature", ["pytest", "pytest"], states) == [
    "test:error",
    "test:ok",
  ]
  assert state_keys("swe_signature", states, ["pytest", "pytest"]) == [
    "",
    "test_fail=1",
    "test_fail=1 test_pass=1",
  ]


def test_swe_state_forgets_order_and_refused_edits():
  look = ["open a.py 150", "grep x b.py", "edit 3:4\nnew\nend_of_edit"]
  one = state_keys("swe_signature", ["i", "", "", "done"], look)
  two = state_keys(
    "swe_signature", ["i", "", "", "x"], [look[1], look[0], "ls"]
  )
  assert one[2] == two[2] == "a.py:{V[1]} b.py:{S}"
  assert one[3].startswith("a.py:{M:") and "b.py:{S}" in one[3]
  refused = "Your proposed edit has introduced new syntax error(s)."
  kept = state_keys("swe_signature", ["i", "", "", refused], look)
  assert kept[3] == kept[2]
  loose = state_keys("swe_signature(content=False)", ["", "", "", ""], look)
  assert loose[3] == "a.py:{M,V[1]} b.py:{S}"


# -- odd text ----------------------------------------------------------------

ANYTHING = st.one_of(
  st.none(),
  st.integers(),
  st.text(max_size=40),
  st.text("()<>|&;\n'\"\\ =ab/#$-{}[]:,0", max_size=40),
  st.sampled_from(
    ["\ud800", "[" * 5000, '{"name": "' + "{" * 3000, "1/0 + 1 = 2"]
  ),
)


@hypothesis.given(
  st.lists(st.tuples(ANYTHING, ANYTHING), min_size=1, max_size=4)
)
def test_no_key_raises_and_all_are_keys(steps):
  states, actions = zip(*steps, strict=True)
  rows = trajectory([*states, None], list(actions))
  for name in keys.STATE_KEYS:
    found = keys.state_key(name)(rows)
    assert len(found) == len(rows) + 1
    assert all(isinstance(key, str | int | None) for key in found)
  for name in keys.ACTION_KEYS:
    found = keys.action_key(name)(rows)
    assert len(found) == len(rows)
    assert all(isinstance(key, str | int) for key in found)
