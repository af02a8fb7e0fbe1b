"""Counters of a language-model run: exact resume, loud refusals."""

import json

import numpy as np
import pytest

from crbc_jax.learner import launch_state

STATE = launch_state.LaunchState(
  update=5, task_cursor=80, sampler_calls=6_400, seed=3, estimator="crbc"
)


@pytest.mark.parametrize("cut", [0, 1, 6, 7, 8, 20, 33])
def test_the_stream_goes_on_where_it_was(cut):
  whole = launch_state.task_stream(0, 33, tasks=7, seed=1)
  parts = (
    launch_state.task_stream(0, cut, tasks=7, seed=1),
    launch_state.task_stream(cut, 33 - cut, tasks=7, seed=1),
  )
  np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_each_pass_has_every_task_once_in_another_order():
  passes = launch_state.task_stream(0, 40, tasks=20, seed=0).reshape(2, 20)
  for one in passes:
    assert sorted(one) == list(range(20))
  assert (passes[0] != passes[1]).any()
  other = launch_state.task_stream(0, 20, tasks=20, seed=1)
  assert (other != passes[0]).any()


def test_empty_and_impossible_streams():
  assert launch_state.task_stream(3, 0, tasks=2, seed=0).shape == (0,)
  assert (launch_state.task_stream(5, 3, tasks=1, seed=0) == 0).all()
  for start, tasks in ((0, 0), (-1, 2)):
    with pytest.raises(ValueError, match="needs tasks"):
      launch_state.task_stream(start, 1, tasks=tasks, seed=0)


def back(state=STATE, **changes):
  options = {"seed": 3, "estimator": "crbc"} | changes
  # As Orbax keeps it.
  metadata = json.loads(json.dumps(launch_state.to_metadata(state)))
  return launch_state.from_metadata({"global_step": 5} | metadata, **options)


def test_what_is_saved_comes_back():
  assert back() == STATE


def test_a_new_run_has_no_state():
  assert launch_state.from_metadata({}, seed=0, estimator="crbc") is None


def test_another_seed_estimator_or_program_is_refused():
  with pytest.raises(launch_state.ResumeError, match="seed 3"):
    back(seed=4)
  with pytest.raises(launch_state.ResumeError, match="estimator 'crbc'"):
    back(estimator="grpo")
  for metadata in ({"global_step": 5}, {"crbc_jax": {"version": 0}}):
    with pytest.raises(launch_state.ResumeError, match="not written by"):
      launch_state.from_metadata(metadata, seed=3, estimator="crbc")
