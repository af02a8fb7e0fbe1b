"""The sizes of a decoder-only language model, and its number of parameters."""

import dataclasses
from collections.abc import Mapping
from typing import Any

_KINDS = ("qwen2", "qwen3", "llama")


@dataclasses.dataclass(frozen=True)
class DecoderShape:
  """Sizes of a Qwen2, Qwen3 or Llama decoder, as its `config.json` says them.

  Attributes:
    kind: "qwen2" (biases on q, k, v), "qwen3" (norms of q and k) or "llama".
    layers: L.
    hidden: D, width of the residual stream.
    mlp: F, width inside the gated MLP.
    heads: N, query heads.
    kv_heads: K, key and value heads; divides N.
    head_dim: H.
    vocabulary: V, rows of the embedding.
    tied: the output projection is the embedding.
    rope_theta: base of the rotary frequencies.
    norm_eps: added to the mean square in the norms.
  """

  kind: str
  layers: int
  hidden: int
  mlp: int
  heads: int
  kv_heads: int
  head_dim: int
  vocabulary: int
  tied: bool
  rope_theta: float = 1e6
  norm_eps: float = 1e-6

  def __post_init__(self):
    if self.kind not in _KINDS:
      raise ValueError(f"kind must be one of {_KINDS}, got {self.kind!r}")
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.name not in ("kind", "tied") and not value > 0:
        raise ValueError(f"{field.name} must be > 0, got {value!r}")
    if self.heads % self.kv_heads:
      raise ValueError(
        f"kv_heads ({self.kv_heads}) must divide heads ({self.heads})"
      )

  @property
  def embedding_parameters(self) -> int:
    """V D, twice if untied."""
    return self.vocabulary * self.hidden * (1 if self.tied else 2)

  @property
  def layer_parameters(self) -> int:
    """Of one layer: D (N + 2 K) H + N H D + 3 D F + 2 D, and what q and k add.

    Qwen2 adds the biases (N + 2 K) H, Qwen3 two norms of H.
    """
    qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
    extra = {"qwen2": qkv, "qwen3": 2 * self.head_dim, "llama": 0}[self.kind]
    return (
      self.hidden * qkv
      + self.heads * self.head_dim * self.hidden
      + 3 * self.hidden * self.mlp
      + 2 * self.hidden
      + extra
    )

  @property
  def parameters(self) -> int:
    """All of them: embeddings, L layers, the last norm."""
    return (
      self.embedding_parameters
      + self.layers * self.layer_parameters
      + self.hidden
    )

  def lora_parameters(self, rank: int) -> int:
    """Of LoRA on the seven projections of every layer: L Σ rank (in + out)."""
    d, f = self.hidden, self.mlp
    q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
    sizes = 2 * (d + q) + 2 * (d + kv) + 3 * (d + f)
    return self.layers * rank * sizes


def _qwen2(layers, hidden, mlp, heads, kv_heads, vocabulary, *, tied):
  return DecoderShape(
    kind="qwen2",
    layers=layers,
    hidden=hidden,
    mlp=mlp,
    heads=heads,
    kv_heads=kv_heads,
    head_dim=hidden // heads,
    vocabulary=vocabulary,
    tied=tied,
  )


def _qwen3(layers, hidden, mlp, heads, *, tied):
  return DecoderShape(
    kind="qwen3",
    layers=layers,
    hidden=hidden,
    mlp=mlp,
    heads=heads,
    kv_heads=8,
    head_dim=128,
    vocabulary=151_936,
    tied=tied,
  )


SHAPES = {
  "Qwen2.5-0.5B": _qwen2(24, 896, 4_864, 14, 2, 151_936, tied=True),
  "Qwen2.5-1.5B": _qwen2(28, 1_536, 8_960, 12, 2, 151_936, tied=True),
  "Qwen2.5-3B": _qwen2(36, 2_048, 11_008, 16, 2, 151_936, tied=True),
  "Qwen2.5-7B": _qwen2(28, 3_584, 18_944, 28, 4, 152_064, tied=False),
  "Qwen3-0.6B": _qwen3(28, 1_024, 3_072, 16, tied=True),
  "Qwen3-1.7B": _qwen3(28, 2_048, 6_144, 16, tied=True),
  "Qwen3-4B": _qwen3(36, 2_560, 9_728, 32, tied=True),
  "Qwen3-8B": _qwen3(36, 4_096, 12_288, 32, tied=False),
  "Qwen3-14B": _qwen3(40, 5_120, 17_408, 40, tied=False),
  "Qwen3-32B": _qwen3(64, 5_120, 25_600, 64, tied=False),
}
"""Published sizes by name."""

TINY = DecoderShape(
  kind="qwen2",
  layers=2,
  hidden=64,
  mlp=128,
  heads=4,
  kv_heads=2,
  head_dim=16,
  vocabulary=320,
  tied=True,
)
"""The stand-in of a dry run: bytes and a few special tokens."""


def from_huggingface(config: Mapping[str, Any]) -> DecoderShape:
  """Reads a Hugging Face `config.json`, of transformers 4 or 5.

  Refuses what the models here would silently compute otherwise: scaled rotary
  positions, sliding windows, another activation, biases elsewhere.

  Raises:
    ValueError: an unknown model_type, a missing key, or such a feature.
  """
  kind = config.get("model_type")
  if kind not in _KINDS:
    raise ValueError(
      f"model_type {kind!r} is not one of {', '.join(_KINDS)} (dense models)"
    )
  missing = [key for key in _REQUIRED if key not in config]
  if missing:
    raise ValueError(f"config.json lacks {', '.join(missing)}")
  _refuse_unsupported(config)
  rope = config.get("rope_parameters") or {}  # transformers 5
  theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
  hidden, heads = config["hidden_size"], config["num_attention_heads"]
  return DecoderShape(
    kind=kind,
    layers=config["num_hidden_layers"],
    hidden=hidden,
    mlp=config["intermediate_size"],
    heads=heads,
    kv_heads=config.get("num_key_value_heads") or heads,
    head_dim=config.get("head_dim") or hidden // heads,
    vocabulary=config["vocab_size"],
    tied=bool(config.get("tie_word_embeddings", False)),
    rope_theta=float(theta),
    norm_eps=float(config["rms_norm_eps"]),
  )


_REQUIRED = (
  "hidden_size",
  "num_attention_heads",
  "num_hidden_layers",
  "intermediate_size",
  "vocab_size",
  "rms_norm_eps",
)


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
  rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
  scaling = rope.get("rope_type", rope.get("type", "default"))
  found = {
    f"rotary scaling {scaling!r}": scaling != "default",
    "use_sliding_window": config.get("use_sliding_window"),
    f"hidden_act {config.get('hidden_act')!r}": config.get("hidden_act", "silu")
    != "silu",
    # Qwen2 always has biases on q, k, v and nowhere else.
    "attention_bias": config.get("attention_bias"),
    "mlp_bias": config.get("mlp_bias"),
  }
  for what, present in found.items():
    if present:
      raise ValueError(f"config.json has {what}, which is not supported")
