"""The precision check: right where the kernel is, and it can fail."""

import numpy as np
import pytest

from crbc_jax.credit import closure, precision
from tests.credit import adversarial


def test_the_closure_is_precise_here():
  found = precision.measure_precision()
  assert {(p.group, p.beta, p.matmul_precision) for p in found} == {
    (group, beta, setting)
    for group in precision.GROUPS
    for beta in precision.BETAS
    for setting in precision.MATMUL_PRECISIONS
  }
  assert all(p.ok for p in found)


@pytest.mark.parametrize("group", precision.GROUPS)
@pytest.mark.parametrize("beta", precision.BETAS)
def test_reference_is_the_long_double_one(group, beta):
  table = precision.careless_groups()
  table = table.take(table.group_id == group)
  v, gap = precision.reference(table, beta)
  rows = slice(0, len(table))
  counts, state, following, pair = adversarial.count_group(table, rows)
  want = adversarial.reference_values(counts, beta)
  np.testing.assert_allclose(v, want[state].astype(float), rtol=1e-10)
  after = np.append(want, 0)[following]
  after = np.where(table.boundary == adversarial.WON, 1, after)
  b = float(adversarial.exact_beta(beta))
  total = np.bincount(pair, (b * after - want[state]).astype(float))
  np.testing.assert_allclose(gap, (total / np.bincount(pair))[pair], atol=1e-10)


def test_a_careless_solve_is_found(monkeypatch):
  """Values with the three digits of bfloat16."""
  solve = closure.solve

  def coarse(process, **options):
    v = solve(process, **options)
    return v.astype("bfloat16").astype("float32")

  monkeypatch.setattr(closure, "solve", coarse)
  assert not all(p.ok for p in precision.measure_precision())


def test_what_is_no_number_is_not_fine():
  nan = precision.Precision("ring", 1.0, "default", float("nan"), 0.0)
  assert not nan.ok
