"""Two processes with `jax.distributed`: the numbers of one."""

import json
import os
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.training

PROGRAM = """
import json, sys
import jax
process, port = int(sys.argv[1]), sys.argv[2]
if port != "alone":
  jax.distributed.initialize(f"localhost:{port}", 2, process)
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from crbc_jax import make_batch, make_credit_fn
from tests import groups as groups_lib
from tests.learner import update_test

mesh = Mesh(np.array(jax.devices()), ("groups",))

def spread(tree):
  # Every process holds the whole batch and hands over its own groups.
  split = NamedSharding(mesh, PartitionSpec("groups"))
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(
      np.shape(x), split, lambda index: np.asarray(x)[index]
    ),
    tree,
  )

def same(tree):
  everywhere = NamedSharding(mesh, PartitionSpec())
  return jax.tree.map(
    lambda x: jax.make_array_from_callback(
      np.shape(x), everywhere, lambda index: np.asarray(x)[index]
    ),
    tree,
  )

def whole(x):
  return np.asarray(multihost_utils.process_allgather(x, tiled=True))

found = {"processes": jax.process_count(), "devices": jax.device_count()}
batch = make_batch(groups_lib.table_of(groups_lib.random_groups(4, 5)))
for name in ("crbc", "gigpo", "grpo"):
  credit = make_credit_fn(name)(spread(batch.arrays)).advantage
  found[name + " shards"] = len(credit.sharding.device_set)
  found[name] = whole(credit).ravel().tolist()

rng = np.random.default_rng(1)
lengths = rng.integers(1, update_test.T + 1, (4, update_test.G))
update_test.P = 4
params, levels, rollouts, advantage = update_test.make_batch(1, lengths)
optimizer = optax.sgd(0.1)
update = update_test.make_update(
  optimizer, minibatch=8, epochs=2, kl_weight=0.1, entropy_weight=0.01,
  advantage_scale="rms",
)
from crbc_jax.learner.update import LearnerState
state = LearnerState(
  params=same(params),
  opt_state=optimizer.init(params),
  reference=same(jax.tree.map(lambda x: 0.9 * x, params)),
  key=same(np.asarray(jax.random.key_data(jax.random.key(7)))),
)
state, metrics = update(
  state, spread(levels), spread(rollouts), spread(advantage),
  jax.random.wrap_key_data(same(np.asarray(
    jax.random.key_data(jax.random.key(3)))))
)
found["moved"] = float(np.abs(whole(state.params["w"]) - params["w"]).max())
found["params"] = whole(state.params["w"]).ravel().tolist()
found["loss"] = float(whole(metrics["loss"]).ravel()[0])
print(json.dumps(found))
"""


def start(process, port):
  settings = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
  return subprocess.Popen(
    [sys.executable, "-c", PROGRAM, str(process), port],
    env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def result_of(process):
  try:
    out, err = process.communicate(timeout=240)
  finally:
    process.kill()
  assert process.returncode == 0, err[-2_000:]
  return json.loads(out.splitlines()[-1])


def free_port() -> str:
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def results():
  port = free_port()
  both = [start(i, port) for i in range(2)]
  try:
    two = [result_of(process) for process in both]
  finally:
    for process in both:  # one that failed leaves the other waiting
      process.kill()
  return result_of(start(0, "alone")), two


def test_two_processes_share_the_groups(results):
  alone, two = results
  assert (alone["processes"], alone["devices"]) == (1, 1)
  for found in two:
    assert (found["processes"], found["devices"]) == (2, 2)
    assert found["crbc shards"] == 2


@pytest.mark.parametrize("name", ["crbc", "gigpo", "grpo"])
def test_credit_is_the_same(results, name):
  alone, two = results
  assert max(map(abs, alone[name])) > 0.1
  for found in two:
    assert found[name] == pytest.approx(alone[name], abs=1e-6)


def test_the_update_is_the_same(results):
  alone, two = results
  assert alone["moved"] > 1e-3
  for found in two:
    assert found["params"] == pytest.approx(alone["params"], abs=1e-5)
    assert found["loss"] == pytest.approx(alone["loss"], abs=1e-5)
