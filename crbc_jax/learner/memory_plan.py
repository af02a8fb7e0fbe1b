"""Memory per device of training a language model with rollouts, computed.

Weights, optimiser and gradients are split over all devices (fsdp and tp);
sequences over fsdp, heads and vocabulary over tp. Rollout and update take
turns on the same devices: what counts is the larger of the two.
"""

import dataclasses
import math

from crbc_jax.checks import check_choice
from crbc_jax.policies.decoder_shape import DecoderShape

GIB = 2**30
REMATS = ("none", "block", "decoder")


@dataclasses.dataclass(frozen=True)
class Topology:
  """Devices of a named machine or slice.

  Attributes:
    devices: as JAX counts them.
    gib: memory of each.
    note: how the name is read.
  """

  devices: int
  gib: float
  note: str


TOPOLOGIES = {
  "v5e-8": Topology(8, 16, "TPU v5e: 8 chips, 16 GiB each"),
  # The number in a v5p name counts TensorCores, two on a chip; JAX sees both
  # cores of a chip as one device.
  "v5p-8": Topology(4, 95, "TPU v5p: 8 cores = 4 chips, 95 GiB each"),
  "8xH100": Topology(8, 80, "8 GPUs, 80 GiB each"),
}
USABLE = 0.9
"""Share of the memory for what is planned: the rest goes to the runtime, the
programs and fragmentation. On GPUs set XLA_PYTHON_CLIENT_MEM_FRACTION to it."""


@dataclasses.dataclass(frozen=True)
class Workload:
  """What is trained, and how.

  Attributes:
    shape: of the model.
    prompt: tokens, at most.
    response: tokens, at most.
    rollouts: sequences that are generated at the same time, over all devices.
    fsdp: parts of the batch and of the weights.
    tp: parts of heads, MLP and vocabulary.
    param_bytes: of a weight that is trained: 4, since an update of 1e-6 is
      lost in a bfloat16 weight.
    compute_bytes: of activations, KV cache and frozen weights.
    lora_rank: 0: every weight is trained; else these and the frozen ones.
    reference: a frozen copy for the KL term. With LoRA there is none: it is
      the model without the additions.
    accumulate: micro-batches are summed before an update.
    remat: what the backward pass computes again, "none", "block" or
      "decoder", see `crbc_jax.integrations.pretrained`.
    flash: attention without its T x T scores in memory.
  """

  shape: DecoderShape
  prompt: int
  response: int
  rollouts: int
  fsdp: int
  tp: int = 1
  param_bytes: int = 4
  compute_bytes: int = 2
  lora_rank: int = 0
  reference: bool = True
  accumulate: bool = True
  remat: str = "decoder"
  flash: bool = False

  def __post_init__(self):
    check_choice("remat", self.remat, REMATS)
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      least = 0 if field.name == "lora_rank" else 1
      if field.type is int and value < least:
        raise ValueError(f"{field.name} must be >= {least}, got {value}")

  @property
  def length(self) -> int:
    """T, tokens of a sequence."""
    return self.prompt + self.response

  @property
  def trained(self) -> int:
    """Parameters with a gradient."""
    if self.lora_rank:
      return self.shape.lora_parameters(self.lora_rank)
    return self.shape.parameters


@dataclasses.dataclass(frozen=True)
class Plan:
  """Bytes on each device.

  Attributes:
    parameters: the model, with LoRA its frozen weights and the additions.
    reference: the frozen copy of the KL term.
    optimizer: Adam's moments, and the sum of gradients if they accumulate.
    gradients: of one micro-batch.
    activations: of one micro-batch in the update.
    kv_cache: of the rollout.
    gathered: weights of the part that is computed now, from all devices.
    budget: what may be used.
    micro_batch: sequences per device in the update.
    largest_micro_batch: that fits; 0: none does.
  """

  parameters: int
  reference: int
  optimizer: int
  gradients: int
  activations: int
  kv_cache: int
  gathered: int
  budget: int
  micro_batch: int
  largest_micro_batch: int

  @property
  def always(self) -> int:
    """What stays: parameters, reference, optimiser, gathered weights."""
    return self.parameters + self.reference + self.optimizer + self.gathered

  @property
  def rollout(self) -> int:
    """Peak while sampling."""
    return self.always + self.kv_cache

  @property
  def update(self) -> int:
    """Peak while learning."""
    return self.always + self.gradients + self.activations

  @property
  def peak(self) -> int:
    """The larger of both."""
    return max(self.rollout, self.update)

  @property
  def fits(self) -> bool:
    """Whether the peak is within the budget."""
    return self.peak <= self.budget

  def verdict(self) -> str:
    """One line: whether it fits, and the largest micro-batch that does."""
    need, have = self.peak / GIB, self.budget / GIB
    if self.fits:
      return (
        f"fits: {need:.1f} of {have:.1f} GiB; largest micro-batch "
        f"{self.largest_micro_batch} per device"
      )
    why = "the update" if self.update > self.budget else "the rollout"
    if self.largest_micro_batch:
      help_ = f"micro-batch {self.largest_micro_batch} per device fits"
    elif self.always > self.budget:
      why, help_ = "the weights alone", "more devices or LoRA"
    elif self.rollout > self.budget:
      help_ = "fewer rollouts at a time"
    else:
      help_ = "more devices, LoRA, or shorter texts"
    return f"does not fit: {why} needs {need:.1f} of {have:.1f} GiB; {help_}"


def parameter_bytes(work: Workload) -> int:
  """P b_param / devices; with LoRA (P b_compute + P_lora b_param) / devices."""
  if work.lora_rank:
    total = (
      work.shape.parameters * work.compute_bytes
      + work.trained * work.param_bytes
    )
  else:
    total = work.shape.parameters * work.param_bytes
  return _split(total, work.fsdp * work.tp)


def reference_bytes(work: Workload) -> int:
  """P b_compute / devices; nothing with LoRA or without a KL term."""
  if work.lora_rank or not work.reference:
    return 0
  return _split(work.shape.parameters * work.compute_bytes, work.fsdp * work.tp)


def optimizer_bytes(work: Workload) -> int:
  """8 P_trained (Adam: two float32), and the gradients' sum b_param P_trained.

  Optax keeps moments in the type of the parameters, hence float32 with
  weights of 4 bytes.
  """
  each = 8 + (work.param_bytes if work.accumulate else 0)
  return _split(work.trained * each, work.fsdp * work.tp)


def gradient_bytes(work: Workload) -> int:
  """b_param P_trained / devices."""
  return _split(work.trained * work.param_bytes, work.fsdp * work.tp)


def kv_cache_bytes(work: Workload) -> int:
  """2 (k and v) x sequences x T x L x K x H x b_compute / tp, on a device."""
  s = work.shape
  sequences = math.ceil(work.rollouts / work.fsdp)
  tokens = sequences * work.length
  each = 2 * s.layers * s.kv_heads * s.head_dim * work.compute_bytes
  return _split(tokens * each, work.tp)


def gathered_bytes(work: Workload) -> int:
  """Largest part that is computed at once, whole: b_compute max(layer, V D)/tp.

  Twice, since the next part is fetched during the present one; nothing where
  weights are not split over fsdp.
  """
  if work.fsdp == 1:
    return 0
  s = work.shape
  part = max(s.layer_parameters, s.vocabulary * s.hidden)
  return _split(2 * part * work.compute_bytes, work.tp)


def activation_bytes(work: Workload, micro_batch: int) -> int:
  """Of an update.

  Per sequence of T tokens:
    kept      T L D b, each layer's input ("block": twice that)
    one layer 2 T ((2 N + 2 K) H + 3 F + 2 D) b, forward and backward
    scores    2 N T^2 (4 + b) of a layer, the softmax in float32 and what
              multiplies v; nothing with flash attention
    logits    T V (8 + b), with their gradient; tunix computes those of the
              prompt too
  With remat layers are computed again: kept + one layer + scores + logits, as
  if the last three were there at once. Without, "none", those of all L layers
  stay instead of the inputs. Where tp splits them (layer, scores, logits),
  divided by tp. Without remat this is within 8 % of what XLA plans on a
  CPU (`tests/integrations/memory_test.py`); the CPU's XLA undoes remat.

  Args:
    work: the workload.
    micro_batch: sequences on a device.
  """
  s, t, b = work.shape, work.length, work.compute_bytes
  inside = (2 * s.heads + 2 * s.kv_heads) * s.head_dim + 3 * s.mlp
  layer = 2 * t * (inside + 2 * s.hidden) * b
  layer += 0 if work.flash else 2 * s.heads * t * t * (4 + b)
  logits = t * s.vocabulary * (8 + b)
  if work.remat == "none":
    kept, layers = 0, s.layers
  else:
    kept = t * s.layers * s.hidden * b * (2 if work.remat == "block" else 1)
    layers = 1
  return micro_batch * (kept + _split(layers * layer + logits, work.tp))


def make_plan(
  work: Workload, topology: Topology, *, micro_batch: int = 1
) -> Plan:
  """The memory of a workload on each device of a topology.

  Args:
    work: the workload; fsdp * tp must be the number of devices.
    topology: see `TOPOLOGIES`.
    micro_batch: sequences per device in the update.

  Raises:
    ValueError: the mesh is of another size, or micro_batch < 1.
  """
  if work.fsdp * work.tp != topology.devices:
    raise ValueError(
      f"mesh: fsdp {work.fsdp} x tp {work.tp} is not {topology.devices} devices"
      f" ({topology.note})"
    )
  if micro_batch < 1:
    raise ValueError(f"micro_batch must be >= 1, got {micro_batch}")
  plan = Plan(
    parameters=parameter_bytes(work),
    reference=reference_bytes(work),
    optimizer=optimizer_bytes(work),
    gradients=gradient_bytes(work),
    activations=activation_bytes(work, micro_batch),
    kv_cache=kv_cache_bytes(work),
    gathered=gathered_bytes(work),
    budget=int(USABLE * topology.gib * GIB),
    micro_batch=micro_batch,
    largest_micro_batch=0,
  )
  free = plan.budget - plan.always - plan.gradients
  largest = max(0, free // activation_bytes(work, 1))
  if plan.rollout > plan.budget:
    largest = 0
  return dataclasses.replace(plan, largest_micro_batch=largest)


def best_mesh(work: Workload, topology: Topology) -> Workload:
  """The workload with the tp under which most sequences fit at once.

  Of those that divide devices, heads and kv heads; the smallest of equals,
  since tp costs communication in every layer. If nothing fits: tp with the
  smallest peak.
  """

  def rank(candidate: Workload):
    plan = make_plan(candidate, topology)
    at_once = plan.largest_micro_batch * candidate.fsdp
    return -at_once, plan.peak if not at_once else 0, candidate.tp

  s = work.shape
  sizes = [
    tp
    for tp in range(1, topology.devices + 1)
    if not (topology.devices % tp or s.heads % tp or s.kv_heads % tp)
  ]
  return min(
    (
      dataclasses.replace(work, tp=tp, fsdp=topology.devices // tp)
      for tp in sizes
    ),
    key=rank,
  )


def plan_rows(plan: Plan) -> list[tuple[str, float]]:
  """(part, GiB per device) for a table."""
  names = (
    "parameters",
    "reference",
    "optimizer",
    "gathered",
    "kv_cache",
    "gradients",
    "activations",
    "rollout",
    "update",
    "peak",
    "budget",
  )
  return [(name.replace("_", " "), getattr(plan, name) / GIB) for name in names]


def _split(total: int, parts: int) -> int:
  return -(-total // parts)
