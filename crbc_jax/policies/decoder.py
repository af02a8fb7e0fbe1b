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
_ONCE = ("embedding", "last_norm")  # all other parameters are of each layer


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
  seen = jnp.tril(jnp.ones((length, length), bool)) & mask[None, :]
  seen = seen | jnp.eye(length, dtype=bool)  # softmax of nothing is NaN
  x = layers(params, params["embedding"][tokens], position, seen, shape=shape)
  return unembed(params["embedding"], params["last_norm"], x, shape=shape)


def layers(
  params: Params,
  x: chex.Array,
  position: chex.Array,
  seen: chex.Array,
  *,
  shape: DecoderShape,
) -> chex.Array:
  """What the layers in `params` make of one text, however many there are.

  Args:
    params: see `tensor_shapes`; those that are no layers are not read.
    x: [T, D], embedded tokens or what lower layers made of them.
    position: [T] int32, of each token in its text.
    seen: [T, T] bool, whom each token (row) attends to, itself at least.
    shape: sizes of the model.

  Returns:
    [T, D] float32.
  """
  sin, cos = _rotary(position, shape)

  def layer(x, p):
    with jax.default_matmul_precision("highest"):
      y = _norm(x, p["attention_norm"], shape)
      q = _rotate(jnp.einsum("td,dnh->tnh", y, p["q"]), sin, cos)
      k = _rotate(jnp.einsum("td,dkh->tkh", y, p["k"]), sin, cos)
      v = jnp.einsum("td,dkh->tkh", y, p["v"])
      x = x + jnp.einsum("tnh,nhd->td", _attend(q, k, v, seen), p["o"])
      y = _norm(x, p["mlp_norm"], shape)
      return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], None

  stacked = {k: v for k, v in params.items() if k not in _ONCE}
  return jax.lax.scan(layer, x, stacked)[0]


def unembed(
  embedding: chex.Array,
  last_norm: chex.Array,
  x: chex.Array,
  *,
  shape: DecoderShape,
) -> chex.Array:
  """Logits [T, V] of the last layer's output x [T, D]."""
  x = _norm(x, last_norm, shape)
  return jnp.matmul(x, embedding.T, precision="highest")


def split_last(params: Params, count: int) -> tuple[Params, Params]:
  """(what is below the last `count` layers, those layers and the last norm).

  The embedding, which is also the output layer, is below: it stays as it is
  when only the last layers are trained.

  Raises:
    ValueError: the model has fewer layers, or count is not positive.
  """
  depth = params["attention_norm"].shape[0]
  if not 0 < count <= depth:
    raise ValueError(f"layers to split off must be 1 to {depth}, got {count}")
  below = {k: v[:-count] for k, v in params.items() if k not in _ONCE}
  last = {k: v[-count:] for k, v in params.items() if k not in _ONCE}
  below["embedding"] = params["embedding"]
  last["last_norm"] = params["last_norm"]
  return below, last


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
