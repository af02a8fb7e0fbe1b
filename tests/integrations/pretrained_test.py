"""Qwen folders through tunix: the logits of transformers, without a hub."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

pytest.importorskip("tunix", reason="needs the extra [tunix]")
torch = pytest.importorskip("torch", reason="needs the extra [llm-test]")
transformers = pytest.importorskip(
  "transformers", reason="needs the extra [llm-test]"
)

from flax import nnx  # noqa: E402

from crbc_jax.integrations import pretrained  # noqa: E402
from crbc_jax.policies import decoder_shape  # noqa: E402

KINDS = ("qwen2", "qwen3")
VOCABULARY, LENGTH = 96, 9


@pytest.fixture(autouse=True)
def exact_products():
  # Tunix relies on rank promotion, which our own tests forbid.
  with (
    jax.numpy_rank_promotion("allow"),
    jax.default_matmul_precision("highest"),
  ):
    yield


def write_checkpoint(folder, kind):
  """Tiny random model of transformers, grouped queries, in two shards."""
  common = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
  }
  torch.manual_seed(0)
  if kind == "qwen2":
    config = transformers.Qwen2Config(
      **common, rope_theta=5e4, tie_word_embeddings=True
    )
    model = transformers.Qwen2ForCausalLM(config)
  else:
    config = transformers.Qwen3Config(
      **common, rope_theta=1e6, head_dim=16, tie_word_embeddings=False
    )
    model = transformers.Qwen3ForCausalLM(config)
  with torch.no_grad():
    for p in model.parameters():  # norms and biases too: none may be dropped
      p.copy_(0.3 * torch.randn_like(p) + (p.ndim == 1))
  model.eval().save_pretrained(folder, max_shard_size="20KB")
  return model


def texts():
  """Three texts: full, padded on the left, padded on the right."""
  tokens = np.random.default_rng(0).integers(0, VOCABULARY, (3, LENGTH))
  mask = np.ones((3, LENGTH), bool)
  mask[1, :4] = False
  mask[2, 6:] = False
  return tokens, mask


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp(request.param)
  model = write_checkpoint(folder, request.param)
  tokens, mask = texts()
  positions = np.maximum(mask.cumsum(-1) - 1, 0)
  with torch.no_grad():
    logits = model(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask).long(),
      position_ids=torch.tensor(positions),
    ).logits.numpy()
  assert len(list(folder.glob("*.safetensors"))) > 1
  return folder, logits


def logits_of(model, tokens, mask):
  inputs = pretrained.inputs_of(jnp.asarray(tokens), jnp.asarray(mask))
  graph, state = nnx.split(model)
  # One program instead of one for each operation.
  run = jax.jit(lambda state, inputs: nnx.merge(graph, state)(*inputs)[0])
  return np.asarray(run(state, inputs))


def test_logits_are_those_of_transformers(checkpoint):
  folder, expected = checkpoint
  tokens, mask = texts()
  model = pretrained.load_qwen(folder, dtype=jnp.float32)
  got = logits_of(model, tokens, mask)
  assert np.isfinite(got).all()  # in the padding too
  assert np.abs(expected[mask]).max() > 1
  np.testing.assert_allclose(got[mask], expected[mask], atol=1e-4)
  # The same text without its padding.
  alone = logits_of(model, tokens[1:2, 4:], mask[1:2, 4:])
  np.testing.assert_allclose(alone[0], expected[1, 4:], atol=1e-4)


def test_bfloat16_is_near(checkpoint):
  folder, expected = checkpoint
  tokens, mask = texts()
  model = pretrained.load_qwen(folder, dtype=jnp.bfloat16, remat="decoder")
  state = nnx.state(model, nnx.Param)
  assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype("bfloat16")}
  got = logits_of(model, tokens, mask)[mask]
  correlation = np.corrcoef(got.ravel(), expected[mask].ravel())[0, 1]
  assert correlation > 0.99


def test_lora_starts_as_the_model_and_has_its_own_parameters(checkpoint):
  folder, expected = checkpoint
  tokens, mask = texts()
  lora = pretrained.Lora(rank=4, alpha=8.0)
  model = pretrained.load_qwen(folder, dtype=jnp.float32, lora=lora)
  got = logits_of(model, tokens, mask)
  np.testing.assert_allclose(got[mask], expected[mask], atol=1e-4)
  added = jax.tree.leaves(nnx.state(model, nnx.LoRAParam))
  shape = pretrained.check_folder(folder)
  assert sum(x.size for x in added) == shape.lora_parameters(4)
  # Moving them moves the logits.
  moved = jax.tree.map(lambda x: x + 0.1, nnx.state(model, nnx.LoRAParam))
  nnx.update(model, moved)
  changed = logits_of(model, tokens, mask)
  assert np.abs(changed - got)[mask].max() > 0.01


def test_trained_weights_stay_float32_beside_bfloat16_ones(checkpoint):
  folder, _ = checkpoint
  tokens, mask = texts()
  types = {"dtype": jnp.bfloat16, "param_dtype": jnp.float32}
  full = pretrained.load_qwen(folder, **types)
  assert full.config.dtype == jnp.bfloat16
  leaves = jax.tree.leaves(nnx.state(full, nnx.Param))
  assert {x.dtype for x in leaves} == {jnp.dtype("float32")}
  model = pretrained.load_qwen(folder, **types, lora=pretrained.Lora(rank=2))
  added = jax.tree.leaves(nnx.state(model, nnx.LoRAParam))
  assert {x.dtype for x in added} == {jnp.dtype("float32")}
  frozen = model.embedder.input_embedding[...]
  assert frozen.dtype == jnp.bfloat16
  graph, lora, rest = nnx.split(model, nnx.LoRAParam, ...)
  inputs = pretrained.inputs_of(jnp.asarray(tokens), jnp.asarray(mask))

  def loss(lora):
    return jnp.mean(nnx.merge(graph, lora, rest)(*inputs)[0] ** 2)

  gradients = jax.tree.leaves(jax.jit(jax.grad(loss))(lora))
  assert {g.dtype for g in gradients} == {jnp.dtype("float32")}
  assert max(float(jnp.abs(g).max()) for g in gradients) > 0


def test_random_weights_pass_gradients_everywhere():
  shape = decoder_shape.TINY
  model = pretrained.random_qwen(shape, seed=1)
  graph, state = nnx.split(model, nnx.Param)
  assert sum(x.size for x in jax.tree.leaves(state)) == shape.parameters
  inputs = pretrained.inputs_of(jnp.arange(6)[None])

  def loss(state):
    return jnp.mean(nnx.merge(graph, state)(*inputs)[0] ** 2)

  for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(state)):
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from flax import nnx
from crbc_jax.integrations import pretrained
from tests.integrations.pretrained_test import logits_of, texts

jax.config.update("jax_default_matmul_precision", "highest")
folder, fsdp, tp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
mesh = pretrained.make_mesh(fsdp=fsdp, tp=tp)
lora = pretrained.Lora(rank=2)
model = pretrained.load_qwen(folder, dtype=jnp.float32, mesh=mesh, lora=lora)
whole = pretrained.load_qwen(folder, dtype=jnp.float32)
tokens, mask = texts()
shards = {
  x.sharding.shard_shape(x.shape) != x.shape
  for x in jax.tree.leaves(nnx.state(model, nnx.Param)) if x.ndim > 1
}
difference = logits_of(model, tokens, mask) - logits_of(whole, tokens, mask)
print(json.dumps({
  "difference": float(np.abs(difference)[mask].max()),
  "split": sorted(shards),
}))
"""


def test_four_devices_give_the_same_logits(tmp_path):
  write_checkpoint(tmp_path, "qwen2")
  devices = {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
  run = subprocess.run(
    [sys.executable, "-c", PROGRAM, str(tmp_path), "2", "2"],
    env=os.environ | devices | {"PYTHONPATH": os.pathsep.join(sys.path)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert run.returncode == 0, run.stderr[-2_000:]
  found = json.loads(run.stdout.splitlines()[-1])
  assert found["difference"] <= 1e-4
  assert True in found["split"]


def test_meshes_that_do_not_fit():
  device = jax.devices()[:1]
  assert pretrained.make_mesh(devices=device).shape == {"fsdp": 1, "tp": 1}
  with pytest.raises(ValueError, match="is not 1 device"):
    pretrained.make_mesh(fsdp=1, tp=2, devices=device)
  with pytest.raises(ValueError, match="must be >= 1"):
    pretrained.make_mesh(fsdp=0, devices=device)
  mesh = pretrained.make_mesh(fsdp=1, tp=4, devices=device * 4)
  with pytest.raises(ValueError, match="tp = 4 does not divide kv_heads = 2"):
    pretrained.check_mesh(decoder_shape.TINY, mesh)


def test_a_rotary_base_that_tunix_ignores_is_refused(tmp_path):
  write_checkpoint(tmp_path, "qwen3")
  path = tmp_path / "config.json"
  config = json.loads(path.read_text())
  config["rope_parameters"]["rope_theta"] = 5e6
  path.write_text(json.dumps(config))
  with pytest.raises(ValueError, match="rope_theta"):
    pretrained.load_qwen(tmp_path)


def test_lora_options_are_checked():
  with pytest.raises(ValueError, match="rank"):
    pretrained.Lora(rank=0)
