"""Fixtures that run `crbc credit` in an empty folder."""

import functools

import pytest

from crbc_jax import cli
from crbc_jax.credit import log_credit


@pytest.fixture
def in_an_empty_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def compiled_once():
  """Programs that credit one log are there for the next."""
  cached = functools.cache(log_credit.make_table_credit_fn)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(log_credit, "make_table_credit_fn", cached)
    yield


@pytest.fixture
def crbc(capsys, in_an_empty_folder, compiled_once):
  """Runs `crbc credit` with GRPO; returns (status, standard output, errors)."""

  def run(*arguments, estimator="grpo", out="out.jsonl"):
    more = [*["--out", out] * bool(out), "--estimator", estimator]
    try:
      status = cli.main(["credit", *map(str, arguments), *more])
    except SystemExit as stop:  # argparse
      status = stop.code
    return status, *capsys.readouterr()

  return run
