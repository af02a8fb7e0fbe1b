"""What results record as their command."""

import sys

import pytest

commands = pytest.importorskip("experiments.commands")


def test_places_are_left_out(monkeypatch):
  argv = ["--only", "a b", "--out", "/tmp/x", "--results=/tmp/y", "--report"]
  argv += ["--quick"]
  want = "python -m experiments.z --only 'a b' --quick"
  assert commands.recorded("experiments.z", argv) == want
  monkeypatch.setattr(sys, "argv", ["z.py", "--seeds", "1"])
  assert commands.recorded("experiments.z", None).endswith("z --seeds 1")
  assert commands.recorded("experiments.z", []) == "python -m experiments.z"
