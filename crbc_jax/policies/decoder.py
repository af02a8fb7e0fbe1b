"""A Llama-like decoder in plain JAX: small models that score actions.

Rotary positions (half rotation), grouped queries, gated MLP, root-mean-square
norms, tied embeddings. Layers are stacked and scanned, so that a model of
thirty layers compiles as fast as one of a single layer. For training at scale
use `crbc_jax.integrations.pretrained`.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax.policies.decoder_shape import DecoderShape

Params = dict[str, Any]


def tensor_shapes(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
  """Names and shapes of the parameters; those of layers have L in front.

  Raises:
    ValueError: the model has biases, norms of q and k, or an output projection
      of its own.
  """
  if shape.kind != "llama" or not shape.tied:
    raise ValueError("this decoder is for tied Llama models")
  d, f, count = shape.hidden, shape.mlp, shape.layers
  n, k, h = shape.heads, shape.kv_heads, shape.head_dim
  return {
    "embedding": (shape.vocabulary, d),
    "last_norm": (d,),
    "attention_norm": (count, d),
    "q": (count, d, n, h),
    "k": (count, d, k, h),
    "v": (count, d, k, h),
    "o": (count, n, h, d),
    "mlp_norm": (count, d),
    "gate": (count, d, f),
    "up": (count, d, f),
    "down": (count, f, d),
  }


def init(key: chex.PRNGKey, shape: DecoderShape) -> Params:
  """Random parameters: normal with scale 1 / sqrt(fan-in), norms one."""
  shapes = tensor_shapes(shape)
  keys = jax.random.split(key, len(shapes))
  fan_in = dict.fromkeys(shapes, shape.hidden)
  fan_in |= {"o": shape.heads * shape.head_dim, "down": shape.mlp}
  return {
    name: jnp.ones(size)
    if name.endswith("norm")
    else jax.random.normal(k, size) * fan_in[name] ** -0.5
    for k, (name, size) in zip(keys, shapes.items(), strict=True)
  }


def logits(
  params: Params, tokens: chex.Array, mask: chex.Array, *, shape: DecoderShape
) -> chex.Array:
  """Next-token logits of one text.

  Args:
    params: see `tensor_shapes`.
    tokens: [T] int32.
    mask: [T] bool, False on padding, left or right.
    shape: sizes of the model.

  Returns:
    [T, V] float32; in the padding finite and without meaning.
  """
  chex.assert_equal_shape([tokens, mask])
  length = tokens.shape[0]
  position = jnp.maximum(jnp.cumsum(mask.astype(jnp.int32)) - 1, 0)
  sin, cos = _rotary(position, shape)
  seen = jnp.tril(jnp.ones((length, length), bool)) & mask[None, :]
  seen = seen | jnp.eye(length, dtype=bool)  # softmax of nothing is NaN

  def layer(x, p):
    with jax.default_matmul_precision("highest"):
      y = _norm(x, p["attention_norm"], shape)
      q = _rotate(jnp.einsum("td,dnh->tnh", y, p["q"]), sin, cos)
      k = _rotate(jnp.einsum("td,dkh->tkh", y, p["k"]), sin, cos)
      v = jnp.einsum("td,dkh->tkh", y, p["v"])
      x = x + jnp.einsum("tnh,nhd->td", _attend(q, k, v, seen), p["o"])
      y = _norm(x, p["mlp_norm"], shape)
      return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], None

  stacked = {
    name: value
    for name, value in params.items()
    if name not in ("embedding", "last_norm")
  }
  x = params["embedding"][tokens]
  x, _ = jax.lax.scan(layer, x, stacked)
  x = _norm(x, params["last_norm"], shape)
  return jnp.matmul(x, params["embedding"].T, precision="highest")


def response_log_prob(
  params: Params,
  tokens: chex.Array,
  mask: chex.Array,
  response: chex.Array,
  *,
  shape: DecoderShape,
) -> chex.Array:
  """Teacher-forced log-probability of a response: Σ ln π(y_t | y_<t, prompt).

  Args:
    params: of the model.
    tokens: [T] int32, prompt and response.
    mask: [T] bool, False on padding.
    response: [T] bool, True on the tokens that count; never the first one.
    shape: sizes of the model.

  Returns:
    A float32 scalar.
  """
  every = jax.nn.log_softmax(logits(params, tokens, mask, shape=shape)[:-1])
  taken = jnp.take_along_axis(every, tokens[1:, None], axis=-1)[:, 0]
  return jnp.sum(jnp.where(response[1:] & mask[1:], taken, 0.0))


def _rotary(position, shape: DecoderShape):
  """Sines and cosines [T, H / 2] of position / theta^(2 i / H)."""
  half = jnp.arange(shape.head_dim // 2, dtype=jnp.float32)
  frequency = shape.rope_theta ** (-2.0 * half / shape.head_dim)
  angle = position[:, None].astype(jnp.float32) * frequency[None, :]
  return jnp.sin(angle), jnp.cos(angle)


def _rotate(x, sin, cos):
  """Turns the pairs (x_i, x_{i + H/2}) of each head [T, N, H]."""
  first, second = jnp.split(x, 2, axis=-1)
  sin, cos = sin[:, None, :], cos[:, None, :]
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )


def _attend(q, k, v, seen):
  """Grouped-query attention: N query heads share K key heads. [T, N, H]."""
  length, heads, size = q.shape
  q = q.reshape(length, k.shape[1], heads // k.shape[1], size)
  score = jnp.einsum("tkgh,skh->kgts", q, k) * size**-0.5
  score = jnp.where(seen[None, None], score, -jnp.inf)
  weight = jax.nn.softmax(score, axis=-1)
  return jnp.einsum("kgts,skh->tkgh", weight, v).reshape(length, heads, size)


def _norm(x, scale, shape: DecoderShape):
  mean_square = jnp.mean(x**2, axis=-1, keepdims=True)
  return x * jax.lax.rsqrt(mean_square + shape.norm_eps) * scale[None, :]
