"""Trajectory terms by hand; § refers to methods.md."""

from fractions import Fraction
from statistics import mean, stdev

import pytest

from tests import groups as groups_lib
from tests.groups import rollout
from tests.oracle import Rollout, Step
from tests.oracles import trajectory

GOLDEN = groups_lib.golden()


def flat(groups):
  return [float(x) for g in groups for row in g["advantage"] for x in row]


def z(values):
  return [(x - mean(values)) / stdev(values) for x in values]


def test_dr_grpo():
  got = trajectory.dr_grpo(GOLDEN)
  half = Fraction(1, 2)
  assert got["advantage"] == [[half] * 2, [-half] * 3, [half] * 2, [-half] * 4]
  assert not any(x for row in got["step"] for x in row)


def test_dr_grpo_of_observed_rewards():
  group = [
    Rollout((Step("s", "a", 1), Step("s", "a", 2)), "failure"),
    Rollout((Step("s", "a", 1),), "success"),
  ]
  got = trajectory.dr_grpo(group, signal="observed")
  assert got["trajectory"] == [[1, 1], [-1]]


def test_reinforce_pp_whitens_rows_of_all_groups():
  """Every row of a success has 1: 4 of the golden 11, and 1 of 1."""
  got = trajectory.over_batch(
    [GOLDEN, [rollout("s a", "success")]], "reinforce_pp"
  )
  raw = [1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1]
  assert flat(got) == pytest.approx(z(raw), abs=5e-6)


def test_reinforce_pp_has_rewards_to_go():
  group = [Rollout((Step("s", "a", 1), Step("s", "a", 2)), "failure")]
  other = [Rollout((Step("s", "a", 5),), "failure")]
  got = trajectory.over_batch([group, other], "reinforce_pp", signal="observed")
  assert flat(got) == pytest.approx(z([3, 2, 5]), abs=5e-6)


def test_reinforce_pp_baseline_centres_in_the_group_first():
  """Golden +-1/2 by rollout; a lone rollout is its own mean."""
  got = trajectory.over_batch(
    [GOLDEN, [rollout("s a", "success")]], "reinforce_pp_baseline"
  )
  raw = [0.5] * 2 + [-0.5] * 3 + [0.5] * 2 + [-0.5] * 4 + [0]
  assert flat(got) == pytest.approx(z(raw), abs=5e-6)


@pytest.mark.parametrize("kind", trajectory.OVER_BATCH)
def test_equal_batches_get_exactly_nothing(kind):
  groups = [[rollout("s a m b", "success")] * n for n in (1, 2, 3)]
  got = trajectory.over_batch(groups, kind)
  assert not any(flat(got))


def test_kinds():
  assert not any(x for row in trajectory.term(GOLDEN, "none") for x in row)
  with pytest.raises(ValueError, match="trajectory"):
    trajectory.term(GOLDEN, "reinforce_pp")
