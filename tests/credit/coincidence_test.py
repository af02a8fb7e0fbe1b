"""Where estimators coincide on paper they coincide here (methods.md §9)."""

import functools

import numpy as np
import pytest

from crbc_jax.credit import registry
from tests import groups as groups_lib
from tests import oracle
from tests.groups import rollout

STEP_TERMS = sorted(
  name for name, entry in registry.ESTIMATORS.items() if "states" in entry.needs
)


@functools.cache
def crowd():
  """Groups with every action valid: penalties would hide the coincidences."""
  groups = groups_lib.random_groups(60, 21, missing=(0, 0.2))
  return [
    [
      r._replace(steps=tuple(s._replace(valid=True) for s in r.steps))
      for r in g
    ]
    for g in groups
  ]


def credit(name, **options):
  return groups_lib.credit(name, crowd(), **options)


def pair_means(values):
  """Mean of `values` over the occurrences of each row's (state, action)."""
  keys = [
    (g, oracle.anchor(group, i, t), s.action)
    for g, group in enumerate(crowd())
    for i, r in enumerate(group)
    for t, s in enumerate(r.steps)
  ]
  code = {k: n for n, k in enumerate(dict.fromkeys(keys))}
  pair = np.array([code[k] for k in keys])
  return (np.bincount(pair, weights=values) / np.bincount(pair))[pair]


def test_graft_averaged_over_an_action_is_crbc():
  graft = credit("graft", beta=0.9)
  crbc = credit("crbc", beta=0.9)
  np.testing.assert_allclose(
    pair_means(graft["q"] - graft["v"]), crbc["q"] - crbc["v"], atol=2e-6
  )


def test_the_read_out_by_state_averaged_over_an_action_is_crbc():
  by_state = credit("crbc", beta=0.9, readout="state")
  crbc = credit("crbc", beta=0.9)
  raw = by_state["q"] - by_state["v"]
  np.testing.assert_allclose(pair_means(raw), crbc["q"] - crbc["v"], atol=2e-6)
  assert np.abs(raw - (crbc["q"] - crbc["v"])).max() > 0.1


def test_gagpo_without_lambda_averaged_is_one_backup_of_visit_values():
  """delta averaged = B V0 - V0 up to 1/beta, where V0 pays beta at the end."""
  gagpo = credit("gagpo", gamma=0.9, lam=0.0)
  delta = gagpo["q"] - gagpo["v"]
  visit, deeper = (credit("crbc", beta=0.9, depth=k) for k in (0, 1))
  np.testing.assert_allclose(
    pair_means(delta), (deeper["q"] - visit["v"]) / 0.9, atol=2e-6
  )


@pytest.mark.parametrize("gamma", [0.9, 0.5])
def test_shortest_paths_are_one_number_by_three_names(gamma):
  """RewardFlow's V = GraphHCA's at exponent infinity = gamma^distance."""
  flow = credit("rewardflow", gamma=gamma)["v"]
  hindsight = credit("graphhca", beta=gamma, power=float("inf"))["v"]
  np.testing.assert_allclose(flow, hindsight, atol=1e-6)
  # A failed rollout's last successor is an edge for GraphGPO alone: leave
  # those groups out by looking where they agree on what can be reached.
  closure = credit("crbc", beta=gamma)["v"]
  assert (closure <= flow + 1e-6).all()
  assert (np.abs(closure - flow) < 1e-6).any()


def test_hgpo_of_one_level_is_the_step_term_of_gigpo():
  plain = {"gamma": 0.9, "norm": "mean", "invalid_penalty": 0.0}
  hgpo = credit("hgpo", history=0, **plain)
  gigpo = credit("gigpo", **plain)
  np.testing.assert_allclose(hgpo["step"], gigpo["step"], atol=1e-5)


def test_anchored_and_lambda_end_in_the_closure_and_in_visit_averages():
  for shallow, options in (
    (True, {"anchor_weight": 1.0}),
    (False, {"anchor_weight": 0.0}),
  ):
    want = credit("crbc", depth=0) if shallow else credit("crbc")
    anchored = credit("crbc_anchored", **options)
    traced = credit("crbc_lambda", lam=options["anchor_weight"])
    for got in (anchored, traced):
      for field in ("v", "q", "step"):
        np.testing.assert_allclose(got[field], want[field], atol=2e-5)


@pytest.mark.parametrize("name", STEP_TERMS)
def test_step_terms_of_all_fail_groups_are_exactly_zero(name):
  group = [
    rollout("s a t b s a u c", "failure"),
    rollout("s b u c t b", "truncated", "s"),
    rollout("s a", "failure"),
  ]
  got = groups_lib.credit(name, [group])
  assert not got["step"].any() and not got["advantage"].any()
