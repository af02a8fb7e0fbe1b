"""The sections of `bench_credit`; each times ours and its competitors."""

import time
from collections.abc import Callable

import numpy as np

from crbc_jax import make_batch
from experiments import bench_probe, bench_text, workloads
from experiments.bench_race import (
  at_least,
  flat,
  kernel_fn,
  not_run,
  race,
  ratios,
)
from experiments.bench_timing import (
  CompileCounter,
  Found,
  Goal,
  Spread,
  digits,
)

LARGE = 17_500  # steps from which the goal against SciPy counts ("18k")


def batches(*, quick: bool, rounds: int, seconds: float) -> Found:
  """Ids to advantages on batches of groups of eight."""
  found = Found()
  sizes = [("web", 512), ("alfworld", 128), ("grid", 512), ("swe", 16)]
  sizes += [("swe", 128), ("long", 128)]
  for name, groups in [("web", 8)] if quick else sizes:
    found.lines += race(
      workloads.make_table(name, groups),
      section="batches",
      workload=f"{name} x{groups}",
      rounds=rounds,
      seconds=seconds,
      bincount=False,
    )
  large = [x for x in found.lines if x.steps >= LARGE]
  swe = [x for x in large if x.workload.startswith("swe")]
  grid = [x for x in large if x.workload.startswith("grid")]
  found.goals = [
    at_least(
      "ids to advantages, >= 18k steps: SciPy spsolve per group / ours",
      5,
      ratios(large, "spsolve per group"),
      failed=not_run(large),
    ),
    at_least(
      "the same against one block-diagonal spsolve (numerics.md 7)",
      2,
      ratios(large, "spsolve block-diagonal"),
      failed=not_run(large),
    ),
    at_least(
      "SWE-like: dense float32 LU, padded to the largest group, / ours",
      100,
      ratios(swe, "dense LU"),
      failed=not_run(swe),
    ),
    at_least(
      "grid, the same arrays: dense LU / ours (at most 1.1x slower)",
      1 / 1.1,
      ratios(grid, "dense LU, padded as ours"),
      failed=not_run(grid),
    ),
  ]
  return found


def giant(*, quick: bool, rounds: int, seconds: float) -> Found:
  """One group of many steps, and the time per step as steps grow."""
  found = Found()
  for steps in (500,) if quick else (16_000, 131_000, 1_048_000):
    found.lines += race(
      workloads.giant_group(steps),
      section="giant",
      workload=f"long, one group of {steps:,}",
      rounds=rounds,
      seconds=seconds,
      bincount=True,
    )
  alike = (2,) if quick else (32, 256, 2_048)
  for groups in alike:
    found.lines += race(
      workloads.make_table("alfworld", groups),
      section="scaling",
      workload=f"alfworld x{groups}",
      rounds=rounds,
      seconds=seconds,
      only_ours=True,
    )
  one = [x for x in found.lines if x.section == "giant"]
  steps = one[-1].steps
  largest = [x for x in one if x.steps == steps]
  passes = ratios(largest, "bincount pass")
  found.goals = [
    Goal(
      f"{steps:,} steps in one group < 25 NumPy bincount passes",
      digits(1 / passes[0][0]) if passes else not_run(largest),
      bool(passes) and 1 / passes[0][0] < 25,
    ),
    flat(found.lines, "giant", "one group"),
    flat(found.lines, "scaling", "alfworld batches"),
    at_least(
      "one group, >= 18k steps: SciPy spsolve / ours",
      5,
      ratios([x for x in one if x.steps >= LARGE], "spsolve per group"),
      failed=not_run(one),
    ),
  ]
  return found


def lattice(*, quick: bool, rounds: int, seconds: float) -> Found:
  """A random walk where nearly every state branches: the hard case."""
  found = Found()
  for steps in (500,) if quick else (50_000, 778_000):
    found.lines += race(
      workloads.lattice_group(steps),
      section="lattice",
      workload=f"lattice, one group of {steps:,}",
      rounds=rounds,
      seconds=seconds,
      bincount=False,
    )
  found.goals = [
    at_least(
      "lattice walk (13k branching states): SciPy spsolve / ours",
      5,
      ratios(found.lines, "spsolve per group"),
      failed=not_run(found.lines),
    )
  ]
  return found


def compiles(*, quick: bool, rounds: int, seconds: float) -> Found:
  """Compilations over batches of very different sizes."""
  del rounds, seconds
  number = 3 if quick else 200
  rng = np.random.default_rng(0)
  credit_fn, shape, shapes, steps = kernel_fn(), None, set(), []
  start = time.perf_counter()
  with CompileCounter() as counter:
    for seed in range(number):
      groups = int(rng.integers(2, 5) if quick else rng.integers(8, 73))
      table = workloads.make_table("alfworld", groups, seed=seed)
      batch = make_batch(table, shape)
      shape = batch.shape
      np.asarray(credit_fn(batch.arrays))
      shapes.add(shape)
      steps.append(len(table))
  taken = time.perf_counter() - start
  return Found(
    goals=[
      Goal(
        f"compilations over {number} batches of {min(steps):,} to"
        f" {max(steps):,} steps <= 4",
        f"{counter.count} ({counter.seconds:.1f} s)",
        counter.count <= 4,
      )
    ],
    facts={
      "compilations": counter.count,
      "compile_seconds": counter.seconds,
      "shapes": [list(s) for s in sorted(shapes)],
      "steps": [min(steps), max(steps)],
      "seconds": taken,
    },
  )


def memory(*, quick: bool, rounds: int, seconds: float) -> Found:
  """Peak memory of the kernel on one group, in processes of their own."""
  del rounds, seconds
  sizes = (1_000,) if quick else (131_000, 524_000, 2_097_000)
  found = [bench_probe.run("memory", str(steps)) for steps in sizes]
  failed = [x["failed"] for x in found if "failed" in x]
  text, passed = "; ".join(failed), False
  if not failed:
    per_row = [x["peak_bytes"] / x["rows"] for x in found]
    text = " / ".join(f"{x:,.0f}" for x in per_row) + " bytes a padded row"
    passed = per_row[-1] <= 1.3 * per_row[0]
  goal = f"peak memory linear from {sizes[0]:,} to {sizes[-1]:,} steps"
  return Found(
    goals=[Goal(goal, text, passed)],
    facts={"sizes": found},
  )


def sharding(*, quick: bool, rounds: int, seconds: float) -> Found:
  """The groups of a batch split over four CPU devices."""
  del rounds, seconds
  name, groups = ("web", 4) if quick else ("alfworld", 256)
  answer = bench_probe.run("sharding", name, str(groups), devices=4)
  goal = "four devices along the groups: the numbers of one device"
  if "failed" in answer:
    return Found(goals=[Goal(goal, answer["failed"], False)])
  speed_up = Spread.of(answer["speed_up"])
  text = (
    f"largest difference {answer['largest_difference']:.1e} of the largest"
    f" advantage; speed-up {speed_up.text()} on {answer['cores']} cores"
  )
  same = answer["largest_difference"] <= 1e-6
  return Found(
    goals=[Goal(goal, text, same and answer["shards"] == 4)],
    facts=answer | {"workload": f"{name} x{groups}"},
  )


SECTIONS: dict[str, Callable[..., Found]] = {
  "batches": batches,
  "giant": giant,
  "lattice": lattice,
  "end-to-end": bench_text.end_to_end,
  "compiles": compiles,
  "memory": memory,
  "sharding": sharding,
}
