"""How the text comparison tunes: options first, then the rate."""

import pytest

from crbc_jax.credit import registry

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


def test_every_contestant_can_take_credit_from_rewards():
  for contestant in contestants.chosen(list(text_games.LABELS)):
    found = text_games.observing(contestant)
    assert found.label == contestant.label
    for plain, estimator in zip(
      contestant.estimators, found.estimators, strict=True
    ):
      name, options = registry.parse_estimator(estimator)
      before = registry.parse_estimator(plain)
      assert (name, options) == (before[0], before[1] | {"signal": "observed"})
      registry.make_credit_fn(name, **options)
