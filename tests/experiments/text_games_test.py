"""How the text comparison tunes: options first, then the rate."""

import pytest

text_games = pytest.importorskip("experiments.text_games")
contestants = pytest.importorskip("experiments.contestants")


def test_options_are_tuned_at_the_first_rate_and_then_the_rate():
  mine = contestants.Contestant("mine", ("a", "b"))
  other = contestants.Contestant("other", ("c",))
  areas = {
    ("a", 1.0): 0.1,
    ("b", 1.0): 0.2,
    ("b", 2.0): 0.3,
    ("c", 1.0): 0.5,
    ("c", 2.0): 0.4,
  }
  asked = []

  def measure(settings):
    asked.append(settings)
    return {setting: areas[setting] for setting in settings}

  found = text_games.tune([mine, other], (1.0, 2.0), measure)
  assert asked == [
    [("a", 1.0), ("b", 1.0), ("c", 1.0)],
    [("b", 2.0), ("c", 2.0)],  # never the worse option at another rate
  ]
  assert found["mine"]["estimator"] == "b"
  assert found["mine"]["learning_rate"] == 2.0
  assert found["mine"]["areas"] == {"a 1": 0.1, "b 1": 0.2, "b 2": 0.3}
  assert found["other"]["learning_rate"] == 1.0


def test_labels_are_contestants():
  found = contestants.chosen(list(text_games.LABELS))
  assert {c.label for c in found} == set(text_games.LABELS)
  assert text_games.OURS in text_games.LABELS
