import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crbc_jax.credit.table_credit import credit_table
from crbc_jax.integrations.group_tokens import (
  SamplingError,
  check_varied,
  group_table,
  rounded_budget,
  token_advantages,
  turns,
)
from crbc_jax.types import Boundary

NONE, SUCCESS, TRUNCATED = (
  int(x) for x in (Boundary.NONE, Boundary.SUCCESS, Boundary.TRUNCATED)
)


def step(said, shown, state="s", action="a", after="t", boundary=NONE, **info):
  """A step as tunix keeps it: numbers of sampled and of shown tokens."""
  known = {
    "state_key": state,
    "action_key": action,
    "next_state_key": after,
    "valid": True,
    "boundary": boundary,
  }
  return types.SimpleNamespace(
    assistant_tokens=None if said is None else np.arange(said),
    env_tokens=None if shown is None else np.arange(shown),
    info=known | info,
    reward=float(boundary == SUCCESS),
  )


def test_spans_by_hand():
  found = turns([step(3, 2), step(1, None, boundary=SUCCESS)], 6)
  assert [(t["token_start"], t["token_end"]) for t in found] == [(0, 3), (5, 6)]
  assert [t["boundary"] for t in found] == [NONE, SUCCESS]


def test_an_episode_that_was_cut_is_truncated():
  assert turns([step(3, 2)], 5)[-1]["boundary"] == TRUNCATED


def test_a_step_that_was_never_answered_is_left_out():
  hung = types.SimpleNamespace(
    assistant_tokens=None, env_tokens=None, info={}, reward=0.0
  )
  found = turns([step(2, 1), hung], 3)
  assert len(found) == 1 and found[0]["boundary"] == TRUNCATED
  assert turns([hung], 0) == []


def test_parts_that_do_not_add_up():
  with pytest.raises(
    SamplingError, match="hold 5 tokens, their conversation 6"
  ):
    turns([step(3, 2)], 6)


def two_episodes():
  """One wins by b in s; the other takes a, and is cut."""
  won = turns([step(2, 1, "s", "b", "end", SUCCESS)], 3)
  lost = turns([step(1, 3, "s", "a", "s"), step(4, 2, "s", "a", "s")], 10)
  return [won, lost]


def test_every_sampled_token_gets_the_credit_of_its_step():
  group = two_episodes()
  table = group_table(group)
  credit = credit_table(table, "crbc").advantage
  assert credit[0] > 0 > credit[1]
  got = token_advantages(group, credit, length=12)
  np.testing.assert_array_equal(got[0], [credit[0]] * 2 + [0] * 10)
  np.testing.assert_array_equal(
    got[1], [credit[1], 0, 0, 0, *[credit[2]] * 4, 0, 0, 0, 0]
  )


def test_grpo_through_the_same_code_is_one_number_an_episode():
  group = two_episodes()
  got = token_advantages(
    group, credit_table(group_table(group), "grpo").advantage, length=10
  )
  for row in got:
    assert len(set(row[row != 0].tolist())) == 1


def test_what_is_behind_the_padded_length_is_cut():
  credit = np.array([1.0, 2.0, 3.0], np.float32)
  got = token_advantages(two_episodes(), credit, length=6)
  np.testing.assert_array_equal(got, [[1, 1, 0, 0, 0, 0], [2, 0, 0, 0, 3, 3]])


def test_an_episode_without_a_step_gets_nothing():
  won, lost = two_episodes()
  group = [won, [], lost]
  assert len(group_table(group)) == 3
  got = token_advantages(group, np.ones(3, np.float32), length=9)
  assert not got[1].any() and got[0].any() and got[2].any()


@given(
  st.lists(
    st.lists(
      st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=5
    ),
    min_size=1,
    max_size=4,
  )
)
def test_ragged_groups(lengths):
  """Sums match, and no shown token is touched."""
  group = [
    turns([step(*x) for x in episode], sum(a + b for a, b in episode))
    for episode in lengths
  ]
  credit = np.arange(1, len(group_table(group)) + 1, dtype=np.float32)
  longest = max(sum(a + b for a, b in episode) for episode in lengths)
  got = token_advantages(group, credit, length=longest + 1)
  at = iter(credit)
  for row, episode in zip(got, lengths, strict=True):
    want = [
      x for said, shown in episode for x in [next(at)] * said + [0.0] * shown
    ]
    np.testing.assert_array_equal(row, want + [0.0] * (len(row) - len(want)))


def played(tokens, log_prob):
  return {
    "conversation_tokens": np.array(tokens),
    "old_logprobs": np.full(len(tokens), log_prob),
  }


def test_equal_rollouts_are_refused_unless_the_policy_is_sure():
  same = [played([1, 2, 3, 4], -2.0)] * 4
  with pytest.raises(
    SamplingError, match="all 4 rollouts of a group are equal"
  ):
    check_varied(same, temperature=1.0)
  check_varied(same, temperature=0.0)  # greedy
  check_varied(same[:1], temperature=1.0)
  check_varied([played([1, 2], -0.01)] * 8, temperature=1.0)  # sure of it
  check_varied([*same, played([1, 2, 3, 5], -2.0)], temperature=1.0)


def test_budgets_are_a_few_numbers():
  assert rounded_budget(490, response=128) == 128
  assert rounded_budget(100, response=128) == 64
  assert rounded_budget(5, response=128) == 5
  assert rounded_budget(8_192) == 8_192
  budgets = {rounded_budget(left) for left in range(1, 513)}
  assert budgets == {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512}
  assert all(rounded_budget(left) <= left for left in range(1, 513))
