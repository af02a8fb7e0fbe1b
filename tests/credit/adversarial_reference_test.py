"""The reference of the accuracy tests, itself checked."""

from fractions import Fraction

import numpy as np
import pytest

from crbc_jax.rollouts.validation import validate
from tests import oracle
from tests.credit import adversarial

SMALL = 50  # states; exact arithmetic takes too long beyond


def named_counts():
  for batch, names in adversarial.BATCHES.items():
    table = adversarial.batch_table(batch)
    groups = adversarial.group_rows(table)
    for name, rows in zip(names, groups, strict=True):
      yield name, adversarial.count_group(table, rows)[0]


COUNTS = dict(named_counts())


def worst_relative(values, exact) -> float:
  """Largest relative error; a value that is exactly 0 must be found so."""
  worst = Fraction(0)
  for value, truth in zip(values, exact, strict=True):
    error = abs(Fraction(*value.as_integer_ratio()) - truth)
    assert truth or not error
    worst = max(worst, error / truth if truth else Fraction(0))
  return float(worst)


def test_the_suite_is_complete():
  assert len(adversarial.NAMED) == 12
  assert set(COUNTS) == {*adversarial.NAMED, *adversarial.EXTRA}


@pytest.mark.parametrize("batch", adversarial.BATCHES)
def test_tables_are_valid(batch):
  validate(adversarial.batch_table(batch))


def test_random_table_is_valid_and_varied():
  table = adversarial.random_table()
  validate(table)
  rows = adversarial.group_rows(table)
  assert len(rows) == 1_000
  counts = [adversarial.count_group(table, r)[0] for r in rows]
  assert {len(c.win) for c in counts} == {*range(1, 11)}
  assert sum(c.win.sum() == 0 for c in counts) > 50
  assert sum(c.lose.sum() == 0 for c in counts) > 20


@pytest.mark.parametrize("beta", adversarial.BETAS)
@pytest.mark.parametrize(
  "name", [n for n, c in COUNTS.items() if len(c.win) <= SMALL]
)
def test_long_double_agrees_with_fractions(name, beta):
  counts = COUNTS[name]
  exact = adversarial.fraction_values(counts, beta)
  found = adversarial.reference_values(counts, beta)
  assert worst_relative(found, exact) < 1e-15


@pytest.mark.parametrize("beta", adversarial.BETAS)
def test_long_double_agrees_with_fractions_on_random_groups(beta):
  table = adversarial.random_table()
  for rows in adversarial.group_rows(table)[::10]:
    counts = adversarial.count_group(table, rows)[0]
    exact = adversarial.fraction_values(counts, beta)
    found = adversarial.reference_values(counts, beta)
    assert worst_relative(found, exact) < 1e-15


def test_reference_agrees_with_the_oracle():
  # Built from other code, rollout by rollout, and a beta that is a float32.
  beta, table = 0.75, adversarial.random_table()
  found = adversarial.reference(table, beta)
  for rows in adversarial.group_rows(table)[:60]:
    group, ends = [], {1: "success", 2: "failure", 3: "truncated"}
    for traj in np.unique(table.traj_id[rows]):
      steps = np.flatnonzero(table.traj_id == traj)
      group.append(
        oracle.Rollout(
          tuple(
            oracle.Step(int(table.state_key[i]), int(table.action_key[i]))
            for i in steps
          ),
          ends[int(table.boundary[steps[-1]])],
        )
      )
    v, q = oracle.closure(group, beta=beta)
    for i in range(rows.start, rows.stop):
      s, a = int(table.state_key[i]), int(table.action_key[i])
      assert found.v[i] == pytest.approx(float(v[s]), abs=1e-15)
      gap = float(q[s, a] - v[s])
      assert found.gap[i] == pytest.approx(gap, abs=1e-15)


@pytest.mark.parametrize("goal", [60, 200])
def test_fair_ruin_is_linear(goal):
  values = adversarial.reference_values(COUNTS[f"fair ruin, {goal}"], 1.0)
  truth = np.arange(1, goal, dtype=np.longdouble) / goal
  assert np.abs(values / truth - 1).max() < 1e-15


def test_biased_ruin_has_its_closed_form():
  values = adversarial.reference_values(COUNTS["biased ruin"], 1.0)
  odds = Fraction(3, 2)
  truth = [(1 - odds**i) / (1 - odds**30) for i in range(1, 30)]
  assert worst_relative(values, truth) < 1e-15
  assert values[0] < 1e-5


def test_decades_are_powers_of_ten():
  values = adversarial.reference_values(COUNTS["V spanning decades"], 1.0)
  truth = [Fraction(1, 10 ** (14 - i)) for i in range(14)]
  assert worst_relative(values, truth) < 1e-15


def test_counts_are_what_the_names_say():
  loop = COUNTS["self-loop x20,000, rare success"]
  assert loop.go[1, 1] == 20_000 and loop.win.sum() == 1
  assert COUNTS["self-loop x500"].go[1, 1] == 500
  pong = COUNTS["ping-pong x5,000"]
  assert pong.go.tolist() == [[0, 5_000], [5_000, 0]]
  cliques = COUNTS["two 20-cliques"]
  steps = cliques.go.sum()
  assert cliques.go.shape == (40, 40) and 19_000 < steps < 21_000
  assert cliques.go[:20, 20:].sum() == cliques.go[20:, :20].sum() == 1
  for size in (500, 512):
    assert ((COUNTS[f"ring of {size}"].go > 0).sum(axis=1) == 1).all()
  assert COUNTS["all fail"].win.sum() == 0
  assert COUNTS["all-success loops"].lose.sum() == 0


def test_all_success_is_one_and_has_no_credit():
  table = adversarial.batch_table("few states")
  rows = adversarial.group_rows(table)[2]
  found = adversarial.reference(table, 1.0)
  assert (found.v[rows] == 1).all()
  assert (np.abs(found.gap[rows]) < 1e-18).all()


def test_the_discount_is_the_one_of_float32():
  assert adversarial.exact_beta(0.98) != Fraction(98, 100)
  assert float(adversarial.exact_beta(0.98)) == float(np.float32(0.98))
