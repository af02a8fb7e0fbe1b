"""The rollout that is played again is the one that was collected."""

import jax
import numpy as np
import pytest

from crbc_jax.learner import task, text_collect
from tests import tiny_runs
from tests.learner.text_games_test import config_of

# A wheel installed elsewhere comes without the experiments.
cost = pytest.importorskip("experiments.cost")
cost_parts = pytest.importorskip("experiments.cost_parts")
timing = pytest.importorskip("experiments.bench_timing")


def collected(config, number=0):
  current = task.make_task(config)
  drawn = cost.drawn_at(config, current, number)
  found = current.collect_fn(config)(current.params, drawn, jax.random.key(1))
  return current, drawn, *found


@pytest.fixture(scope="module")
def houses():
  config = config_of("alfworld", **{"text.demonstrations": 0})
  return config, *collected(config)


def test_sokoban_is_played_again(tmp_path):
  config = tiny_runs.make_config(tmp_path)
  current, drawn, levels, rollouts = collected(config)
  keys, rewards, boundaries = jax.tree.map(
    lambda x: np.moveaxis(np.asarray(x), 0, 2),
    cost_parts.make_replay_fn(current.env)(levels, rollouts.action),
  )
  mask = np.asarray(rollouts.mask)
  assert mask.any() and not mask.all()
  for again, before in (
    (keys, rollouts.key),
    (rewards, rollouts.reward),
    (boundaries, rollouts.boundary),
  ):
    np.testing.assert_array_equal(again[mask], np.asarray(before)[mask])
  found = cost_parts.rollout_parts(config, current, drawn, rounds=2)
  assert list(found) == ["environment", "policy", "whole"]
  assert all(len(x) == 2 and (x >= 0).all() for x in found.values())


def test_policy_sees_again_what_it_saw(houses):
  config, current, _, _, _ = houses
  act = text_collect.make_act_fn(current.logits_fn, greedy=True)
  greedy = current._collect(config, group_size=2, greedy=True)
  goals, rollouts = greedy(
    current.params, current.train.make[:2], jax.random.key(0)
  )
  lengths = rollouts.mask.sum(axis=2).reshape(-1)
  batches = cost_parts.policy_batches(goals, rollouts)
  assert len(batches) == lengths.max()
  for t, (goal, states) in enumerate(batches):
    alive = np.flatnonzero(lengths > t)
    assert len(goal) == 4 and states.mask.shape[0] == 4
    choice, log_prob = act(current.params, goal, states, jax.random.key(0))
    for row, i in enumerate(alive):
      at = (i // 2, i % 2, t)
      assert choice[row] == rollouts.action[at]
      assert log_prob[row] == pytest.approx(rollouts.log_prob[at], abs=1e-5)


def test_episodes_are_played_to_their_end(houses):
  config, current, drawn, _, rollouts = houses
  games = current.train.take(drawn).make
  assert cost_parts.play_again(games, rollouts, "state") > 0
  won = np.where(rollouts.boundary > 0, 1, 0)  # as if each had succeeded
  with pytest.raises(AssertionError, match="another episode"):
    cost_parts.play_again(games, rollouts.replace(boundary=won), "state")
  found = cost_parts.rollout_parts(config, current, drawn, rounds=1)
  assert list(found) == [*cost_parts.PARTS, "whole"]
  total = sum(found[part][0] for part in cost_parts.PARTS)
  assert total >= found["whole"][0] - 1e-9


def test_rows_are_medians_and_shares():
  metrics = [
    {"steps": n, "seconds_rollout": r, "seconds_credit": 1, "seconds_update": 2}
    for n, r in ((10, 1), (20, 5), (30, 7))
  ]
  row = cost._row("sokoban", "ours", metrics, 2)
  assert (row["rows"], row["updates"], row["compiled"]) == (20, 3, 2)
  assert row["seconds"]["rollout"].median == 5
  credit = row["shares"]["credit"]
  assert (credit.low, credit.median, credit.high) == (0.1, 0.125, 0.25)
  assert cost.ranged(credit, 0.01) == "12.5 [10, 25]"
  assert cost.ranged(None) == "–"
  assert cost.ranged(timing.Spread.of([0.002])) == "2"


def test_workload_and_tables():
  labels = ("GiGPO", "GRPO")
  found = cost.time_workload(labels, rounds=1, seconds=0.1, groups=2)
  assert found["rows"] == 2 * 8 * 50
  kinds = {x["label"]: set(x) - {"label"} for x in found["lines"]}
  assert list(kinds) == list(labels)
  assert kinds["GRPO"] == {"ids", "strings"}
  assert kinds["GiGPO"] == {"ids", "strings", "python"}
  result = {
    "command": "x",
    "version": "1",
    "updates": 1,
    "data": {"alfworld": "generated", "webshop": "/a/b.json"},
    "training": [],
    "rollout": [],
    "workload": found,
    "published": [
      dict(zip(("what", "seconds", "share", "source"), row, strict=True))
      for row in cost.PUBLISHED
    ],
    "seconds": 1.0,
    **timing.machine(),
  }
  text = cost.markdown(result)
  assert "| CRBC, the whole block | 330 | 0.18% |" in text
  assert "b.json" in text and "/a/" not in text
