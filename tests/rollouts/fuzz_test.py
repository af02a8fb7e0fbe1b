"""Some hundred damaged logs; `make fuzz-logs` reads a hundred thousand."""

import pytest

# A wheel installed elsewhere comes without the experiments.
fuzz_logs = pytest.importorskip("experiments.fuzz_logs")


def test_damaged_logs_are_credited_or_refused_with_a_reason():
  found = fuzz_logs.fuzz(seed=1, numbers=range(1, 400))
  assert not found.failures
  assert found.accepted > 20  # not all damage shows
  assert len(found.reasons) > 40


def test_the_fuzzer_sees_what_breaks_a_rule(monkeypatch):
  def crash(path, form, **_):
    raise KeyError("a bug")

  monkeypatch.setattr(fuzz_logs, "check_reading", crash)
  found = fuzz_logs.fuzz(seed=1, numbers=range(1, 3))
  assert [failure.split(" (")[0] for failure in found.failures] == [
    "log 1",
    "log 2",
  ]
  assert "a bug" in found.failures[0]
