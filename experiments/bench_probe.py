"""What needs a process of its own; `bench_credit` starts it.

  python -m experiments.bench_probe memory 131000
  JAX_NUM_CPU_DEVICES=4 python -m experiments.bench_probe sharding alfworld 256

prints one line of JSON.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from crbc_jax import make_batch, make_credit_fn
from experiments import bench_competitors, workloads
from experiments.bench_timing import Case, Compiled, measure

ROOT = pathlib.Path(__file__).resolve().parents[1]
TIMEOUT = 120  # seconds; batched LU on several CPU devices can hang in XLA


def run(*arguments: str, devices: int = 1) -> dict[str, Any]:
  """Runs this module in a new process; its answer, or {"failed": why}."""
  try:
    done = subprocess.run(
      [sys.executable, "-m", "experiments.bench_probe", *arguments],
      cwd=ROOT,
      env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
      capture_output=True,
      text=True,
      timeout=TIMEOUT,
      check=False,
    )
  except subprocess.TimeoutExpired:
    return {"failed": f"no answer after {TIMEOUT} s"}
  if done.returncode:
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    return {"failed": f"exit {done.returncode}: {last}"}
  return json.loads(done.stdout.splitlines()[-1])


def memory(steps: int) -> dict[str, Any]:
  """Peak memory of the kernel on one group of `steps` steps."""
  batch = make_batch(workloads.giant_group(steps))
  arrays = jax.block_until_ready(jax.device_put(batch.arrays))
  credit = Compiled(make_credit_fn("crbc", beta=bench_competitors.BETA), arrays)
  found = {"steps": steps, "rows": batch.shape.rows, "states": 0}
  found["states"] = int(batch.arrays.state_mask.sum())
  found["temporary_bytes"] = credit.bytes
  if credit.too_large:
    return found | {"failed": credit.too_large}
  before = _reset_peak()
  credit(arrays)
  return found | {"peak_bytes": _peak() - before}


def _reset_peak() -> int:
  """Forgets the highest memory so far; the memory in use now."""
  with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
    file.write("5")
  return _status("VmRSS")


def _peak() -> int:
  return _status("VmHWM")


def _status(name: str) -> int:
  with open("/proc/self/status", encoding="ascii") as file:
    for line in file:
      if line.startswith(name):
        return int(line.split()[1]) * 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sharding(name: str, groups: int) -> dict[str, Any]:
  """The batch split over all devices along its groups, against one device."""
  devices = jax.devices()
  batch = make_batch(workloads.make_table(name, groups))
  credit_fn = make_credit_fn("crbc", beta=bench_competitors.BETA)
  mesh = Mesh(np.array(devices), ("groups",))
  split = jax.device_put(
    batch.arrays, NamedSharding(mesh, PartitionSpec("groups"))
  )
  alone = jax.device_put(batch.arrays, devices[0])
  one, many = credit_fn(alone), credit_fn(split)
  a, b = np.asarray(one.advantage), np.asarray(many.advantage)
  times = measure(
    {
      "one": Case(lambda _: jax.block_until_ready(credit_fn(alone))),
      "many": Case(lambda _: jax.block_until_ready(credit_fn(split))),
    },
    rounds=15,
    seconds=6,
  )
  return {
    "devices": len(devices),
    "cores": len(os.sched_getaffinity(0)),
    "shards": len(many.advantage.sharding.device_set),
    "largest_difference": float(np.abs(a - b).max() / np.abs(a).max()),
    "speed_up": (times["one"] / times["many"]).tolist(),
    "seconds": times["many"].tolist(),
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  probes = parser.add_subparsers(dest="probe", required=True)
  probe = probes.add_parser("memory")
  probe.add_argument("steps", type=int)
  probe = probes.add_parser("sharding")
  probe.add_argument("name")
  probe.add_argument("groups", type=int)
  options = vars(parser.parse_args())
  answer = memory if options.pop("probe") == "memory" else sharding
  print(json.dumps(answer(**options)))


if __name__ == "__main__":
  main()
