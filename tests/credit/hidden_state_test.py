"""The test for hidden state: by hand, its level, its power, what it ignores."""

import json
import math

import numpy as np
import pytest

from crbc_jax.credit import hidden_state as lib
from crbc_jax.credit.hidden_state import Dependence, HiddenState, hidden_state
from crbc_jax.credit.table_credit import table_hidden_state
from crbc_jax.envs import problems
from crbc_jax.rollouts.batching import BatchShape, make_batch
from crbc_jax.rollouts.from_arrays import batch_arrays
from tests import groups
from tests.groups import rollout

# What follows (m, g) is settled by which of a and b was taken before.
HIDDEN = [
  rollout("s x a x m g", "success"),
  rollout("s x a x m g", "success"),
  rollout("s x b x m g", "failure"),
  rollout("s x b x m g", "failure"),
]


def found_in(source) -> HiddenState:
  return hidden_state(groups.make_batch(groups.table_of(source)).arrays)


def batch_of(name, *, seed, count):
  rng = np.random.default_rng(seed)
  problem = problems.PROBLEMS[name](rng)
  played = problems.sample(
    problem,
    problems.uniform_policy(problem),
    groups=count,
    group_size=8,
    rng=rng,
  )
  return batch_arrays(actions=problem.num_actions, **played.columns()).arrays


def test_by_hand():
  found = found_in([HIDDEN])
  # Sets {s, a} and {s, b}: likeness 1 within, (1 + 1) / (3 + 1) across. Each
  # of 4 agrees with 1 of 3: 1 (3 - 1) + 2 (1/2) (0 - 1) = 1.
  assert found.ending.total == 4.0
  # By permutation 1 in 3 ways to pair gives 4, the others -2.
  np.testing.assert_allclose(found.ending.variance, 8.0)
  np.testing.assert_allclose(found.ending.z, math.sqrt(2))
  assert found.ending.excess == 4.0 / (4 * 3 * 2.0)
  assert found.ending.parts == 1
  (place,) = found.ending.places
  batch = groups.make_batch(groups.table_of([HIDDEN]))
  assert place == (0, batch.arrays.state[0, 2], 4.0)  # m
  # Endings are successors here; at s and a nothing differs.
  assert found.successor.total == found.ending.total


def test_evidence_adds_up():
  many = found_in([HIDDEN] * 12)
  added = sum((found_in([HIDDEN]) for _ in range(12)), HiddenState())
  for name in ("z", "p_value"):
    np.testing.assert_allclose(getattr(added, name), getattr(many, name))
  np.testing.assert_allclose(many.z, math.sqrt(2 * 12))
  assert many.p_value < 1e-3
  assert HiddenState.from_json(json.loads(json.dumps(many.as_json()))) == many
  assert HiddenState.from_json(None) == HiddenState()


def test_a_finer_key_has_nothing_to_hide():
  fine = [
    rollout("s x a x ma g", "success"),
    rollout("s x a x ma g", "success"),
    rollout("s x b x mb g", "failure"),
    rollout("s x b x mb g", "failure"),
  ]
  assert found_in([fine] * 12) == HiddenState()


def test_the_tail_is_that_of_a_chi_square():
  scipy_stats = pytest.importorskip("scipy.stats")
  # Twenty equal parts: 80 degrees, (X - 80) / sqrt(160).
  for z in (-1.0, 0.0, 1.5, 3.0, 4.5):
    found = Dependence(
      total=z * math.sqrt(20.0), variance=20.0, third=20.0, parts=20
    )
    want = scipy_stats.chi2.sf(80 + z * math.sqrt(160), 80)
    np.testing.assert_allclose(found.p_value, want, rtol=0.05)
  assert Dependence().p_value == 1.0


@pytest.mark.parametrize("name", ["loops", "gridworld", "fetch"])
def test_level_without_hidden_state(name):
  found = [hidden_state(batch_of(name, seed=i, count=8)) for i in range(150)]
  z = np.array([[x.successor.z, x.ending.z] for x in found])
  assert abs(z.mean(axis=0)).max() < 0.35  # four standard errors
  assert 0.75 < z[:, 0].std() < 1.3
  p = np.array([x.p_value for x in found])
  assert (p < 0.05).mean() < 0.12 and (p < 0.001).mean() < 0.03


@pytest.mark.parametrize("name", problems.MISLEADING)
def test_hidden_state_is_found(name):
  found = sum(
    (hidden_state(batch_of(name, seed=i, count=64)) for i in range(3)),
    HiddenState(),
  )
  assert found.p_value < lib.POOLED_BELOW
  assert found.warning() and found.failed.excess > 0


def test_state_that_is_hidden_between_groups_is_none():
  found = hidden_state(batch_of("T-maze", seed=0, count=32))
  assert found == HiddenState() and found.warning() is None


def coin_groups(*, remembers: bool, count=40):
  """A coin decides success; the action before it may remember the way."""
  rng = np.random.default_rng(3)
  made = []
  for _ in range(count):
    group = []
    for _ in range(8):
      way, luck, free = rng.random(3) < 0.5
      action = "xy"[int(way if remembers else free)]
      end = "success" if luck else "failure"
      group.append(rollout(f"s g {'ab'[int(way)]} g m {action}", end))
    made.append(group)
  return made


def test_a_policy_that_remembers_fails_the_actions_alone():
  for remembers in (False, True):
    batch = groups.make_batch(groups.table_of(coin_groups(remembers=remembers)))
    p = lib.dependence(batch.arrays, of="action").p_value
    assert p < 1e-9 if remembers else p > 1e-3
    assert hidden_state(batch.arrays).p_value > 1e-3


def test_outcomes_see_what_shows_much_later():
  # The way decides what happens two anchors after m, where keys tell it again.
  group = [
    rollout(f"s g {w} g m g n{w} g o{w} g", end)
    for w, end in (("a", "success"), ("b", "failure"))
    for _ in range(4)
  ]
  batch = groups.make_batch(groups.table_of([group] * 20))
  assert lib.dependence(batch.arrays, of="outcome").p_value < 0.01
  # The same, unless success comes too late for the window.
  late = [r._replace(end="truncated") for r in group]
  batch = groups.make_batch(groups.table_of([late] * 20))
  assert lib.dependence(batch.arrays, of="outcome") == Dependence()


def test_steps_at_the_time_limit_are_left_out():
  # As HIDDEN, but all at a step at which a rollout was cut off.
  cut = [*HIDDEN, rollout("s x a x c x", "truncated")]
  assert found_in([cut] * 12).ending == Dependence()
  later = [*HIDDEN, rollout("s x a x c x c x", "truncated")]
  assert found_in([later] * 12).ending == found_in([HIDDEN] * 12).ending


@pytest.mark.parametrize("of", lib.RESPONSES)
def test_padding_and_order_do_not_matter(of):
  source = groups.random_groups(
    8, seed=2, missing=(0, 0.2), max_rollouts=8, max_steps=8
  )
  if of == "outcome":  # rollouts cut off at the first step leave no window
    source = [
      [r._replace(end=r.end.replace("truncated", "failure")) for r in group]
      for group in source
    ]
  table = groups.table_of(source)
  batch = make_batch(table)
  want = lib.dependence(batch.arrays, of=of)
  padded = make_batch(table, BatchShape(*(2 * n for n in batch.shape)))
  assert lib.dependence(padded.arrays, of=of) == want
  turned = make_batch(groups.table_of([g[::-1] for g in source[::-1]]))
  got = lib.dependence(turned.arrays, of=of)
  assert got.parts == want.parts > 0
  np.testing.assert_allclose(
    [got.total, got.variance, got.weight],
    [want.total, want.variance, want.weight],
    atol=1e-9,
  )


@pytest.mark.parametrize(
  "group",
  [
    [rollout("s a", "success")],
    [rollout("s a t b s a", "truncated")],
    [rollout("s a t b", "failure")] * 8,
    [rollout("s a t b", "success")] * 8,
    HIDDEN[:2],
  ],
)
def test_degenerate_groups_say_nothing(group):
  found = found_in([group, group])
  assert found == HiddenState()
  assert (found.p_value, found.z, found.warning()) == (1.0, 0.0, None)


def test_a_batch_of_padding_says_nothing():
  arrays = groups.make_batch(groups.table_of([HIDDEN])).arrays
  empty = arrays.replace(mask=np.zeros_like(arrays.mask))
  assert hidden_state(empty) == HiddenState()
  for of in lib.RESPONSES:
    assert lib.dependence(empty, of=of) == Dependence()


def test_sets_of_many_anchors():
  rng = np.random.default_rng(0)
  traj = np.repeat(np.arange(9), rng.integers(1, 40, 9))
  state = rng.integers(0, 150, len(traj))
  got = lib._passed(state, traj, anchors=150)
  for i in range(len(traj)):
    before = {int(s) for s in state[:i][traj[:i] == traj[i]]}
    bits = {
      64 * w + b
      for w, word in enumerate(got[:, i].tolist())
      for b in range(64)
      if word >> b & 1
    }
    assert bits == before


def test_the_warning_names_anchors_and_what_to_do():
  table = groups.table_of([HIDDEN] * 12)
  found = lib.hidden_state_of(make_batch(table), table)
  text = found.warning()
  assert "'m' of group 0" in text and "crbc_anchored" in text
  assert table_hidden_state(table).warning() == text
  assert "\n" not in text and text.count("of group") == 3
  assert found.warning(below=found.p_value) is None


def test_an_unknown_response_is_refused():
  arrays = groups.make_batch(groups.table_of([HIDDEN])).arrays
  with pytest.raises(ValueError, match="succesor"):
    lib.dependence(arrays, of="succesor")
