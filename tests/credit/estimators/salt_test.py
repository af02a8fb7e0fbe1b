"""SALT: numbers worked by hand, what makes an edge, degenerate groups."""

import numpy as np
import pytest

from crbc_jax.credit.estimators.salt import salt
from tests import groups as groups_lib
from tests import kernels
from tests.groups import rollout
from tests.oracle import Rollout, Step

A = 0.866024  # GRPO of two successes in four


def golden(**options):
  return kernels.credit(salt, [groups_lib.golden()], **options)


def test_golden():
  """The first steps are shared, a by 1 and 2 and b by 3 and 4; no others."""
  got = golden()
  np.testing.assert_allclose(
    got["advantage"], [0, A, 0, -A, -A, 0, A, 0, -A, -A, -A], atol=1e-6
  )
  np.testing.assert_allclose(
    got["trajectory"], np.repeat([A, -A, A, -A], [2, 3, 2, 4]), atol=1e-6
  )
  np.testing.assert_allclose(
    got["step"], [-A, 0, A, 0, 0, -A, 0, A, 0, 0, 0], atol=1e-6
  )
  np.testing.assert_array_equal(got["live"], [1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0])


def test_golden_weights_and_rloo():
  got = golden(w_group=2.0, w_step=0.5, trajectory="rloo")
  r = 2 / 3
  np.testing.assert_allclose(
    got["advantage"],
    2 * np.repeat([r, -r, r, -r], [2, 3, 2, 4])
    + 0.5 * np.array([-r, 0, r, 0, 0, -r, 0, r, 0, 0, 0]),
    atol=1e-6,
  )
  assert not golden(trajectory="none")["advantage"].any()


def merged(first, second, *, history):
  """Whether each row of `first` meets one: advantage 0, not +-.707."""
  group = [rollout(first, "success"), rollout(second, "failure")]
  got = kernels.credit(salt, [group], history=history)
  rows = len(first.split()) // 2
  np.testing.assert_array_equal(got["live"], got["advantage"] == 0)
  return got["live"][:rows].astype(int).tolist()


@pytest.mark.parametrize(
  "history, want", [(1, [0, 0, 1, 0]), (2, [0, 0, 0, 0])]
)
def test_only_the_last_pairs_of_the_past_count(history, want):
  first, second = "s0 a s1 b s2 c s4 d", "s3 x s1 b s2 c s4 d"
  # The last step differs by its boundary whatever its past.
  assert merged(first, second, history=history) == want


def test_what_makes_an_edge():
  """Past, action and successor: each must agree."""
  base = "s0 a s1 b s2 c s3 d"
  assert merged(base, base, history=3) == [1, 1, 1, 0]
  assert merged(base, "s0 x s1 b s2 c s3 d", history=3) == [0, 0, 0, 0]
  assert merged(base, "s0 x s1 b s2 c s3 d", history=1) == [0, 0, 1, 0]
  assert merged(base, "s0 a s1 x s2 c s3 d", history=1) == [1, 0, 0, 0]
  # b leads to s2 from s1 and from s9: the same pair (b, s2) of the past.
  assert merged(base, "s0 a s9 b s2 c s3 d", history=1) == [0, 0, 1, 0]
  assert merged(base, "s0 a s9 b s2 c s3 d", history=2) == [0, 0, 0, 0]


def test_a_past_that_starts_here_is_not_a_longer_one():
  """(s1) as a start, and s1 reached from s0, with the same step after it."""
  assert merged("s1 b s2 c", "s0 a s1 b s2 c", history=3) == [0, 0]
  # One pair back, the steps from s2 to the end differ by their boundary only.
  assert merged("s1 b s2 c s3 d", "s0 a s1 b s2 c s3 d", history=1) == [0, 1, 0]
  assert merged("s1 b s2 c s3 d", "s0 a s1 b s2 c s3 d", history=2) == [0, 0, 0]


def test_the_state_of_the_oldest_action_is_forgotten():
  assert merged("s0 a s1 b s2 c", "s3 a s1 b s2 c", history=1) == [0, 1, 0]
  assert merged("s0 a s1 b s2 c", "s3 a s1 b s2 c", history=2) == [0, 0, 0]


def test_final_steps_meet_by_boundary_and_known_successor():
  group = [
    rollout("s0 a", "failure"),
    rollout("s0 a", "truncated"),
    rollout("s0 a", "failure", "never acted from"),  # known as "elsewhere"
    rollout("s0 a", "failure", "s0"),
    rollout("s0 a", "success"),
  ]
  got = kernels.credit(salt, [group])
  np.testing.assert_array_equal(got["live"], [1, 0, 1, 0, 0])


def test_a_repeated_edge_counts_each_time():
  group = [
    rollout("s a s a s a s b", "success"),
    rollout("s a s a s b", "failure"),
  ]
  got = kernels.credit(salt, [group], history=1, trajectory="rloo")
  # RLOO +-1. Starts meet; then a after a: two of the first, one of the second.
  np.testing.assert_allclose(
    got["advantage"], [0, 1 / 3, 1 / 3, 1, 0, 1 / 3, -1], atol=1e-6
  )


def test_degenerate_groups_get_exactly_zero():
  groups = [
    [rollout("s0 a s0 a s1 b", "success")],
    [rollout("s0 a s1 b", "failure"), rollout("s0 a s1 b", "failure")],
    [rollout("s0 a", "truncated"), rollout("s0 b", "failure")],
    [rollout("s0 a s1 b", "success")] * 3,
  ]
  for trajectory in ("grpo", "rloo"):
    got = kernels.credit(salt, groups, trajectory=trajectory)
    for field in ("advantage", "trajectory", "step", "q", "v"):
      assert not got[field].any()


def test_equal_advantages_give_a_step_term_of_exactly_zero():
  """Means of equal numbers may be off by a bit; the step term may not."""
  groups = [
    [rollout("s0 a s1 b", "success")] * n + [rollout("s9 a", "failure")] * 2
    for n in range(2, 12)
  ]
  got = kernels.credit(salt, groups)
  np.testing.assert_array_equal(
    groups_lib.bits(got["step"]), np.zeros(len(got["step"]), np.uint32)
  )
  np.testing.assert_array_equal(got["advantage"], got["trajectory"])


def test_one_step_episodes_merge_within_their_outcome_only():
  group = [rollout("s a", "success"), rollout("s a", "failure")]
  got = kernels.credit(salt, [group])
  np.testing.assert_allclose(got["advantage"], [0.707106, -0.707106], atol=2e-6)


def test_missing_states_and_invalid_actions():
  missing = [
    Rollout((Step(None, "a"), Step("s", "b"), Step("t", "b")), end)
    for end in ("success", "failure")
  ]
  # Nobody shares the first row; the pair (a, s) before the second is shared.
  got = kernels.credit(salt, [missing], history=1)
  np.testing.assert_array_equal(got["live"], [0, 1, 0] * 2)
  # Two pairs back the missing state is in the past of the second row.
  got = kernels.credit(salt, [missing], history=2)
  np.testing.assert_array_equal(got["live"], [0, 0, 0] * 2)
  invalid = [
    Rollout((Step("s", "<invalid>", valid=False), Step("s", "b")), end)
    for end in ("success", "failure")
  ]
  got = kernels.credit(salt, [invalid])
  np.testing.assert_array_equal(got["live"], [1, 0, 1, 0])


def test_observed_rewards_are_the_score():
  group = [
    Rollout((Step("s", "a", reward=r), Step("t", "b", reward=1)), "failure")
    for r in (1, 2, 6)
  ]
  got = kernels.credit(salt, [group], signal="observed", trajectory="rloo")
  # Scores 2, 3, 7, all edges shared: every merged value is 0.
  np.testing.assert_allclose(
    got["trajectory"], np.repeat([-3, -1.5, 4.5], 2), atol=1e-6
  )
  np.testing.assert_allclose(got["advantage"], np.zeros(6), atol=1e-6)


CASES = [{}, {"history": 1, "trajectory": "rloo"}, {"signal": "observed"}]


@pytest.mark.parametrize("options", CASES)
def test_padding_does_not_matter(options):
  kernels.check_padding(salt, kernels.mixed_batch(), **options)


def test_gradients_by_reward():
  kernels.check_gradients(
    salt, kernels.mixed_batch(), signal="observed", history=1
  )


def test_memory_is_linear_in_the_rows():
  kernels.check_linear_memory(salt)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"history": 0}, "history must be an integer >= 1, got 0"),
    ({"history": 2.0}, "history must be an integer >= 1"),
    ({"trajectory": "gae"}, "trajectory term must be one of"),
    ({"signal": "sum"}, "signal must be one of"),
  ],
)
def test_options_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    golden(**options)
