"""A small decoder, and one that is slow and obvious to compare it with."""

import jax
import numpy as np

from crbc_jax.policies import decoder
from crbc_jax.policies.decoder_shape import DecoderShape

SHAPE = DecoderShape(
  kind="llama",
  layers=2,
  hidden=12,
  mlp=20,
  heads=4,
  kv_heads=2,
  head_dim=6,
  vocabulary=11,
  tied=True,
  rope_theta=100.0,
  norm_eps=1e-5,
)


def make_params():
  """Random ones, with norms that are not one, so that none can be left out."""
  found = decoder.init(jax.random.key(0), SHAPE)
  keys = iter(jax.random.split(jax.random.key(1), 3))
  for name in ("last_norm", "attention_norm", "mlp_norm"):
    found[name] += 0.3 * jax.random.normal(next(keys), found[name].shape)
  return found


def slow_logits(params, tokens):
  """One text without padding, loops over everything, float64."""
  p = {k: np.asarray(v, np.float64) for k, v in params.items()}
  h = SHAPE.head_dim

  def norm(x, scale):
    return x / np.sqrt((x**2).mean() + SHAPE.norm_eps) * scale

  def turned(x, t):
    out = np.empty(h)
    for i in range(h // 2):
      angle = t * SHAPE.rope_theta ** (-2 * i / h)
      a, b = x[i], x[i + h // 2]
      out[i] = a * np.cos(angle) - b * np.sin(angle)
      out[i + h // 2] = b * np.cos(angle) + a * np.sin(angle)
    return out

  xs = [p["embedding"][t] for t in tokens]
  for i in range(SHAPE.layers):
    ys = [norm(x, p["attention_norm"][i]) for x in xs]
    after = []
    for t, x in enumerate(xs):
      total = np.zeros(SHAPE.hidden)
      for n in range(SHAPE.heads):
        group = n // (SHAPE.heads // SHAPE.kv_heads)
        q = turned(ys[t] @ p["q"][i][:, n], t)
        score = np.array(
          [
            q @ turned(ys[s] @ p["k"][i][:, group], s) / np.sqrt(h)
            for s in range(t + 1)
          ]
        )
        weight = np.exp(score - score.max())
        weight /= weight.sum()
        value = sum(
          w * (ys[s] @ p["v"][i][:, group]) for s, w in enumerate(weight)
        )
        total += value @ p["o"][i][n]
      after.append(x + total)
    xs = []
    for x in after:
      y = norm(x, p["mlp_norm"][i])
      gate = y @ p["gate"][i]
      gate = gate / (1 + np.exp(-gate))
      xs.append(x + (gate * (y @ p["up"][i])) @ p["down"][i])
  return np.stack([p["embedding"] @ norm(x, p["last_norm"]) for x in xs])
