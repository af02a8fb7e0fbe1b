import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.agents.chat import END, PAD
from crbc_jax.policies.byte_decoder import DecoderSizes, make_decoder

SIZES = DecoderSizes(layers=2, width=16, heads=2, window=3)
LIMIT = 5


@pytest.fixture(scope="module")
def decoder():
  params, logits, write = make_decoder(SIZES, seed=0)
  # A sharper distribution than a new decoder's, so that it sometimes ends.
  params = jax.tree.map(lambda x: 3 * x, params)
  return params, jax.jit(logits), write


def prompts(count=6, length=8, seed=0):
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, length + 1, count).astype(np.int32)
  tokens = rng.integers(2, 258, (count, length)).astype(np.int32)
  tokens[np.arange(length) >= lengths[:, None]] = PAD
  return tokens, lengths


def write(decoder, tokens, lengths, number=None, temperature=1.0):
  number = np.arange(len(tokens)) if number is None else number
  found = decoder[2](
    decoder[0],
    tokens,
    lengths,
    number.astype(np.int32),
    jax.random.key(1),
    limit=LIMIT,
    temperature=temperature,
  )
  return jax.device_get(found)


def test_the_cache_gives_the_log_probabilities_of_the_whole_text(decoder):
  tokens, lengths = prompts()
  wrote, log_probs = write(decoder, tokens, lengths)
  for row in range(len(tokens)):
    said = wrote[row][wrote[row] != PAD]
    whole = np.concatenate([tokens[row, : lengths[row]], said])[None]
    at = lengths[row] - 1 + np.arange(len(said))[None]
    logits = decoder[1](decoder[0], whole, at).at[..., PAD].set(-1e9)
    wanted = jax.nn.log_softmax(logits)[0, np.arange(len(said)), said]
    np.testing.assert_allclose(log_probs[row, : len(said)], wanted, rtol=1e-4)
    assert not log_probs[row, len(said) :].any()


def test_a_row_does_not_see_the_others_or_its_padding(decoder):
  tokens, lengths = prompts()
  number = np.arange(6)
  wrote, log_probs = write(decoder, tokens, lengths)
  order = np.array([3, 1, 5, 0, 2, 4])
  longer = np.pad(tokens, ((0, 0), (0, 4)))[order]
  again, log_again = write(decoder, longer, lengths[order], number[order])
  np.testing.assert_array_equal(again, wrote[order])
  np.testing.assert_allclose(log_again, log_probs[order], atol=2e-5)


def test_causal(decoder):
  tokens, _ = prompts(1, 8)
  tokens[:] = 5
  other = tokens.copy()
  other[0, 5:] = 9
  at = np.arange(8)[None]
  same, changed = (decoder[1](decoder[0], t, at)[0] for t in (tokens, other))
  np.testing.assert_allclose(same[:5], changed[:5], atol=1e-5)
  assert np.abs(same[5:] - changed[5:]).max() > 1e-3


def test_greedy_takes_the_most_probable_and_needs_no_key(decoder):
  tokens, lengths = prompts()
  first, _ = write(decoder, tokens, lengths, temperature=0.0)
  again, _ = write(decoder, tokens, lengths, np.arange(6) + 9, temperature=0.0)
  np.testing.assert_array_equal(first, again)
  logits = decoder[1](decoder[0], tokens, lengths[:, None] - 1)[:, 0]
  np.testing.assert_array_equal(
    first[:, 0], np.argmax(logits.at[:, PAD].set(-np.inf), axis=-1)
  )


def test_sampling_varies_with_the_number_and_stops_at_the_end(decoder):
  tokens, lengths = prompts(1)
  count = 64
  wrote, _ = write(
    decoder,
    np.repeat(tokens, count, axis=0),
    np.repeat(lengths, count),
    np.arange(count),
  )
  assert len({tuple(w) for w in wrote.tolist()}) > count / 2
  for row in wrote.tolist():
    if END in row:
      assert set(row[row.index(END) + 1 :]) <= {PAD}
    else:
      assert PAD not in row


def test_sampled_frequencies_are_the_softmax(decoder):
  tokens, lengths = prompts(1)
  count = 4_000
  wrote, _ = write(
    decoder,
    np.repeat(tokens, count, axis=0),
    np.repeat(lengths, count),
    np.arange(count),
  )
  logits = decoder[1](decoder[0], tokens, lengths[:, None] - 1)[0, 0]
  p = np.asarray(jax.nn.softmax(logits.at[PAD].set(-jnp.inf)))
  seen = np.bincount(wrote[:, 0], minlength=len(p)) / count
  np.testing.assert_allclose(seen, p, atol=5 * np.sqrt(0.25 / count))


def test_a_new_decoder_is_about_uniform():
  params, logits, _ = make_decoder(SIZES, seed=3)
  tokens, lengths = prompts()
  p = jax.nn.softmax(logits(params, tokens, lengths[:, None] - 1))
  assert p.max() < 0.1


def test_heads_have_to_divide_the_width():
  with pytest.raises(ValueError, match="multiple of twice"):
    make_decoder(DecoderSizes(width=18, heads=4), seed=0)
