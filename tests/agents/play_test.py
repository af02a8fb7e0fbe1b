"""The agent loop with a scripted model, on houses of words."""

import dataclasses
import functools

import numpy as np
import pytest

from crbc_jax.agents.chat import END, ByteTokenizer, chatml
from crbc_jax.agents.parsing import INVALID
from crbc_jax.agents.play import Response, Speaker, play
from crbc_jax.agents.prompts import TEMPLATES
from crbc_jax.agents.turns import rows_of_conversations, rows_of_steps
from crbc_jax.types import Boundary
from tests.learner import word_house

TOKENIZER = ByteTokenizer()
SPEAKER = Speaker(TEMPLATES["short"], TOKENIZER)


def games(count=2):
  return [
    functools.partial(dataclasses.replace, house)
    for house in word_house.all_houses()[:count]
  ]


def say(text):
  ids = np.array([*TOKENIZER.encode(text), END], np.int32)
  return Response(ids, np.full(len(ids), -0.5, np.float32))


def scripted(lines, prompts_seen=None):
  """A model that says line t at step t, to everybody."""

  def generate(prompts, step):
    if prompts_seen is not None:
      prompts_seen.append([TOKENIZER.decode(p) for p in prompts])
    return [say(lines[step])] * len(prompts)

  return generate


def test_the_expert_wins_and_every_turn_is_kept():
  make = games(1)[0]
  env, lines = make(), []
  now = env.reset()
  while now.boundary == Boundary.NONE:
    lines.append(word_house.expert(env))
    now = env.step(lines[-1])
  (rollout,) = play(
    [make], scripted(lines), SPEAKER, step_limit=9, state_key="state"
  )
  assert [t.command for t in rollout.turns] == lines
  assert rollout.turns[-1].boundary == Boundary.SUCCESS
  assert all(t.boundary == Boundary.NONE for t in rollout.turns[:-1])
  assert all(t.valid for t in rollout.turns)
  assert len({t.state_key for t in rollout.turns}) == len(lines)
  assert rollout.final_key == env.keys().state


def test_invalid_responses_change_nothing_and_cost_a_penalty():
  rollouts = play(
    games(),
    scripted(["!!!!", "dance"]),
    SPEAKER,
    step_limit=2,
    state_key="state",
    invalid_penalty=0.1,
  )
  for rollout in rollouts:
    first, second = rollout.turns
    assert first.command == second.command == INVALID
    assert first.state_key == second.state_key == rollout.final_key
    assert not first.valid
    np.testing.assert_allclose([first.reward, second.reward], -0.1)
    # The limit is a truncation, never a failure.
    assert first.boundary == Boundary.NONE
    assert second.boundary == Boundary.TRUNCATED


def test_history_of_a_fresh_prompt():
  seen = []
  play(
    games(1), scripted(["a", "b", "c"], seen), SPEAKER, step_limit=3,
    state_key="state",
  )  # fmt: skip
  # What was done, not what was said: both were invalid.
  assert seen[2][0].startswith(f"> {INVALID}\n> {INVALID}\n")
  assert seen[2][0].endswith("\n>")


def test_a_conversation_is_one_row_of_exactly_the_sampled_tokens():
  speaker = dataclasses.replace(SPEAKER, chat=chatml, layout="conversation")
  rollouts = play(
    games(), scripted(["a", "bb", "ccc"]), speaker, step_limit=3,
    state_key="state",
  )  # fmt: skip
  rows = rows_of_conversations(rollouts)
  for i in range(2):
    live = rows.mask[i]
    spoken = np.asarray(rows.tokens)[i, rows.at[i][live]]
    assert TOKENIZER.decode(spoken) == "abbccc"
    np.testing.assert_array_equal(
      rows.step[i][live], [0, 0, 1, 1, 1, 2, 2, 2, 2]
    )
  # The same turns, one row each, end with the same row.
  each = rows_of_steps(rollouts)
  np.testing.assert_array_equal(each.tokens[2], rows.tokens[0])


def test_of_a_long_prompt_the_end_is_kept():
  speaker = dataclasses.replace(SPEAKER, prompt_limit=5)
  (rollout,) = play(
    games(1), scripted(["a"]), speaker, step_limit=1, state_key="state"
  )
  whole = TOKENIZER.encode(
    SPEAKER.template.render(games(1)[0]().goal, games(1)[0]().reset(), [])
  )
  np.testing.assert_array_equal(rollout.turns[0].prompt, whole[-5:])


def test_a_conversation_cannot_be_cut():
  with pytest.raises(ValueError, match="cannot be cut"):
    dataclasses.replace(SPEAKER, layout="conversation", prompt_limit=5)
  with pytest.raises(ValueError, match="layout"):
    dataclasses.replace(SPEAKER, layout="tree")


def test_progress():
  told = []
  play(
    games(), scripted(["a", "b"]), SPEAKER, step_limit=2, state_key="state",
    report=lambda *x: told.append(x),
  )  # fmt: skip
  assert told == [(1, 2), (2, 0)]
