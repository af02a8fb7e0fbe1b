"""The memory planner against what XLA plans for tunix's Qwen2.

The compiler is asked, nothing runs. On a CPU it undoes rematerialisation, so
the comparison is of the plan without it; the parts of a layer and of the
logits are the same in both.
"""

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("tunix", reason="needs the extra [tunix]")

from flax import nnx

from crbc_jax.integrations import pretrained
from crbc_jax.learner import memory_plan
from crbc_jax.policies.decoder_shape import DecoderShape

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
RESPONSE = 256


def planned_by_xla(shape, length):
  """Bytes of temporaries of one gradient, compiled for abstract weights."""
  from tunix.models.qwen2 import model as library
  from tunix.rl import common

  config = pretrained.model_config(
    shape, dtype=jnp.bfloat16, param_dtype=jnp.float32
  )
  model = nnx.eval_shape(lambda: library.Qwen2(config, rngs=nnx.Rngs(0)))
  graph, state = nnx.split(model)

  def loss(state, tokens, advantage):
    logits, _ = nnx.merge(graph, state)(*pretrained.inputs_of(tokens))
    taken = common.selective_log_softmax(
      logits[:, -RESPONSE - 1 : -1], tokens[:, -RESPONSE:]
    )
    return -jnp.mean(taken * advantage)

  with jax.numpy_rank_promotion("allow"):
    compiled = (
      jax.jit(jax.grad(loss))
      .lower(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state),
        jax.ShapeDtypeStruct((1, length), jnp.int32),
        jax.ShapeDtypeStruct((1, RESPONSE), jnp.float32),
      )
      .compile()
    )
  return compiled.memory_analysis()


@pytest.mark.parametrize(
  ("layers", "length", "vocabulary"),
  [
    (4, 1_024, 2_000),  # mostly layers and scores
    (1, 1_024, 100_000),  # mostly logits
  ],
)
def test_activations_are_near_those_of_the_compiler(layers, length, vocabulary):
  shape = DecoderShape(
    kind="qwen2",
    layers=layers,
    hidden=256,
    mlp=1_024,
    heads=8,
    kv_heads=2,
    head_dim=32,
    vocabulary=vocabulary,
    tied=True,
  )
  work = memory_plan.Workload(
    shape=shape,
    prompt=length - RESPONSE,
    response=RESPONSE,
    rollouts=1,
    fsdp=1,
    remat="none",
  )
  found = planned_by_xla(shape, length)
  assert memory_plan.activation_bytes(work, 1) == pytest.approx(
    found.temp_size_in_bytes, rel=0.15
  )
  inputs = found.argument_size_in_bytes - memory_plan.parameter_bytes(work)
  assert 0 <= inputs < 64 * length  # the weights are all but the tokens
