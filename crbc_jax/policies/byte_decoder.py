"""A small decoder-only language model over bytes, and how it writes.

Pre-norm transformer with rotary positions (arXiv 2104.09864), so that what
matters is how far apart two bytes are: the cell above is a row's length away.
A position can be embedded from the last few bytes (as BLT, arXiv 2412.09871,
embeds n-grams): a name is spelt by many bytes, and where it was written before
is found by one head of attention only if a position knows more than its byte.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from crbc_jax.agents.chat import END, PAD, ByteTokenizer

_MASKED = -1e9
_BASE = 1_000.0  # of the rotary frequencies; prompts are short


class DecoderSizes(NamedTuple):
  """Shape of the network."""

  layers: int = 3
  width: int = 96
  heads: int = 4
  window: int = 1  # bytes that a position is embedded from, itself the last
  vocabulary: int = ByteTokenizer.vocabulary


KeysAndValues = tuple[chex.Array, chex.Array]


class Block(nnx.Module):
  """Attention and two linear layers."""

  def __init__(self, sizes: DecoderSizes, *, rngs: nnx.Rngs):
    width = sizes.width
    self.heads = sizes.heads
    self.before = nnx.RMSNorm(width, rngs=rngs)
    self.qkv = nnx.Linear(width, 3 * width, use_bias=False, rngs=rngs)
    self.out = nnx.Linear(width, width, use_bias=False, rngs=rngs)
    self.between = nnx.RMSNorm(width, rngs=rngs)
    self.up = nnx.Linear(width, 4 * width, use_bias=False, rngs=rngs)
    self.down = nnx.Linear(4 * width, width, use_bias=False, rngs=rngs)

  def split(self, x: chex.Array, position: chex.Array):
    """Queries, keys and values [N, L, heads, D] at positions [N or 1, L]."""
    q, k, v = jnp.split(self.qkv(self.before(x)), 3, axis=-1)
    shape = (*x.shape[:-1], self.heads, -1)
    q, k, v = q.reshape(shape), k.reshape(shape), v.reshape(shape)
    return _rotate(q, position), _rotate(k, position), v

  def finish(self, x: chex.Array, attended: chex.Array) -> chex.Array:
    """The block's output, x [N, L, width] and what it adds."""
    x = x + self.out(attended.reshape(x.shape))
    return x + self.down(jax.nn.gelu(self.up(self.between(x))))


class Decoder(nnx.Module):
  """Logits of the next byte."""

  def __init__(self, sizes: DecoderSizes, *, rngs: nnx.Rngs):
    self.embed = nnx.Embed(sizes.vocabulary, sizes.width, rngs=rngs)
    self.earlier = nnx.List(
      [
        nnx.Embed(sizes.vocabulary, sizes.width, rngs=rngs)
        for _ in range(sizes.window - 1)
      ]
    )
    self.blocks = nnx.List(
      [Block(sizes, rngs=rngs) for _ in range(sizes.layers)]
    )
    self.last = nnx.RMSNorm(sizes.width, rngs=rngs)

  def __call__(self, tokens: chex.Array, at: chex.Array):
    """Logits [N, S, V] after the tokens at `at` [N, S], and a cache.

    The cache holds the keys and values of every block [N, heads, L, D]. What
    the last block makes of other tokens nobody reads, so it is left out.
    """
    position = jnp.arange(tokens.shape[1])[None]
    x = self._embedded(
      jnp.pad(tokens, ((0, 0), (i, 0)))[:, : tokens.shape[1]]
      for i in range(1 + len(self.earlier))
    )
    cache: list[KeysAndValues] = []
    asked = jnp.broadcast_to(position, tokens.shape)
    for block in self.blocks:
      q, k, v = block.split(x, position)
      if len(cache) == len(self.blocks) - 1:
        asked = at
        x = jnp.take_along_axis(x, at[..., None], 1)
        q = jnp.take_along_axis(q, at[..., None, None], 1)
      seen = position[:, None] <= asked[..., None]
      x = block.finish(x, _attend(q, k, v, seen))
      cache.append((k.swapaxes(1, 2), v.swapaxes(1, 2)))
    return self._logits(x), cache

  def one(
    self,
    recent: chex.Array,
    length: chex.Array,
    i: chex.Array,
    prompts: list[KeysAndValues],
    said: list[KeysAndValues],
  ):
    """Logits [N, V] after byte `i` of every response, and `said` with it.

    The cache of the prompts is only read: what is written in every step is
    small, and all rows write at the same place.

    Args:
      recent: [N, window] int32, the last bytes, newest first.
      length: [N] int32, of the prompts.
      i: int32 scalar.
      prompts: cache of the prompts, [N, heads, L, D].
      said: of the responses so far, [N, heads, limit, D].
    """
    x = self._embedded(recent.T[..., None])
    position = (length + i)[:, None]
    seen = jnp.concatenate(
      [
        jnp.arange(prompts[0][0].shape[2])[None] < length[:, None],
        jnp.broadcast_to(
          jnp.arange(said[0][0].shape[2])[None] <= i,
          (len(length), said[0][0].shape[2]),
        ),
      ],
      axis=1,
    )
    grown = []
    for block, shown, (k, v) in zip(self.blocks, prompts, said, strict=True):
      q, new_k, new_v = (y.swapaxes(1, 2) for y in block.split(x, position))
      k = jax.lax.dynamic_update_slice_in_dim(k, new_k, i, 2)
      v = jax.lax.dynamic_update_slice_in_dim(v, new_v, i, 2)
      attended = _attend_one(q[:, :, 0], shown, (k, v), seen)
      x = block.finish(x, attended[:, None])
      grown.append((k, v))
    return self._logits(x)[:, 0], grown

  def _embedded(self, recent) -> chex.Array:
    """[N, L, width] of the bytes [N, L] at each position, then those before."""
    tables = [self.embed, *self.earlier]
    return sum(table(t) for table, t in zip(tables, recent, strict=True))

  def _logits(self, x: chex.Array) -> chex.Array:
    return self.embed.attend(self.last(x))


def _rotate(x: chex.Array, position: chex.Array) -> chex.Array:
  """Turns pairs of x [N, L, heads, D] by an angle that grows with position."""
  half = x.shape[-1] // 2
  rate = _BASE ** (-jnp.arange(half) / half)
  angle = jnp.einsum("nl,d->nld", position, rate)[:, :, None]
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  a, b = x[..., :half], x[..., half:]
  return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _attend(q, k, v, seen: chex.Array) -> chex.Array:
  """Values [N, L, heads, D]; `seen` [N or 1, L, S] says who sees whom."""
  scores = jnp.einsum("nlhd,nshd->nhls", q, k) * q.shape[-1] ** -0.5
  scores = jnp.where(seen[:, None], scores, _MASKED)
  return jnp.einsum("nhls,nshd->nlhd", jax.nn.softmax(scores), v)


def _attend_one(q, shown: KeysAndValues, own: KeysAndValues, seen: chex.Array):
  """The same for one query [N, heads, D] of two caches [N, heads, S, D]."""
  scores = jnp.concatenate(
    [jnp.einsum("nhd,nhsd->nhs", q, k) for k, _ in (shown, own)], axis=-1
  )
  scores = jnp.where(seen[:, None], scores * q.shape[-1] ** -0.5, _MASKED)
  weight = jax.nn.softmax(scores)
  cut = shown[0].shape[2]
  return jnp.einsum("nhs,nhsd->nhd", weight[..., :cut], shown[1]) + jnp.einsum(
    "nhs,nhsd->nhd", weight[..., cut:], own[1]
  )


def make_decoder(
  sizes: DecoderSizes, *, seed: int
) -> tuple[Any, Callable[..., chex.Array], Callable[..., Any]]:
  """Initial parameters, and the functions that read and write with them.

  The embedding is also the last layer; it begins small, so that a new decoder
  gives every byte about the same probability.

  Args:
    sizes: of the network.
    seed: of the initialisation.

  Returns:
    (params, logits function -> [N, S, V] after the tokens at `at`, write
    function of `_make_write`).

  Raises:
    ValueError: heads do not divide the width into even parts.
  """
  if sizes.width % (2 * sizes.heads):
    raise ValueError(
      f"decoder width {sizes.width} must be a multiple of twice its heads"
      f" ({sizes.heads})"
    )
  module = Decoder(sizes, rngs=nnx.Rngs(params=seed))
  module.embed.embedding[...] = module.embed.embedding[...] * 0.2
  graph, params = nnx.split(module)

  def logits(params, tokens, at):
    return nnx.merge(graph, params)(tokens, at)[0]

  return (
    nnx.to_pure_dict(params),
    logits,
    _make_write(graph, window=sizes.window),
  )


def _make_write(graph, *, window: int) -> Callable[..., Any]:
  """Returns jitted `write`, which samples one response for each prompt.

  Args of it:
    params: of the decoder.
    prompts: [N, L] int32, padded on the right.
    length: [N] int32, tokens of each prompt, at least 1.
    number: [N] int32; a row draws from `key`, its number and that of the token,
      so that what a row writes does not depend on the other rows.
    key: of the sampling.
    limit: most tokens of a response.
    temperature: 0 takes the most probable byte.

  Returns of it:
    (tokens [N, limit] int32 up to and with `END`, `PAD` behind it; their log
    probability [N, limit] at temperature 1, under which they are trained;
    0 behind the end).
  """

  def write(
    params, prompts, length, number, key, *, limit: int, temperature: float
  ):
    model = nnx.merge(graph, params)
    count = prompts.shape[0]
    first, cache = model(prompts, length[:, None] - 1)
    said = jax.tree.map(
      lambda x: jnp.zeros_like(x, shape=(*x.shape[:2], limit, x.shape[3])),
      cache,
    )
    rows = jnp.arange(count)
    back = length[:, None] - jnp.arange(1, window)[None]
    recent = jnp.where(back < 0, PAD, prompts[rows[:, None], back])
    row_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, number)

    def draw(logits, i):
      logits = logits.at[:, PAD].set(_MASKED)
      if temperature == 0:
        token = jnp.argmax(logits, axis=-1)
      else:
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(row_keys, i)
        token = jax.vmap(jax.random.categorical)(keys, logits / temperature)
      log_p = jax.nn.log_softmax(logits)
      return token.astype(jnp.int32), log_p[rows, token]

    def going_on(carry):
      i, alive = carry[0], carry[1]
      return (i < limit) & jnp.any(alive)

    def one_token(carry):
      i, alive, logits, recent, said, tokens, log_probs = carry
      token, log_prob = draw(logits, i)
      tokens = tokens.at[:, i].set(jnp.where(alive, token, PAD))
      log_probs = log_probs.at[:, i].set(jnp.where(alive, log_prob, 0.0))
      alive = alive & (token != END)
      recent = jnp.concatenate([token[:, None], recent], axis=1)
      logits, said = model.one(recent, length, i, cache, said)
      return i + 1, alive, logits, recent[:, :-1], said, tokens, log_probs

    start = (
      0,
      jnp.ones(count, bool),
      first[:, 0],
      recent,
      said,
      jnp.zeros((count, limit), jnp.int32),
      jnp.zeros((count, limit)),
    )
    *_, tokens, log_probs = jax.lax.while_loop(going_on, one_token, start)
    return tokens, log_probs

  return jax.jit(write, static_argnames=("limit", "temperature"))
