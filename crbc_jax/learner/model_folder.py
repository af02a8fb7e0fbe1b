"""Checks a local model folder in Hugging Face layout before it is loaded.

The loaders of the trainers take what they find: a missing tensor, a folder with
shards of two models, or a file of mixed types is a crash deep inside, or
silently wrong numbers. Everything here reads headers only, from the disk.
"""

import json
import pathlib
import struct
from typing import Any

from crbc_jax.policies.decoder_shape import DecoderShape, from_huggingface

DTYPES = {"BF16": 2, "F16": 2, "F32": 4}
"""Types of weights that are read, and their bytes."""


class CheckpointError(ValueError):
  """A model folder that cannot be loaded; says which file and why."""


def read_shape(folder: str | pathlib.Path) -> DecoderShape:
  """Sizes of the model, from `config.json` of its folder.

  Raises:
    CheckpointError: no folder or file, no JSON, or a model we cannot run.
  """
  config = _read_json(_existing(folder) / "config.json")
  try:
    return from_huggingface(config)
  except ValueError as error:
    raise CheckpointError(f"{folder}: {error}") from error


def expected_tensors(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
  """Names and shapes of the tensors of a checkpoint, as PyTorch keeps them."""
  d, f = shape.hidden, shape.mlp
  q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
  layer = {
    "input_layernorm.weight": (d,),
    "post_attention_layernorm.weight": (d,),
    "self_attn.q_proj.weight": (q, d),
    "self_attn.k_proj.weight": (kv, d),
    "self_attn.v_proj.weight": (kv, d),
    "self_attn.o_proj.weight": (d, q),
    "mlp.gate_proj.weight": (f, d),
    "mlp.up_proj.weight": (f, d),
    "mlp.down_proj.weight": (d, f),
  }
  if shape.kind == "qwen2":
    layer |= {
      "self_attn.q_proj.bias": (q,),
      "self_attn.k_proj.bias": (kv,),
      "self_attn.v_proj.bias": (kv,),
    }
  if shape.kind == "qwen3":
    layer |= {
      "self_attn.q_norm.weight": (shape.head_dim,),
      "self_attn.k_norm.weight": (shape.head_dim,),
    }
  tensors: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (shape.vocabulary, d),
    "model.norm.weight": (d,),
  }
  if not shape.tied:
    tensors["lm_head.weight"] = (shape.vocabulary, d)
  for i in range(shape.layers):
    tensors |= {f"model.layers.{i}.{name}": s for name, s in layer.items()}
  return tensors


def check_folder(folder: str | pathlib.Path) -> DecoderShape:
  """Checks that the weights are complete, of one type and of the right shapes.

  Args:
    folder: with `config.json` and `*.safetensors` (all of them are read, so
      there must be nothing else of that kind in it).

  Returns:
    The sizes of the model.

  Raises:
    CheckpointError: a file or tensor is missing, twice there, cut off, of
      another shape or type; the message names it.
  """
  shape = read_shape(folder)
  folder = _existing(folder)
  files = sorted(folder.glob("*.safetensors"))
  index = folder / "model.safetensors.index.json"
  if index.is_file():
    listed = sorted(set(_read_json(index).get("weight_map", {}).values()))
    gone = [name for name in listed if not (folder / name).is_file()]
    if gone:
      raise CheckpointError(
        f"{folder}: shard {gone[0]} of {index.name} is missing"
        f" ({len(gone)} of {len(listed)} are)"
      )
  if not files:
    raise CheckpointError(
      f"{folder} has no *.safetensors; convert other formats, and copy the "
      "weights here first: nothing is downloaded"
    )
  found: dict[str, tuple[int, ...]] = {}
  for path in files:
    for name, size in _tensors_of(path).items():
      if name in found:
        raise CheckpointError(f"{path}: tensor {name} is in another file too")
      found[name] = size
  _compare(folder, found, expected_tensors(shape), tied=shape.tied)
  return shape


def _compare(folder, found, expected, *, tied: bool) -> None:
  missing = [name for name in expected if name not in found]
  if missing:
    raise CheckpointError(
      f"{folder}: tensor {missing[0]} is missing ({len(missing)} of "
      f"{len(expected)} are)"
    )
  for name, size in found.items():
    if name not in expected:
      # A copy of the embedding, and a buffer of old releases.
      if name.endswith("rotary_emb.inv_freq") or (
        tied and name == "lm_head.weight"
      ):
        continue
      raise CheckpointError(f"{folder}: unknown tensor {name}")
    if size != expected[name]:
      raise CheckpointError(
        f"{folder}: tensor {name} is {size}, but config.json says "
        f"{expected[name]}"
      )


def _tensors_of(path: pathlib.Path) -> dict[str, tuple[int, ...]]:
  """Shapes by name, from the header: its length (8 bytes), then JSON."""
  size = path.stat().st_size
  with path.open("rb") as file:
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if 8 + length > size:
      raise CheckpointError(f"{path} is cut off or not a safetensors file")
    try:
      header = json.loads(file.read(length))
    except ValueError as error:
      raise CheckpointError(f"{path}: its header is not JSON") from error
  header.pop("__metadata__", None)
  kinds = {entry["dtype"] for entry in header.values()}
  if len(kinds) > 1 or not kinds <= DTYPES.keys():
    # The trainer's loader reads a whole file as the type of its first tensor.
    raise CheckpointError(
      f"{path} holds {', '.join(sorted(kinds))}; one of {', '.join(DTYPES)} "
      "for the whole file is needed"
    )
  end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
  if 8 + length + end > size:
    raise CheckpointError(
      f"{path} is cut off: {size:,} bytes instead of {8 + length + end:,}"
    )
  return {name: tuple(entry["shape"]) for name, entry in header.items()}


def _existing(folder: str | pathlib.Path) -> pathlib.Path:
  path = pathlib.Path(folder).expanduser()
  if not path.is_dir():
    raise CheckpointError(
      f"no model folder {path}; it must be a local folder with config.json and "
      "*.safetensors: nothing is downloaded"
    )
  return path


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    raise CheckpointError(f"{path.parent} has no {path.name}")
  try:
    found = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise CheckpointError(f"{path} is not JSON: {error}") from error
  if not isinstance(found, dict):
    raise CheckpointError(f"{path} is not a JSON object")
  return found
