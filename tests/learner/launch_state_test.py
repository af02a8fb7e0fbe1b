"""Counters of a language-model run: exact resume, loud refusals."""

import dataclasses

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


def load(folder, update=5, **changes):
  options = {"seed": 3, "estimator": "crbc"} | changes
  return launch_state.load_state(folder, update, **options)


def test_what_is_saved_comes_back(tmp_path):
  launch_state.save_state(tmp_path / "run", STATE, keep=3)
  assert load(tmp_path / "run") == STATE


def test_only_the_last_are_kept(tmp_path):
  for update in (1, 2, 10, 3):  # numbers, not text, are compared
    state = dataclasses.replace(STATE, update=update)
    launch_state.save_state(tmp_path, state, keep=2)
  assert launch_state.saved_updates(tmp_path) == [3, 10]
  assert not list(tmp_path.glob("*.tmp"))


def test_another_update_seed_or_estimator_is_refused(tmp_path):
  launch_state.save_state(tmp_path, STATE, keep=3)
  with pytest.raises(launch_state.ResumeError, match=r"update 6.*it has: 5"):
    load(tmp_path, update=6)
  with pytest.raises(launch_state.ResumeError, match="seed 3"):
    load(tmp_path, seed=4)
  with pytest.raises(launch_state.ResumeError, match="estimator 'crbc'"):
    load(tmp_path, estimator="grpo")
  path = next(tmp_path.glob("state-*.json"))
  path.write_text(path.read_text().replace('"version": 1', '"version": 0'))
  with pytest.raises(launch_state.ResumeError, match="another version"):
    load(tmp_path)
