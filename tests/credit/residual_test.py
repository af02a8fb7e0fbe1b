"""A closure that does not close is an error offline, a warning in training."""

import pytest

from crbc_jax import credit_table
from crbc_jax.credit import diagnostics, table_credit
from crbc_jax.credit.registry import make_credit_fn
from crbc_jax.learner import loop, records
from crbc_jax.rollouts.batching import make_batch
from tests import groups as groups_lib
from tests import tiny_runs


def test_offline_it_is_an_error_that_names_the_group(monkeypatch):
  table = groups_lib.table_of(groups_lib.random_groups(5, 3))
  credit_table(table)  # solves well
  monkeypatch.setattr(table_credit, "RESIDUAL_LIMIT", -1.0)
  with pytest.raises(table_credit.ClosureError, match=r"group \d: .*smaller"):
    credit_table(table)
  credit_table(table, "grpo")  # solves nothing


def test_groups_above_the_limit_are_counted(monkeypatch):
  batch = make_batch(groups_lib.table_of(groups_lib.random_groups(5, 3)))
  credit = make_credit_fn("crbc")(batch.arrays)
  found = diagnostics.batch_diagnostics(batch.arrays, credit)
  assert found["residual_warnings"] == 0 < found["residual"] < 1e-6
  monkeypatch.setattr(diagnostics, "RESIDUAL_LIMIT", -1.0)
  found = diagnostics.batch_diagnostics(batch.arrays, credit)
  assert found["residual_warnings"] == batch.shape.groups


@pytest.mark.training
def test_training_warns_and_goes_on(monkeypatch, tmp_path):
  monkeypatch.setattr(diagnostics, "RESIDUAL_LIMIT", -1.0)
  config = tiny_runs.make_config(tmp_path, estimator="crbc")
  with pytest.warns(UserWarning, match="miss their equation"):
    loop.start_run(config, tmp_path / "run")
  rows = records.read_metrics(tmp_path / "run", "train")
  assert all(row["residual_warnings"] > 0 for row in rows)
