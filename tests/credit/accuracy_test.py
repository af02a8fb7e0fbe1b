"""Accuracy of the closure in float32 where careless solvers lose digits."""

import functools

import jax
import numpy as np
import pytest

from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process
from crbc_jax.rollouts.batching import make_batch
from tests.credit import adversarial

V_TOLERANCE = 5e-6  # relative to the state's own value
GAP_TOLERANCE = 1e-6  # absolute, for values in [0, 1]


@functools.cache
def closed(table, beta) -> tuple[np.ndarray, np.ndarray]:
  """The kernel's V and Q - V of every row of a table, in its order."""

  def values(group):
    process = build_process(group, beta=beta)
    found = closure.exact_values(process, beta=beta)
    # Q - V in float32 has lost what a kernel may still know.
    gap = getattr(found, "gap", None)
    if gap is None:
      gap = found.q - found.v[group.pair_state]
    return found.v[group.state], gap[group.pair]

  batch = make_batch(table)
  v, gap = jax.jit(jax.vmap(values))(batch.arrays)
  assert v.dtype == gap.dtype == np.float32
  return batch.to_rows(v, len(table)), batch.to_rows(gap, len(table))


def errors(v, gap, truth: adversarial.Reference, rows) -> dict[str, float]:
  """Worst relative error of V where V > 0, and absolute of raw credit."""
  v, gap = (found[rows].astype(np.longdouble) for found in (v, gap))
  alive = truth.v[rows] > 0
  assert (v[~alive] == 0).all(), "a state without success must have V = 0"
  relative = np.abs(v - truth.v[rows])[alive] / truth.v[rows][alive]
  return {
    "v": float(relative.max(initial=0)),
    "gap": float(np.abs(gap - truth.gap[rows]).max()),
  }


def check(table, rows, beta):
  truth = adversarial.reference(table, beta)
  found = errors(*closed(table, beta), truth, rows)
  assert found["v"] <= V_TOLERANCE, found
  assert found["gap"] <= GAP_TOLERANCE, found


@pytest.mark.parametrize("beta", adversarial.BETAS)
@pytest.mark.parametrize(
  ("batch", "number"),
  [
    pytest.param(batch, number, id=name)
    for batch, names in adversarial.BATCHES.items()
    for number, name in enumerate(names)
  ],
)
def test_adversarial_group(batch, number, beta):
  table = adversarial.batch_table(batch)
  rows = adversarial.group_rows(table)[number]
  check(table, rows, beta)


@pytest.mark.parametrize("beta", adversarial.BETAS)
def test_random_groups(beta):
  table = adversarial.random_table()
  check(table, slice(0, len(table)), beta)


@pytest.mark.parametrize("beta", adversarial.BETAS)
def test_no_credit_without_success(beta):
  table = adversarial.batch_table("few states")
  number = adversarial.BATCHES["few states"].index("all fail")
  rows = adversarial.group_rows(table)[number]
  assert all((found[rows] == 0).all() for found in closed(table, beta))


def test_one_wrong_state_is_noticed():
  table, rows = adversarial.random_table(20), slice(10, 60)
  truth = adversarial.reference(table, 0.98)
  v, gap = (x.astype(np.float32) for x in (truth.v, truth.gap))
  found = errors(v, gap, truth, rows)
  assert found["v"] < 1e-7 and found["gap"] < 1e-7
  row = rows.start + int(np.argmax(truth.v[rows] > 0))
  v[row] *= np.float32(1 + 1e-4)
  gap[row + 1] += np.float32(1e-4)
  found = errors(v, gap, truth, rows)
  assert found["v"] == pytest.approx(1e-4, rel=0.01)
  assert found["gap"] == pytest.approx(1e-4, rel=0.01)
