"""Broken model folders are refused by name before anything is loaded."""

import json
import struct

import numpy as np
import pytest

from crbc_jax.learner import model_folder
from crbc_jax.policies import decoder_shape

CONFIG = {
  "model_type": "qwen2",
  "hidden_size": 8,
  "intermediate_size": 12,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "vocab_size": 10,
  "rms_norm_eps": 1e-6,
  "rope_theta": 1e6,
  "tie_word_embeddings": True,
}


def write_weights(path, tensors, kinds=None):
  """A safetensors file of zeros: header length, header, bytes."""
  header, end = {}, 0
  for i, (name, shape) in enumerate(tensors.items()):
    kind = kinds[i] if kinds else "BF16"
    size = int(np.prod(shape)) * model_folder.DTYPES.get(kind, 1)
    header[name] = {
      "dtype": kind,
      "shape": list(shape),
      "data_offsets": [end, end + size],
    }
    end += size
  text = json.dumps(header).encode()
  path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def tensors(**changes):
  shape = decoder_shape.from_huggingface(CONFIG | changes)
  return model_folder.expected_tensors(shape)


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "config.json").write_text(json.dumps(CONFIG))
  write_weights(tmp_path / "model.safetensors", tensors())
  return tmp_path


def refusal(folder):
  with pytest.raises(model_folder.CheckpointError) as error:
    model_folder.check_folder(folder)
  return str(error.value)


def test_a_whole_folder_passes(folder):
  shape = model_folder.check_folder(folder)
  assert shape.head_dim == 2
  assert shape.kv_heads == 2
  # Every published parameter is one of the expected tensors.
  total = sum(int(np.prod(s)) for s in tensors().values())
  assert total == shape.parameters


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_tensors_add_up_to_the_parameters(kind, tied):
  config = CONFIG | {"model_type": kind, "tie_word_embeddings": tied}
  shape = decoder_shape.from_huggingface(config)
  found = model_folder.expected_tensors(shape).values()
  assert sum(int(np.prod(s)) for s in found) == shape.parameters


def test_shards_are_read_together(folder):
  whole = list(tensors().items())
  (folder / "model.safetensors").unlink()
  for i, part in enumerate((whole[:5], whole[5:])):
    write_weights(folder / f"model-{i}.safetensors", dict(part))
  weight_map = {
    name: f"model-{int(i >= 5)}.safetensors"
    for i, (name, _) in enumerate(whole)
  }
  index = folder / "model.safetensors.index.json"
  index.write_text(json.dumps({"weight_map": weight_map}))
  model_folder.check_folder(folder)
  (folder / "model-1.safetensors").unlink()
  assert "shard model-1.safetensors" in refusal(folder)
  index.unlink()  # and without the index the tensors themselves are missed
  assert "is missing" in refusal(folder)


def test_no_folder_no_config_no_weights(folder, tmp_path):
  assert "no model folder" in refusal(tmp_path / "elsewhere")
  (folder / "model.safetensors").unlink()
  assert "no *.safetensors" in refusal(folder)
  (folder / "config.json").unlink()
  assert "has no config.json" in refusal(folder)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_config_that_is_no_object(folder, text):
  (folder / "config.json").write_text(text)
  assert "config.json is not" in refusal(folder)


def test_a_missing_a_wrong_and_an_unknown_tensor(folder):
  path = folder / "model.safetensors"
  some = tensors()
  some.pop("model.norm.weight")
  write_weights(path, some)
  assert "model.norm.weight is missing (1 of" in refusal(folder)
  write_weights(path, tensors() | {"model.norm.weight": (9,)})
  assert "model.norm.weight is (9,)" in refusal(folder)
  write_weights(path, tensors() | {"visual.blocks.0": (9,)})
  assert "unknown tensor visual.blocks.0" in refusal(folder)
  # What old releases wrote besides is no reason to refuse.
  write_weights(path, tensors() | {"lm_head.weight": (10, 8)})
  model_folder.check_folder(folder)


def test_a_tensor_twice(folder):
  write_weights(folder / "other.safetensors", {"model.norm.weight": (8,)})
  assert "in another file too" in refusal(folder)


def test_mixed_and_unreadable_types(folder):
  path = folder / "model.safetensors"
  names = tensors()
  write_weights(path, names, ["F32"] + ["BF16"] * (len(names) - 1))
  assert "BF16, F32" in refusal(folder)
  write_weights(path, names, ["F8_E4M3"] * len(names))
  assert "F8_E4M3" in refusal(folder)


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_cut_files(folder, keep):
  path = folder / "model.safetensors"
  path.write_bytes(path.read_bytes()[:keep])
  assert "cut off" in refusal(folder)


def test_a_header_that_is_no_json(folder):
  (folder / "model.safetensors").write_bytes(struct.pack("<Q", 4) + b"abcd")
  assert "header is not JSON" in refusal(folder)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"model_type": "gpt2"}, "model_type 'gpt2'"),
    ({"rope_scaling": {"type": "yarn"}}, "rotary scaling 'yarn'"),
    (
      {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}},
      "rotary scaling 'linear'",
    ),
    ({"use_sliding_window": True}, "use_sliding_window"),
    ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ({"attention_bias": True}, "attention_bias"),
    ({"num_key_value_heads": 3}, "must divide"),
    ({"num_hidden_layers": 0}, "layers must be > 0"),
  ],
)
def test_models_that_would_be_computed_wrongly(folder, change, message):
  (folder / "config.json").write_text(json.dumps(CONFIG | change))
  assert message in refusal(folder)


def test_missing_keys_are_named(folder):
  config = {k: v for k, v in CONFIG.items() if k != "rms_norm_eps"}
  (folder / "config.json").write_text(json.dumps(config))
  assert "lacks rms_norm_eps" in refusal(folder)


def test_the_rotary_base_of_both_releases():
  new = {k: v for k, v in CONFIG.items() if k != "rope_theta"}
  new["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "default"}
  assert decoder_shape.from_huggingface(CONFIG).rope_theta == 1e6
  assert decoder_shape.from_huggingface(new).rope_theta == 5e5
