"""Credit of a table: group by group, and what is refused."""

import dataclasses

import numpy as np
import pytest

from crbc_jax import RolloutError, credit_table
from crbc_jax.credit.table_credit import make_table_credit_fn, spans_batch
from tests.rollouts.logs import everywhere, house, table


def columns(credit, rows=slice(None)):
  return {
    field.name: getattr(credit, field.name)[rows].tobytes()
    for field in dataclasses.fields(credit)
  }


def test_a_group_gets_the_same_bits_whatever_else_is_in_the_table():
  credit_fn = make_table_credit_fn("gigpo")
  rows = house()
  # A group of another shape, and one of the same.
  big = [
    row | {"group_id": "g0", "traj_id": f"{row['traj_id']}{i}"}
    for row in rows[:4]
    for i in range(9)
  ]
  alone = credit_fn(table(rows[:4]))
  among = credit_fn(table([*big, *rows[::-1]]))
  order = [len(big) + 5 - i for i in range(4)]
  assert columns(among, order) == columns(alone)
  assert alone.advantage.any()


def test_copies_get_nothing_and_change_nothing():
  rows = everywhere(weight=1)
  credit_fn = make_table_credit_fn("grpo")
  copies = [row | {"weight": 0} for row in rows]
  both = credit_fn(table([*copies, *rows]))
  assert columns(both, slice(6, 12)) == columns(credit_fn(table(rows)))
  assert not both.advantage[:6].any() and not both.live[:6].any()


@pytest.mark.parametrize(
  ("estimator", "fields"),
  [
    ("mica", {"reward": lambda i: 3e38 * (1 - 2 * (i % 3))}),
    ("gae", {"value": lambda i: 1e300}),
  ],
)
def test_credit_that_overflows_is_an_error_of_its_group(estimator, fields):
  with (
    np.errstate(over="ignore"),
    pytest.raises(RolloutError, match=r"group 'g1': .* is not finite"),
  ):
    credit_table(table(everywhere(**fields)), estimator)


@pytest.mark.parametrize(
  ("estimator", "message"),
  [
    ("gae", "needs a critic, but the table has no column 'value'"),
    (
      "crbc(truncation='bootstrap')",
      "needs the state after the last step of truncated rollouts",
    ),
  ],
)
def test_a_table_that_lacks_what_the_estimator_needs_is_refused(
  estimator, message
):
  with pytest.raises(RolloutError, match=message):
    credit_table(table(house()), estimator)


def test_which_estimators_look_beyond_a_group():
  assert spans_batch("reinforce_pp")
  assert spans_batch("crbc", trajectory="reinforce_pp")
  assert spans_batch("crbc(trajectory='reinforce_pp')")
  assert not spans_batch("crbc") and not spans_batch("grpo")
