"""G2PO, GAGPO and MICA by hand; § refers to methods.md."""

from fractions import Fraction
from statistics import mean, stdev

import pytest

from tests import groups as groups_lib
from tests.groups import rollout
from tests.oracle import Rollout, Step
from tests.oracles import visits

GOLDEN = groups_lib.golden()
HALF = Fraction(1, 2)


def flat(rows):
  return [float(x) for row in rows for x in row]


def z(values):
  return [(x - mean(values)) / stdev(values) for x in values]


def approx(values, abs=2e-6):
  return pytest.approx([float(x) for x in values], abs=abs)


# V: s0 3.61, s1 4.75, s2 2.375 at gamma .95 and success 10.
ENTERED = [4.75, 10, 4.75, 2.375, 0, 2.375, 10, 2.375, 3.61, 2.375, 0]
GAINED = [
  1.14,
  5.25,
  1.14,
  -2.375,
  -2.375,
  -1.235,
  7.625,
  -1.235,
  1.235,
  -1.235,
  -2.375,
]


def test_golden_g2po_node_term():
  got = visits.g2po(GOLDEN, edge_weight=0, episode_weight=0)
  won, lost, c = 1.095445, -0.730297, 0.707107
  e2, f, loop, e4 = z([0, 10, 3.61, 0])
  want = [won, c, won, -c, e2, lost, f, lost, loop, lost, e4]
  assert flat(got["step"]) == approx(want)
  assert got["advantage"] == got["step"]


def test_golden_g2po_edge_term():
  got = visits.g2po(GOLDEN, anchor_weight=0, episode_weight=0)
  assert flat(got["step"]) == approx(z(GAINED))
  plain = visits.g2po(GOLDEN, anchor_weight=0, edge_weight=2, norm="mean")
  assert flat(plain["step"]) == approx(2 * (x - mean(GAINED)) for x in GAINED)


def test_golden_g2po_sum():
  node = visits.g2po(GOLDEN, edge_weight=0)
  edge = visits.g2po(GOLDEN, anchor_weight=0)
  got = visits.g2po(GOLDEN, anchor_weight=2, edge_weight=3, episode_weight=4)
  episode = [1.261312] * 2 + [-0.720750] * 3  # GiGPO's, §10
  assert flat(got["trajectory"])[:5] == approx(episode)
  assert flat(got["advantage"]) == approx(
    2 * a + 3 * b + 4 * c
    for a, b, c in zip(
      flat(node["step"]),
      flat(edge["step"]),
      flat(got["trajectory"]),
      strict=True,
    )
  )


def test_g2po_penalty_is_in_the_node_term_only():
  group = [
    Rollout((Step("s", "a", 0, False),), "success"),
    rollout("s b", "success"),
  ]
  got = visits.g2po(group, norm="mean", invalid_penalty=HALF, episode_weight=0)
  assert got["step"] == [[-HALF / 2], [HALF / 2]]


def test_g2po_observed_success_still_enters_success_reward():
  group = [
    Rollout((Step("s", "a", 2), Step("s", "b", 2)), "success"),
    Rollout((Step("s", "c", 8),), "truncated", "s"),
  ]
  got = visits.g2po(
    group, gamma=HALF, signal="observed", norm="mean", edge_weight=0
  )
  # Visits of s: 4/4, 4/2, 8/2: V = 7/3.  Entered 7/3, 10, 0: mean 37/9.
  assert got["step"] == [
    [Fraction(-16, 9), Fraction(53, 9)],
    [Fraction(-37, 9)],
  ]


def test_g2po_lone_row():
  got = visits.g2po([rollout("s a", "success")])
  assert got["step"] == [[0]] and got["trajectory"] == [[10]]
  got = visits.g2po([rollout("s a", "success")], singleton="zero")
  assert got["advantage"] == [[0]]


GAGPO = [
  rollout("s a m b", "success"),
  rollout("s c", "failure"),
  rollout("m d", "failure"),
]


def test_gagpo_by_hand():
  """V(s) = 1/4, V(m) = 1/2; delta 0, 1/2 | -1/4 | -1/2."""
  got = visits.gagpo(GAGPO, gamma=HALF, lam=HALF)
  assert flat(got["step"]) == approx(z([0.125, 0.5, -0.25, -0.5]), abs=5e-6)
  plain = visits.gagpo(GAGPO, gamma=HALF, lam=HALF, norm="mean", w_step=2)
  centre = Fraction(-1, 32)
  assert plain["step"] == [
    [Fraction(1, 8) - centre, HALF - centre],
    [-Fraction(1, 4) - centre],
    [-HALF - centre],
  ]
  assert plain["advantage"][1] == [2 * plain["step"][1][0]]


def test_gagpo_ends():
  """lam 0: one-step differences; lam 1: return less V."""
  short = visits.gagpo(GAGPO, gamma=HALF, lam=0, norm="mean")
  centre = Fraction(-1, 16)
  assert short["step"][0] == [-centre, HALF - centre]
  long = visits.gagpo(GAGPO, gamma=HALF, lam=1, norm="mean")
  # 1/2 - 1/4, 1 - 1/2, 0 - 1/4, 0 - 1/2: mean 0.
  assert long["step"] == [
    [Fraction(1, 4), HALF],
    [-Fraction(1, 4)],
    [-HALF],
  ]


def test_gagpo_observed():
  group = [Rollout((Step("s", "a", 1), Step("s", "b", 3)), "truncated", "s")]
  got = visits.gagpo(
    group, gamma=1, lam=0, signal="observed", norm="mean", trajectory="dr_grpo"
  )
  # V(s) = (4 + 3)/2; delta 1, 3 - 7/2 = -1/2: mean 1/4.
  assert got["step"] == [[Fraction(3, 4), Fraction(-3, 4)]]
  assert got["trajectory"] == [[0, 0]]


MICA = [
  Rollout((Step("s", "a", 1), Step("s", "b", 3)), "failure"),
  Rollout((Step("u", "a", 2),), "failure"),
]


def test_mica_by_hand():
  """Turn 0: returns 4 and 2; turn 1: one row.  Rewards 1, 3, 2."""
  got = visits.mica(MICA, norm="mean")
  assert got["advantage"] == [[HALF - HALF, HALF], [-HALF]]
  assert got["advantage"] == got["step"]
  assert not any(flat(got["trajectory"]))
  half = visits.mica(MICA, norm="mean", gamma=HALF, w_reward=0, w_return=1)
  # Turn 0: 1 + 3/2 and 2.
  assert half["step"] == [[Fraction(1, 4), 0], [-Fraction(1, 4)]]


def test_mica_deviations():
  got = visits.mica(MICA)
  c = 0.707107
  assert flat(got["step"]) == approx([c / 2 - 0.5, 0.5, -c / 2], abs=2e-6)
