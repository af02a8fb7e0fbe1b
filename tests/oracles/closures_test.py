"""CRBC's options, anchored and lambda closures by hand; § is methods.md."""

import math
from fractions import Fraction

import pytest

from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout
from tests.oracle import Rollout, Step
from tests.oracles import closures

GOLDEN = groups_lib.golden()
HALF = Fraction(1, 2)
SMALL = [
  rollout("s a m b", "success"),
  rollout("s c", "failure"),
  rollout("m d", "failure"),
]


def flat(rows):
  return [float(x) for row in rows for x in row]


def approx(values, abs=1e-6):
  return pytest.approx([float(x) for x in values], abs=abs)


def of_pairs(a, b, c, d, e, f):
  """Rows of the golden group, from one value for each of its pairs."""
  return [a, c, a, d, e, b, f, b, e, b, e]


# A and A^S of §10 at beta .9, as (a, b, c, d, e, f).
GOLDEN_STEP = (1.224745, -0.816497, 1, -1, -0.577350, 1.732051)


def test_golden_crbc():
  got = closures.crbc(GOLDEN, beta=0.9)
  assert flat(got["step"]) == approx(of_pairs(*GOLDEN_STEP))
  first = closures.crbc(GOLDEN, beta=0.9, depth=0)
  assert flat(first["step"]) == approx(
    of_pairs(0.81, -0.54, 1, -1, -0.577350, 1.732051)
  )


def test_without_its_new_options_crbc_is_the_old_oracle():
  for group in groups_lib.random_groups(40, 5, max_rollouts=5, max_steps=6):
    for depth in (None, 0, 2):
      new = closures.crbc(group, depth=math.inf if depth is None else depth)
      old = oracle.crbc(group, beta=0.98, depth=depth)
      for name, rows in new.items():
        assert flat(rows) == approx(flat(old[name]), abs=1e-12), name


def test_kappa_shrinks_by_visits_after_normalising():
  """Counts: a 2, b 3, c 1, d 1, e 3, f 1; n / (n + 2)."""
  got = closures.crbc(GOLDEN, beta=0.9, kappa=2)
  shrink = [1 / 2, 3 / 5, 1 / 3, 1 / 3, 3 / 5, 1 / 3]
  want = [s * k for s, k in zip(GOLDEN_STEP, shrink, strict=True)]
  assert flat(got["step"]) == approx(of_pairs(*want))


def test_golden_state_readout():
  """Differences of GRAFT in §10 over their root mean square."""
  got = closures.crbc(GOLDEN, beta=0.9, readout="state")
  a, b, c = 0.150784, -0.100523, 0.310278
  f, loop, dead = 0.589508, 0.031477, -0.310492
  s0 = math.sqrt((2 * a**2 + 3 * b**2) / 5)
  s2 = math.sqrt((f**2 + loop**2 + 2 * dead**2) / 4)
  want = [
    a / s0,
    1,
    a / s0,
    -1,
    dead / s2,
    b / s0,
    f / s2,
    b / s0,
    loop / s2,
    b / s0,
    dead / s2,
  ]
  assert c > 0.1 and flat(got["step"]) == approx(want, abs=1e-5)


def test_state_readout_needs_two_successors_not_two_actions():
  one_way = [rollout("s a m b", "success"), rollout("s c m b", "failure")]
  got = closures.crbc(one_way, readout="state")
  assert got["live"] == [[False, True], [False, True]]  # m: success, failure
  same = [Rollout((Step("s", "a", r),), "failure") for r in (1, 2)]
  got = closures.crbc(same, readout="state", signal="observed")
  assert got["live"] == [[False], [False]] and got["step"] == [[0], [0]]
  ends = [same[0], same[1]._replace(end="truncated")]
  got = closures.crbc(ends, readout="state", signal="observed")
  assert got["step"] == [[-1], [1]]
  known = [
    rollout("s a", "truncated", "s"),
    rollout("s a s b", "success"),
  ]
  got = closures.crbc(known, readout="state", truncation="bootstrap")
  assert got["live"] == [[True], [True, True]]
  got = closures.crbc(known[:1], readout="state", truncation="bootstrap")
  assert got["live"] == [[False]]


def test_zero_rule():
  """Q - V = +-5e-7 beside rewards of 1; the floor is out of the way."""
  options = {"signal": "observed", "sigma_min": 1e-9}

  def step(*rewards):
    group = [
      Rollout((Step("s", a, r),), "failure")
      for a, r in zip("ab", rewards, strict=True)
    ]
    return closures.crbc(group, **options)["step"]

  assert step(Fraction(1), Fraction(1000001, 1000000)) == [[0], [0]]
  assert step(Fraction(1), Fraction(10001, 10000)) == [[-1], [1]]
  assert step(Fraction(0), Fraction(1, 1000000)) == [[-1], [1]]
  assert step(Fraction(0), Fraction(0)) == [[0], [0]]


def test_zero_rule_looks_at_the_whole_group():
  group = [
    Rollout((Step("s", "a", 1),), "failure"),
    Rollout((Step("s", "b", Fraction(1000001, 1000000)),), "failure"),
    Rollout((Step("m", "a", 0),), "failure"),
    Rollout((Step("m", "b", 1),), "failure"),
  ]
  got = closures.crbc(group, signal="observed", sigma_min=1e-9)
  assert got["step"] == [[-1], [1], [-1], [1]]


def test_anchored_by_hand():
  """beta = w = 1/2.  V0: s 1/8, m 1/4.  V(m) = (1/4 + 1/4)/2, V(s) = 3/32."""
  got = closures.crbc_anchored(SMALL, beta=HALF, anchor_weight=HALF)
  s, m = Fraction(3, 32), Fraction(1, 4)
  assert got["v"] == [[s, m], [s], [m]]
  assert got["q"] == [[Fraction(3, 16), HALF], [0], [0]]
  # Gaps +-3/32 stay under the floor .1, +-1/4 do not.
  assert flat(got["step"]) == approx([0.9375, 1, -0.9375, -1])
  assert flat(got["advantage"]) == approx(
    5 * s + t
    for s, t in zip(flat(got["step"]), flat(got["trajectory"]), strict=True)
  )


def test_anchored_ends():
  for group in [GOLDEN, *groups_lib.random_groups(25, 9, max_steps=5)]:
    for signal in ("outcome", "observed"):
      for depth, weight in ((math.inf, 0), (0, 1)):
        got = closures.crbc_anchored(
          group, anchor_weight=weight, signal=signal, kappa=1
        )
        want = closures.crbc(group, depth=depth, signal=signal, kappa=1)
        assert got == want


def test_anchored_is_a_mixture_of_depths():
  """V = sum_k w (1 - w)^k V^K=k, and Q likewise."""
  got = closures.crbc_anchored(GOLDEN, beta=0.9, anchor_weight=0.3)
  v = q = 0.0
  for k in range(60):
    level = closures.crbc(GOLDEN, beta=0.9, depth=k)
    v += 0.3 * 0.7**k * float(level["v"][0][0])
    q += 0.3 * 0.7**k * float(level["q"][0][0])
  assert float(got["v"][0][0]) == pytest.approx(v, abs=1e-8)
  assert float(got["q"][0][0]) == pytest.approx(q, abs=1e-8)


def test_lambda_by_hand():
  """beta = lam = 1/2: V(m) = 1/4, G(s) = (V(m) + 1/2)/4 = 3/16 or 0."""
  got = closures.crbc_lambda(SMALL, beta=HALF, lam=HALF)
  assert got["v"][0] == [Fraction(3, 32), Fraction(1, 4)]
  assert got["q"] == [[Fraction(3, 16), HALF], [0], [0]]


def test_lambda_with_a_loop():
  """s a s b -> success: G = V/4 + 1/8 and 1/2; V is their mean: 5/14."""
  got = closures.crbc_lambda(
    [rollout("s a s b", "success")], beta=HALF, lam=HALF
  )
  assert got["v"] == [[Fraction(5, 14)] * 2]
  assert got["q"] == [[Fraction(5, 56) + Fraction(1, 8), HALF]]


def test_lambda_ends():
  for group in [GOLDEN, *groups_lib.random_groups(25, 10, max_steps=5)]:
    for options in (
      {"signal": "outcome"},
      {"signal": "observed"},
      {"truncation": "bootstrap"},
    ):
      for depth, lam in ((math.inf, 0), (0, 1)):
        got = closures.crbc_lambda(group, lam=lam, **options)
        want = closures.crbc(group, depth=depth, **options)
        assert got["v"] == want["v"] and got["q"] == want["q"]
        assert got == want


def test_bootstrap_reaches_the_anchored_closure():
  group = [rollout("s a", "truncated", "m"), rollout("m b", "success")]
  options = {"beta": HALF, "truncation": "bootstrap"}
  got = closures.crbc_anchored(group, anchor_weight=HALF, **options)
  # V(m) = 1/2; V(s) = 1/2 (1/2 1/2) + 1/2 0.
  assert got["v"] == [[Fraction(1, 8)], [HALF]]
  got = closures.crbc_lambda(group, lam=HALF, **options)
  assert got["v"] == [[Fraction(1, 8)], [HALF]]
