"""The closure against hand-made numbers, exact arithmetic and its theory.

§ refers to the formula notes: §10 is the worked example, §1.7 the derived
properties, §1.3 the error bound.
"""

import collections
import functools
import math

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from crbc_jax.credit import closure
from crbc_jax.credit.process import build_process, transition_probs
from crbc_jax.rollouts.batching import BatchShape, make_batch
from crbc_jax.rollouts.table import StepTable
from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout

INF = math.inf
DEPTHS = (0, 1, 2, 3, 7, INF)
SHAPE = BatchShape(1000, 64, 32, 32, 8, 64, 32)


def levels_of(source, shape=SHAPE, **options) -> list[dict]:
  """Credit at each of DEPTHS; one shape, so each option set compiles once."""
  options = {"signal": "outcome", "truncation": "failure"} | options
  table = (
    source if isinstance(source, StepTable) else (groups_lib.table_of(source))
  )
  return groups_lib.credit_at_depths(
    make_batch(table, shape), len(table), depths=DEPTHS, **options
  )


def closed(source, **options) -> dict:
  """Credit of the exact closure."""
  return levels_of(source, **options)[-1]


# -- the worked example ------------------------------------------------------

# (beta, depth): V of s0, s1, s2, from the first table of §10.
GOLDEN_V = {
  (0.9, 0): (0.324, 0.45, 0.225),
  (0.9, 1): (0.2835, 0.55125, 0.2979),
  (0.9, 2): (0.359316, 0.584055, 0.288787),
  (0.9, 3): (0.366205, 0.579954, 0.305846),
  (0.9, INF): (0.379966, 0.589722, 0.310492),
  (0.98, INF): (0.473741, 0.666923, 0.361066),
  (1.0, INF): (0.5, 0.6875, 0.375),
}

# depth: Q, Q - V and A^S of each pair at beta .9, from the second table.
GOLDEN_PAIRS = {
  0: {
    ("s0", "a"): (0.405, 0.081, 0.81),
    ("s0", "b"): (0.27, -0.054, -0.54),
    ("s1", "c"): (0.9, 0.45, 1.0),
    ("s1", "d"): (0.0, -0.45, -1.0),
    ("s2", "e"): (0.0, -0.225, -0.577350),
    ("s2", "f"): (0.9, 0.675, 1.732051),
  },
  INF: {
    ("s0", "a"): (0.530749, 0.150784, 1.224745),
    ("s0", "b"): (0.279443, -0.100523, -0.816497),
    ("s1", "c"): (0.9, 0.310278, 1.0),
    ("s1", "d"): (0.279443, -0.310278, -1.0),
    ("s2", "e"): (0.113990, -0.196503, -0.577350),
    ("s2", "f"): (0.9, 0.589508, 1.732051),
  },
}


@pytest.mark.parametrize("beta, depth", GOLDEN_V)
def test_golden_values(beta, depth):
  got = levels_of([groups_lib.golden()], beta=beta)[DEPTHS.index(depth)]
  want = dict(zip(("s0", "s1", "s2"), GOLDEN_V[beta, depth], strict=True))
  np.testing.assert_allclose(
    got["v"],
    [want[s.state] for s in groups_lib.steps(groups_lib.golden())],
    atol=1e-6,
  )


@pytest.mark.parametrize("depth", GOLDEN_PAIRS)
def test_golden_pairs(depth):
  got = levels_of([groups_lib.golden()], beta=0.9)[DEPTHS.index(depth)]
  want = np.array(
    [
      GOLDEN_PAIRS[depth][s.state, s.action]
      for s in groups_lib.steps(groups_lib.golden())
    ]
  )
  np.testing.assert_allclose(got["q"], want[:, 0], atol=1e-6)
  np.testing.assert_allclose(got["q"] - got["v"], want[:, 1], atol=1e-6)
  np.testing.assert_allclose(got["step"], want[:, 2], atol=1e-6)
  # Two successes of four: (1 - 1/2) / sqrt(1/3) = .866025, less epsilon.
  trajectory = np.repeat(
    [0.866024, -0.866024, 0.866024, -0.866024], [2, 3, 2, 4]
  )
  np.testing.assert_allclose(got["trajectory"], trajectory, atol=1e-6)
  np.testing.assert_allclose(
    got["advantage"], trajectory + 5 * want[:, 2], atol=6e-6
  )
  assert got["live"].all()


def test_golden_process():
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]))
  group = groups_lib.one(batch.arrays)
  process = build_process(group, beta=0.9)
  np.testing.assert_allclose(
    groups_lib.matrix(process)[:3, :3],
    [[0, 0.4, 0.6], [0, 0, 0.5], [0.25, 0, 0]],
    atol=1e-7,
  )
  gain = closure.payoffs(process) / np.maximum(process.state_count, 1)
  np.testing.assert_allclose(gain[:3], [0, 0.45, 0.225], atol=1e-7)
  np.testing.assert_allclose(
    process.behaviour[:6], [0.4, 0.5, 0.5, 0.75, 0.6, 0.25], atol=1e-7
  )
  probs = np.array(transition_probs(group, process))
  # Pairs in order a c d e b f; columns s0 s1 s2 ... success failure.
  assert probs.shape == (8, 10)
  np.testing.assert_allclose(
    probs[:6][:, [0, 1, 2, 8, 9]],
    [
      [0, 1, 0, 0, 0],
      [0, 0, 0, 1, 0],
      [0, 0, 1, 0, 0],
      [1 / 3, 0, 0, 0, 2 / 3],
      [0, 0, 1, 0, 0],
      [0, 0, 0, 1, 0],
    ],
    atol=1e-7,
  )
  assert not probs[6:].any()


# -- exact arithmetic on random groups ---------------------------------------

# 1,000 groups for the paper's setting, 250 others (of their own seed) for each
# further setting: 3,250 groups in all, at six depths each.
SETTINGS = [
  (
    beta,
    signal,
    truncation,
    1000 if (beta, signal, truncation) == (0.98, "outcome", "failure") else 250,
  )
  for beta in (0.9, 0.98, 1.0)
  for signal in ("outcome", "observed")
  for truncation in ("failure", "bootstrap")
  if beta < 1 or truncation == "failure"
]


@pytest.mark.parametrize("beta, signal, truncation, count", SETTINGS)
def test_closure_equals_exact_arithmetic(beta, signal, truncation, count):
  """V and Q to 1e-6; with observed rewards to 2e-6 of the largest value.

  A^S divides by sigma >= .1, which magnifies by 10. Measured: V and Q 5e-7,
  A^S 4e-6 with outcomes; 1.1e-6 of a value of 150 with observed rewards.
  """
  groups = groups_lib.random_groups(
    count,
    seed=SETTINGS.index((beta, signal, truncation, count)),
    missing=(0, 0, 0, 0.2),
  )
  table = groups_lib.table_of(groups)
  options = {"beta": beta, "signal": signal, "truncation": truncation}
  levels = levels_of(table, **options)
  number = table.group_id.astype(int)
  for depth, got in zip(DEPTHS, levels, strict=True):
    want = [
      oracle.crbc(group, depth=None if depth == INF else depth, **options)
      for group in groups
    ]
    exact = {f: groups_lib.flat(w[f] for w in want) for f in groups_lib.FIELDS}
    scale = np.ones(len(table))
    if signal == "observed":
      largest = np.ones(count)
      for name in ("q", "v"):
        np.maximum.at(largest, number, np.abs(exact[name]))
      # Rewards up to 12 cancel, so errors follow the rewards too.
      scale = np.maximum(largest[number], 12)
    limit = 1e-6 if signal == "outcome" else 2e-6
    for name in ("v", "q"):
      error = np.abs(got[name] - exact[name]) / scale
      assert error.max() <= limit, (name, depth, error.max())
    error = np.abs(got["step"] - exact["step"]) / scale
    assert error.max() <= 10 * limit, (depth, error.max())
    np.testing.assert_array_equal(got["live"], exact["live"] > 0)
    np.testing.assert_allclose(
      got["advantage"],
      exact["trajectory"] + 5 * got["step"].astype(float),
      atol=5e-6,
    )


@hypothesis.settings(max_examples=60)
@hypothesis.given(
  groups_lib.small_groups(), st.sampled_from(["failure", "bootstrap"])
)
def test_closure_equals_exact_arithmetic_on_drawn_groups(group, truncation):
  options = {"beta": 0.98, "truncation": truncation}
  levels = levels_of([group], groups_lib.SMALL_SHAPE, **options)
  for depth, got in zip(DEPTHS, levels, strict=True):
    want = oracle.crbc(group, depth=None if depth == INF else depth, **options)
    for name in ("v", "q"):
      np.testing.assert_allclose(
        got[name], groups_lib.flat([want[name]]), atol=1e-6
      )
    np.testing.assert_allclose(
      got["step"], groups_lib.flat([want["step"]]), atol=1e-5
    )


# -- §1.7, on one fixed crowd of random groups -------------------------------


@functools.cache
def crowd():
  groups = groups_lib.random_groups(600, seed=77, missing=(0, 0, 0, 0.1))
  table = groups_lib.table_of(groups)
  return groups, table, make_batch(table, SHAPE)


@functools.cache
def crowd_levels(beta: float):
  return levels_of(crowd()[1], beta=beta)


def anchors_of_crowd() -> np.ndarray:
  """Number of the anchor of each row, distinct over groups."""
  groups, _, _ = crowd()
  keys = [
    (g, oracle.anchor(group, i, t))
    for g, group in enumerate(groups)
    for i, r in enumerate(group)
    for t in range(len(r.steps))
  ]
  code = {k: n for n, k in enumerate(dict.fromkeys(keys))}
  return np.array([code[k] for k in keys])


def means(values, segment):
  count = np.bincount(segment)
  return np.bincount(segment, weights=values)[segment] / count[segment]


def test_matrix_counts_successors_only():
  """1: M(s,x) = N(s,x)/N(s)."""
  groups, _, batch = crowd()
  process = jax.jit(jax.vmap(functools.partial(build_process, beta=0.98)))(
    batch.arrays
  )
  process = jax.tree.map(np.asarray, process)
  for b, group in enumerate(groups[:200]):
    want = oracle.process(group)
    index = {s: n for n, s in enumerate(want.n_s)}  # by first appearance
    matrix = np.zeros((len(index), len(index)))
    for (s, _, x), n in want.n_sax.items():
      if x in index:
        matrix[index[s], index[x]] += n / want.n_s[s]
    n = len(index)
    got = groups_lib.matrix(groups_lib.one(process, b))
    np.testing.assert_allclose(got[:n, :n], matrix, atol=1e-6)
    assert not np.any(got[n:]), "padding has transitions"
    np.testing.assert_array_equal(
      process.state_count[b, :n], list(want.n_s.values())
    )


def test_values_do_not_depend_on_action_labels():
  """1: aliasing every action leaves V as it is and shuts A^S."""
  groups, table, _ = crowd()
  aliased = groups_lib.table_of(groups, action_key=["act"] * len(table))
  for got, plain in zip(
    levels_of(aliased, beta=0.98), crowd_levels(0.98), strict=True
  ):
    np.testing.assert_allclose(got["v"], plain["v"], rtol=5e-7, atol=0)
    np.testing.assert_allclose(got["q"], got["v"], atol=1e-6)
    assert not got["step"].any() and not got["live"].any()
    assert plain["step"].any()


@pytest.mark.parametrize("beta", [0.9, 0.98, 1.0])
def test_values_lie_between_zero_and_beta(beta):
  for got in crowd_levels(beta):
    for name in ("v", "q"):
      assert got[name].min() >= -1e-6 and got[name].max() <= beta + 1e-6
  assert crowd_levels(beta)[-1]["v"].max() > 0.9 * beta


@pytest.mark.parametrize("beta", [0.9, 0.98, 1.0])
def test_credit_is_centred_at_every_depth(beta):
  """sum_a mu(a|s) (Q - V) = 0, hence also of A^S where the gate is open."""
  anchor = anchors_of_crowd()
  for got in crowd_levels(beta):
    gap = means(got["q"].astype(float) - got["v"], anchor)
    assert np.abs(gap).max() <= 1e-6
    assert np.abs(means(got["step"].astype(float), anchor)).max() <= 1e-5


def test_start_value_at_beta_one_is_the_success_rate():
  groups, table, _ = crowd()
  got = crowd_levels(1.0)[-1]["v"]
  tested = 0
  for g, group in enumerate(groups):
    starts = {r.steps[0].state for r in group}
    if len(starts) == 1 and None not in starts:
      rate = np.mean([r.end == "success" for r in group])
      first = np.flatnonzero(table.group_id == g)[0]
      assert abs(got[first] - rate) <= 2e-6
      tested += len(group) > 2 and 0 < rate < 1
  assert tested > 50


@pytest.mark.parametrize("beta", [0.9, 0.98, 1.0])
def test_step_credit_is_bounded_by_rarity(beta):
  """|A^S| <= sqrt((1 - mu) / mu) <= sqrt(N(s) - 1)."""
  _, table, _ = crowd()
  anchor = anchors_of_crowd()
  pair = (
    anchor * 10
    + np.unique(table.action_key.astype(str), return_inverse=True)[1]
  )
  visits = np.bincount(anchor)[anchor]
  mu = np.bincount(pair)[pair] / visits
  for got in crowd_levels(beta):
    size = np.abs(got["step"])
    assert (size <= np.sqrt((1 - mu) / mu) + 1e-5).all()
    assert (size <= np.sqrt(visits - 1) + 1e-5).all()
  assert (np.abs(got["step"]) > 0.99 * np.sqrt((1 - mu) / mu)).sum() > 50


def test_the_bound_is_tight_for_one_good_rare_action():
  group = [rollout("s bad", "failure")] * 19 + [rollout("s good", "success")]
  got = closed([group], beta=0.98)
  assert got["step"][-1] == pytest.approx(math.sqrt(19), rel=1e-5)


@pytest.mark.parametrize("beta", [0.9, 0.98, 1.0])
def test_all_fail_groups_get_exactly_nothing(beta):
  groups, table, _ = crowd()
  failed = np.array([all(r.end != "success" for r in g) for g in groups])
  rows = failed[table.group_id.astype(int)]
  assert failed.sum() > 50
  for got in crowd_levels(beta):
    for name in ("v", "q", "step", "advantage", "trajectory"):
      assert not got[name][rows].any(), name


def test_all_success_groups_have_no_trajectory_term():
  groups, table, _ = crowd()
  won = np.array([all(r.end == "success" for r in g) for g in groups])
  rows = won[table.group_id.astype(int)]
  got = crowd_levels(0.98)[-1]
  assert not got["trajectory"][rows].any()
  assert np.abs(got["step"][rows]).max() > 0.1


def test_all_success_groups_prefer_the_faster_route_below_beta_one():
  group = [rollout("s fast", "success"), rollout("s slow m go", "success")]
  got = closed([group], beta=0.98)
  # Q differs by beta - beta^2 = .0196; the floor .1 divides half of it.
  np.testing.assert_allclose(got["step"], [0.098, -0.098, 0], atol=1e-5)
  at_one = closed([group], beta=1.0)
  np.testing.assert_allclose(at_one["step"], 0, atol=1e-5)


def self_loops():
  """Groups with no-ops `n` that never leave their state."""
  rng = np.random.default_rng(3)
  groups = []
  for _ in range(100):
    group = []
    for _ in range(rng.integers(2, 7)):
      path = []
      for state in rng.choice(4, rng.integers(1, 4), replace=False):
        path += [f"s{state} n"] * rng.integers(0, 5)
        path.append(f"s{state} go{rng.integers(2)}")
      group.append(rollout(" ".join(path), rng.choice(["success", "failure"])))
    groups.append(group)
  return groups


@pytest.mark.parametrize("beta", [0.9, 0.98, 1.0])
def test_a_self_loop_costs_one_discount(beta):
  """5: Q(s,n) - V(s) = -(1 - beta) V(s), hence |A^S| <= .2 at .98."""
  groups = self_loops()
  got = closed(groups, beta=beta)
  idle = np.array(
    [s.action == "n" for g in groups for s in groups_lib.steps(g)]
  )
  assert idle.sum() > 300
  np.testing.assert_allclose(
    (got["q"] - got["v"])[idle], -(1 - beta) * got["v"][idle], atol=2e-6
  )
  assert np.abs(got["step"][idle]).max() <= 10 * (1 - beta) + 2e-5
  assert np.abs(got["step"][~idle]).max() > 1


def with_history(group):
  """The same rollouts with the whole past as the state: a prefix tree."""
  out = []
  for r in group:
    past, steps = (), []
    for s in r.steps:
      past = (*past, s.state)
      steps.append(s._replace(state=past))
      past = (*past, s.action)
    out.append(r._replace(steps=tuple(steps)))
  return out


@pytest.mark.parametrize("beta", [0.9, 1.0])
def test_on_a_prefix_tree_every_depth_is_the_same(beta):
  """7: closure differs from visit averages only where paths merge."""
  groups = [
    with_history([r._replace(final_state=None) for r in g])
    for g in groups_lib.random_groups(300, 12, max_states=2, max_actions=2)
  ]
  levels = levels_of(groups, None, beta=beta)
  assert levels[0]["live"].mean() > 0.1
  for got in levels[1:]:
    for name in ("v", "q"):
      np.testing.assert_allclose(got[name], levels[0][name], atol=1e-6)
    np.testing.assert_allclose(got["step"], levels[0]["step"], atol=2e-5)
  merged = crowd_levels(beta)
  assert np.abs(merged[0]["q"] - merged[-1]["q"]).max() > 0.1


@pytest.mark.parametrize("beta", [0.9, 0.98])
def test_depth_converges_within_the_stated_bound(beta):
  """§1.3: |A^inf - A^K| <= 2 beta^K / (1 - beta) max |T V^0 - V^0|, K >= 1."""
  _, table, _ = crowd()
  number = table.group_id.astype(int)
  levels = crowd_levels(beta)

  def largest(values):
    out = np.zeros(number.max() + 1)
    np.maximum.at(out, number, np.abs(values))
    return out

  drift = largest(levels[1]["v"].astype(float) - levels[0]["v"])
  exact = levels[-1]["q"].astype(float) - levels[-1]["v"]
  for depth, got in zip(DEPTHS[1:-1], levels[1:-1], strict=True):
    error = largest(got["q"].astype(float) - got["v"] - exact)
    bound = 2 * beta**depth / (1 - beta) * drift
    assert (error <= bound + 2e-6).all()


def test_the_bound_of_a_depth():
  """§1.3 on the worked example, beta .9: |T V^0 - V^0| is .10125 at s1."""
  batch = make_batch(groups_lib.table_of([groups_lib.golden()]))
  group = groups_lib.one(batch.arrays)
  process = build_process(group, beta=0.9)
  found = closure.depth_bound(process, beta=0.9, depths=(INF, 0, 1, 2))
  want = [0.0, INF, 2 * 0.9 * 0.10125 / 0.1, 2 * 0.81 * 0.10125 / 0.1]
  np.testing.assert_allclose(found, want, rtol=1e-5)
  # At beta 1 there is no bound, unless nothing moves: no success at all.
  process = build_process(group, beta=1.0)
  found = closure.depth_bound(process, beta=1.0, depths=(1, INF))
  np.testing.assert_array_equal(found, [INF, 0.0])
  failed = make_batch(groups_lib.table_of([[rollout("s0 a s1 b", "failure")]]))
  process = build_process(groups_lib.one(failed.arrays), beta=1.0)
  found = closure.depth_bound(process, beta=1.0, depths=(1, 7))
  np.testing.assert_array_equal(found, [0.0, 0.0])


def test_large_depth_is_the_closure():
  _, table, batch = crowd()
  (got,) = groups_lib.credit_at_depths(
    batch, len(table), depths=(150,), beta=0.9
  )
  for name in ("v", "q"):  # .9^150 = 1.4e-7
    np.testing.assert_allclose(
      got[name], crowd_levels(0.9)[-1][name], atol=2e-6
    )


@pytest.mark.parametrize("beta", [0.9, 0.98])
def test_value_is_at_most_that_of_the_shortest_path(beta):
  """V <= beta^d: policy evaluation against the best observed route."""
  groups, _, _ = crowd()
  bound = []
  for group in groups:
    group = [
      r if r.end == "success" else r._replace(final_state=None) for r in group
    ]  # failures are absorbed
    distance = oracle.graph_distances(group)
    won = any(r.end == "success" for r in group)
    bound += [
      beta ** distance[oracle.anchor(group, i, t)] if won else 0.0
      for i, r in enumerate(group)
      for t in range(len(r.steps))
    ]
  got = crowd_levels(beta)[-1]["v"]
  # Unreachable anchors have d = d_max + 1, whose bound is valid but not tight.
  assert (got <= np.array(bound) + 1e-6).all()


def test_value_is_that_of_the_shortest_path_if_nothing_else_was_done():
  group = [
    rollout("s3 a s2 a s1 a", "success"),
    rollout("s2 b s1 b", "success"),
  ]
  got = closed([group], beta=0.9)
  np.testing.assert_allclose(got["v"], [0.729, 0.81, 0.9, 0.81, 0.9], atol=1e-6)


@pytest.mark.parametrize("truncation", ["failure", "bootstrap"])
def test_observed_rewards_reduce_to_outcomes(truncation):
  """Reward beta on success is the paper; reward 1 is the paper over beta."""
  groups, table, _ = crowd()
  beta = 0.9
  won = np.array(
    [
      r.end == "success" and t == len(r.steps) - 1
      for g in groups
      for r in g
      for t in range(len(r.steps))
    ]
  )
  options = {"beta": beta, "truncation": truncation}
  paper = levels_of(table, **options)
  for reward, factor in ((beta, 1.0), (1.0, 1 / beta)):
    got = levels_of(
      groups_lib.table_of(groups, reward=reward * won),
      signal="observed",
      **options,
    )
    for g, p in zip(got, paper, strict=True):
      for name in ("v", "q"):
        np.testing.assert_allclose(g[name], p[name] * factor, atol=1e-6)


def test_bootstrap_matters_only_where_truncation_shows_a_known_state():
  known = [rollout("s a", "truncated", "s"), rollout("s b", "success")]
  # failure: V = beta/2.  bootstrap: V = beta V/2 + beta/2.
  for truncation, value in (("failure", 0.45), ("bootstrap", 0.45 / 0.55)):
    got = closed([known], beta=0.9, truncation=truncation)
    np.testing.assert_allclose(got["v"], value, atol=1e-6)
    np.testing.assert_allclose(
      got["q"],
      [0.9 * value if truncation == "bootstrap" else 0, 0.9],
      atol=1e-6,
    )
  for end, final in (
    ("failure", "s"),
    ("truncated", None),
    ("truncated", "never"),
  ):
    group = [rollout("s a", end, final), rollout("s b", "success")]
    got = closed([group], beta=0.9, truncation="bootstrap")
    np.testing.assert_allclose(got["q"], [0, 0.9], atol=1e-6)


# -- the mean TD residual is the credit (§1.7 no. 12, §9) --------------------


def test_mean_td_error_of_a_pair_is_its_credit():
  groups, table, _ = crowd()
  got = crowd_levels(0.9)[-1]
  ends = table.boundary != 0
  following = np.append(got["v"][1:], 0)
  after = np.where(ends, table.boundary == 1, following)
  td = 0.9 * after - got["v"]
  keys = [
    (g, oracle.anchor(group, i, t), s.action)
    for g, group in enumerate(groups)
    for i, r in enumerate(group)
    for t, s in enumerate(r.steps)
  ]
  sums = collections.defaultdict(list)
  for key, value in zip(keys, td, strict=True):
    sums[key].append(value)
  want = np.array([np.mean(sums[key]) for key in keys])
  np.testing.assert_allclose(got["q"] - got["v"], want, atol=1e-6)


# -- one program for many depths, and its accuracy ---------------------------


@pytest.mark.parametrize("depth", [0, 2, INF])
def test_many_depths_in_one_program_equal_one_at_a_time(depth):
  got = crowd_levels(0.98)[DEPTHS.index(depth)]
  alone = groups_lib.credit("crbc", crowd()[1], depth=depth)
  for name in groups_lib.FIELDS:
    np.testing.assert_allclose(got[name], alone[name], atol=1e-5, rtol=1e-6)


def test_depths_come_back_in_the_order_asked_for():
  groups, _, _ = crowd()
  table = groups_lib.table_of(groups[:100])
  mixed = (INF, 2, 0, INF, 2)
  got = groups_lib.credit_at_depths(make_batch(table), len(table), depths=mixed)
  for depth, level in zip(mixed, got, strict=True):
    want = crowd_levels(0.98)[DEPTHS.index(depth)]["v"][: len(table)]
    np.testing.assert_allclose(level["v"], want, atol=1e-6)


def test_residual_is_small_and_zero_at_finite_depth():
  _, _, batch = crowd()
  result = groups_lib.depths_fn(
    depths=DEPTHS, signal="outcome", truncation="failure", beta=0.98
  )(batch.arrays)
  residual = np.asarray(result.aux["residual"])
  assert residual.shape == (batch.shape.groups, len(DEPTHS))
  assert not residual[:, :-1].any()
  assert 0 < residual[:, -1].max() <= 5e-7


def test_residual_shows_a_wrong_value():
  group = groups_lib.one(
    make_batch(groups_lib.table_of([groups_lib.golden()])).arrays
  )
  process = build_process(group, beta=0.9)
  values = closure.exact_values(process, beta=0.9)
  assert closure.centring_residual(process, values) <= 1e-7
  # s0 is worth .1 less than the mean of its actions.
  wrong = values.replace(gap=values.gap.at[np.array([0, 4])].add(0.1))
  assert closure.centring_residual(process, wrong) == pytest.approx(
    0.1, abs=1e-6
  )


def hard_loops():
  stuck = " ".join(["s0 wait"] * 500)
  ping_pong = " ".join(["s0 right s1 left"] * 250)
  return [
    [
      rollout(f"{stuck} s0 go s1 go", "success"),
      rollout("s0 go s1 no", "failure"),
    ],
    [rollout(f"{ping_pong} s0 exit", "success"), rollout("s1 exit", "failure")],
    [rollout(f"{ping_pong} s0 exit", "success")],
    [rollout(stuck, "truncated", "s0"), rollout("s0 go", "success")],
  ]


@pytest.mark.parametrize("beta", [0.98, 1.0])
def test_float32_survives_hard_loops(beta):
  """500 self-loops and a ping-pong of 250 rounds; see `accuracy_test`."""
  groups = hard_loops()
  got = groups_lib.credit("crbc", groups, beta=beta)
  want = [oracle.crbc(g, beta=beta) for g in groups]
  for name, limit in (("v", 1e-6), ("q", 1e-6), ("step", 1e-5)):
    error = np.abs(got[name] - groups_lib.flat(w[name] for w in want))
    assert error.max() <= limit, name


@pytest.mark.parametrize("depth", [-1, 1.5, math.nan, "2", None, True, -INF])
def test_depth_must_be_a_whole_number_or_infinity(depth):
  with pytest.raises(ValueError, match="depth must be"):
    closure.check_depth(depth)


def test_finite_values_refuses_the_closure():
  group = groups_lib.one(
    make_batch(groups_lib.table_of([groups_lib.golden()])).arrays
  )
  process = build_process(group, beta=0.9)
  with pytest.raises(ValueError, match="exact_values"):
    closure.finite_values(process, beta=0.9, depths=(1, INF))
