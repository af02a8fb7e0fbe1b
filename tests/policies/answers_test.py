"""Answers scored in one pass, against each of them alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.policies import answers
from tests.policies.slow_decoder import SHAPE, make_params, slow_logits

PROMPT = [3, 1, 4]
SAID = [[5, 9, 2], [6], [5, 9], [], [5, 9, 2]]


@pytest.fixture(scope="module")
def params():
  return make_params()


def score(params, packed, count=5):
  table = params["embedding"]
  x = table[packed.tokens]
  return answers.scores(
    params, x, packed, embedding=table, count=count, shape=SHAPE
  )


def alone(params, answer):
  text = np.array([*PROMPT, *answer])
  every = slow_logits(params, text)
  every -= np.log(np.exp(every).sum(-1, keepdims=True))
  first = len(PROMPT)
  return sum(every[t - 1, text[t]] for t in range(first, len(text)))


def test_scores_are_those_of_each_answer_alone(params):
  got = score(params, answers.pack(PROMPT, SAID))
  expected = [alone(params, answer) for answer in SAID]
  np.testing.assert_allclose(got, expected, atol=2e-5)
  assert got[0] == pytest.approx(float(got[4]), abs=1e-6)


def test_order_and_padding_change_nothing(params):
  expected = np.asarray(score(params, answers.pack(PROMPT, SAID)))
  packed = answers.pack(PROMPT, SAID[::-1], tokens=32, sampled=16)
  got = np.asarray(score(params, packed, count=8))
  np.testing.assert_allclose(got[:5], expected[::-1], atol=1e-5)
  assert not got[5:].any()


def test_gradients_are_finite_and_of_live_tokens(params):
  packed = answers.pack(PROMPT, SAID, tokens=32, sampled=16)
  other = packed._replace(tokens=packed.tokens.copy())
  other.tokens[12:] = 7  # in the padding

  def total(params, packed):
    return jnp.sum(jax.nn.softmax(score(params, packed)) * jnp.arange(5.0))

  first, second = (jax.grad(total)(params, p) for p in (packed, other))
  for name, g in first.items():
    assert np.isfinite(g).all() and np.abs(g).max() > 0, name
    np.testing.assert_allclose(g, second[name], atol=1e-6)


def test_no_answers(params):
  packed = answers.pack(PROMPT, [], sampled=4)
  assert not np.asarray(score(params, packed, count=2)).any()


def test_what_does_not_fit():
  with pytest.raises(ValueError, match="at least one token"):
    answers.pack([], SAID)
  with pytest.raises(ValueError, match="tokens must be at least 12"):
    answers.pack(PROMPT, SAID, tokens=11)
  with pytest.raises(ValueError, match="sampled must be at least 9"):
    answers.pack(PROMPT, SAID, sampled=8)
