"""Every built-in does on degenerate groups what the catalogue says."""

import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.credit.catalogue import BUILT_IN
from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib
from tests.groups import rollout

SHAPE = BatchShape(32, 64, 32, 32, 8, 64, 32)
KINDS = ("singleton", "all_fail", "all_success")
SPEED = [rollout("s fast", "success"), rollout("s slow m on k go", "success")]


def degenerate(kind):
  """Groups of one kind: outcome rewards, valid actions, no missing states."""
  ends = {"all_fail": ("failure", "truncated"), "all_success": ("success",)}
  if kind == "singleton":
    return [
      [rollout("s a", end)] for end in ("success", "failure", "truncated")
    ] + [[rollout("s a m b k a", end)] for end in ("success", "failure")]
  drawn = groups_lib.random_groups(20, 61, max_rollouts=6, max_steps=6)
  groups = [
    [
      r._replace(
        end=ends[kind][i % len(ends[kind])],
        steps=tuple(s._replace(valid=True) for s in r.steps),
      )
      for i, r in enumerate(g)
    ]
    for g in drawn
  ]
  return groups + ([SPEED] if kind == "all_success" else [])


def outcome_rewards(groups):
  return [
    float(t + 1 == len(r.steps) and r.end == "success")
    for g in groups
    for r in g
    for t in range(len(r.steps))
  ]


def by_group(name, groups, **columns):
  """Advantages [rollout][step] of each group, all in one batch."""
  columns = {"reward": outcome_rewards(groups)} | columns
  table = groups_lib.table_of(groups, **columns)
  batch = make_batch(table, SHAPE)
  assert batch.shape == SHAPE
  result = groups_lib.credit_fn(name)(batch.arrays)
  rows = batch.to_rows(result.advantage, len(table))
  found, start = [], 0
  for group in groups:
    found.append([])
    for r in group:
      found[-1].append(rows[start : start + len(r.steps)])
      start += len(r.steps)
  return found


def largest(of_groups):
  return max(np.abs(rows).max() for group in of_groups for rows in group)


def says_zero(name, kind):
  assert largest(by_group(name, degenerate(kind))) == 0


def says_speed(name, kind):
  *_, ((fast,), (slow, *_)) = by_group(name, degenerate(kind))
  assert fast > slow + 1e-3


def says_raw(name, kind):
  assert kind == "singleton"
  won, lost, cut, *longer = by_group(name, degenerate(kind))
  np.testing.assert_allclose(won, [[success_score(name)]])
  assert largest([lost, cut]) == largest(longer) == 0


def says_edges(name, kind):
  assert kind == "singleton"
  won, lost, cut, ((first, second, third),), failed = by_group(
    name, degenerate(kind)
  )
  np.testing.assert_allclose(won, [[success_score(name)]])
  assert largest([lost, cut, failed]) == 0
  assert first < second < third


def success_score(name):
  return registry.estimator_options(name)["success_reward"]


def says_prior(name, kind):
  """A push down: nowhere up in a group alone, down in the mean of any."""
  for group in by_group(name, degenerate(kind)):
    rows = np.concatenate(group)
    assert rows.mean() <= 0
    if kind == "singleton":
      assert (rows <= 0).all()
      assert (rows[:-1] < 0).all() or not rows.any()  # a failure has prior 0
    elif len(rows) > len(group):  # somebody took a second step
      assert rows.mean() < 0
  *_, won, lost = by_group(name, degenerate("singleton"))
  assert largest([won]) > 0.001 and largest([lost]) == 0


def says_rewards(name, kind):
  groups = degenerate(kind)
  steps = len(outcome_rewards(groups))
  assert largest(by_group(name, groups, reward=np.zeros(steps))) == 0
  paid = np.arange(steps) % 7 / 4
  for group in by_group(name, groups, reward=paid):
    rows = np.concatenate(group)
    assert rows.any() == (len(rows) > 1)


def says_critic(name, kind):
  groups = degenerate(kind)
  gamma = registry.estimator_options(name)["gamma"]
  right = [
    gamma ** (len(r.steps) - 1 - t) * (r.end == "success")
    for g in groups
    for r in g
    for t in range(len(r.steps))
  ]
  assert largest(by_group(name, groups, value=right)) < 1e-6
  wrong = by_group(name, groups, value=np.add(right, 0.5))
  assert all(np.concatenate(group).any() for group in wrong)


def says_batch(name, kind):
  """Other companions, other advantages; without any, none."""
  group = degenerate(kind)[-1]
  assert largest(by_group(name, [group])) == 0
  beside = [
    by_group(name, [group, [rollout("s a m b k c", far), rollout("s b", near)]])
    for far, near in (("success", "failure"), ("failure", "success"))
  ]
  first, second = (np.concatenate(groups[0]) for groups in beside)
  assert first.all() and second.all()
  assert np.abs(first - second).max() > 0.1


WORDS = {
  "zero": says_zero,
  "speed": says_speed,
  "raw": says_raw,
  "edges": says_edges,
  "prior": says_prior,
  "rewards": says_rewards,
  "critic": says_critic,
  "batch": says_batch,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_degenerate_groups_get_what_the_catalogue_says(name, kind):
  WORDS[getattr(BUILT_IN[name], kind)](name, kind)


@pytest.mark.parametrize("name", BUILT_IN)
def test_only_a_critic_needs_values(name):
  """`needs_critic` is what changes with the column `value`, and all of it."""
  groups = groups_lib.random_groups(10, 62, max_rollouts=6, max_steps=6)
  steps = len(outcome_rewards(groups))
  got, other = (
    by_group(name, groups, value=np.full(steps, v)) for v in (0.25, 0.75)
  )
  same = all(
    np.array_equal(x, y)
    for one, two in zip(got, other, strict=True)
    for x, y in zip(one, two, strict=True)
  )
  assert same != BUILT_IN[name].needs_critic
