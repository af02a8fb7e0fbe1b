import jax
import numpy as np
import pytest

from crbc_jax.envs import sokoban, sokoban_levels
from crbc_jax.policies import grid
from tests import tiny_runs


def random_levels(height, width, boxes, seed, count=6):
  """Rooms with random inner walls, boxes and targets; some slots are absent."""
  rng = np.random.default_rng(seed)
  texts = []
  for i in range(count):
    board = np.full((height, width), "#")
    inner = np.full((height - 2) * (width - 2), " ")
    order = rng.permutation(inner.size)
    present = 1 + i % boxes
    inner[order[:present]] = "$"
    inner[order[present : 2 * present]] = "."
    inner[order[2 * present]] = "@"
    inner[order[2 * present + 1 : inner.size - i % 3]] = "#"
    board[1:-1, 1:-1] = inner.reshape(height - 2, width - 2)
    texts.append("\n".join("".join(row) for row in board))
  return sokoban_levels.parse_levels("\n\n".join(texts), "test")


def obvious_crop(levels, i, radius):
  """What the text of level `i` shows around its player."""
  rows = levels.text(i).split("\n")
  row, column = divmod(int(levels.player[i]), levels.width)
  out = np.zeros((2 * radius + 1, 2 * radius + 1, 3), np.float32)
  for dr in range(-radius, radius + 1):
    for dc in range(-radius, radius + 1):
      r, c = row + dr, column + dc
      inside = 0 <= r < levels.height and 0 <= c < levels.width
      cell = rows[r][c] if inside else "#"
      planes = (cell == "#", cell in ".*+", cell in "$*")
      out[dr + radius, dc + radius] = planes
  return out


def crops(levels, radius):
  env = tiny_runs.make_env(levels)
  batch = levels.as_levels()
  return np.asarray(
    jax.vmap(
      lambda level: grid.egocentric_crop(
        env, level, env.reset(level), radius=radius
      )
    )(batch)
  )


@pytest.mark.parametrize("size", [(5, 5), (4, 8), (9, 5)])
@pytest.mark.parametrize("radius", [1, 2, 7])
def test_crop_shows_what_the_text_shows(size, radius):
  levels = random_levels(*size, boxes=2, seed=radius)
  got = crops(levels, radius)
  for i in range(len(levels)):
    np.testing.assert_array_equal(got[i], obvious_crop(levels, i, radius))
  assert got.any(axis=(0, 1, 2)).all()  # every plane was used


@pytest.mark.parametrize("radius", [2, 3])
def test_padding_and_translation_change_nothing(radius):
  small = random_levels(4, 6, boxes=2, seed=0)
  wide = sokoban_levels.match_sizes(small, random_levels(8, 9, 3, seed=1))[0]
  assert (wide.height, wide.width, wide.num_boxes) == (8, 9, 3)
  np.testing.assert_array_equal(crops(small, radius), crops(wide, radius))
  moved = []
  for i in range(len(small)):
    rows = ["##" + row + "#" for row in small.text(i).split("\n")]
    moved.append("\n".join(["#" * 9] * 3 + rows + ["#" * 9]))
  moved = sokoban_levels.parse_levels("\n\n".join(moved), "test")
  assert (moved.player != wide.player).all()
  np.testing.assert_array_equal(crops(small, radius), crops(moved, radius))


def test_crop_follows_the_state_not_the_start():
  levels = sokoban_levels.parse_levels("######\n#@ $.#\n######", "test")
  env = tiny_runs.make_env(levels)
  level = jax.tree.map(lambda x: x[0], levels.as_levels())
  state = sokoban.State(
    player=np.int32(9), boxes=np.array([10], np.int32), step=np.int32(2)
  )
  crop = grid.egocentric_crop(env, level, state, radius=1)
  np.testing.assert_array_equal(crop[1], [[0, 0, 0], [0, 0, 0], [0, 1, 1]])


@pytest.mark.parametrize("size", [(5, 5), (4, 8)])
def test_full_radius_shows_all_inside_the_outer_wall(size):
  levels = random_levels(*size, boxes=2, seed=3)
  radius = grid.full_radius(tiny_runs.make_env(levels))
  got = crops(levels, radius)
  np.testing.assert_array_equal(got[..., 1].sum((1, 2)), levels.targets.sum(1))
  np.testing.assert_array_equal(
    got[..., 2].sum((1, 2)), (levels.boxes < size[0] * size[1]).sum(1)
  )


def test_policy_starts_near_uniform_and_depends_on_its_seed():
  levels = random_levels(5, 6, boxes=2, seed=0)
  env = tiny_runs.make_env(levels)
  batch = levels.as_levels()
  starts = jax.vmap(env.reset)(batch)

  def logits(seed, radius=0, hidden=(8, 8)):
    params, function = grid.make_grid_policy(
      env, hidden=hidden, radius=radius, seed=seed
    )
    return params, np.asarray(
      jax.vmap(function, in_axes=(None, 0, 0))(params, batch, starts)
    )

  params, first = logits(0)
  assert first.shape == (len(levels), env.num_actions)
  np.testing.assert_allclose(jax.nn.softmax(first), 0.25, atol=0.02)
  assert np.ptp(first, axis=0).max() > 0  # it does see the board
  again, same = logits(0)
  jax.tree.map(np.testing.assert_array_equal, params, again)
  np.testing.assert_array_equal(first, same)
  other, second = logits(1)
  jax.tree.map(
    lambda a, b: np.testing.assert_equal(a.shape, b.shape), params, other
  )
  assert (first != second).all()
  narrow, _ = logits(0, radius=1, hidden=(4,))
  kernels = sorted(x.shape for x in jax.tree.leaves(narrow) if x.ndim == 2)
  assert kernels == [(4, 4), (27, 4)]


def test_value_starts_near_zero_with_weights_of_its_own():
  levels = random_levels(5, 6, boxes=2, seed=0)
  env = tiny_runs.make_env(levels)
  batch = levels.as_levels()
  starts = jax.vmap(env.reset)(batch)
  network = {"hidden": (8, 8), "radius": 0, "seed": 0}
  policy, _ = grid.make_grid_policy(env, **network)
  params, function = grid.make_grid_value(env, **network)

  def values(params, states):
    return np.asarray(
      jax.vmap(function, in_axes=(None, 0, 0))(params, batch, states)
    )

  first = values(params, starts)
  assert first.shape == (len(levels),) and first.dtype == np.float32
  np.testing.assert_allclose(first, 0, atol=0.05)
  assert np.ptp(first) > 0  # it does see the board
  np.testing.assert_array_equal(  # but no clock
    values(params, starts.replace(step=starts.step + 3)), first
  )
  kernels = [
    [x for x in jax.tree.leaves(p) if x.ndim == 2] for p in (params, policy)
  ]
  for own, other in zip(*kernels, strict=True):
    assert own.shape[0] == other.shape[0]
    assert own.shape != other.shape or (np.asarray(own) != other).any()
  again, _ = grid.make_grid_value(env, **network)
  jax.tree.map(np.testing.assert_array_equal, params, again)
  other, _ = grid.make_grid_value(env, **network | {"seed": 1})
  assert (values(other, starts) != first).all()
