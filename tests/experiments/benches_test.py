"""The table of `crbc bench` names what there is."""

import json
import pathlib

import pytest

from crbc_jax.commands import bench
from crbc_jax.report.result_changes import find_values

ROOT = pathlib.Path(__file__).resolve().parents[2]
if not (ROOT / "experiments" / "benches.py").exists():
  pytest.skip("no experiments beside the tests", allow_module_level=True)

from experiments.benches import BENCHES  # noqa: E402


def test_it_is_what_the_command_loads(monkeypatch):
  monkeypatch.chdir(ROOT)
  assert bench.load_benches() == BENCHES


@pytest.mark.parametrize("name", BENCHES)
def test_experiments_take_the_options(name):
  made = BENCHES[name]
  path = ROOT / (made.module.replace(".", "/") + ".py")
  source = path.read_text(encoding="utf-8")
  options = ["--quick", "--results", *(x.option for x in made.data if x.option)]
  options += ["--out"] * made.trains
  for option in options:
    assert f'"{option}"' in source, option
  assert made.files[0].endswith(".json")
  assert 0 < made.minutes[1] <= max(made.minutes[0], 2)


def test_quick_takes_half_an_hour():
  assert sum(x.minutes[1] for x in BENCHES.values()) <= 30


@pytest.mark.parametrize("name", BENCHES)
def test_patterns_find_the_committed_values(name):
  path = ROOT / "results" / BENCHES[name].files[0]
  if not path.exists():
    pytest.skip("not committed yet")
  found = json.loads(path.read_text(encoding="utf-8"))
  for pattern in BENCHES[name].values:
    assert find_values(found, [pattern]), pattern
