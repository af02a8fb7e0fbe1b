"""A tiny benchmark: it runs, its contestants agree, its judging is right."""

import json
import math

import numpy as np
import pytest

from crbc_jax import Boundary, make_batch, make_credit_fn

# A wheel installed elsewhere comes without the experiments.
bench_credit = pytest.importorskip("experiments.bench_credit")
race = pytest.importorskip("experiments.bench_race")
rivals = pytest.importorskip("experiments.bench_competitors")
python = pytest.importorskip("experiments.bench_python")
timing = pytest.importorskip("experiments.bench_timing")
workloads = pytest.importorskip("experiments.workloads")


@pytest.fixture(scope="module")
def setting():
  table = workloads.make_table("alfworld", 4)
  batch = make_batch(table)
  credit = make_credit_fn("crbc", beta=rivals.BETA)(batch.arrays)
  return table, batch, rivals.make_problem(batch.arrays), credit


def test_array_competitors_agree_with_ours(setting):
  _, batch, problem, credit = setting
  mask = batch.arrays.mask
  for arrays in (problem.arrays, problem.tight):
    dense = np.asarray(rivals.make_dense_fn()(arrays))
    np.testing.assert_allclose(
      dense[np.asarray(arrays.mask)],
      np.asarray(credit.advantage)[mask],
      atol=1e-4,
    )
  truth = rivals.scipy_credit(problem.whole)
  gap = np.asarray(credit.q - credit.v)[mask]
  np.testing.assert_allclose(gap, truth.gap, atol=1e-6)
  each = rivals.scipy_per_group(problem.groups)
  np.testing.assert_allclose(
    np.concatenate([x.gap for x in each]), truth.gap, atol=1e-13
  )
  full = rivals.numpy_dense(problem.whole, problem.groups)
  np.testing.assert_allclose(full.gap, truth.gap, atol=1e-13)
  np.testing.assert_allclose(full.v, truth.v, atol=1e-13)


def test_tight_arrays_have_no_room_left(setting):
  _, _, problem, _ = setting
  tight = problem.tight
  for mask in (tight.mask, tight.state_mask, tight.pair_mask):
    assert np.asarray(mask)[:, -1].any()
  assert tight.mask.sum() == problem.arrays.mask.sum()
  assert tight.state_mask.shape[1] < problem.arrays.state_mask.shape[1]


def test_python_competitors_agree_with_the_estimators(setting):
  table, batch, _, credit = setting
  columns = workloads.with_text(table, 40)
  found = np.array(python.python_closure(columns))
  ours = batch.to_rows(credit.advantage, len(table))
  np.testing.assert_allclose(found, ours, atol=2e-3)
  credit_fn = make_credit_fn(
    "gigpo", statistics="trajectory", success_reward=1.0
  )
  ours = batch.to_rows(credit_fn(batch.arrays).advantage, len(table))
  found = np.array(python.python_gigpo(columns))
  np.testing.assert_allclose(found, ours, atol=2e-3)


def test_the_sparse_closure_is_the_python_closure(setting):
  columns = workloads.with_text(setting[0], 40)
  np.testing.assert_allclose(
    python.scipy_closure(columns), python.python_closure(columns), atol=2e-4
  )


def test_the_shortest_path_loop_by_hand():
  """Two rollouts from one state; one reaches the goal in two steps."""
  found = python.python_shortest_path(
    {
      "group_id": ["g"] * 4,
      "traj_id": ["a", "a", "b", "b"],
      "state_key": ["s", "near", "s", "pit"],
      "boundary": [
        Boundary.NONE,
        Boundary.SUCCESS,
        Boundary.NONE,
        Boundary.FAILURE,
      ],
    }
  )
  # GRPO gives +-1/sqrt(2); at the shared state .95 against 0 gives as much.
  half = 2**-0.5
  np.testing.assert_allclose(found, [2 * half, half, -2 * half, -half], 1e-4)


def test_one_section_writes_its_results(tmp_path):
  only = ["--quick", "--only", "batches", "--out", str(tmp_path)]
  bench_credit.main(only)
  found = json.loads((tmp_path / "bench_credit.json").read_text())
  names = {x["name"] for x in found["lines"] if x["seconds"]}
  assert {"ours", "dense LU", "spsolve per group", "NumPy dense"} <= names
  text = (tmp_path / "bench_credit.md").read_text()
  assert found["command"] in text


@pytest.mark.slow
def test_quick_benchmark_writes_its_results(tmp_path):
  bench_credit.main(["--quick", "--out", str(tmp_path)])
  found = json.loads((tmp_path / "bench_credit.json").read_text())
  assert {g["passed"] for g in found["goals"]} == {None}
  assert len(found["goals"]) == 15
  names = {x["name"] for x in found["lines"] if x["seconds"]}
  assert {"ours", "dense LU", "spsolve per group", "bincount pass"} <= names
  assert {"Python GiGPO", "Python closure", "NumPy dense"} <= names
  for line in found["lines"]:
    if line["seconds"]:
      spread = line["seconds"]
      assert 0 < spread["low"] <= spread["q1"] <= spread["median"]
      assert spread["median"] <= spread["q3"] <= spread["high"]
  facts = found["facts"]
  assert facts["compiles"]["compilations"] >= 1
  assert facts["sharding"]["devices"] == facts["sharding"]["shards"] == 4
  assert all(x["peak_bytes"] > 0 for x in facts["memory"]["sizes"])
  text = (tmp_path / "bench_credit.md").read_text()
  assert found["command"] in text and "from_columns" in text


def test_rounds_are_interleaved_and_the_first_is_thrown_away():
  calls = []
  cases = {
    name: timing.Case(calls.append, lambda name=name: name) for name in "ab"
  }
  times = timing.measure(cases, rounds=3, seconds=60)
  assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
  assert {len(x) for x in times.values()} == {3}


def test_rounds_stop_when_time_is_up():
  times = timing.measure({"a": timing.Case(id)}, rounds=10**9, seconds=0.05)
  assert 3 <= len(times["a"]) < 10**7


def line(name, workload, *, ours=1.0, steps=20_000):
  spread = timing.Spread.of([ours])
  return timing.Line("s", workload, steps, name, spread, spread)


def test_the_worst_workload_decides():
  lines = [line("x", "one", ours=9.0), line("x", "two", ours=4.0)]
  assert not race.at_least("g", 5, race.ratios(lines, "x")).passed
  goal = race.at_least("g", 3, race.ratios(lines, "x"))
  assert goal.passed and goal.found == "4 (two)"
  assert race.at_least("g", 3, race.ratios(lines, "other")).passed is None
  missed = race.at_least("g", 3, race.ratios(lines, "x"), failed="needs 9 GB")
  assert missed.passed is False and missed.found == "needs 9 GB"


def test_flat_is_judged_by_time_per_step():
  lines = [
    line("ours", "small", ours=1.0, steps=1_000),
    line("ours", "large", ours=14.0, steps=10_000),
  ]
  assert race.flat(lines, "s", "w").passed
  lines[1] = line("ours", "large", ours=16.0, steps=10_000)
  assert not race.flat(lines, "s", "w").passed
  lines[1] = timing.Line("s", "large", 10_000, "ours", note="not run")
  assert race.flat(lines, "s", "w").passed is False


def test_what_is_too_large_is_said():
  assert timing.too_large(3 << 30) == ""
  assert "5.0 GB" in timing.too_large(5 << 30)
  assert timing.too_large(0, 1e13)


def test_spread():
  found = timing.Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
  assert (found.low, found.q1, found.median, found.q3) == (1, 2, 3, 4)
  assert found.text() == "3 [2, 4]"
  assert timing.digits(1234.5) == "1,234" and timing.digits(math.inf) == "inf"
