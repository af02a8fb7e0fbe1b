"""GRAFT, GraphHCA and RewardFlow by hand; § refers to methods.md."""

import math
from fractions import Fraction
from statistics import mean, stdev

import pytest

from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout
from tests.oracle import Rollout, Step, anchor
from tests.oracles import graphs

GOLDEN = groups_lib.golden()
HALF = Fraction(1, 2)


def flat(rows):
  return [float(x) for row in rows for x in row]


def z(values):
  return [(x - mean(values)) / stdev(values) for x in values]


def approx(values, abs=2e-6):
  return pytest.approx([float(x) for x in values], abs=abs)


def test_golden_graft_differences():
  got = graphs.graft(GOLDEN, beta=0.9)
  a, b, c, f, loop, dead = (
    0.150784,
    -0.100523,
    0.310278,
    0.589508,
    0.031477,
    -0.310492,
  )
  want = [a, c, a, -c, dead, b, f, b, loop, b, dead]
  delta = [q - v for q, v in zip(flat(got["q"]), flat(got["v"]), strict=True)]
  assert delta == approx(want, abs=1e-6)
  assert flat(got["v"])[:2] == approx([0.379966, 0.589722], abs=1e-6)


def test_golden_graft_scores():
  got = graphs.graft(GOLDEN, beta=0.9)
  a, b, loop, dead, f = 1.095437, -0.730291, 0.074101, -0.730942, 1.387783
  c = 0.707106
  want = [a, c, a, -c, dead, b, f, b, loop, b, dead]
  assert flat(got["step"]) == approx(want)
  assert got["advantage"] == got["step"]
  assert not any(flat(got["trajectory"]))


def test_graft_without_deviation_is_the_centred_difference():
  """Differences of an anchor average 0 under the closure: nothing moves."""
  got = graphs.graft(GOLDEN, beta=0.9, norm="mean", w_step=2, signal="outcome")
  assert flat(got["step"]) == approx(
    [q - v for q, v in zip(flat(got["q"]), flat(got["v"]), strict=True)]
  )
  assert flat(got["advantage"]) == approx(2 * x for x in flat(got["step"]))


def test_graft_weights_and_trajectory_term():
  got = graphs.graft(GOLDEN, beta=0.9, trajectory="rloo", w_group=3)
  assert flat(got["trajectory"])[:3] == approx([2 / 3, 2 / 3, -2 / 3])
  assert flat(got["advantage"]) == approx(
    3 * t + s
    for t, s in zip(flat(got["trajectory"]), flat(got["step"]), strict=True)
  )


def test_graft_observed_rewards():
  """s: rewards 1 then end, or 2 into m; m: 4.  beta 1/2, V(m) = 4."""
  group = [
    Rollout((Step("s", "a", 1),), "success"),
    Rollout((Step("s", "b", 2), Step("m", "c", 4)), "failure"),
  ]
  got = graphs.graft(group, beta=HALF, signal="observed", norm="mean")
  # q: 1 and 2 + 4/2 = 4; V(s) = 5/2.
  assert got["q"] == [[1], [4, 4]]
  assert got["v"] == [[Fraction(5, 2)], [Fraction(5, 2), 4]]
  assert got["step"] == [[Fraction(-3, 2)], [Fraction(3, 2), 0]]
  assert got["live"] == [[True], [True, False]]


def test_truncation_is_worth_nothing_even_at_a_known_anchor():
  group = [rollout("s a", "truncated", "m"), rollout("m b", "success")]
  got = graphs.graft(group, beta=0.9)
  assert got["v"][0] == [0] and got["q"][0] == [0]


@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_graph_gae_adds_exactly_nothing_to_the_closure(signal):
  """The rows of an anchor average delta 0: that is the Bellman equation.

  So does any set of anchors, and a row alone at its anchor has delta 0.
  """
  some = False
  for group in groups_lib.random_groups(60, 3, max_rollouts=5, max_steps=5):
    plain = graphs.graft(group, signal=signal)
    swept = graphs.graft(group, signal=signal, lam=0.9, hops=4)
    assert plain == swept
    seen = [
      anchor(group, i, t)
      for i, r in enumerate(group)
      for t in range(len(r.steps))
    ]
    for s, x in zip(seen, flat(plain["step"]), strict=True):
      if seen.count(s) == 1:
        assert x == 0
        some = True
  assert some


def test_graph_gae_on_values_that_are_not_the_closure(monkeypatch):
  """With V(m) = 1 instead of 1/4 the hop behind s carries -3/4 back."""
  group = [rollout("s a m b", "success"), rollout("s c m d", "failure")]
  v = {"s": Fraction(0), "m": Fraction(1)}
  monkeypatch.setattr(oracle, "closure", lambda *_, **__: (v, {}))
  options = {"beta": HALF, "norm": "mean", "singleton": "zero"}
  group.append(rollout("n e", "failure"))
  v["n"] = Fraction(2)
  # delta: s 1/2, 1/2; m 1/2 - 1, 0 - 1; n -2.  Mean behind s: -3/4.
  value = graphs.graft([*group, rollout("s g", "success")], lam=HALF, **options)
  # s rows: 1/2 - 3/16 twice, 1/2 (ends): mean 5/16 + 1/16.
  assert value["step"] == [
    [Fraction(-1, 16), Fraction(1, 4)],
    [Fraction(-1, 16), Fraction(-1, 4)],
    [0],
    [Fraction(1, 8)],
  ]
  none = graphs.graft(
    [*group, rollout("s g", "success")], lam=HALF, hops=0, **options
  )
  assert none["step"][0][0] == 0
  sign = graphs.graft(group, **options | {"singleton": "sign"}, eps=1)
  assert float(sign["step"][2][0]) == pytest.approx(-2 / 3)


def test_graph_gae_second_hop_is_a_set_with_its_rows(monkeypatch):
  """Two ways to the second hop count its rows once."""
  group = [
    rollout("s a m b k c", "failure"),
    rollout("m d k e", "failure"),
  ]
  v = {"s": Fraction(0), "m": Fraction(0), "k": Fraction(4)}
  monkeypatch.setattr(oracle, "closure", lambda *_, **__: (v, {}))
  got = graphs.graft(
    group, beta=1, lam=HALF, singleton="zero", norm="mean", hops=2
  )
  # delta: s 0; m 4, 4; k -4, -4: the s row is alone, its sum 0 + 2 - 1.
  assert got["step"][0][0] == 0
  sign = graphs.graft(group, beta=1, lam=HALF, hops=2, eps=1)
  assert float(sign["step"][0][0]) == pytest.approx(1 / 2)
  one = graphs.graft(group, beta=1, lam=HALF, hops=1, eps=1)
  assert float(one["step"][0][0]) == pytest.approx(2 / 3)


def test_golden_graphhca():
  got = graphs.graphhca(GOLDEN, beta=0.9)
  a, b, loop, dead, f = 1.095442, -0.730295, 0.653737, -0.854330, 1.054924
  c = 0.707106
  want = [a, c, a, -c, dead, b, f, b, loop, b, dead]
  assert flat(got["step"]) == approx(want)
  assert flat(got["trajectory"])[:3] == approx([0.866024, 0.866024, -0.866024])


def test_golden_graphhca_of_distances():
  """V: s0 .81, s1 .9, s2 .9; dead ends fall to the floor .01."""
  got = graphs.graphhca(GOLDEN, beta=0.9, power=math.inf)
  up = -math.log(0.9)
  e2, f, loop, e4 = z([-math.log(90), up, -up, -math.log(90)])
  c = math.sqrt(HALF)
  want = [0, c, 0, -c, e2, 0, f, 0, loop, 0, e4]
  assert flat(got["step"]) == approx(want, abs=1e-4)
  assert got["step"][0][0] == 0  # both successors alike: exactly


def test_graphhca_floor_and_failure():
  """V(s) = .95/2; success ln 1, failure ln .1 with that floor."""
  group = [rollout("s a", "success"), rollout("s b", "truncated")]
  got = graphs.graphhca(group, floor=0.1, norm="mean", w_group=0)
  assert flat(got["advantage"]) == approx(
    [math.log(10) / 2, -math.log(10) / 2], abs=1e-12
  )


@pytest.mark.parametrize("power", [0.5, 2, -math.inf])
def test_graphhca_refuses_other_powers(power):
  with pytest.raises(ValueError, match="power"):
    graphs.graphhca(GOLDEN, power=power)


def test_golden_rewardflow():
  """V: s0 .81, s1 .9, s2 .9.  Last steps 1 or 0, e back to s0 -.09."""
  got = graphs.rewardflow(GOLDEN)
  e2, f, loop, e4 = z([0, 1, -0.09, 0])
  c = math.sqrt(HALF)
  want = [0, c, 0, -c, e2, 0, f, 0, loop, 0, e4]
  assert flat(got["step"]) == approx(want, abs=3e-6)
  assert got["step"][0][0] == 0


def test_rewardflow_prunes_invalid_steps():
  """The invalid short cut is no edge: V(s) = .81 by way of m."""
  group = [
    Rollout((Step("s", "cut", 0, False),), "success"),
    rollout("s a m b", "success"),
    rollout("s c k d", "failure"),
  ]
  got = graphs.rewardflow(group, norm="mean", w_group=0)
  # s -> m: .9 - .81; s -> k: 0 - .81; mean -.36; the cut is not in it.
  assert got["step"] == [
    [0],
    [Fraction(45, 100), 0],
    [Fraction(-45, 100), 0],
  ]
  assert flat(got["advantage"]) == flat(got["step"])


def test_rewardflow_observed_last_steps():
  group = [
    Rollout((Step("s", "a", 3),), "failure"),
    Rollout((Step("s", "b", 5), Step("s", "c", 1)), "success"),
  ]
  got = graphs.rewardflow(group, norm="mean", signal="observed")
  # s -> s: 0 whatever its reward; last steps 3 and 1.
  assert got["step"] == [[Fraction(5, 3)], [Fraction(-4, 3), Fraction(-1, 3)]]


def test_distances_are_shortest():
  group = [
    rollout("s a m b k c", "success"),
    rollout("s d k e", "failure"),
    rollout("x f", "truncated", "k"),
  ]
  got = graphs.rewardflow(group, gamma=HALF, norm="mean", w_group=0)
  # V: k 1/2, m 1/4, s 1/4 (by d); s -> m: 0, s -> k: 1/4.
  assert got["step"][0][0] == Fraction(-1, 8)
  assert got["step"][1][0] == Fraction(1, 8)
