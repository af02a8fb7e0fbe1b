"""Qwen2, Qwen2.5 and Qwen3 from a local folder, as models of tunix.

Needs the extra `[tunix]`. Nothing here touches the network.
"""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from crbc_jax.checks import check_choice
from crbc_jax.learner.memory_plan import REMATS
from crbc_jax.learner.model_folder import CheckpointError, check_folder
from crbc_jax.policies.decoder_shape import DecoderShape

MESH_AXES = ("fsdp", "tp")
PROJECTIONS = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"
_QWEN3_THETA = 1e6  # a constant in tunix 0.1.7


@dataclasses.dataclass(frozen=True)
class Lora:
  """Low-rank additions to the projections: W + (alpha / rank) A B.

  Attributes:
    rank: of A B, at least 1.
    alpha: scale; alpha = rank adds A B itself.
    modules: which projections, a regular expression on their names.
  """

  rank: int = 16
  alpha: float = 32.0
  modules: str = PROJECTIONS

  def __post_init__(self):
    if self.rank < 1 or not self.alpha > 0:
      raise ValueError(
        f"LoRA needs rank >= 1 and alpha > 0, got {self.rank}, {self.alpha}"
      )


def make_mesh(
  *, fsdp: int = -1, tp: int = 1, devices: list[Any] | None = None
) -> jax.sharding.Mesh:
  """The mesh (fsdp, tp) over all devices of all hosts.

  Args:
    fsdp: parts of the batch, and of the weights where they are kept; -1: as
      many as there are devices for.
    tp: parts of the heads and of the MLP.
    devices: default `jax.devices()`.

  Raises:
    ValueError: fsdp * tp is not the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  count = len(devices)
  if tp < 1 or (fsdp < 1 and fsdp != -1):
    raise ValueError(f"mesh: fsdp and tp must be >= 1, got {fsdp}, {tp}")
  if fsdp == -1:
    fsdp = count // tp
  if fsdp * tp != count:
    raise ValueError(f"mesh: fsdp {fsdp} x tp {tp} is not {count} device(s)")
  return jax.sharding.Mesh(np.array(devices).reshape(fsdp, tp), MESH_AXES)


def check_mesh(shape: DecoderShape, mesh: jax.sharding.Mesh) -> None:
  """Refuses a mesh that would split something into unequal parts.

  Raises:
    ValueError: says what does not divide.
  """
  fsdp, tp = (mesh.shape.get(axis, 1) for axis in MESH_AXES)
  sizes = {
    "kv_heads": (shape.kv_heads, tp, "tp"),
    "heads": (shape.heads, tp, "tp"),
    "mlp": (shape.mlp, tp, "tp"),
    "vocabulary": (shape.vocabulary, tp, "tp"),
    "head_dim": (shape.head_dim, tp, "tp"),
    "hidden": (shape.hidden, tp, "tp"),
    "hidden of": (shape.hidden, fsdp, "fsdp"),
  }
  for what, (size, parts, axis) in sizes.items():
    if size % parts:
      raise ValueError(
        f"mesh: {axis} = {parts} does not divide {what.split()[0]} = {size}"
      )


def model_config(
  shape: DecoderShape,
  *,
  dtype: Any,
  param_dtype: Any = None,
  remat: str = "none",
):
  """The sizes as a ModelConfig of tunix's qwen2 or qwen3.

  Args:
    shape: of a Qwen2 or Qwen3.
    dtype: of computation.
    param_dtype: of parameters, default `dtype`.
    remat: what the backward pass computes again, "none", "block" (attention
      and MLP) or "decoder" (whole layers: the least memory).

  Raises:
    ValueError: another model, an unknown `remat`, or a Qwen3 whose rotary base
      tunix 0.1.7 ignores (Qwen3-4B of July 2025).
  """
  check_choice("remat", remat, REMATS)
  library = _library(shape)
  if shape.kind == "qwen3" and shape.rope_theta != _QWEN3_THETA:
    raise ValueError(
      f"tunix computes Qwen3 with rope_theta {_QWEN3_THETA:g} whatever its "
      f"config says; this model has {shape.rope_theta:g}"
    )
  return library.ModelConfig(
    num_layers=shape.layers,
    vocab_size=shape.vocabulary,
    embed_dim=shape.hidden,
    hidden_dim=shape.mlp,
    num_heads=shape.heads,
    head_dim=shape.head_dim,
    num_kv_heads=shape.kv_heads,
    rope_theta=shape.rope_theta,
    norm_eps=shape.norm_eps,
    use_tied_embedding=shape.tied,
    remat_config=library.RematConfig[remat.upper()],
    dtype=dtype,
    param_dtype=param_dtype or dtype,
  )


def load_qwen(
  folder: str | pathlib.Path,
  *,
  mesh: jax.sharding.Mesh | None = None,
  dtype: Any = jnp.bfloat16,
  param_dtype: Any = None,
  remat: str = "none",
  lora: Lora | None = None,
  seed: int = 0,
) -> Any:
  """The model of a folder in Hugging Face layout, with its weights.

  Args:
    folder: `config.json` and `*.safetensors`; checked first, see
      `crbc_jax.learner.model_folder`.
    mesh: with axes (fsdp, tp), see `make_mesh`; None: the first device.
    dtype: of computation, and of weights that stay frozen.
    param_dtype: of the weights that are trained, default `dtype`. An update of
      1e-6 is lost in a bfloat16 weight: train float32 ones.
    remat: see `model_config`.
    lora: adds low-rank parameters, the only ones to be trained then.
    seed: of those.

  Returns:
    Qwen2 or Qwen3 of tunix, called as
    `model(tokens, positions, None, attention_mask)`, see `inputs_of`.

  Raises:
    CheckpointError: the folder is incomplete or holds another model.
    ValueError: the mesh does not divide the model.
  """
  shape = check_folder(folder)
  if shape.kind not in ("qwen2", "qwen3"):
    raise CheckpointError(f"{folder}: model_type {shape.kind!r} is not a Qwen")
  if mesh is not None:
    check_mesh(shape, mesh)
  param_dtype = param_dtype or dtype
  base_dtype = dtype if lora else param_dtype
  config = model_config(shape, dtype=dtype, param_dtype=base_dtype, remat=remat)
  if shape.kind == "qwen2":
    from tunix.models.qwen2 import params
  else:
    from tunix.models.qwen3 import params
  model = params.create_model_from_safe_tensors(
    str(pathlib.Path(folder).expanduser()), config, mesh, dtype=base_dtype
  )
  if not lora:
    return model
  return with_lora(model, lora, mesh=mesh, param_dtype=param_dtype, seed=seed)


def random_qwen(
  shape: DecoderShape,
  *,
  mesh: jax.sharding.Mesh | None = None,
  dtype: Any = jnp.float32,
  remat: str = "none",
  lora: Lora | None = None,
  seed: int = 0,
) -> Any:
  """The same with random weights: the stand-in of a dry run.

  Tunix starts its MLPs at zero, where no gradient passes; here they are drawn.
  """
  if mesh is not None:
    check_mesh(shape, mesh)
  config = model_config(shape, dtype=dtype, remat=remat)
  library = _library(shape)
  kind = library.Qwen2 if shape.kind == "qwen2" else library.Qwen3
  model = kind(config, rngs=nnx.Rngs(params=seed))
  state = nnx.state(model, nnx.Param)
  keys = iter(
    jax.random.split(jax.random.key(seed), len(jax.tree.leaves(state)))
  )

  def draw(value):
    key = next(keys)
    if value.ndim < 2:  # norms and biases
      return value
    noise = 0.02 * jax.random.normal(key, value.shape)
    return noise.astype(value.dtype)

  nnx.update(model, jax.tree.map(draw, state))
  if mesh is not None:
    model = _on_mesh(model, mesh)
  if not lora:
    return model
  return with_lora(model, lora, mesh=mesh, param_dtype=dtype, seed=seed)


def with_lora(
  model: Any,
  lora: Lora,
  *,
  param_dtype: Any,
  mesh: jax.sharding.Mesh | None = None,
  seed: int = 0,
) -> Any:
  """A copy of the model with low-rank parameters, by qwix as tunix does it.

  B starts at zero: the copy computes what the model computes.
  """
  import qwix

  provider = qwix.LoraProvider(
    module_path=f".*({lora.modules})", rank=lora.rank, alpha=lora.alpha
  )
  inputs = inputs_of(jnp.ones((_lora_batch(mesh), 1), jnp.int32))
  model = qwix.apply_lora_to_model(
    model, provider, *inputs, rngs=nnx.Rngs(params=seed)
  )
  added = nnx.state(model, nnx.LoRAParam)
  nnx.update(model, jax.tree.map(lambda x: x.astype(param_dtype), added))
  return model if mesh is None else _on_mesh(model, mesh)


def inputs_of(
  tokens: jax.Array, mask: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, None, jax.Array]:
  """What a tunix model is called with for whole texts.

  Positions count the real tokens, so that padding on the left changes nothing;
  a token sees the real tokens up to itself. A padded token sees itself: its
  softmax has something to sum.

  Args:
    tokens: [B, T] int32.
    mask: [B, T] bool, False on padding (left or right); None: no padding.

  Returns:
    (tokens [B, T], positions [B, T], no cache, attention mask [B, T, T]).
  """
  if mask is None:
    mask = jnp.ones(tokens.shape, bool)
  positions = jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=-1) - 1, 0)
  length = tokens.shape[-1]
  causal = jnp.tril(jnp.ones((length, length), bool))[None]
  itself = jnp.eye(length, dtype=bool)[None]
  return tokens, positions, None, (causal & mask[:, None, :]) | itself


def _library(shape: DecoderShape):
  if shape.kind == "qwen2":
    from tunix.models.qwen2 import model

    return model
  if shape.kind == "qwen3":
    from tunix.models.qwen3 import model as model3

    return model3
  raise ValueError(f"{shape.kind!r} is not a Qwen")


def _lora_batch(mesh: jax.sharding.Mesh | None) -> int:
  return 1 if mesh is None else mesh.shape[MESH_AXES[0]]


def _on_mesh(model: Any, mesh: jax.sharding.Mesh) -> Any:
  from tunix.rl import reshard

  return reshard.reshard_model_to_mesh(model, mesh)
