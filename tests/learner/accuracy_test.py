import numpy as np
import pytest

from crbc_jax.learner import accuracy, task
from crbc_jax.learner.accuracy import Accuracy, compare
from tests import tiny_runs


def test_known_values():
  exact = np.array([1.0, -1.0, 2.0, 1e-9])
  assert compare(2 * exact, exact) == Accuracy(pytest.approx(1.0), 1.0)
  assert compare(-exact, exact) == Accuracy(pytest.approx(-1.0), 0.0)
  # One of the three signs that count is wrong.
  found = compare(np.array([1.0, 1.0, 1.0, -1.0]), exact)
  assert found.sign == pytest.approx(2 / 3)


@pytest.mark.parametrize(
  ("credit", "exact"),
  [([], []), ([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0])],
)
def test_what_is_not_defined_is_zero(credit, exact):
  found = compare(np.array(credit), np.array(exact))
  assert found == Accuracy(0.0, 0.0)


def test_the_same_rollouts_for_every_estimator(tmp_path):
  current = task.make_task(tiny_runs.make_config(tmp_path))

  def measure(estimators):
    return accuracy.measure_accuracy(
      current,
      current.params,
      estimators,
      levels=8,
      group_size=8,
      batches=2,
      seed=0,
    )

  found = measure(["crbc", "crbc(depth=0)", "crbc(depth=inf)", "grpo"])
  assert found["crbc"] == found["crbc(depth=inf)"]
  assert found["crbc"] != found["crbc(depth=0)"]
  assert all(len(batches) == 2 for batches in found.values())
  mean = {k: np.mean([one.corr for one in v]) for k, v in found.items()}
  assert mean["crbc"] > mean["grpo"]  # by far: .75 against .20 in results/


def test_an_unknown_estimator_is_refused(tmp_path):
  current = task.make_task(tiny_runs.make_config(tmp_path))
  with pytest.raises(ValueError, match="unknown estimator"):
    accuracy.measure_accuracy(
      current,
      current.params,
      ["crcb"],
      levels=2,
      group_size=2,
      batches=1,
      seed=0,
    )
