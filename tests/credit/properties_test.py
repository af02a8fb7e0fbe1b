"""Derived properties (methods.md §1.7, §9) on groups drawn by hypothesis.

Drawn groups are small and odd (missing states, loops, repeated actions, lone
rollouts); `closure_test` and `estimators_test` hold the same properties on
hundreds of larger random groups.
"""

import math

import hypothesis
import numpy as np
from hypothesis import strategies as st

from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib
from tests import oracle

BETA = 0.98
DEPTHS = (0, 1, 3, math.inf)

drawn = hypothesis.given(groups_lib.small_groups())
few = hypothesis.settings(max_examples=60)


def credit(name, group, **options):
  batch = make_batch(groups_lib.table_of([group]), groups_lib.SMALL_SHAPE)
  return groups_lib.credit(name, batch, **options)


def levels(group):
  table = groups_lib.table_of([group])
  batch = make_batch(table, groups_lib.SMALL_SHAPE)
  return groups_lib.credit_at_depths(
    batch, len(table), depths=DEPTHS, beta=BETA
  )


def anchors(group):
  return [
    oracle.anchor(group, i, t)
    for i, rollout in enumerate(group)
    for t in range(len(rollout.steps))
  ]


def actions(group):
  return [step.action for step in groups_lib.steps(group)]


def renamed(group, **changes):
  """The group with every step replaced by `step._replace(**f(i, t))`."""
  return [
    rollout._replace(
      steps=tuple(
        step._replace(**{k: f(i, t, step) for k, f in changes.items()})
        for t, step in enumerate(rollout.steps)
      )
    )
    for i, rollout in enumerate(group)
  ]


@few
@drawn
def test_centred_at_every_anchor_and_depth(group):
  place = anchors(group)
  for got in levels(group):
    gap = got["q"] - got["v"]
    for anchor in set(place):
      rows = [i for i, a in enumerate(place) if a == anchor]
      assert abs(gap[rows].mean()) <= 1e-6


@few
@drawn
def test_values_lie_between_zero_and_beta(group):
  for got in levels(group):
    assert (got["v"] >= -1e-6).all() and (got["v"] <= BETA + 1e-6).all()
    assert (got["q"] >= -1e-6).all() and (got["q"] <= BETA + 1e-6).all()


@few
@drawn
def test_step_credit_is_bounded_by_rarity(group):
  pairs = list(zip(anchors(group), actions(group), strict=True))
  place = anchors(group)
  share = np.array(
    [pairs.count(p) / place.count(a) for p, a in zip(pairs, place, strict=True)]
  )
  for got in levels(group):
    assert (np.abs(got["step"]) <= np.sqrt((1 - share) / share) + 1e-4).all()


@few
@drawn
def test_values_do_not_depend_on_action_labels(group):
  relabelled = renamed(group, action=lambda i, t, step: (i, t))
  for got, other in zip(levels(group), levels(relabelled), strict=True):
    np.testing.assert_allclose(got["v"], other["v"], atol=1e-6)


@few
@drawn
def test_without_merging_every_depth_is_the_same(group):
  alone = renamed(group, state=lambda i, t, step: (i, t))
  first, *deeper = levels(alone)
  assert not first["live"].any()
  for got in deeper:
    np.testing.assert_allclose(got["q"], first["q"], atol=1e-6)


@few
@drawn
def test_failures_alone_get_exactly_nothing(group):
  failed = [rollout._replace(end="failure") for rollout in group]
  for got in levels(failed):
    for name in ("v", "q", "step", "advantage"):
      assert not got[name].any(), name


@few
@drawn
def test_successes_alone_have_no_trajectory_term(group):
  for got in levels([rollout._replace(end="success") for rollout in group]):
    assert not got["trajectory"].any()
    assert (got["v"] > 0).all()


@few
@hypothesis.given(groups_lib.small_groups(), st.randoms(use_true_random=False))
def test_order_and_copies_of_rollouts_do_not_matter(group, random):
  order = list(range(len(group)))
  random.shuffle(order)
  starts = np.cumsum([0] + [len(r.steps) for r in group])
  rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])
  got = credit("crbc", group)
  shuffled = credit("crbc", [group[i] for i in order])
  for name in ("step", "trajectory", "q", "v"):
    np.testing.assert_allclose(shuffled[name], got[name][rows], atol=2e-5)


@few
@drawn
def test_no_step_weight_is_grpo_bit_for_bit(group):
  got = credit("crbc", group, w_step=0.0)["advantage"]
  want = credit("grpo", group)["advantage"]
  np.testing.assert_array_equal(groups_lib.bits(got), groups_lib.bits(want))


@few
@drawn
def test_visit_averaging_is_every_visit_rtmc_without_prior(group):
  raw = credit("crbc", group, depth=0, beta=BETA)
  rtmc = credit("rtmc", group, gamma=BETA, n_prior=0.0, visits="every")
  gap = raw["q"] - raw["v"]
  np.testing.assert_allclose(gap, BETA * rtmc["step"], atol=1e-6)


@few
@drawn
def test_value_is_at_most_that_of_the_shortest_path(group):
  distance = oracle.graph_distances(group)
  value = levels(group)[-1]["v"]
  for v, anchor in zip(value, anchors(group), strict=True):
    reachable = v > 1e-7  # else the distance stands for "unreachable"
    if reachable:
      assert v <= BETA ** distance[anchor] + 1e-6
