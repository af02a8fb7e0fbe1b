"""Memory per device, against numbers worked out by hand."""

import dataclasses

import pytest

from crbc_jax.learner import memory_plan
from crbc_jax.policies.decoder_shape import SHAPES, TINY, DecoderShape

GIB = memory_plan.GIB
TOPOLOGY = memory_plan.Topology(4, 1.0, "four devices of 1 GiB")


@pytest.mark.parametrize(
  ("name", "parameters"),
  [
    # As published in the model cards, to the parameter.
    ("Qwen2.5-0.5B", 494_032_768),
    ("Qwen2.5-1.5B", 1_543_714_304),
    ("Qwen2.5-7B", 7_615_616_512),
    ("Qwen3-4B", 4_022_468_096),
    ("Qwen3-8B", 8_190_735_360),
  ],
)
def test_published_parameter_counts(name, parameters):
  assert SHAPES[name].parameters == parameters


def small(**changes) -> memory_plan.Workload:
  shape = DecoderShape(
    kind="qwen2",
    layers=2,
    hidden=8,
    mlp=16,
    heads=4,
    kv_heads=2,
    head_dim=2,
    vocabulary=10,
    tied=True,
  )
  options = {"prompt": 3, "response": 2, "rollouts": 8, "fsdp": 2, "tp": 2}
  return memory_plan.Workload(shape=shape, **(options | changes))


def test_parameters_by_hand():
  # Layer: q, k, v 8*(4+2*2)*2 = 128, o 4*2*8 = 64, MLP 3*8*16 = 384, norms 16,
  # biases 16: 608. Embedding 80, last norm 8: 2*608 + 88 = 1,304.
  work = small()
  assert work.shape.layer_parameters == 608
  assert work.shape.parameters == 1_304
  assert memory_plan.parameter_bytes(work) == 1_304 * 4 / 4
  assert memory_plan.reference_bytes(work) == 1_304 * 2 / 4
  assert memory_plan.gradient_bytes(work) == 1_304 * 4 / 4
  # Two moments of 4 bytes and the sum of gradients.
  assert memory_plan.optimizer_bytes(work) == 1_304 * 12 / 4
  alone = small(accumulate=False, reference=False)
  assert memory_plan.optimizer_bytes(alone) == 1_304 * 8 / 4
  assert memory_plan.reference_bytes(alone) == 0


def test_lora_by_hand():
  # Rank 1: q 8+8, o 8+8, k and v 8+4 each, MLP 3*(8+16): 128 a layer.
  work = small(lora_rank=1)
  assert work.trained == 256
  assert memory_plan.parameter_bytes(work) == (1_304 * 2 + 256 * 4) / 4
  assert memory_plan.reference_bytes(work) == 0
  assert memory_plan.gradient_bytes(work) == 256 * 4 / 4
  assert memory_plan.optimizer_bytes(work) == 256 * 12 / 4


def test_kv_cache_by_hand():
  # 8 rollouts over fsdp 2: 4 sequences of 5 tokens; k and v, 2 layers, 2 heads
  # of 2, 2 bytes: 2*2*2*2*2 = 32 a token; over tp 2.
  assert memory_plan.kv_cache_bytes(small()) == 4 * 5 * 32 / 2
  # Nine rollouts: one device has five of them.
  assert memory_plan.kv_cache_bytes(small(rollouts=9)) == 5 * 5 * 32 / 2
  # Qwen2.5-7B: 2 * 28 * 4 * 128 * 2 bytes = 56 KiB a token, as often quoted.
  seven = small(tp=1, fsdp=1, rollouts=1, prompt=1_000, response=24)
  seven = dataclasses.replace(seven, shape=SHAPES["Qwen2.5-7B"])
  assert memory_plan.kv_cache_bytes(seven) == 1_024 * 56 * 1_024


def test_activations_by_hand():
  # T = 5, b = 2. Kept 5*2*8*2 = 160. Layer: (2*4 + 2*2)*2 + 3*16 + 2*8 = 88,
  # 2*5*88*2 = 1,760. Scores 2*4*25*6 = 1,200. Logits 5*10*10 = 500.
  def of(micro_batch=1, **changes):
    return memory_plan.activation_bytes(small(**changes), micro_batch)

  assert of() == 160 + (1_760 + 1_200 + 500) / 2
  assert of(3) == 3 * of()
  assert of(flash=True) == 160 + (1_760 + 500) / 2
  assert of(remat="block") == 320 + (1_760 + 1_200 + 500) / 2
  assert of(remat="none") == (2 * (1_760 + 1_200) + 500) / 2


def test_gathered_by_hand():
  assert memory_plan.gathered_bytes(small()) == 2 * 608 * 2 / 2
  assert memory_plan.gathered_bytes(small(fsdp=1)) == 0
  # A large vocabulary is the largest part.
  big = dataclasses.replace(small().shape, vocabulary=1_000)
  work = dataclasses.replace(small(), shape=big)
  assert memory_plan.gathered_bytes(work) == 2 * 8_000 * 2 / 2


def test_the_largest_micro_batch_is_the_largest():
  work = small()
  plan = memory_plan.make_plan(work, TOPOLOGY)
  assert plan.budget == int(0.9 * GIB)
  most = plan.largest_micro_batch
  at = memory_plan.make_plan(work, TOPOLOGY, micro_batch=most)
  above = memory_plan.make_plan(work, TOPOLOGY, micro_batch=most + 1)
  assert at.fits and "fits:" in at.verdict()
  assert not above.fits
  assert f"micro-batch {most} per device fits" in above.verdict()


def test_peak_is_of_the_phase_that_needs_more():
  few = memory_plan.make_plan(small(rollouts=1), TOPOLOGY)
  assert few.peak == few.update > few.rollout
  many = memory_plan.make_plan(small(rollouts=10**5), TOPOLOGY)
  assert many.peak == many.rollout > many.update
  parts = dict(memory_plan.plan_rows(few))
  stays = ("parameters", "reference", "optimizer", "gathered")
  total = sum(parts[k] for k in stays) + parts["gradients"]
  assert total + parts["activations"] == pytest.approx(parts["peak"])


def test_what_does_not_fit_says_why():
  topology = memory_plan.TOPOLOGIES["v5e-8"]

  def verdict(shape, **changes):
    work = small(fsdp=8, tp=1, prompt=2_048, response=512, rollouts=8)
    work = dataclasses.replace(work, shape=SHAPES[shape], **changes)
    plan = memory_plan.make_plan(work, topology)
    return plan.largest_micro_batch, plan.verdict()

  largest, text = verdict("Qwen2.5-7B")
  assert largest == 0 and "the weights alone" in text
  largest, text = verdict("Qwen2.5-7B", lora_rank=16)
  assert largest >= 1 and text.startswith("fits")
  largest, text = verdict("Qwen2.5-1.5B", rollouts=10_000)
  assert largest == 0 and "fewer rollouts" in text
  largest, text = verdict("Qwen2.5-1.5B", prompt=40_000)
  assert largest == 0 and "shorter texts" in text


def test_v5p_names_count_cores():
  topology = memory_plan.TOPOLOGIES["v5p-8"]
  assert (topology.devices, topology.gib) == (4, 95)


def test_bad_plans_are_refused():
  with pytest.raises(ValueError, match="is not 4 devices"):
    memory_plan.make_plan(small(fsdp=4), TOPOLOGY)
  with pytest.raises(ValueError, match="micro_batch"):
    memory_plan.make_plan(small(), TOPOLOGY, micro_batch=0)
  with pytest.raises(ValueError, match="prompt must be >= 1"):
    small(prompt=0)
  with pytest.raises(ValueError, match="remat"):
    small(remat="all")
  with pytest.raises(ValueError, match="kind"):
    dataclasses.replace(TINY, kind="gpt2")


def test_the_best_mesh_has_the_most_sequences_at_once():
  topology = memory_plan.TOPOLOGIES["8xH100"]
  work = small(fsdp=8, tp=1, prompt=2_048, response=8_192, rollouts=8)
  work = dataclasses.replace(work, shape=SHAPES["Qwen2.5-7B"])
  best = memory_plan.best_mesh(work, topology)

  def at_once(tp):
    one = dataclasses.replace(work, tp=tp, fsdp=8 // tp)
    return memory_plan.make_plan(one, topology).largest_micro_batch * one.fsdp

  # Four kv heads: eight parts are not possible.
  counts = {tp: at_once(tp) for tp in (1, 2, 4)}
  assert counts[best.tp] == max(counts.values()) > 0
  assert best.fsdp * best.tp == 8
