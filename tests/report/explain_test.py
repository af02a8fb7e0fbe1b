"""Explanations: facts by hand, words, and what reaches the terminal."""

import io

import numpy as np
import pytest
import rich.console

from crbc_jax import RolloutError, StepTable, credit_table
from crbc_jax.report import explain, explain_view

HOUSE = """
a 0 hall north none
a 1 library take none
a 2 desk read success
b 0 hall north none
b 1 library down none
b 2 cellar wait failure
c 0 hall south none
c 1 garden back none
c 2 hall south none
c 3 garden back none
c 4 hall north none
c 5 library take truncated
d 0 attic climb none
d 1 roof jump failure
e 0 hall north none
e 1 library take none
e 2 desk sleep success
"""


def house(**columns):
  """Five rollouts through a house: two find the book."""
  rows = [line.split() for line in HOUSE.strip().splitlines()]
  traj, step, state, action, boundary = zip(*rows, strict=True)
  return StepTable.from_columns(
    **{
      "group_id": ["task-7"] * len(rows),
      "traj_id": traj,
      "step_idx": [int(i) for i in step],
      "state_key": state,
      "action_key": action,
      "boundary": boundary,
      **columns,
    }
  )


def credits(table, *names):
  return {name: credit_table(table, name) for name in names}


@pytest.fixture(scope="module")
def found():
  table = house()
  some = credits(table, "crbc", "grpo")
  return {t: explain.explain_trajectory(table, some, t) for t in "abcde"}


def test_numbers_are_the_estimators(found):
  table = house()
  some = credits(table, "crbc", "grpo")
  for row, step in enumerate(found["a"].steps):
    assert step.v == some["crbc"].v[row]
    assert step.q == some["crbc"].q[row]
    for name, credit in some.items():
      assert step.credit[name].advantage == credit.advantage[row]
      assert step.credit[name].trajectory == credit.trajectory[row]
      assert step.credit[name].step == credit.step[row]


def test_evidence_is_counted_by_hand(found):
  hall, library, desk = found["a"].steps
  assert (hall.visits, hall.rollouts) == (6, 4)
  assert (library.visits, library.rollouts) == (4, 4)
  assert (desk.visits, desk.rollouts) == (2, 2)
  assert [(c.action, c.visits, c.taken) for c in library.choices] == [
    ("take", 3, True),
    ("down", 1, False),
  ]
  # Q of an anchor's choices averages to its V.
  for step in (hall, library, desk):
    mean = sum(c.q * c.visits for c in step.choices) / step.visits
    assert mean == pytest.approx(step.v, abs=1e-6)


def test_words_name_alternatives(found):
  assert found["a"].steps[1].why == (
    "4 of 5 rollouts pass here: 'take' was taken 3 times (Q .64), 'down' once"
    " (Q .00); V .48."
  )
  assert (
    found["a"]
    .steps[0]
    .why.startswith(
      "4 of 5 rollouts pass here (6 visits): 'north' was taken 4 times"
    )
  )
  assert "'south' twice" in found["a"].steps[0].why


def test_words_on_thin_evidence(found):
  assert (
    found["b"]
    .steps[2]
    .why.startswith(
      "Only this rollout came here, once: nothing to compare with; V .00."
    )
  )
  assert "always with 'back': no alternative seen" in found["c"].steps[1].why


def test_words_on_ends_and_lost_causes(found):
  ends = [found[t].steps[-1].why for t in "abc"]
  for said, word in zip(ends, ("succeeds", "fails", "cut off"), strict=True):
    assert word in said
  lost, dead = "after this step leads", "from here leads to success"
  assert lost in found["b"].steps[1].why  # down, into the cellar
  assert dead in found["d"].steps[0].why  # the attic led nobody to the book
  alive = [found[t].steps[0].why for t in "abce"]
  assert not any(lost in said or dead in said for said in alive)


def test_a_way_seen_in_another_rollout_is_a_way():
  table = StepTable.from_columns(
    group_id=[0] * 4,
    traj_id=[0, 0, 1, 1],
    step_idx=[0, 1, 0, 1],
    state_key=["start", "bridge", "bridge", "end"],
    action_key=["go", "fall", "cross", "enter"],
    boundary=["none", "failure", "none", "success"],
  )
  step = explain.explain_trajectory(table, credits(table, "crbc"), 0).steps[0]
  assert "No way" not in step.why


def test_many_alternatives_are_cut_but_never_the_one_taken():
  table = StepTable.from_columns(
    group_id=[0] * 10,
    traj_id=range(10),
    step_idx=[0] * 10,
    state_key=["s"] * 10,
    action_key=list("aabbccddef"),
    boundary=["success"] + ["failure"] * 9,
  )
  some = credits(table, "crbc")
  by_f = explain.explain_trajectory(table, some, 9).steps[0]
  assert len(by_f.choices) == 6
  assert "'f' once" in by_f.why and "and 2 others" in by_f.why


def test_repeats_hint_at_aliasing(found):
  (note,) = found["c"].notes
  assert "'hall' occurs 3 times" in note and "crbc_anchored" in note
  assert not found["a"].notes


@pytest.mark.parametrize(
  ("ends", "words"),
  [
    (("failure", "failure"), "No rollout of the group succeeded"),
    (("success", "success"), "All rollouts of the group succeeded"),
    (("success",), "The group is one rollout"),
  ],
)
def test_notes_on_degenerate_groups(ends, words):
  size = len(ends)
  table = StepTable.from_columns(
    group_id=[0] * size,
    traj_id=range(size),
    step_idx=[0] * size,
    state_key=["s"] * size,
    action_key=["a"] * size,
    boundary=ends,
  )
  some = credits(table, "crbc")
  group = explain.explain_group(table, some)
  one = explain.explain_trajectory(table, some, 0)
  assert group.notes == one.notes
  assert words in group.notes[0]


def test_group_lines_sum_credit_and_name_extremes():
  table = house()
  some = credits(table, "crbc", "grpo")
  group = explain.explain_group(table, some)
  assert (group.rollouts, group.successes) == (5, 2)
  assert [t.outcome for t in group.trajectories] == [
    "success",
    "failure",
    "truncated",
    "failure",
    "success",
  ]
  second = group.trajectories[1]
  assert second.steps == 3
  for name, credit in some.items():
    total = credit.advantage[3:6].sum()
    assert second.total[name] == pytest.approx(total)
  assert (second.smallest.step, second.smallest.action) == (1, "down")
  assert second.smallest.advantage == some["crbc"].advantage[4]


def test_order_and_copies_of_rows_change_nothing(found):
  table = house()
  rows = np.random.default_rng(0).permutation(np.append(np.arange(17), 4))
  shuffled = table.take(rows)
  copies = np.flatnonzero(rows == 4)
  weight = np.ones(18)
  weight[copies[1]] = 0
  shuffled = StepTable.from_columns(
    **{
      name: getattr(shuffled, name)
      for name in ("group_id", "traj_id", "step_idx", "state_key")
    },
    action_key=shuffled.action_key,
    boundary=shuffled.boundary,
    weight=weight,
  )
  again = explain.explain_trajectory(
    shuffled, credits(shuffled, "crbc", "grpo"), "b"
  )
  assert again == found["b"]


def test_missing_states_never_merge():
  states = house().state_key.copy()
  states[states == "library"] = None
  table = house(state_key=states)
  step = explain.explain_trajectory(table, credits(table, "crbc"), "a").steps[1]
  assert step.visits == 1


def test_texts_replace_keys():
  table = house()
  texts = [f"full {i}" for i in range(17)]
  one = explain.explain_trajectory(
    table, credits(table, "crbc"), "b", state_text=texts, action_text=texts
  )
  assert [step.state for step in one.steps] == texts[3:6]
  assert "'full 4'" in one.steps[1].why


def test_keys_stand_in_for_missing_texts():
  table = house()
  table.state_key[3] = None
  one = explain.explain_trajectory(
    table,
    credits(table, "crbc"),
    "b",
    state_text=[None] * 17,
    action_text=[None] * 16 + ["slept"],
  )
  assert [s.state for s in one.steps] == ["(missing)", "library", "cellar"]
  assert [s.action for s in one.steps] == ["north", "down", "wait"]


def test_unknown_rollout_and_several_groups_are_refused():
  table = house()
  some = credits(table, "crbc")
  with pytest.raises(RolloutError, match="no trajectory 'z'; it has: a, b"):
    explain.explain_trajectory(table, some, "z")
  two = house(group_id=["x"] * 12 + ["y"] * 5)
  with pytest.raises(RolloutError, match="one group at a time"):
    explain.explain_group(two, some)


@pytest.mark.parametrize(
  ("value", "text"),
  [
    (0.744, ".74"),
    (-0.4, "-.40"),
    (1.2, "1.20"),
    (-1e-9, ".00"),
    (10, "10.00"),
  ],
)
def test_numbers(value, text):
  assert explain.number(value) == text


# -- the terminal ------------------------------------------------------------


def printed(view, width=100):
  out = io.StringIO()
  console = rich.console.Console(file=out, width=width, highlight=False)
  console.print(view)
  return out.getvalue()


def test_views_show_the_numbers(found):
  shown = printed(explain_view.trajectory_view(found["a"]))
  take = found["a"].steps[1]
  assert f"{take.credit['crbc'].advantage:+.2f}" in shown
  assert "4/5" in shown and "'take' was taken 3 times" in shown
  full = printed(explain_view.step_view(found["a"], take))
  assert "state: library" in full and "75%" in full
  assert f"{take.credit['crbc'].step:+.2f}" in full
  table = house()
  group = explain.explain_group(table, credits(table, "crbc"))
  lines = printed(explain_view.group_view(group))
  assert "2 of 5 rollouts succeeded" in lines and "truncated" in lines


def test_log_text_is_neither_markup_nor_control():
  table = house()
  texts = ["[red]x[/red]\x1b[31m\x07 [/nothing]"] * 17
  some = credits(table, "crbc")
  one = explain.explain_trajectory(
    table, some, "a", state_text=texts, action_text=texts
  )
  group = explain.explain_group(table, some, action_text=texts)
  for view in (
    explain_view.trajectory_view(one),
    explain_view.step_view(one, one.steps[0]),
    explain_view.group_view(group),
  ):
    shown = printed(view, width=200)
    assert "\x1b" not in shown and "\x07" not in shown
    assert "[red]x[/red]" in shown
