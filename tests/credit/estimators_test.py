"""Every estimator: hand-made numbers, exact arithmetic, published accidents.

§ and issue numbers refer to the formula notes: §10 is the worked example, §9
the table of coincidences, §8 the list of public issue threads.
"""

import functools
import math

import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.rollouts.batching import BatchShape, make_batch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary
from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout
from tests.oracle import Rollout, Step

NAMES = sorted(registry.ESTIMATORS)
# A critic compares with what it learned, not with the other rollouts.
COMPARING = [n for n in NAMES if not registry.lookup(n).needs_critic]
# Whitened over the batch: the other groups matter, by definition.
OVER_BATCH = ("reinforce_pp", "reinforce_pp_baseline")
# Rewards are all that it looks at.
BY_REWARDS = ("mica",)
BY_OUTCOME = [n for n in NAMES if n not in BY_REWARDS]
# These compare rows that share no state: with a prior, along the edges of the
# whole group, and by the step index.
STATELESS = ("rtmc", "g2po", "mica")
SHAPE = BatchShape(1024, 64, 32, 32, 32, 64, 32)


def credit(name, groups, **options):
  """`groups_lib.credit` at one shape: each option set compiles once."""
  table = (
    groups if isinstance(groups, StepTable) else (groups_lib.table_of(groups))
  )
  batch = make_batch(table, SHAPE)
  result = groups_lib.credit_fn(name, **options)(batch.arrays)
  return {
    f: batch.to_rows(getattr(result, f), len(table)) for f in groups_lib.FIELDS
  }


def golden_credit(name, **options):
  return credit(name, [groups_lib.golden()], **options)


def per_rollout(*values):
  return np.repeat(values, [2, 3, 2, 4])


def per_pair(**values):
  """Rows of the golden group by "s0a"; dead ends of e under "s2e_dead"."""
  out = []
  for r in groups_lib.golden():
    for t, s in enumerate(r.steps):
      key = s.state + s.action
      dead = t == len(r.steps) - 1 and f"{key}_dead" in values
      out.append(values[f"{key}_dead" if dead else key])
  return np.array(out)


# -- §10 ---------------------------------------------------------------------


def test_golden_grpo_and_rloo():
  np.testing.assert_allclose(
    golden_credit("grpo")["advantage"],
    per_rollout(0.866024, -0.866024, 0.866024, -0.866024),
    atol=1e-6,
  )
  np.testing.assert_allclose(
    golden_credit("rloo")["advantage"],
    per_rollout(2 / 3, -2 / 3, 2 / 3, -2 / 3),
    atol=1e-6,
  )


def test_golden_gigpo():
  got = golden_credit("gigpo")
  # Rows: 4 of score 10, 7 of score 0; mean 3.636364, std 5.045250.
  np.testing.assert_allclose(
    got["trajectory"],
    per_rollout(1.261312, -0.720750, 1.261312, -0.720750),
    atol=1e-6,
  )
  step = per_pair(
    s0a=np.nan, s0b=np.nan, s1c=0.707107, s1d=-0.707107, s2e=-0.5, s2f=1.5
  )
  s0 = np.isnan(step)
  won = per_rollout(1, 0, 1, 0) > 0
  step[s0] = np.where(won, 1.095445, -0.730297)[s0]  # by outcome, not action
  np.testing.assert_allclose(got["step"], step, atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], got["trajectory"] + step, atol=2e-6
  )


def test_golden_gigpo_without_std():
  got = golden_credit("gigpo", norm="mean")
  np.testing.assert_allclose(
    got["trajectory"], per_rollout(*[6.363636, -3.636364] * 2), atol=1e-6
  )
  # Returns: s0 9.5 or 0 (2 of 5), s1 10 or 0, s2 10 or 0 (1 of 4).
  np.testing.assert_allclose(
    got["step"],
    [5.7, 5, -3.8, -5, -2.5, 5.7, 7.5, -3.8, -2.5, -3.8, -2.5],
    atol=2e-6,
  )


@pytest.mark.parametrize(
  "omega, f, loop, dead",
  [
    (0.1, 1.499945, -0.487934, -0.506006),
    (0.8, 1.447783, -0.112702, -0.667541),
  ],
)
def test_golden_graphgpo(omega, f, loop, dead):
  got = golden_credit("graphgpo", omega=omega)
  np.testing.assert_allclose(
    got["step"],
    per_pair(
      s0a=0, s0b=0, s1c=0.707107, s1d=-0.707107, s2f=f, s2e=loop, s2e_dead=dead
    ),
    atol=2e-6,
  )
  assert not got["step"][0]  # both successors of s0 at distance 1: exactly 0
  np.testing.assert_allclose(
    got["trajectory"], per_rollout(*[1.261312, -0.720750] * 2), atol=1e-6
  )


def test_golden_rtmc():
  got = golden_credit("rtmc")
  np.testing.assert_allclose(
    got["advantage"],
    per_pair(
      s0a=-0.001667, s0b=-0.001667, s1c=0.5, s1d=-0.5, s2f=0.6, s2e=-0.4
    ),
    atol=1e-6,
  )
  np.testing.assert_allclose(
    got["q"],
    per_pair(s0a=0.495, s0b=0.495, s1c=1, s1d=0, s2f=1, s2e=0),
    atol=1e-6,
  )
  assert not got["trajectory"].any()


# -- exact arithmetic --------------------------------------------------------

# Limits on |error|. Scores are differences of float32 numbers of size 10
# (half an ulp: 5e-7) over a deviation. With the penalty of .1 the deviation
# may be as small as .1 sqrt(1/n): about .03, hence 5e-7 * few / .03 = 1e-4.
# Without it the deviation is of the size of the numbers: 1e-5.
FINE, COARSE = 1e-5, 1e-4

OPTION_SETS = [
  ("grpo", {}, FINE),
  ("grpo", {"singleton": "raw", "eps": 1e-2}, FINE),
  ("grpo", {"signal": "observed"}, FINE),
  ("grpo", {"signal": "observed", "singleton": "raw"}, FINE),
  ("rloo", {}, FINE),
  ("rloo", {"signal": "observed", "singleton": "raw"}, FINE),
  ("gigpo", {}, COARSE),
  ("gigpo", {"invalid_penalty": 0.0}, FINE),
  ("gigpo", {"norm": "mean"}, FINE),
  ("gigpo", {"statistics": "trajectory"}, COARSE),
  (
    "gigpo",
    {"statistics": "trajectory", "norm": "mean", "singleton": "zero"},
    FINE,
  ),
  ("gigpo", {"statistics": "trajectory", "singleton": "zero"}, COARSE),
  ("gigpo", {"signal": "observed", "gamma": 1.0, "step_weight": 0.5}, COARSE),
  (
    "gigpo",
    {
      "success_reward": 1.0,
      "invalid_penalty": 0.5,
      "step_weight": 2.0,
      "singleton": "zero",
      "gamma": 0.9,
      "eps": 1e-3,
    },
    COARSE,
  ),
  ("graphgpo", {}, COARSE),
  ("graphgpo", {"omega": 0.1}, COARSE),
  ("graphgpo", {"omega": 0.8, "invalid_penalty": 0.0}, FINE),
  ("graphgpo", {"omega": 0.2, "exponent": "paper", "eps": 1e-3}, COARSE),
  ("graphgpo", {"omega": 0.8, "exponent": "normalized"}, COARSE),
  (
    "graphgpo",
    {"graph_weight": 2.0, "statistics": "trajectory", "singleton": "zero"},
    2 * COARSE,
  ),  # by the weight
  ("graphgpo", {"signal": "observed", "success_reward": 1.0}, COARSE),
  ("rtmc", {}, 1e-6),
  ("rtmc", {"prior": "discounted"}, 1e-6),
  ("rtmc", {"visits": "every"}, 1e-6),
  ("rtmc", {"n_prior": 0.0, "gamma": 1.0}, 1e-6),
  (
    "rtmc",
    {
      "signal": "observed",
      "n_prior": 5.0,
      "prior": "discounted",
      "visits": "every",
      "gamma": 0.9,
    },
    FINE,
  ),
  (
    "crbc",
    {"trajectory": "rloo", "sigma_min": 0.3, "w_group": 0.5, "w_step": 2.0},
    FINE,
  ),
  ("crbc", {"sigma_min": 1e-3}, 2e-3),  # errors of V count a thousandfold
]


@functools.cache
def crowd(dyadic: bool = False):
  return groups_lib.random_groups(
    1000, seed=31, missing=(0, 0, 0, 0.2), dyadic=dyadic
  )


@pytest.mark.parametrize("name, options, limit", OPTION_SETS)
def test_estimators_equal_exact_arithmetic(name, options, limit):
  """1,000 random groups, 250 others for each further option set.

  See FINE and COARSE for the limits.

  Rewards are eighths: sums of them are exact, so that scores equal on paper
  are equal here, and a deviation of 1e-7 is never mistaken for one of 0.
  """
  dyadic = options.get("signal") == "observed"
  groups = crowd(dyadic)
  if options:
    first = 250 * (OPTION_SETS.index((name, options, limit)) % 4)
    groups = groups[first : first + 250]
  got = credit(name, groups, **options)["advantage"]
  exact = dict(options)
  if name == "graphgpo":
    exact.setdefault("omega", 0.8)
  if name == "crbc":
    exact.setdefault("beta", 0.98)
    want = groups_lib.flat(oracle.crbc(g, **exact)["advantage"] for g in groups)
  else:
    want = groups_lib.flat(getattr(oracle, name)(g, **exact) for g in groups)
  error = np.abs(got - want)
  assert error.max() <= limit, (error.max(), int(error.argmax()))
  assert np.abs(want).max() > 0.5


def test_every_option_is_compared_with_something():
  """A new option must enter OPTION_SETS or be tested by name elsewhere.

  `combination_test` compares `trajectory`; estimators that are not in
  OPTION_SETS are compared by `against_oracles_test`.
  """
  elsewhere = {
    # closure_test, and against_oracles_test for the last two
    "crbc": {"beta", "depth", "signal", "truncation", "kappa", "readout"},
    "gigpo": {"trajectory"},
    "graphgpo": {"norm", "episode_weight", "trajectory"},
    "rtmc": {"scale", "eps", "trajectory", "w_group", "w_step"},
  }
  for name in {n for n, _, _ in OPTION_SETS}:
    compared = {
      o for n, options, _ in OPTION_SETS if n == name for o in options
    }
    assert compared | elsewhere.get(name, set()) == set(
      registry.estimator_options(name)
    ), name


def test_graphgpo_edge_rewards_equal_the_graph():
  groups = crowd()
  got = credit(
    "graphgpo", groups, norm="mean", episode_weight=3.0, graph_weight=2.0
  )
  want = []
  for group in groups:
    distance = oracle.graph_distances(group)
    target = oracle.graph_targets(group)
    want += [
      10 * 0.8 ** distance[x] - 0.1 * (not s.valid)
      for r, nodes in zip(group, target, strict=True)
      for s, x in zip(r.steps, nodes, strict=True)
    ]
  np.testing.assert_allclose(got["q"], want, atol=1e-5)
  np.testing.assert_allclose(
    got["step"], np.where(got["live"], got["q"] - got["v"], 0), atol=5e-6
  )
  np.testing.assert_allclose(
    got["trajectory"],
    credit("gigpo", groups, norm="mean")["trajectory"],
    atol=1e-6,
  )
  np.testing.assert_allclose(
    got["advantage"], 3 * got["trajectory"] + 2 * got["step"], atol=1e-5
  )


def test_rtmc_scale_divides_by_the_deviation_of_the_group():
  groups = crowd()
  plain = credit("rtmc", groups)["advantage"].astype(float)
  got = credit("rtmc", groups, scale="std", eps=1e-3)["advantage"]
  start = 0
  for group in groups:
    rows = slice(start, start := start + len(groups_lib.steps(group)))
    std = plain[rows].std()
    want = plain[rows] / (std + 1e-3) if std > 1e-7 else plain[rows]
    np.testing.assert_allclose(got[rows], want, atol=2e-5)


def test_rtmc_scale_leaves_equal_credit_alone():
  """Rounding once made the deviation 1e-9 and the credit 2e5."""
  groups = [
    [Rollout((Step("s", "a"),) * length, "success")] * n
    for length in range(1, 9)
    for n in range(2, 9)
  ]
  plain = credit("rtmc", groups, gamma=0.9)["advantage"]
  got = credit("rtmc", groups, gamma=0.9, scale="std")["advantage"]
  np.testing.assert_allclose(got, plain, atol=1e-6)
  assert np.abs(plain).max() > 0.05


# -- §9 coincidences ---------------------------------------------------------


def pair_means(groups, values):
  """Mean of `values` over the occurrences of each row's (state, action)."""
  keys = [
    (g, oracle.anchor(group, i, t), s.action)
    for g, group in enumerate(groups)
    for i, r in enumerate(group)
    for t, s in enumerate(r.steps)
  ]
  code = {k: n for n, k in enumerate(dict.fromkeys(keys))}
  pair = np.array([code[k] for k in keys])
  total = np.bincount(pair, weights=values)
  return (total / np.bincount(pair))[pair]


def test_visit_averaging_is_averaged_gigpo():
  """CRBC K=0 = per-(s,a) mean of GiGPO's step term, times beta / 10."""
  groups = crowd()
  crbc = credit("crbc", groups, depth=0)
  gigpo = credit("gigpo", groups, gamma=0.98, norm="mean", invalid_penalty=0.0)
  np.testing.assert_allclose(
    crbc["q"] - crbc["v"], 0.098 * pair_means(groups, gigpo["step"]), atol=1e-6
  )


def test_visit_averaging_is_every_visit_rtmc_without_a_prior():
  groups = crowd()
  crbc = credit("crbc", groups, depth=0)
  rtmc = credit("rtmc", groups, gamma=0.98, visits="every", n_prior=0.0)
  np.testing.assert_allclose(
    crbc["q"] - crbc["v"], 0.98 * rtmc["advantage"], atol=1e-6
  )
  first = credit("rtmc", groups, gamma=0.98, n_prior=0.0)
  assert np.abs(first["advantage"] - rtmc["advantage"]).max() > 0.1  # repeats


@pytest.mark.parametrize("name", COMPARING)
def test_all_fail_groups_get_exactly_nothing(name):
  groups = [
    [
      r._replace(
        end=e, steps=tuple(s._replace(valid=True, reward=0) for s in r.steps)
      )
      for r, e in zip(g, ["failure", "truncated"] * 4, strict=False)
    ]
    for g in crowd()[:300]
  ]
  got = credit(name, groups)
  assert not got["advantage"].any()
  assert not got["step"].any() and not got["trajectory"].any()


def test_failed_groups_with_the_penalty_are_not_silent():
  group = [Rollout((Step("s", "a"), Step("s", "b", 0, False)), "failure")] * 2
  for name in ("gigpo", "graphgpo"):
    assert np.abs(credit(name, [group])["step"]).max() > 0.5
  for name in ("crbc", "rtmc", "grpo"):
    assert not credit(name, [group])["advantage"].any()


def test_all_success_groups_differ_by_estimator():
  """GiGPO, CRBC and GraphGPO reward speed, RTMC only punishes, GRPO is 0."""
  group = [rollout("s fast", "success"), rollout("s slow m on k go", "success")]
  for name in ("crbc", "gigpo", "graphgpo"):
    step = credit(name, [group])["step"]
    assert step[0] > 0.05 and step[1] < -0.05, name
    assert not step[2:].any()
  assert not credit("grpo", [group])["advantage"].any()
  rtmc = credit("rtmc", [group])["advantage"]
  assert (rtmc[:3] < 0.01).all() and rtmc[1:3].max() < 0


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
@pytest.mark.parametrize("signal", ["outcome", "observed"])
def test_no_step_weight_is_the_trajectory_estimator_bit_for_bit(kind, signal):
  """Issue 23."""
  groups = crowd()
  got = credit("crbc", groups, w_step=0.0, trajectory=kind, signal=signal)
  want = credit(kind, groups, signal=signal)
  assert got["step"].any()
  np.testing.assert_array_equal(
    groups_lib.bits(got["advantage"]), groups_lib.bits(want["advantage"])
  )
  np.testing.assert_array_equal(
    groups_lib.bits(got["trajectory"]), groups_lib.bits(want["advantage"])
  )


# -- §8 ----------------------------------------------------------------------


def stretched(group, factor=5):
  """The first rollout walks its first step `factor` times."""
  first = group[0]
  steps = first.steps[:1] * factor + first.steps[1:]
  return [first._replace(steps=steps), *group[1:]]


def first_rows(groups):
  return np.cumsum([0, *(len(r.steps) for g in groups for r in g)])[:-1]


def test_group_statistics_do_not_depend_on_episode_length():
  """Issue 5."""
  groups = [
    [
      r._replace(steps=tuple(s._replace(valid=True) for s in r.steps))
      for r in g
    ]
    for g in groups_lib.random_groups(200, 4, max_steps=6)
  ]
  longer = [stretched(g) for g in groups]
  for name, options in (
    ("grpo", {}),
    ("rloo", {}),
    ("crbc", {}),
    ("gigpo", {"statistics": "trajectory"}),
  ):
    before = credit(name, groups, **options)["trajectory"][first_rows(groups)]
    after = credit(name, longer, **options)["trajectory"][first_rows(longer)]
    np.testing.assert_array_equal(before, after, err_msg=name)
  # GiGPO's own default counts rows, and is length-weighted.
  before = credit("gigpo", groups)["trajectory"][first_rows(groups)]
  after = credit("gigpo", longer)["trajectory"][first_rows(longer)]
  assert np.abs(before - after).max() > 0.1


def test_small_deviations_are_not_floored():
  """Issue 10: rewards that differ by 1e-4 are standardised like any other."""
  rewards = 0.5 + np.array([0, 1, 2, 4, 1, 0, 3, 2]) * 1e-4
  group = [Rollout((Step("s", "a", float(r)),), "failure") for r in rewards]
  got = credit("grpo", [group], signal="observed")["advantage"]
  want = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
  np.testing.assert_allclose(got, want, atol=2e-3)
  assert np.abs(got).max() > 1.5


# Without an exact binary form, of very different sizes.
NON_DYADIC = (0.35, 0.1, 0.7, 1 / 3, 1e-3, -0.35, 123.456, 1e6 / 3, 1e-20, -7.7)


@pytest.mark.parametrize(
  "name, options",
  [
    ("grpo", {}),
    ("rloo", {}),
    ("gigpo", {}),
    ("gigpo", {"norm": "mean"}),
    ("gigpo", {"statistics": "trajectory"}),
    ("gigpo", {"statistics": "trajectory", "norm": "mean"}),
    ("graphgpo", {}),
    ("crbc", {}),
    ("crbc", {"trajectory": "rloo"}),
  ],
)
def test_equal_rewards_give_exactly_zero(name, options):
  """Issue 11: leave-one-out residue once became an advantage of 7428."""
  groups = [
    [Rollout((Step("s", "a", reward),), "failure")] * n
    for reward in NON_DYADIC
    for n in range(2, 24)
  ]
  got = credit(name, groups, signal="observed", **options)
  assert not got["trajectory"].any()
  if name != "crbc":  # its gate is shut here anyway
    assert not got["step"].any()
  assert not got["advantage"].any()


@pytest.mark.parametrize("name", ["gigpo", "graphgpo", "crbc", "grpo", "rloo"])
def test_copies_of_one_rollout_give_no_credit(name):
  """Issue 13, and equal returns that were summed in another order."""
  rewards = (0.1, 0.7, 1 / 3, -0.2)
  groups = [
    [
      Rollout(
        tuple(Step(t, "ab"[t % 2], rewards[t % 4]) for t in range(length)),
        "success",
      )
    ]
    * n
    for length in range(1, 32)
    for n in (2, 3, 5, 8)
    if n * length <= SHAPE.rows
  ]
  for options in ({}, {"signal": "observed"}):
    got = credit(name, groups, **options)
    assert not got["step"].any(), options
    assert not got["advantage"].any(), options


@pytest.mark.parametrize("name", NAMES)
def test_missing_states_share_nothing(name):
  """Issue 14: no state is no crash, and no step credit by comparison."""
  groups = groups_lib.random_groups(
    60, 41, missing=(1.0,), max_rollouts=4, max_steps=6
  )
  got = credit(name, groups)
  assert np.isfinite(got["advantage"]).all()
  if name in COMPARING and name not in STATELESS:
    assert not got["step"].any() and not got["live"].any()
    np.testing.assert_array_equal(got["advantage"], got["trajectory"])
  if name in STATELESS:
    assert got["step"].any()
  if name == "g2po":
    at_anchors = credit(name, groups, edge_weight=0.0)
    assert not at_anchors["step"].any() and not at_anchors["live"].any()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OVER_BATCH])
def test_equal_states_of_two_tasks_share_nothing(name):
  """Issue 19: all groups here use the same few keys."""
  groups = crowd()[:60]
  together = credit(name, groups)
  start = 0
  for group in groups[:12]:
    alone = credit(name, [group])
    rows = slice(start, start := start + len(groups_lib.steps(group)))
    for field in groups_lib.FIELDS:
      got, expected = together[field][rows], alone[field]
      if name == "crbc_loo":
        # Its many small solves: on some processors the last bit depends on how
        # many of them there are in a call.
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
      else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", BY_OUTCOME)
def test_turns_without_reward_do_not_vanish(name):
  """Issue 21: turn boundaries are rows, never `reward != 0`."""
  silent, loud = (
    [
      [
        r._replace(steps=tuple(s._replace(reward=reward) for s in r.steps))
        for r in groups_lib.golden()
      ]
    ]
    for reward in (0, 1)
  )
  got, other = credit(name, silent), credit(name, loud)
  # SALT's merged edges have the mean of one success and one failure: 0.
  counts = got["live"] if name == "salt" else got["advantage"] != 0
  assert counts.any()
  assert counts.all() or name == "salt"
  np.testing.assert_array_equal(got["advantage"], other["advantage"])


def test_mica_reads_rewards_and_no_outcomes():
  groups = crowd()[:60]
  renamed = [
    [r._replace(end="success" if r.end != "success" else "failure") for r in g]
    for g in groups
  ]
  got, other = credit("mica", groups), credit("mica", renamed)
  assert got["advantage"].any()
  for field in groups_lib.FIELDS:
    np.testing.assert_array_equal(got[field], other[field], field)
  silent = [
    [r._replace(steps=tuple(s._replace(reward=0) for s in r.steps)) for r in g]
    for g in groups
  ]
  assert not credit("mica", silent)["advantage"].any()


@pytest.mark.parametrize("name", NAMES)
def test_mixed_episode_lengths(name):
  """Issue 22: one-step episodes beside long ones; a success pays 1."""
  group = [
    rollout("s a", "success"),
    rollout("s b", "failure"),
    rollout(" ".join(["s b m c"] * 12), "truncated", "s"),
    rollout("s b m a", "success"),
  ]
  lengths = [len(r.steps) for r in group]
  reward = np.zeros(sum(lengths))
  reward[[0, -1]] = 1.0  # the last steps of the two successes
  got = credit(name, groups_lib.table_of([group], reward=reward))
  assert np.isfinite(got["advantage"]).all()
  assert got["advantage"][0] > got["advantage"][1]


@pytest.mark.parametrize("name", NAMES)
def test_layout_of_the_log_does_not_matter(name):
  """Issue 24: tiled or interleaved, each row keeps its advantage."""
  table = groups_lib.table_of(crowd()[:100])
  want = credit(name, table)["advantage"]
  interleaved = np.lexsort((table.traj_id, table.group_id, table.step_idx))
  for order in (
    interleaved,
    interleaved[::-1],
    np.random.default_rng(0).permutation(len(table)),
  ):
    got = credit(name, table.take(order))["advantage"]
    np.testing.assert_array_equal(
      groups_lib.bits(got), groups_lib.bits(want[order])
    )


def test_the_truncation_flag_survives():
  """Issue 27: failure for CRBC by default, bootstrap by option."""
  group = [
    rollout("s a m b", "truncated", "s"),
    rollout("s c", "success"),
    rollout("m d s a m d", "failure"),
  ]
  arrays = make_batch(groups_lib.table_of([group])).arrays
  assert arrays.boundary[0, 1] == Boundary.TRUNCATED
  assert arrays.next_state[0, 1] == arrays.state[0, 0]
  as_failure = credit("crbc", [group])
  bootstrap = credit("crbc", [group], truncation="bootstrap")
  assert as_failure["q"][1] == 0
  assert bootstrap["q"][1] == pytest.approx(0.98 * bootstrap["v"][0])
  # GraphGPO keeps the real last state, two steps from success: 10 * .8^1.
  graph = credit("graphgpo", [group], invalid_penalty=0.0)
  assert graph["q"][1] == pytest.approx(8.0)
  assert graph["q"][-1] < graph["q"][1]


@pytest.mark.parametrize("name", BY_OUTCOME)
def test_success_is_the_flag_not_the_reward(name):
  """Issues 26 and 29: -.1 a step, +1 a box, +10 at the end."""
  groups = crowd()[:60]
  rng = np.random.default_rng(0)
  shaped = [
    [
      r._replace(
        steps=tuple(
          s._replace(reward=float(rng.choice([-0.1, 1, -1, 10])))
          for s in r.steps
        )
      )
      for r in g
    ]
    for g in groups
  ]
  np.testing.assert_array_equal(
    credit(name, shaped)["advantage"], credit(name, groups)["advantage"]
  )


def test_a_success_with_a_negative_sum_is_a_success():
  group = [
    Rollout((Step("s", "a", -20.0),), "success"),
    Rollout((Step("s", "b", 30.0),), "failure"),
  ]
  for name in BY_OUTCOME:
    got = credit(name, [group])["advantage"]
    assert got[0] > 0 > got[1], name
  got = credit("grpo", [group], signal="observed")["advantage"]
  assert got[0] < 0 < got[1]


def test_groups_have_one_start():
  """Issue 28: the anchor of the first step is one and the same."""
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]))
  first = batch.arrays.mask & (batch.arrays.step == 0)
  assert set(batch.arrays.state[first].tolist()) == {0}


def test_levels_can_be_switched_off():
  """Issue 30: each of the two terms alone, by weight."""
  groups = crowd()[:60]
  for name, step_only, trajectory_only in (
    ("crbc", {"w_group": 0.0}, {"w_step": 0.0}),
    ("graphgpo", {"episode_weight": 0.0}, {"graph_weight": 0.0}),
  ):
    both = credit(name, groups)
    factor = 5 if name == "crbc" else 1
    np.testing.assert_allclose(
      credit(name, groups, **step_only)["advantage"],
      factor * both["step"],
      atol=1e-6,
    )
    np.testing.assert_array_equal(
      credit(name, groups, **trajectory_only)["advantage"], both["trajectory"]
    )
  np.testing.assert_array_equal(
    credit("gigpo", groups, step_weight=0.0)["advantage"],
    credit("gigpo", groups)["trajectory"],
  )


# -- singletons, by name -----------------------------------------------------


def test_groups_of_one_rollout():
  """Issue 7: zero unless raw is asked for."""
  groups = [[rollout("s a m b", end)] for end in ("success", "failure")]
  won = np.array([1, 1, 0, 0])
  for name in ("grpo", "rloo"):
    assert not credit(name, groups)["advantage"].any()
    np.testing.assert_array_equal(
      credit(name, groups, singleton="raw")["advantage"], won
    )
  assert not credit("crbc", groups)["advantage"].any()
  # GiGPO counts rows: two equal rows are no singleton, one row is.
  assert not credit("gigpo", groups)["advantage"].any()
  single = [[rollout("s a", "success")]]
  np.testing.assert_array_equal(credit("gigpo", single)["advantage"], [10])
  assert not credit("gigpo", single, singleton="zero")["advantage"].any()


def test_a_lone_invalid_rollout_is_zero_if_singletons_are():
  group = [Rollout((Step("s", "a", 0, False),), "success")]
  for options in ({}, {"statistics": "trajectory", "norm": "mean"}):
    got = credit("gigpo", [group], singleton="zero", **options)
    assert not got["advantage"].any(), options


def test_rtmc_smoothing_of_a_singleton():
  """§2.4: a lone visit gets n_prior / (1 + n_prior) (return - prior)."""
  group = [rollout("s a m b", "success"), rollout("s c k d", "failure")]
  got = credit("rtmc", [group])["advantage"]
  assert got[1] == pytest.approx(2 / 3 * (1 - 0.5))
  assert got[3] == pytest.approx(2 / 3 * (0 - 0.5))
  # s: V = .495, prior .5, N = 2.
  assert got[0] == pytest.approx(0.99 - (2 * 0.495 + 2 * 0.5) / 4, abs=1e-6)
  even = credit("rtmc", [group], prior="discounted")["advantage"]
  assert even[0] == pytest.approx(-even[2], abs=1e-6)
  assert math.isclose(even[0], 0.495, abs_tol=1e-6)
