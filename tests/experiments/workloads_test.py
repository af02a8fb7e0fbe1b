"""The synthetic workloads have the statistics they promise."""

import numpy as np
import pytest

from crbc_jax.rollouts.table import StepTable
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import Boundary

# A wheel installed elsewhere comes without the experiments.
workloads = pytest.importorskip("experiments.workloads")


@pytest.mark.parametrize("name", workloads.WANTED)
def test_statistics_are_near_those_wanted(name):
  table = workloads.make_table(name, 16)
  validate(table)
  found = workloads.statistics(table)
  have = found.steps, found.states, found.branching
  np.testing.assert_allclose(have, workloads.WANTED[name], rtol=0.25)
  assert found.groups == 16
  assert 0.05 < found.success < 0.95


def test_seed_decides_everything():
  one, same, other = (workloads.make_table("web", 3, seed=s) for s in (1, 1, 2))
  assert (one.state_key == same.state_key).all()
  assert (one.boundary == same.boundary).all()
  assert len(one) != len(other) or (one.state_key != other.state_key).any()


@pytest.mark.parametrize("name", workloads.SPECS)
@pytest.mark.parametrize("steps", [1_000, 20_000])
def test_giant_group_has_the_steps_asked_for(name, steps):
  table = workloads.giant_group(steps, name=name)
  validate(table)
  assert len(table) == steps and len(np.unique(table.group_id)) == 1
  assert (table.boundary == Boundary.SUCCESS).any()


def test_lattice_branches_nearly_everywhere():
  table = workloads.lattice_group(40_000)
  validate(table)
  found = workloads.statistics(table)
  assert len(table) == 40_000
  assert found.branching > 0.7 * found.states


def test_statistics_by_hand():
  # Group 0: x -> y -> x -> z success; group 1: x -> x fails.
  table = StepTable.from_columns(
    group_id=np.array([0, 0, 0, 0, 1, 1]),
    traj_id=np.array([0, 0, 0, 0, 1, 1]),
    step_idx=[0, 1, 2, 3, 0, 1],
    state_key=np.array([5, 6, 5, 7, 5, 5]),
    action_key=np.zeros(6, int),
    boundary=["none"] * 3 + ["success", "none", "failure"],
  )
  found = workloads.statistics(table)
  assert found == workloads.Statistics(2, 6, states=3, branching=1, success=0.5)


def test_text_is_fresh_and_as_long_as_asked():
  table = workloads.make_table("web", 2)
  columns = workloads.with_text(table, 128)
  texts = columns["state_key"]
  assert {len(x) for x in texts} == {128}
  assert len({id(x) for x in texts}) == len(texts) == len(table)
  same = np.unique(table.state_key, return_inverse=True)[1]
  assert (np.unique(texts, return_inverse=True)[1] == same).all()
  made = workloads.text_table(table, 64)
  validate(made)
  assert (made.boundary == table.boundary).all()
  assert (made.outcome == table.outcome).all()


def test_main_prints(capsys):
  workloads.main(["--quick"])
  assert "swe, 16 groups" in capsys.readouterr().out
