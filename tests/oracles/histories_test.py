"""HGPO and SALT by hand; § refers to methods.md."""

from fractions import Fraction

import pytest

from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout
from tests.oracle import Rollout, Step
from tests.oracles import histories
from tests.oracles.histories import edge_identity, last_states

GOLDEN = groups_lib.golden()
THIRD = Fraction(1, 3)


def flat(rows):
  return [float(x) for row in rows for x in row]


def approx(values, abs=2e-6):
  return pytest.approx([float(x) for x in values], abs=abs)


# Three ways through s; with gamma 1 every return is 10, 0 or 0.
PATHS = [
  rollout("x a s b", "success"),
  rollout("y a s b", "failure"),
  rollout("x a s c", "failure"),
]


def test_last_states_are_as_many_as_there_are():
  group = [rollout("p a q b p c r d", "success")]
  assert last_states(group, 0, 0, 3) == ("p",)
  assert last_states(group, 0, 1, 3) == ("p", "q")
  assert last_states(group, 0, 2, 3) == ("p", "q", "p")
  assert last_states(group, 0, 3, 3) == ("q", "p", "r")


def test_hgpo_paper_weights():
  """Level 0 at s: 1.414214, -.707107 twice; level 1 by x or y before it."""
  got = histories.hgpo(PATHS, history=1, gamma=1)
  assert flat(got["step"]) == approx([1, 1.138071, 0, -0.235702, -1, -0.902369])
  assert got["advantage"] == got["step"]


def test_hgpo_code_weights():
  """2 and 3, over the levels that say something."""
  got = histories.hgpo(PATHS, history=1, gamma=1, weights="code")
  assert flat(got["step"]) == approx([1, 1.165685, 0, -0.707107, -1, -0.882843])


def test_hgpo_alpha_and_mean():
  """alpha 0: plain mean of (20/3, -10/3, -10/3) and (5, 0, -5)."""
  got = histories.hgpo(PATHS, history=1, gamma=1, alpha=0, norm="mean")
  assert got["step"] == [
    [5, Fraction(35, 6)],
    [0, Fraction(-5, 3)],
    [-5, Fraction(-25, 6)],
  ]
  odd = histories.hgpo(PATHS, history=1, gamma=1, alpha=0.5, norm="mean")
  w = 2**0.5
  assert float(odd["step"][0][1]) == pytest.approx((20 / 3 + 5 * w) / (1 + w))


def test_hgpo_level_zero_is_gigpo_up_to_ddof():
  """§9: GiGPO's .707 and 1.5 times sqrt(n / (n - 1))."""
  got = histories.hgpo(GOLDEN, history=0)
  assert flat(got["step"])[1] == pytest.approx(0.707107 * 2**0.5, abs=2e-6)
  assert got["step"][2][1] == pytest.approx(1.5 * (4 / 3) ** 0.5, abs=2e-6)


def test_hgpo_early_rows_do_not_meet_late_ones():
  """s first and s after s differ from level 1 on, whatever the padding."""
  group = [rollout("s a s b", "success"), rollout("s a", "failure")]
  got = histories.hgpo(group, history=1, gamma=1, norm="mean")
  # Level 0: 10, 10, 0 -> 10/3, 10/3, -20/3.  Level 1: (s): 10, 0; (s,s): 10.
  assert got["step"] == [
    [Fraction(10, 9) + Fraction(10, 3), Fraction(10, 9)],
    [-Fraction(20, 9) - Fraction(10, 3)],
  ]


def test_hgpo_penalty_lowers_earlier_returns():
  group = [
    Rollout((Step("s", "a"), Step("m", "b", 0, False)), "failure"),
    rollout("s a", "failure"),
  ]
  got = histories.hgpo(group, history=0, gamma=0.5, norm="mean")
  assert got["step"] == [[Fraction(-1, 40), 0], [Fraction(1, 40)]]


def test_salt_shares_the_mean_over_an_edge():
  """R = 1, 0, 0: GRPO 1.154699 and -.577349; x-a->s is shared by 1 and 3."""
  group = [
    rollout("x a s b m c", "success"),
    rollout("y a s b m d", "failure"),
    rollout("x a s e", "failure"),
  ]
  won, lost = 1.154699, -0.577349
  both = (won + lost) / 2
  got = histories.salt(group)
  assert flat(got["advantage"]) == approx(
    [both, won, won, lost, lost, lost, both, lost]
  )
  assert got["live"] == [[True, False, False], [False] * 3, [True, False]]
  # One pair of history: rows 1 of the first two agree on (a, s), b, m.
  short = histories.salt(group, history=1)
  assert flat(short["advantage"]) == approx(
    [both, both, won, lost, both, lost, both, lost]
  )
  assert flat(short["step"])[1] == pytest.approx(both - won, abs=2e-6)


def test_salt_weights():
  group = [rollout("s a", "success"), rollout("s a", "failure")]
  assert not any(histories.salt(group)["live"][0])  # they ended differently
  group = [rollout("s a m b", "success"), rollout("s a m c", "failure")]
  got = histories.salt(group, trajectory="rloo", w_group=2, w_step=3)
  assert got["trajectory"] == [[1, 1], [-1, -1]]
  assert got["step"] == [[-1, 0], [1, 0]]
  assert got["advantage"] == [[-1, 2], [1, -2]]


def test_salt_identity():
  group = [
    rollout("s a m b k c m b k d", "truncated", "k"),
    rollout("s a m b", "truncated", "nowhere"),
    rollout("s a m b", "truncated", "elsewhere"),
    rollout("s a m b", "failure", "nowhere"),
  ]
  # m-b->k at turns 1 and 3: the same one pair differs by its action.
  assert edge_identity(group, 0, 1, 1) != edge_identity(group, 0, 3, 1)
  # Two pairs at turn 1: the first without an action, equal across rollouts.
  assert edge_identity(group, 1, 1, 2) == edge_identity(group, 1, 1, 3)
  assert edge_identity(group, 1, 1, 3) == edge_identity(group, 2, 1, 3)
  assert edge_identity(group, 1, 1, 3) != edge_identity(group, 3, 1, 3)
  # Three pairs at turns 2 and 3, one of them with the empty action.
  assert edge_identity(group, 0, 3, 3)[0] == (
    ("a", "m"),
    ("b", "k"),
    ("c", "m"),
  )
  assert edge_identity(group, 0, 2, 3)[0][0] == (histories.NO_ACTION, "s")


def test_salt_forgets_the_state_of_its_oldest_action():
  """(a, m) is all that one pair knows: not whether a was taken at s or u."""
  group = [rollout("s a m b k c", "success"), rollout("u a m b k d", "failure")]
  assert edge_identity(group, 0, 1, 1) == edge_identity(group, 1, 1, 1)
  assert edge_identity(group, 0, 1, 2) != edge_identity(group, 1, 1, 2)


def test_salt_unknown_states_share_nothing():
  group = [Rollout((Step(None, "a"),), end) for end in ("success",) * 3]
  assert not any(any(row) for row in histories.salt(group)["live"])
  assert oracle.grpo(group) == histories.salt(group)["advantage"]
