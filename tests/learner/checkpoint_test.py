import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.envs import sokoban
from crbc_jax.learner import checkpoint, update
from crbc_jax.policies import grid

ENV = sokoban.Sokoban(height=5, width=5, boxes=1, step_limit=8)


def make_state(seed=0, hidden=(8,), reference=True):
  params, _ = grid.make_grid_policy(ENV, hidden=hidden, radius=0, seed=seed)
  optimizer = update.make_optimizer(learning_rate=0.01, max_grad_norm=1.0)
  return update.LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    reference=jax.tree.map(jnp.copy, params) if reference else (),
    key=jax.random.key_data(jax.random.key(seed)),
  )


def odd_values(state):
  """The same structure filled with bits that a cast or a print would lose."""
  rng = np.random.default_rng(0)
  words = np.array([2**31 + 5, 7], np.uint32)

  def fill(x):
    if x.dtype == jnp.float32:
      bits = rng.integers(0x00000001, 0x7F7FFFFF, x.shape, np.uint32)
      return jnp.asarray(bits.astype(np.uint32).view(np.float32))
    return jnp.asarray(words if x.shape == (2,) else 2**30 + 1, x.dtype)

  return jax.tree.map(fill, state)


def assert_same(one, other):
  assert jax.tree.structure(one) == jax.tree.structure(other)
  for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("reference", [True, False])
def test_round_trip_is_bit_exact(tmp_path, reference):
  state = odd_values(make_state(reference=reference))
  progress = {"update": 7, "env_steps": 10**12, "level_cursor": 3}
  with checkpoint.Checkpoints(tmp_path / "run" / "c") as checkpoints:
    assert checkpoints.latest is None
    checkpoints.save(7, state, progress)
  like = make_state(seed=1, reference=reference)
  with checkpoint.Checkpoints(tmp_path / "run" / "c") as checkpoints:
    found, counters = checkpoints.restore(like)
  assert_same(found, state)
  assert counters == progress
  # A learner can go on from it: the containers are those it began with.
  optimizer = update.make_optimizer(learning_rate=0.01, max_grad_norm=1.0)
  optimizer.update(found.params, found.opt_state, found.params)


def test_keeps_the_last_ones(tmp_path):
  with checkpoint.Checkpoints(tmp_path, keep=2) as checkpoints:
    for number in (1, 5, 9):
      checkpoints.save(number, make_state(number), {"update": number})
    assert checkpoints.latest == 9
  assert sorted(p.name for p in tmp_path.iterdir()) == ["5", "9"]
  with checkpoint.Checkpoints(tmp_path, read_only=True) as checkpoints:
    state, progress = checkpoints.restore(make_state(), 5)
    assert_same(state, make_state(5))
    assert progress == {"update": 5}
    message = "has no checkpoint 1; it has 5, 9"
    with pytest.raises(checkpoint.CheckpointError, match=message):
      checkpoints.restore(make_state(), 1)
  assert sorted(p.name for p in tmp_path.iterdir()) == ["5", "9"]


def test_saving_twice_is_refused(tmp_path):
  with checkpoint.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(3, make_state(), {})
    with pytest.raises(checkpoint.CheckpointError, match="3 was not written"):
      checkpoints.save(3, make_state(1), {})
    assert_same(checkpoints.restore(make_state(1))[0], make_state())


@pytest.mark.parametrize(
  "other",
  [{"hidden": (9,)}, {"hidden": (8, 8)}, {"reference": False}],
  ids=["wider", "deeper", "no reference"],
)
def test_another_network_is_refused_in_one_line(tmp_path, other):
  with checkpoint.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(3, make_state(), {})
    with pytest.raises(checkpoint.CheckpointError) as caught:
      checkpoints.restore(make_state(**other))
  message = str(caught.value)
  assert f"{tmp_path}/3 does not fit this network" in message
  assert "\n" not in message


def test_nothing_to_read(tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match="saved no checkpoint"):
    checkpoint.Checkpoints(tmp_path / "none", read_only=True)
  assert not (tmp_path / "none").exists()
  with (
    checkpoint.Checkpoints(tmp_path, read_only=True) as checkpoints,
    pytest.raises(checkpoint.CheckpointError, match="no complete checkpoint"),
  ):
    checkpoints.restore(make_state())


def test_a_half_written_checkpoint_is_ignored(tmp_path):
  with checkpoint.Checkpoints(tmp_path, keep=3) as checkpoints:
    checkpoints.save(3, make_state(3), {"update": 3})
  # What a process killed while saving number 4 leaves behind.
  half = tmp_path / "4.orbax-checkpoint-tmp"
  shutil.copytree(tmp_path / "3", half)
  shutil.rmtree(half / "progress")
  with checkpoint.Checkpoints(tmp_path, read_only=True) as checkpoints:
    assert checkpoints.latest == 3
    assert_same(checkpoints.restore(make_state())[0], make_state(3))
  with checkpoint.Checkpoints(tmp_path, keep=3) as checkpoints:
    assert checkpoints.latest == 3
    checkpoints.save(4, make_state(4), {"update": 4})
    state, progress = checkpoints.restore(make_state())
  assert_same(state, make_state(4))
  assert progress == {"update": 4}
