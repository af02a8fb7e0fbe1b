"""Exact resume: a run that was killed ends as if nothing had happened."""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

import crbc_jax
from crbc_jax.envs import sokoban_levels
from crbc_jax.learner import loop, records
from tests import tiny_runs
from tests.tiny_runs import compiled_programs  # noqa: F401

pytestmark = pytest.mark.training

# Every kind of state is in play: a reference, slips, a sampled evaluation.
OPTIONS = {
  "env_steps": 4_000,
  "env__slip": 0.1,
  "learner__kl": 0.01,
  "eval__every": 500,
  "checkpoint__every": 200,
}


def start(environ, *arguments):
  source = pathlib.Path(crbc_jax.__file__).parents[1]
  return subprocess.Popen(
    [sys.executable, "-m", "crbc_jax", *map(str, arguments)],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    env=environ | {"PYTHONPATH": str(source)},
  )


def finish(process):
  output, _ = process.communicate(timeout=300)
  assert process.returncode == 0, output


def kill_when(process, condition):
  """SIGKILL as soon as the condition holds; the run must not end before."""
  deadline = time.monotonic() + 300
  while process.poll() is None and not condition():
    assert time.monotonic() < deadline
    time.sleep(0.0005)
  process.kill()
  output, _ = process.communicate()
  assert process.returncode == -signal.SIGKILL, output


def lines(run_dir):
  path = run_dir / records.METRICS
  return path.read_bytes().count(b"\n") if path.exists() else 0


def half_written(run_dir):
  """A checkpoint is being written, and one is complete."""
  folder = run_dir / "checkpoints"
  names = [p.name for p in folder.iterdir()] if folder.exists() else []
  return any("tmp" in n for n in names) and any(n.isdigit() for n in names)


def assert_same_end(run_dir, other):
  assert tiny_runs.without_seconds(run_dir) == tiny_runs.without_seconds(other)
  a, b = (tiny_runs.last_checkpoint(x) for x in (run_dir, other))
  assert a[1] == b[1]
  for x, y in zip(a[0], b[0], strict=True):
    assert x.dtype == y.dtype and x.tobytes() == y.tobytes()
  results = [
    json.loads((x / "result.json").read_text()) for x in (run_dir, other)
  ]
  for result in results:
    result.pop("seconds")
  assert results[0] == results[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, compiled_programs):  # noqa: F811
  """(folder of an uninterrupted run in a process of its own, its flags)."""
  folder = tmp_path_factory.mktemp("whole")
  flags = tiny_runs.flags(folder, **OPTIONS)
  finish(
    start(compiled_programs, "train", *flags, f"--run_dir={folder / 'run'}")
  )
  return folder / "run", flags


def test_killed_again_and_again(tmp_path, whole, compiled_programs):  # noqa: F811
  expected, flags = whole
  run_dir = tmp_path / "run"
  delay = random.Random(0)

  # Before there was any checkpoint.
  kill_when(
    start(compiled_programs, "train", *flags, f"--run_dir={run_dir}"),
    lambda: lines(run_dir) >= 1,
  )
  assert not (run_dir / "result.json").exists()
  # While a checkpoint is being written.
  kill_when(
    start(compiled_programs, "resume", run_dir), lambda: half_written(run_dir)
  )
  # At some moment a few updates later.
  process, before = start(compiled_programs, "resume", run_dir), lines(run_dir)
  kill_when(
    process, lambda: lines(run_dir) > before + 5 and delay.random() < 0.02
  )
  finish(start(compiled_programs, "resume", run_dir))
  assert_same_end(run_dir, expected)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, whole):
  """A run stopped by an error long after its last checkpoint."""
  expected, _ = whole
  folder = tmp_path_factory.mktemp("interrupted")
  config = loop.read_config(expected)
  config.tensorboard = True
  config.checkpoint.every = 700
  stop_after(
    10, lambda report: loop.start_run(config, folder / "run", report=report)
  )
  return folder / "run"


class StoppedError(Exception):
  pass


def stop_after(number, run):
  calls = []

  def report(env_steps, metrics):
    calls.append((env_steps, metrics))
    if len(calls) == number:
      raise StoppedError

  with pytest.raises(StoppedError):
    run(report)


def copy_of(run_dir, tmp_path):
  return pathlib.Path(shutil.copytree(run_dir, tmp_path / "run"))


def test_stopped_by_an_error_in_process(tmp_path, whole, interrupted):
  run_dir = copy_of(interrupted, tmp_path)
  _, progress = tiny_runs.last_checkpoint(run_dir)
  assert 0 < progress["update"] < 8
  assert records.read_metrics(run_dir)[-1]["update"] == 10
  # And the last line was cut short by a kill.
  path = run_dir / records.METRICS
  path.write_text(path.read_text()[:-20])
  stop_after(5, lambda report: loop.resume_run(run_dir, report=report))
  loop.resume_run(run_dir)
  assert_same_end(run_dir, whole[0])
  assert tensorboard(run_dir / "tensorboard", "train/loss") == [
    (r["env_steps"], np.float32(r["loss"]))
    for r in records.read_metrics(run_dir, "train")
  ]


def test_a_critic_goes_on_exactly(tmp_path):
  """Its parameters and its optimiser come back bit for bit."""
  config = tiny_runs.make_config(
    tmp_path, estimator="gae(lam=0.9)", checkpoint__every=300
  )
  loop.start_run(config, tmp_path / "whole")
  run_dir = tmp_path / "run"
  stop_after(5, lambda report: loop.start_run(config, run_dir, report=report))
  _, progress = tiny_runs.last_checkpoint(run_dir)
  assert 0 < progress["update"] < 5
  loop.resume_run(run_dir)
  assert_same_end(run_dir, tmp_path / "whole")


def tensorboard(folder, tag):
  """What TensorBoard shows: a restart hides what it declares outdated."""
  shown = []
  for path in sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime_ns):
    data, at = path.read_bytes(), 0
    while at < len(data):
      size = int.from_bytes(data[at : at + 8], "little")
      event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
      at += 12 + size + 4
      if event.session_log.status == event_pb2.SessionLog.START:
        shown = [x for x in shown if x[0] < event.step]
      shown += [
        (event.step, np.float32(value.simple_value))
        for value in event.summary.value
        if value.tag == tag
      ]
  return shown


def test_resuming_a_finished_run_changes_nothing(tmp_path, whole):
  run_dir = copy_of(whole[0], tmp_path)
  before = (run_dir / records.METRICS).read_bytes()
  loop.resume_run(run_dir)
  assert (run_dir / records.METRICS).read_bytes() == before
  assert_same_end(run_dir, whole[0])


def test_changed_levels_are_refused(tmp_path):
  train, held_out = tiny_runs.make_levels(layouts=4, held_out_layouts=2)
  own, other = tmp_path / "own.txt", tmp_path / "other.txt"
  sokoban_levels.write_levels(own, train)
  sokoban_levels.write_levels(other, held_out)
  config = tiny_runs.make_config(
    tmp_path, levels=str(own), held_out=str(other), checkpoint__every=10**9
  )
  run_dir = tmp_path / "run"
  stop_after(1, lambda report: loop.start_run(config, run_dir, report=report))
  before = (run_dir / records.METRICS).read_bytes()
  for path, name in ((own, "train"), (other, "panel")):
    text = path.read_text()
    levels = sokoban_levels.read_levels(path)
    sokoban_levels.write_levels(path, levels.take(range(1, len(levels))))
    with pytest.raises(loop.RunError, match=f"the {name} levels differ"):
      loop.resume_run(run_dir)
    path.write_text(text)
  assert (run_dir / records.METRICS).read_bytes() == before
  loop.resume_run(run_dir)


def test_what_is_no_run_is_refused(tmp_path):
  with pytest.raises(loop.RunError, match="is not a run folder"):
    loop.resume_run(tmp_path)
  with pytest.raises(loop.RunError, match="is not a run folder"):
    loop.read_config(tmp_path / "none")
