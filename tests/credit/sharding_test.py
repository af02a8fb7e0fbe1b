"""The group axis split over several devices: the same numbers."""

import json
import os
import subprocess
import sys

import pytest

NAMES = ("crbc", "crbc_anchored", "gigpo", "grpo", "reinforce_pp")

PROGRAM = f"""
import json
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from crbc_jax import make_batch, make_credit_fn
from tests import groups as groups_lib

batch = make_batch(groups_lib.table_of(groups_lib.random_groups(16, 5)))
mesh = Mesh(np.array(jax.devices()), ("groups",))
split = NamedSharding(mesh, PartitionSpec("groups"))
found = {{"devices": jax.device_count()}}
for name in {NAMES}:
  credit_fn = make_credit_fn(name)
  alone = credit_fn(jax.device_put(batch.arrays, jax.devices()[0]))
  many = credit_fn(jax.device_put(batch.arrays, split))
  a, b = np.asarray(alone.advantage), np.asarray(many.advantage)
  found[name] = {{
    "shards": len(many.advantage.sharding.device_set),
    "largest": float(np.abs(a).max()),
    "difference": float(np.abs(a - b).max()),
  }}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
  devices = {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
  run = subprocess.run(
    [sys.executable, "-c", PROGRAM],
    env=os.environ | devices | {"PYTHONPATH": os.pathsep.join(sys.path)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert run.returncode == 0, run.stderr[-2_000:]
  return json.loads(run.stdout.splitlines()[-1])


def test_there_are_four_devices(found):
  assert found["devices"] == 4


@pytest.mark.parametrize("name", NAMES)
def test_splitting_the_groups_changes_no_number(name, found):
  got = found[name]
  assert got["shards"] == 4
  assert got["largest"] > 0.1
  assert got["difference"] <= 2e-5
