"""One race between ours and the array competitors, and judging the times."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from crbc_jax import StepTable, make_batch, make_credit_fn
from crbc_jax.types import GroupArrays
from experiments import bench_competitors as rivals
from experiments.bench_timing import (
  Case,
  Compiled,
  Goal,
  Line,
  digits,
  lines_of,
  measure,
  too_large,
)


def kernel_fn() -> Callable:
  """The batched, jitted kernel: ids to advantages, like its competitors."""
  credit_fn = make_credit_fn("crbc", beta=rivals.BETA)
  return jax.jit(lambda arrays: credit_fn(arrays).advantage)


def race(
  table: StepTable,
  *,
  section: str,
  workload: str,
  rounds: int,
  seconds: float,
  bincount: bool = False,
  only_ours: bool = False,
) -> list[Line]:
  """Ours and the array competitors on one table; checks that they agree.

  Args:
    table: integer keys.
    section: name of the section.
    workload: name of the table.
    rounds: as `measure`.
    seconds: as `measure`.
    bincount: add one NumPy pass over the rows.
    only_ours: time nothing else.
  """
  batch = make_batch(table)
  problem = rivals.make_problem(batch.arrays)
  cases: dict[str, Case] = {}
  skipped: dict[str, str] = {}

  def enter(name: str, run: Callable[[], Any], why: str = "") -> None:
    if why:
      skipped[name] = why
    else:
      cases[name] = Case(lambda _: run())

  ours = Compiled(kernel_fn(), problem.arrays)
  enter("ours", lambda: ours(problem.arrays), ours.too_large)
  if not only_ours:
    _enter_rivals(enter, problem)
  if bincount:
    enter("bincount pass", lambda: rivals.bincount_pass(problem.whole))
  if not ours.too_large and not only_ours:
    credit_fn = make_credit_fn("crbc", beta=rivals.BETA)
    _check_agreement(credit_fn(problem.arrays), problem)
  times = measure(cases, rounds=rounds, seconds=seconds)
  return lines_of(
    times, skipped, section=section, workload=workload, steps=len(table)
  )


def _enter_rivals(enter: Callable, problem: rivals.Problem) -> None:
  tight, flops = problem.tight, rivals.dense_flops(problem.tight)
  _enter_dense(enter, "dense LU", tight)
  if len(problem.groups) >= 16:
    _enter_dense(enter, "dense LU, padded as ours", problem.arrays)
  enter("spsolve per group", lambda: rivals.scipy_per_group(problem.groups))
  if len(problem.groups) > 1:
    enter("spsolve block-diagonal", lambda: rivals.scipy_credit(problem.whole))
  enter(
    "NumPy dense",
    lambda: rivals.numpy_dense(problem.whole, problem.groups),
    too_large(rivals.dense_bytes(tight, 8), flops),
  )


def _enter_dense(enter: Callable, name: str, arrays: GroupArrays) -> None:
  why = too_large(rivals.dense_bytes(arrays, 4), rivals.dense_flops(arrays))
  if why:
    enter(name, None, why)
    return
  dense = Compiled(rivals.make_dense_fn(), arrays)
  enter(name, lambda: dense(arrays), dense.too_large)


def _check_agreement(credit: Any, problem: rivals.Problem) -> None:
  """A fast wrong answer would be worth nothing."""
  mask = np.asarray(problem.arrays.mask)
  gap = np.asarray(credit.q)[mask] - np.asarray(credit.v)[mask]
  truth = rivals.scipy_credit(problem.whole)
  np.testing.assert_allclose(gap, truth.gap, atol=2e-5)
  v = np.asarray(credit.v)[mask]
  np.testing.assert_allclose(v, truth.v[problem.whole.state], atol=2e-5)


def ratios(lines: Iterable[Line], name: str) -> list[tuple[float, str]]:
  """(time of a contestant / ours, workload), where both were measured."""
  return [
    (x.times_ours.median, x.workload)
    for x in lines
    if x.name == name and x.times_ours is not None
  ]


def at_least(
  goal: str,
  factor: float,
  found: list[tuple[float, str]],
  *,
  failed: str = "",
) -> Goal:
  """The smallest of some ratios must reach `factor`.

  Without any, `failed` says why ours was not measured: the goal is missed.
  """
  goal = f"{goal} >= {factor:.3g}"
  if failed or not found:
    return Goal(goal, failed or "not measured", False if failed else None)
  worst, where = min(found)
  return Goal(goal, f"{digits(worst)} ({where})", worst >= factor)


def not_run(lines: Iterable[Line]) -> str:
  """Why ours was not run on some of these workloads, or nothing."""
  notes = [x.note for x in lines if x.name == "ours" and x.note]
  return notes[-1] if notes else ""


def flat(lines: list[Line], section: str, what: str) -> Goal:
  """Time per step must not grow by more than half."""
  ours = [x for x in lines if x.section == section and x.name == "ours"]
  sizes = f"{ours[0].steps:,} to {ours[-1].steps:,}"
  goal = f"{what}: time per step from {sizes} steps grows <= 1.5x"
  if not_run(ours):
    return Goal(goal, not_run(ours), False)
  each = [x.seconds.median / x.steps for x in ours if x.seconds]
  text = " / ".join(digits(x * 1e9) for x in each) + " ns"
  return Goal(goal, text, max(each) <= 1.5 * each[0])
