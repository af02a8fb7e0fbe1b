"""Game of 24 on a log of our own making."""

import json
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from crbc_jax.types import Boundary

# A wheel installed elsewhere comes without the experiments.
game24_credit = pytest.importorskip("experiments.game24_credit")
rollouts_lib = pytest.importorskip("experiments.game24_rollouts")
ranking = pytest.importorskip("experiments.ranking")

PUZZLES = ("1 2 3 4", "2 3 4 6", "3 3 8 8", "1 1 4 6", "1 1 1 1", "4 6 8 8")


def numbers(*values):
  return tuple(sorted(map(Fraction, values)))


def moves(left):
  """(text of the operation, what it leaves) of every integer operation."""
  for i, a in enumerate(left):
    for j, b in enumerate(left):
      if i == j:
        continue
      rest = [x for k, x in enumerate(left) if k not in (i, j)]
      for sign, value in (("+", a + b), ("-", a - b), ("*", a * b)):
        if value >= 0:
          yield f"{a} {sign} {b} = {value}", numbers(*rest, value)


def attempt(start, rng, skill):
  """A rollout that looks ahead at each step with probability `skill`."""
  left, lines = start, ["Steps:"]
  while len(left) > 1:
    options = list(moves(left))
    good = [o for o in options if rollouts_lib.is_solvable(o[1])]
    if good and rng.random() < skill:
      options = good
    text, left = options[rng.integers(len(options))]
    lines.append(f"{text} (left: {' '.join(map(str, left))})")
  return "\n".join([*lines, "Answer: see above"]), left == (24,)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
  """A log of 6 puzzles with 40 clean rollouts each, and one unclean."""
  path = tmp_path_factory.mktemp("game24") / "log.json"
  rng = np.random.default_rng(0)
  records = []
  for number, puzzle in enumerate(PUZZLES):
    start = numbers(*puzzle.split())
    played = [attempt(start, rng, 0.8) for _ in range(40)]
    texts, won = zip(*played, ("I give up", False), strict=True)
    records.append(
      {
        "idx": number,
        "ys": list(texts),
        "infos": [{"r": int(r)} for r in won],
      }
    )
  path.write_text(json.dumps(records))
  return path


@pytest.fixture(scope="module")
def rollouts(log):
  return rollouts_lib.read_rollouts(log)[0]


# -- the log -----------------------------------------------------------------


def test_every_rollout_is_read_or_counted(log, rollouts):
  assert rollouts_lib.read_rollouts(log)[1] == 6
  assert len(rollouts) == 240


def test_rollouts_are_what_was_played(rollouts):
  for rollout in rollouts:
    assert rollout.states[0] == numbers(*PUZZLES[rollout.puzzle].split())
    assert rollout.won == (rollout.states[-1] == (24,))
    for step, operation in enumerate(rollout.operations):
      before, after = rollout.states[step : step + 2]
      texts = {
        text.split(" = ")[0] for text, left in moves(before) if left == after
      }
      assert operation in texts


@pytest.mark.parametrize(
  ("left", "solvable"),
  [
    ((3, 3, 8, 8), True),  # 8 / (3 - 8 / 3): needs fractions
    ((1, 1, 4, 6), True),
    ((1, 1, 1, 1), False),
    ((4, 6), True),
    ((0, 24), True),
    ((0, 12), False),
    ((24,), True),
    ((23,), False),
  ],
)
def test_solvable(left, solvable):
  assert rollouts_lib.is_solvable(numbers(*left)) is solvable


# -- groups ------------------------------------------------------------------


def test_groups_are_mixed_and_hold_each_rollout_once(rollouts):
  deal = rollouts_lib.regroup(rollouts, size=8, seed=0, action_key="result")
  table = deal.table
  for group in set(table.group_id):
    rows = table.group_id == group
    won = table.outcome[rows & (table.step_idx == 0)]
    assert len(won) == 8 and won.any() and not won.all()
  ends = table.boundary != Boundary.NONE
  assert (ends == (table.step_idx == 2)).all()
  # A rollout won if what it left is 24, and only then was its last step right.
  assert (deal.kept[ends] == table.outcome[ends]).all()
  assert not (deal.kept & ~deal.solvable).any()


def test_deals_differ_by_seed_and_not_by_action_key(rollouts):
  one, other, same = (
    rollouts_lib.regroup(rollouts, size=8, seed=seed, action_key=key)
    for seed, key in ((0, "result"), (1, "result"), (0, "operation"))
  )
  assert list(one.table.state_key) == list(same.table.state_key)
  assert list(one.table.action_key) != list(same.table.action_key)
  assert list(one.table.state_key) != list(other.table.state_key)


# -- areas -------------------------------------------------------------------


def random_scores(seed):
  rng = np.random.default_rng(seed)
  positive = rng.random(200) < 0.4
  score = rng.integers(6, size=200) + 2 * positive  # many ties
  return score, positive, rng.integers(5, size=200)


def rank_sum_area(score, positive):
  high, low = score[positive], score[~positive]
  return scipy.stats.mannwhitneyu(high, low).statistic / (len(high) * len(low))


def test_area_is_the_rank_sum_statistic():
  score, positive, cluster = random_scores(0)
  pairs = ranking.count_pairs(score, positive, cluster, 5)
  np.testing.assert_allclose(
    ranking.areas(pairs, np.ones(5)), rank_sum_area(score, positive)
  )


def test_weight_repeats_a_cluster():
  score, positive, cluster = random_scores(1)
  weight = np.array([2, 0, 1, 3, 1])
  rows = np.repeat(np.arange(200), weight[cluster])
  pairs = ranking.count_pairs(score, positive, cluster, 5)
  np.testing.assert_allclose(
    ranking.areas(pairs, weight), rank_sum_area(score[rows], positive[rows])
  )


def test_rounding_ties():
  positive = np.array([True, False])
  pairs = ranking.count_pairs([0.3 + 1e-8, 0.3], positive, np.zeros(2, int), 1)
  assert ranking.areas(pairs, np.ones(1)) == 0.5


def test_interval_holds_the_area_and_is_paired():
  one, other = (
    ranking.area_samples([ranking.count_pairs(*random_scores(seed), 5)])
    for seed in (0, 0)
  )
  found = ranking.summary(one)
  assert found.low < found.mean < found.high
  assert ranking.summary(one - other) == (0, 0, 0)


# -- the experiment ----------------------------------------------------------


def test_closure_knows_first_steps_better_than_the_outcome(rollouts):
  found = game24_credit.measure(
    rollouts, {"GRPO": "grpo", "CRBC exact": "crbc"}, size=8, seeds=(0, 1)
  )
  for key in game24_credit.ACTION_KEYS:
    assert found["lead"][key]["CRBC exact"]["first"].low > 0
    assert found["lead"][key]["GRPO"]["first"] == (0, 0, 0)


def test_main_writes_what_it_measured(log, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(
    game24_credit, "ESTIMATORS", {"GRPO": "grpo", "SALT": "salt"}
  )
  monkeypatch.setattr(game24_credit, "SEEDS", (0, 1))
  game24_credit.main(["--log", str(log), "--out", str(tmp_path)])
  found = json.loads((tmp_path / "game24_credit.json").read_text())
  mean = found["areas"]["result"]["SALT"]["all"][0]
  page = (tmp_path / "game24_credit.md").read_text()
  assert f"| SALT | {mean:.3f}".replace("0.", ".", 1) in page
  assert "240 clean of 246" in page
  assert found["seeds"] == [0, 1]
  for suffix in (".png", ".svg"):
    assert (tmp_path / f"game24_credit{suffix}").stat().st_size > 5_000
  assert "SALT" in capsys.readouterr().out
