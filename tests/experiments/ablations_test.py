"""The paper's ablations: which runs they are, and what a table says."""

import pytest

from crbc_jax.credit import registry

ablations = pytest.importorskip("experiments.ablations")


def test_settings_are_valid_and_directions_name_them():
  for factor in ablations.FACTORS.values():
    names = [setting.name for setting in factor.settings]
    assert len(set(names)) == len(names)
    for setting in factor.settings:
      name, options = registry.parse_estimator(setting.estimator)
      registry.make_estimator(name, **options)
    for better, worse, _ in factor.directions:
      assert {better, worse} <= set(names)


def test_equal_settings_are_one_run(tmp_path):
  def folder(factor, name):
    settings = {s.name: s for s in ablations.FACTORS[factor].settings}
    return ablations._job(tmp_path, settings[name], 0, 100).run_dir

  paper = folder("weights", "(1, 5)")
  assert folder("group size", "CRBC, G = 8") == paper
  assert folder("truncation", "failure") == paper
  assert folder("group size", "CRBC, G = 16") != paper


def test_verdicts():
  rows = {
    ("beta", name): areas
    for name, areas in {
      "0.95": [0.1, 0.2, 0.3],
      "0.98": [0.2, 0.3, 0.4],
      "0.99": [0.3, 0.4, 0.6],
      "1": [0.1, 0.4, 0.4],
    }.items()
  }
  found = ablations.summary("beta", rows)
  verdicts = {c["claim"]: c["verdict"] for c in found["directions"]}
  assert verdicts == {
    "0.98 over 0.95": "agrees",
    "0.98 over 0.99": "disagrees",
    "0.98 over 1": "undecided",
  }
  assert found["directions"][1]["seeds_ahead"] == 0
  text = ablations.markdown(
    {"command": "x", "budget": 5, "seeds": [0, 1, 2], "factors": {"b": found}}
  )
  assert "| 0.98 over 0.99 |" in text and "| disagrees |" in text
