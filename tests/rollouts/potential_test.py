"""Rewards from a potential: the formula, and what is refused."""

import dataclasses

import numpy as np
import pytest

from crbc_jax.credit.estimators.mica import mica
from crbc_jax.rollouts.potential import potential_rewards
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.rollouts.validation import validate
from tests import groups as groups_lib
from tests import kernels

DISTANCE = {"far": 5.0, "near": 2, "here": np.float32(0.5), "off": 7.0}


def table(**columns) -> StepTable:
  """A success that leaves its goal out, and a failure that went off."""
  return StepTable.from_columns(
    **{
      "group_id": ["g"] * 5,
      "traj_id": ["a", "a", "a", "b", "b"],
      "step_idx": [0, 1, 2, 4, 5],
      "state_key": ["far", "near", "here", "far", "near"],
      "action_key": list("xyzxy"),
      "next_state_key": ["near", "here", None, "near", "off"],
      "boundary": ["none", "none", "success", "none", "failure"],
    }
    | columns
  )


def refusal(source: StepTable, potential=DISTANCE.get) -> str:
  with pytest.raises(RolloutError) as error:
    potential_rewards(source, potential)
  return str(error.value)


def test_rewards_are_decreases_of_the_potential():
  before = table(reward=[9.0] * 5)
  got = potential_rewards(before, DISTANCE.get)
  np.testing.assert_allclose(got.reward, [3, 1.5, 0.5, 3, -5])
  validate(got)
  np.testing.assert_array_equal(before.reward, [9.0] * 5)  # not in place
  for name in ("state_key", "next_state_key", "boundary", "row_id"):
    np.testing.assert_array_equal(getattr(got, name), getattr(before, name))


def test_a_recorded_goal_is_evaluated():
  source = table(next_state_key=["near", "here", "off", "near", "off"])
  np.testing.assert_allclose(
    potential_rewards(source, DISTANCE.get).reward, [3, 1.5, -6.5, 3, -5]
  )


def test_successors_inside_a_trajectory_need_not_be_recorded():
  source = table(next_state_key=[None, None, None, None, "off"])
  np.testing.assert_allclose(
    potential_rewards(source, DISTANCE.get).reward, [3, 1.5, 0.5, 3, -5]
  )


def test_the_order_of_the_rows_does_not_matter():
  source = table()
  order = np.array([4, 2, 0, 3, 1])
  got = potential_rewards(source.take(order), DISTANCE.get).reward
  want = potential_rewards(source, DISTANCE.get).reward[order]
  np.testing.assert_array_equal(got, want)


def test_copies_keep_their_reward_and_hide_nothing():
  rows = np.array([0, 1, 1, 2, 3, 4])
  source = table().take(rows)
  weight = np.array([1.0, 0, 1, 1, 1, 1])
  source = dataclasses.replace(source, weight=weight, reward=rows + 0.5)
  got = potential_rewards(source, DISTANCE.get).reward
  np.testing.assert_allclose(got, [3, 1.5, 1.5, 0.5, 3, -5])
  weight = np.array([1.0, 1, 0, 1, 1, 1])
  source = dataclasses.replace(source, weight=weight, reward=rows + 7.0)
  got = potential_rewards(source, DISTANCE.get).reward
  np.testing.assert_allclose(got, [3, 1.5, 8, 0.5, 3, -5])


def test_integer_keys_and_one_call_per_key():
  calls = []

  def potential(key):
    calls.append(key)
    return key * key

  source = table(
    group_id=np.zeros(5, int),
    state_key=np.array([3, 2, 1, 3, 2]),
    next_state_key=np.array([2, 1, 0, 2, 4]),
  )
  got = potential_rewards(source, potential)
  np.testing.assert_allclose(got.reward, [5, 3, 1, 5, -12])
  assert sorted(calls) == [0, 1, 2, 3, 4]
  assert all(type(key) is int for key in calls)


def test_rewards_of_a_rollout_sum_to_what_it_gained():
  groups = groups_lib.random_groups(20, 5)
  source = groups_lib.table_of(
    [
      [r._replace(final_state=None if r.end == "success" else "s0") for r in g]
      for g in groups
    ]
  )
  got = potential_rewards(source, lambda key: 1.0 + int(key[1:]) ** 2)
  row = 0
  for r in (r for g in groups for r in g):
    size = len(r.steps)
    after = 0.0 if r.end == "success" else 1.0
    want = 1.0 + int(r.steps[0].state[1:]) ** 2 - after
    assert got.reward[row : row + size].sum() == pytest.approx(want)
    row += size


def test_mica_takes_them():
  got = kernels.credit(mica, potential_rewards(table(), DISTANCE.get))
  # Rewards 3 1.5 .5 3 -5, returns 5 2 .5 and -2 -5.
  turn = np.array([1, 1, 0, -1, -1]) * 0.5**0.5
  reward = np.array([3, 1.5, 0.5, 3, -5])
  reward = (reward - 0.6) / reward.std(ddof=1)
  np.testing.assert_allclose(got["advantage"], (turn + reward) / 2, atol=2e-6)


def test_a_missing_successor_is_refused_unless_it_is_the_goal():
  lost = ["near", "here", None, "near", None]
  for end in ("failure", "truncated"):
    text = refusal(
      table(
        next_state_key=lost, boundary=["none", "none", "success", "none", end]
      )
    )
    assert "group 'g', trajectory 'b', step 5 (row_id 4)" in text
    assert "no recorded successor" in text
    assert "next_state_key" in text


def test_a_missing_state_is_refused():
  text = refusal(
    table(
      state_key=["far", None, "here", "far", "near"],
      next_state_key=[None, "here", None, "near", "off"],
    )
  )
  assert "trajectory 'a', step 1" in text
  assert "no state" in text


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None, "far"])
def test_potentials_that_are_no_finite_number_are_refused(bad):
  text = refusal(table(), (DISTANCE | {"near": bad}).get)
  assert "trajectory 'a', step 1 (row_id 1)" in text
  assert "(and 1 more row)" in text
  assert "potential is not a finite number" in text
  text = refusal(table(), (DISTANCE | {"off": bad}).get)
  assert "trajectory 'b', step 5 (row_id 4) leads to" in text


def test_errors_of_the_potential_itself_come_through():
  with pytest.raises(TypeError, match="mine"):

    def potential(key):
      raise TypeError("mine")

    potential_rewards(table(), potential)


def test_an_inconsistent_table_is_refused_but_old_rewards_are_not_read():
  assert "follows a missing step" in refusal(table(step_idx=[0, 2, 3, 4, 5]))
  source = table(reward=[np.nan, 0, 0, 0, np.inf])
  assert np.isfinite(potential_rewards(source, DISTANCE.get).reward).all()
