"""Step -> token credit on ragged episodes, in both layouts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crbc_jax.agents.turns import (
  AgentRollout,
  Turn,
  dense,
  rows_of_conversations,
  rows_of_steps,
  spread_steps,
  token_weights,
)
from crbc_jax.types import Boundary

GIVEN, SAMPLED = 7, 9  # a token that was shown, one that was sampled


def turn(prompt, response, log_prob=None):
  response = np.asarray(response, np.int32)
  return Turn(
    prompt=np.asarray(prompt, np.int32),
    response=response,
    log_prob=np.asarray(
      -np.arange(1.0, len(response) + 1) if log_prob is None else log_prob,
      np.float32,
    ),
    text="",
    command="",
    valid=True,
    state_key="",
    reward=0.0,
    boundary=Boundary.NONE,
    moved=True,
  )


def conversation(lengths):
  """Turns of (shown, sampled) tokens, each prompt holding all before it."""
  said, turns = [], []
  for shown, sampled in lengths:
    prompt = [*said, *[GIVEN] * shown]
    turns.append(turn(prompt, [SAMPLED] * sampled))
    said = [*prompt, *[SAMPLED] * sampled]
  return AgentRollout("g", tuple(turns), "")


LENGTHS = st.lists(
  st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6
)
GROUPS = st.lists(LENGTHS, min_size=1, max_size=5)


def test_by_hand():
  rollout = conversation([(2, 1), (1, 2)])
  rows = rows_of_conversations([rollout])
  np.testing.assert_array_equal(rows.tokens, [[7, 7, 9, 7, 9, 9]])
  np.testing.assert_array_equal(rows.at, [[2, 4, 5]])
  np.testing.assert_array_equal(rows.step, [[0, 1, 1]])
  np.testing.assert_array_equal(rows.log_prob, [[-1, -1, -2]])
  credit = spread_steps(rows, np.array([[0.5, -2.0]]))
  np.testing.assert_array_equal(dense(rows, credit), [[0, 0, 0.5, 0, -2, -2]])
  np.testing.assert_allclose(token_weights(rows), [[1, 0.5, 0.5]])

  rows = rows_of_steps([rollout])
  np.testing.assert_array_equal(
    rows.tokens, [[7, 7, 9, 0, 0, 0], [7, 7, 9, 7, 9, 9]]
  )
  credit = spread_steps(rows, np.array([0.5, -2.0]))
  np.testing.assert_array_equal(
    dense(rows, credit), [[0, 0, 0.5, 0, 0, 0], [0, 0, 0, 0, -2, -2]]
  )


@given(GROUPS, st.integers(0, 2**32 - 1))
def test_credit_reaches_the_tokens_of_its_step_and_no_others(group, seed):
  rollouts = [conversation(lengths) for lengths in group]
  rng = np.random.default_rng(seed)
  steps = max(map(len, group))
  values = rng.normal(size=(len(group), steps)) + 3  # nothing is 0 by chance
  whole = rows_of_conversations(rollouts)
  credit = dense(whole, spread_steps(whole, values))
  for i, lengths in enumerate(group):
    at = 0
    for t, (shown, sampled) in enumerate(lengths):
      assert (credit[i, at : at + shown] == 0).all()  # an observation
      at += shown
      # Its own value on every token: the last step's is not copied about.
      assert (credit[i, at : at + sampled] == values[i, t]).all()
      at += sampled
    assert (credit[i, at:] == 0).all()

  # One row a step gives the same sums for every step.
  each = rows_of_steps(rollouts)
  flat = np.concatenate(
    [v[: len(x)] for v, x in zip(values, group, strict=True)]
  )
  by_step = dense(each, spread_steps(each, flat))
  sums = [s for lengths in group for _, s in lengths]
  np.testing.assert_allclose(by_step.sum(axis=1), flat * sums)
  np.testing.assert_allclose(by_step.sum(), credit.sum())
  # Steps weigh alike in both layouts.
  np.testing.assert_allclose(
    token_weights(whole).sum(axis=1), [len(x) for x in group], rtol=1e-6
  )
  np.testing.assert_allclose(token_weights(each).sum(axis=1), 1, rtol=1e-6)


@given(GROUPS, st.integers(0, 7), st.integers(0, 7), st.randoms())
def test_order_and_padding_change_nothing(group, longer, wider, random):
  rollouts = [conversation(lengths) for lengths in group]
  order = list(range(len(group)))
  random.shuffle(order)
  steps = max(map(len, group))
  values = np.arange(len(group) * steps, dtype=float).reshape(-1, steps) + 1
  for layout in (rows_of_conversations, rows_of_steps):
    rows = layout(rollouts)
    padded = layout(
      [rollouts[i] for i in order],
      length=rows.tokens.shape[1] + longer,
      sampled=rows.at.shape[1] + wider,
    )
    if layout is rows_of_conversations:
      first, second, back = values, values[order], np.argsort(order)
    else:
      counts = [len(x) for x in group]
      first = np.concatenate(
        [values[i, : counts[i]] for i in range(len(group))]
      )
      second = np.concatenate([values[i, : counts[i]] for i in order])
      starts = np.cumsum([0, *[counts[i] for i in order]])
      where = {i: starts[k] for k, i in enumerate(order)}
      back = np.concatenate(
        [where[i] + np.arange(counts[i]) for i in range(len(group))]
      )
    wanted = dense(rows, spread_steps(rows, first))
    got = dense(padded, spread_steps(padded, second))[back]
    np.testing.assert_array_equal(got[:, : wanted.shape[1]], wanted)
    assert not got[:, wanted.shape[1] :].any()


def test_fresh_prompts_make_no_conversation():
  rollout = AgentRollout("g1", (turn([7, 7], [9]), turn([7, 8], [9])), "")
  with pytest.raises(ValueError, match="g1: the prompt of step 1"):
    rows_of_conversations([rollout])


@pytest.mark.parametrize(
  "bad, message",
  [
    (turn([7], []), "row 0, step 0"),
    (turn([], [9]), "row 0, step 0"),
    (turn([7], [9, 9], [0.0]), "has 1, 2 and 1"),
  ],
)
def test_bad_turns(bad, message):
  with pytest.raises(ValueError, match=message):
    rows_of_steps([AgentRollout("g", (bad,), "")])


def test_too_long():
  with pytest.raises(ValueError, match="row 0 has 3 tokens, 1 of them"):
    rows_of_steps([conversation([(2, 1)])], length=2)


def test_values_have_to_hold_every_step():
  rows = rows_of_conversations([conversation([(1, 1), (1, 1)])])
  with pytest.raises(ValueError, match="up to 2 steps"):
    spread_steps(rows, np.zeros((1, 1)))
  with pytest.raises(ValueError, match="1 rows"):
    spread_steps(rows, np.zeros((2, 2)))
