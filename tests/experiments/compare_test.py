"""The comparison on curves made by hand, and the pool that trains runs."""

import json

import numpy as np
import pytest

compare = pytest.importorskip("experiments.compare")
pool = pytest.importorskip("experiments.pool")
statistics = pytest.importorskip("experiments.statistics")


def line(height):
  return statistics.Curve(np.array([0, 100]), np.array([height, height]))


def test_summary_is_paired_and_sorted():
  curves = {
    "GRPO": [line(0.2), line(0.5)],
    compare.OURS: [line(0.4), line(0.7)],
    "GiGPO": [line(0.5), line(0.7)],
  }
  rows = compare._summary(curves, 100)["rows"]
  assert [r["label"] for r in rows] == ["GiGPO", compare.OURS, "GRPO"]
  gigpo, ours, grpo = rows
  # Seeds differ by .3, pairs do not: the interval of the lead is a point.
  assert grpo["lead"] == pytest.approx((0.2, 0.2, 0.2))
  assert (grpo["seeds_ahead"], grpo["seeds"]) == (2, 2)
  assert gigpo["lead"].mean == pytest.approx(-0.05)
  assert gigpo["seeds_ahead"] == 0
  assert ours["reached"] == 1 and ours["median_steps"] is None
  assert gigpo["at"][0].mean == pytest.approx(0.6)
  json.dumps(rows)


def test_markdown_has_a_row_for_each_estimator():
  curves = {compare.OURS: [line(0.4)], "GRPO": [line(0.2)]}
  text = compare._markdown({"6x6": compare._summary(curves, 100)}, [0], {})
  assert f"| {compare.OURS} |" in text and "| GRPO |" in text
  widths = {r.count("|") for r in text.splitlines() if r.startswith("|")}
  assert len(widths) == 1


def test_aggregate_is_over_settings_that_all_ran():
  pytest.importorskip("rliable")

  def curves(*heights):
    return [{"env_steps": [0, 100], "success": [h, h]} for h in heights]

  def setting(**labels):
    return {"budget": 100, "curves": labels}

  ours = {compare.OURS: curves(0.4, 0.6)}
  results = {
    "6x6": setting(GRPO=curves(0.2, 0.4), SALT=curves(0.9, 0.9), **ours),
    "7x7": setting(GRPO=curves(0.5, 0.7), **ours),
    "6x6 aliased keys": setting(GRPO=curves(0.9, 0.9), **ours),
  }
  found = compare.aggregate(results)
  assert list(found) == [compare.OURS, "GRPO"]
  assert found["GRPO"]["settings"] == ["6x6", "7x7"]
  assert found["GRPO"]["iqm"].mean == pytest.approx(0.45)  # of .2 .4 .5 .7
  # Ahead of three and a half of four pairs on 6x6, of one on 7x7.
  assert found["GRPO"]["ahead"].mean == pytest.approx((3.5 + 1) / 8)
  text = compare._markdown({}, [0, 1], found)
  assert "6x6, 7x7 together" in text


def test_missing_sweep_is_named(tmp_path, capsys):
  with pytest.raises(SystemExit):
    compare.main(["--tuned", str(tmp_path / "none.json"), "--report"])
  assert "experiments.sweep" in capsys.readouterr().err


def job(folder, **changes):
  small = {
    "generator.folder": str(folder / "levels"),
    "generator.layouts": 4,
    "generator.held_out_layouts": 2,
    "generator.starts_per_layout": 2,
    "rollout.levels": 4,
    "rollout.group_size": 2,
    "policy.hidden": (8,),
    "env_steps": 300,
    "tensorboard": False,
  }
  return pool.Job(folder / "run", small | changes)


@pytest.mark.training
def test_pool_trains_once_and_refuses_another_config(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # its compilation cache goes here
  one = job(tmp_path)
  pool.run_all([one], workers=1)
  result = one.run_dir / "result.json"
  first = result.stat().st_mtime_ns
  pool.run_all([one], workers=1)
  assert result.stat().st_mtime_ns == first
  with pytest.raises(pool.JobError, match="another config"):
    pool.run_all([job(tmp_path, seed=1)], workers=1)


@pytest.mark.training
def test_pool_shows_the_log_of_a_failed_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  bad = job(tmp_path, levels=str(tmp_path / "none.txt"))
  with pytest.raises(pool.JobError, match="no such file or folder"):
    pool.run_all([bad], workers=1)
