import dataclasses
import itertools
import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.envs import sokoban, sokoban_levels, sokoban_solver
from crbc_jax.types import Boundary

UP, DOWN, LEFT, RIGHT = range(4)


def make_env(levels, *, step_limit=50, **options):
  return sokoban.Sokoban(
    height=levels.height,
    width=levels.width,
    boxes=levels.num_boxes,
    step_limit=step_limit,
    **options,
  )


def load(text, **options):
  """The environment, its only level and the start."""
  levels = sokoban_levels.parse_levels(text, "test")
  env = make_env(levels, **options)
  level = jax.tree.map(lambda x: x[0], levels.as_levels())
  return env, level, env.reset(level)


def play(env, level, state, actions):
  """The time steps of `actions`."""
  out = []
  for action in actions:
    out.append(env.step(level, state, jnp.int32(action), None))
    state = out[-1].state
  return out


def show(level, state, width):
  return sokoban_levels.board_text(
    level.walls, level.targets, state.player, state.boxes, width=width
  )


def python_step(rows, action):
  """Sokoban on a list of XSB rows, as one would explain it to a child."""
  grid = [list(row) for row in rows]
  r, c = next(
    (r, c)
    for r, row in enumerate(grid)
    for c, cell in enumerate(row)
    if cell in "@+"
  )
  dr, dc = ((-1, 0), (1, 0), (0, -1), (0, 1))[action]
  ahead = grid[r + dr][c + dc]
  if ahead == "#":
    return rows
  if ahead in "$*":
    beyond = grid[r + 2 * dr][c + 2 * dc]
    if beyond in "#$*":
      return rows
    grid[r + 2 * dr][c + 2 * dc] = "*" if beyond == "." else "$"
  grid[r + dr][c + dc] = "+" if ahead in ".*" else "@"
  grid[r][c] = "." if grid[r][c] == "+" else " "
  return ["".join(row) for row in grid]


def random_levels(rng, height, width, boxes, count):
  """Rooms with random walls; boxes may begin on targets."""
  texts = []
  for _ in range(count):
    grid = np.full((height, width), "#")
    inner = np.full((height - 2) * (width - 2), " ")
    order = rng.permutation(inner.size)
    walls = rng.integers(0, inner.size - 2 * boxes - 1)
    inner[order[:walls]] = "#"
    free = order[walls:]
    targets, places = free[:boxes], rng.permutation(free)[: boxes + 1]
    inner[targets] = "."
    for place in places[1:]:
      inner[place] = "*" if inner[place] == "." else "$"
    inner[places[0]] = "+" if inner[places[0]] == "." else "@"
    grid[1:-1, 1:-1] = inner.reshape(height - 2, width - 2)
    texts.append("\n".join("".join(row) for row in grid))
  return sokoban_levels.parse_levels("\n\n".join(texts), "random")


@pytest.mark.parametrize(
  "before, action, after",
  [
    (
      "#####\n#   #\n# @ #\n#$ .#\n#####",
      UP,
      "#####\n# @ #\n#   #\n#$ .#\n#####",
    ),
    ("####\n#@.#\n#$ #\n#  #\n####", DOWN, "####\n# .#\n#@ #\n#$ #\n####"),
    ("######\n# .$@#\n######", LEFT, "######\n# *@ #\n######"),
    ("######\n#@*. #\n#  $ #\n######", RIGHT, "######\n# +* #\n#  $ #\n######"),
    ("######\n#+$  #\n######", RIGHT, "######\n#.@$ #\n######"),
  ],
)
def test_known_moves(before, action, after):
  env, level, state = load(before)
  (out,) = play(env, level, state, [action])
  assert show(level, out.state, env.width) == after
  assert bool(out.moved)
  assert int(out.state.step) == 1


@pytest.mark.parametrize(
  "board, action",
  [
    ("#####\n#@$.#\n#####", LEFT),  # a wall
    ("#####\n#.@$#\n#####", RIGHT),  # a box against a wall
    ("########\n#@$$ ..#\n########", RIGHT),  # two boxes
  ],
)
def test_blocked_move_costs_a_step_only(board, action):
  env, level, state = load(board)
  (out,) = play(env, level, state, [action])
  assert show(level, out.state, env.width) == board
  assert not bool(out.moved)
  assert int(out.state.step) == 1
  assert float(out.reward) == 0.0


def test_no_pulling():
  env, level, state = load("######\n# @$.#\n######")
  (out,) = play(env, level, state, [LEFT])
  assert show(level, out.state, env.width) == "######\n#@ $.#\n######"


@pytest.mark.parametrize(
  "height, width, boxes",
  [(6, 6, 1), (6, 6, 2), (5, 9, 2), (9, 5, 3), (3, 8, 1), (10, 10, 4)],
)
def test_agrees_with_an_obvious_python_step(height, width, boxes):
  rng = np.random.default_rng(height * 100 + width * 10 + boxes)
  levels = random_levels(rng, height, width, boxes, 40)
  env = make_env(levels, step_limit=1000)
  actions = rng.integers(0, 4, (60, len(levels)))
  batch = levels.as_levels()
  step = jax.vmap(lambda level, s, a: env.step(level, s, a, None))

  def scan(state, action):
    out = step(batch, state, action)
    return out.state, out

  start = jax.vmap(env.reset)(batch)
  _, outs = jax.jit(lambda: jax.lax.scan(scan, start, jnp.asarray(actions)))()
  outs = jax.tree.map(np.asarray, outs)
  for i in range(len(levels)):
    rows = levels.text(i).split("\n")
    for t in range(len(actions)):
      after = python_step(rows, actions[t, i])
      got = sokoban_levels.board_text(
        levels.walls[i],
        levels.targets[i],
        outs.state.player[t, i],
        outs.state.boxes[t, i],
        width=width,
      )
      assert got == "\n".join(after)
      assert outs.moved[t, i] == (after != rows)
      solved = not any("$" in row for row in after)
      assert outs.reward[t, i] == float(solved)
      assert (outs.boundary[t, i] == Boundary.SUCCESS) == solved
      rows = after


def test_boundary():
  env, level, state = load("######\n#@ $.#\n######", step_limit=3)

  def kinds(actions):
    return [int(out.boundary) for out in play(env, level, state, actions)]

  assert kinds([RIGHT, RIGHT]) == [Boundary.NONE, Boundary.SUCCESS]
  assert kinds([UP, RIGHT, RIGHT])[-1] == Boundary.SUCCESS  # at the limit
  assert kinds([UP, RIGHT, LEFT]) == [0, 0, Boundary.TRUNCATED]


def test_already_solved_level_succeeds_with_any_step():
  env, level, state = load("#####\n#@* #\n#####")
  assert bool(sokoban.is_solved(level, state.boxes))
  (out,) = play(env, level, state, [UP])
  assert int(out.boundary) == Boundary.SUCCESS


def test_absent_boxes_do_not_matter():
  levels = sokoban_levels.parse_levels(
    "#####\n#@$.#\n#####\n\n######\n#@$$.#\n#   .#\n######", "test"
  )
  env = make_env(levels)
  level = jax.tree.map(lambda x: x[0], levels.as_levels())
  assert level.boxes.tolist() == [8, env.cells]
  (out,) = play(env, level, env.reset(level), [RIGHT])
  assert int(out.boundary) == Boundary.SUCCESS
  assert out.state.boxes.tolist() == [9, env.cells]


def test_shaped_reward():
  env, level, state = load(
    "########\n#@$.  .#\n#    $ #\n#      #\n########", reward="shaped"
  )
  rewards = [
    round(float(out.reward), 5)
    for out in play(env, level, state, [UP, RIGHT, RIGHT, RIGHT])
  ]
  assert rewards == [-0.1, 0.9, -1.1, -0.1]  # bump, onto, off, free push
  env, level, state = load("#####\n#@$.#\n#####", reward="shaped")
  assert float(play(env, level, state, [RIGHT])[0].reward) == pytest.approx(
    10.9
  )


def python_distance(rows):
  """Sum over the boxes of the Manhattan distance to the nearest target."""
  cells = [(r, c, x) for r, row in enumerate(rows) for c, x in enumerate(row)]
  boxes = [(r, c) for r, c, x in cells if x in "$*"]
  targets = [(r, c) for r, c, x in cells if x in ".*+"]
  return sum(min(abs(r - y) + abs(c - x) for y, x in targets) for r, c in boxes)


def test_distance_reward():
  env, level, state = load(
    "########\n#@$.  .#\n#    $ #\n#      #\n########", reward="distance"
  )
  rewards = [
    float(out.reward)
    for out in play(env, level, state, [UP, RIGHT, RIGHT, RIGHT, RIGHT])
  ]
  # Bump; onto a target; off it; nearer to the other; onto that.
  assert rewards == [0, 1, -1, 0, 1]
  env, level, state = load("#####\n#@$.#\n#####", reward="distance")
  (out,) = play(env, level, state, [RIGHT])
  assert float(out.reward) == 1.0
  assert int(out.boundary) == Boundary.SUCCESS
  assert out.reward.dtype == jnp.float32


@pytest.mark.parametrize(
  "height, width, boxes", [(6, 6, 1), (5, 9, 2), (9, 5, 3)]
)
def test_distance_reward_is_the_decrease_of_the_distance(height, width, boxes):
  rng = np.random.default_rng(boxes)
  levels = random_levels(rng, height, width, boxes, 60)
  env = make_env(levels, step_limit=1000, reward="distance")
  sparse = make_env(levels, step_limit=1000)
  actions = rng.integers(0, 4, (80, len(levels)))
  batch = levels.as_levels()

  def roll(env):
    def scan(state, action):
      out = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
        batch, state, action, None
      )
      return out.state, out

    start = jax.vmap(env.reset)(batch)
    _, outs = jax.jit(lambda a: jax.lax.scan(scan, start, a))(
      jnp.asarray(actions)
    )
    return jax.tree.map(np.asarray, outs)

  outs, plain = roll(env), roll(sparse)
  jax.tree.map(np.testing.assert_array_equal, outs.state, plain.state)
  np.testing.assert_array_equal(outs.boundary, plain.boundary)
  for i in range(len(levels)):
    rows = levels.text(i).split("\n")
    for t in range(len(actions)):
      after = python_step(rows, actions[t, i])
      gained = python_distance(rows) - python_distance(after)
      assert outs.reward[t, i] == gained
      if outs.boundary[t, i] == Boundary.SUCCESS:
        assert python_distance(after) == 0
      rows = after
  assert {-1.0, 0.0, 1.0} == set(np.unique(outs.reward).tolist())


def test_absent_boxes_have_no_distance():
  levels = sokoban_levels.parse_levels(
    "######\n#@$ .#\n######\n\n######\n#@$$.#\n#   .#\n######", "test"
  )
  env = make_env(levels, reward="distance")
  level = jax.tree.map(lambda x: x[0], levels.as_levels())
  outs = play(env, level, env.reset(level), [RIGHT, RIGHT])
  assert [float(out.reward) for out in outs] == [1, 1]
  assert int(outs[-1].boundary) == Boundary.SUCCESS


def test_other_rewards_do_not_compute_distances():
  def equations(reward):
    env, level, state = load("#####\n#@$.#\n#####", reward=reward)
    return str(jax.make_jaxpr(env.step)(level, state, jnp.int32(0)))

  # The minimum over the targets, and nothing else here.
  assert "reduce_min" in equations("distance")
  for reward in ("sparse", "shaped"):
    assert "reduce_min" not in equations(reward)


def test_slip_zero_ignores_the_key():
  env, level, state = load("#####\n#@$.#\n#####")
  keys = [None, jax.random.key(0), jax.random.key(1)]
  outs = [env.step(level, state, jnp.int32(RIGHT), key) for key in keys]
  for out in outs[1:]:
    jax.tree.map(np.testing.assert_array_equal, outs[0], out)
  jaxpr = jax.make_jaxpr(env.step)(level, state, jnp.int32(0), keys[1])
  assert "random" not in str(jaxpr)


def test_slip_frequency():
  env, level, state = load("#####\n#$ .#\n# @ #\n#   #\n#####", slip=0.4)
  keys = jax.random.split(jax.random.key(7), 20_000)
  step = jax.vmap(env.step, in_axes=(None, None, None, 0))
  player = np.asarray(step(level, state, jnp.int32(UP), keys).state.player)
  shares = [np.mean(player == 12 + d) for d in (-5, 5, -1, 1)]
  # 0.6 + 0.4/4 for the chosen one, 0.4/4 for the others; 7 standard errors.
  np.testing.assert_allclose(shares, [0.7, 0.1, 0.1, 0.1], atol=0.023)


def test_slip_without_a_key_is_an_error():
  env, level, state = load("#####\n#@$.#\n#####", slip=0.1)
  with pytest.raises(ValueError, match="key"):
    env.step(level, state, jnp.int32(0), None)


@pytest.mark.parametrize(
  "height, width, boxes, words",
  [(6, 6, 1, 1), (6, 6, 2, 1), (10, 10, 4, 2), (10, 10, 3, 1), (40, 60, 3, 2)],
)
def test_key_words(height, width, boxes, words):
  env = sokoban.Sokoban(height=height, width=width, boxes=boxes, step_limit=1)
  assert env.key_words == words
  last = sokoban.State(
    player=jnp.int32(env.cells - 1),
    boxes=jnp.full(boxes, env.cells, jnp.int32),
    step=jnp.int32(0),
  )
  key = env.state_key(last)
  assert key.shape == (words,)
  assert key.dtype == jnp.int32
  assert (np.asarray(key) >= 0).all()


def decode(words, count, base):
  """The digits that `state_key` packed, by arbitrary-precision integers."""
  per_word = max(d for d in range(1, 31) if base**d <= 2**31)
  digits = []
  for word in words.tolist():
    size = min(per_word, count - len(digits))
    digits += [word // base**d % base for d in reversed(range(size))]
    assert word // base**size == 0
  return digits


@pytest.mark.parametrize(
  "height, width, boxes", [(5, 7, 1), (6, 6, 2), (6, 6, 3)]
)
def test_state_key_is_injective_over_all_reachable_states(height, width, boxes):
  levels = random_levels(np.random.default_rng(0), height, width, boxes, 4)
  env = make_env(levels)
  keys_of = jax.jit(jax.vmap(env.state_key))
  for i in range(len(levels)):
    graph = sokoban_solver.enumerate_states(levels, i)
    per_order = []
    for clock, order in enumerate(itertools.permutations(range(boxes))):
      state = sokoban.State(
        player=jnp.asarray(graph.player),
        boxes=jnp.asarray(graph.boxes[:, order]),
        step=jnp.full(graph.player.shape, clock, jnp.int32),
      )
      per_order.append(np.asarray(keys_of(state)))
    for keys in per_order:  # neither order nor clock matters
      np.testing.assert_array_equal(keys, per_order[0])
    assert len(np.unique(per_order[0], axis=0)) == len(graph.solved)


@pytest.mark.parametrize(
  "height, width, boxes", [(6, 6, 1), (10, 10, 4), (12, 14, 7), (200, 233, 3)]
)
def test_state_key_can_be_decoded(height, width, boxes):
  env = sokoban.Sokoban(height=height, width=width, boxes=boxes, step_limit=1)
  rng = np.random.default_rng(0)
  player = rng.integers(0, env.cells, 200).astype(np.int32)
  places = rng.integers(0, env.cells + 1, (200, boxes)).astype(np.int32)
  places[0] = env.cells
  state = sokoban.State(
    player=jnp.asarray(player),
    boxes=jnp.asarray(places),
    step=jnp.zeros(200, jnp.int32),
  )
  keys = np.asarray(jax.vmap(env.state_key)(state))
  assert (keys >= 0).all()
  for key, cell, row in zip(keys, player, places, strict=True):
    want = [int(cell), *sorted(row.tolist())]
    assert decode(key, 1 + boxes, env.cells + 1) == want


def test_jit_with_a_static_environment():
  env, level, state = load("#####\n#@$.#\n#####")
  step = jax.jit(sokoban.Sokoban.step, static_argnums=0)
  out = step(env, level, state, jnp.int32(RIGHT), None)
  assert int(out.boundary) == Boundary.SUCCESS
  assert hash(env) == hash(dataclasses.replace(env))
  assert (out.reward.dtype, out.boundary.dtype) == (jnp.float32, jnp.int32)
  assert (out.state.player.dtype, out.moved.dtype) == (jnp.int32, jnp.bool_)


@pytest.mark.parametrize(
  "change",
  [
    {"height": 2},
    {"width": 6.0},
    {"boxes": 0},
    {"step_limit": 0},
    {"slip": 1.5},
    {"slip": -0.1},
    {"reward": "dense"},
  ],
)
def test_bad_settings_name_the_attribute(change):
  settings = {"height": 6, "width": 6, "boxes": 1, "step_limit": 9} | change
  with pytest.raises(ValueError, match=next(iter(change))):
    sokoban.Sokoban(**settings)


def test_wrong_level_shape_is_an_error():
  _, level, state = load("#####\n#@$.#\n#####")
  env = sokoban.Sokoban(height=6, width=6, boxes=1, step_limit=9)
  with pytest.raises(AssertionError):
    env.step(level, state, jnp.int32(0), None)


@pytest.mark.real_data
def test_real_boxoban_levels_load_and_play(real_data, tmp_path):
  archive = real_data / "boxoban" / "boxoban_subset.tar.gz"
  if not archive.exists():
    pytest.skip(f"no Boxoban levels at {archive}")
  with tarfile.open(archive) as tar:
    tar.extractall(tmp_path, filter="data")
  levels = sokoban_levels.read_levels(tmp_path)
  assert (levels.height, levels.width, levels.num_boxes) == (10, 10, 4)
  assert len(levels) > 1000
  assert not levels.solved.any()
  assert "boxoban/unfiltered/train/000.txt:0" in levels.ids

  env = make_env(levels, step_limit=40)
  batch = levels.as_levels()

  def scan(state, key):
    action = jax.random.randint(key, (len(levels),), 0, 4)
    out = jax.vmap(env.step)(batch, state, action)
    return out.state, (out.boundary, jax.vmap(env.state_key)(out.state))

  _, (boundary, keys) = jax.jit(
    lambda: jax.lax.scan(
      scan, jax.vmap(env.reset)(batch), jax.random.split(jax.random.key(0), 40)
    )
  )()
  assert (boundary[:-1] == Boundary.NONE).mean() > 0.99
  assert ((boundary[-1] == Boundary.TRUNCATED) | (boundary[-1] == 1)).all()
  assert keys.shape == (40, len(levels), 2)

  chosen = levels.ids.index("boxoban/unfiltered/train/000.txt:120")
  solution = sokoban_solver.solve(levels, chosen)
  assert (solution.length, solution.reachable_states) == (27, 806)
  level = jax.tree.map(lambda x: x[chosen], batch)
  outs = play(env, level, env.reset(level), solution.actions)
  assert [int(out.boundary) for out in outs] == [0] * 26 + [Boundary.SUCCESS]


def test_aliased_keys_see_the_player_alone():
  env, level, state = load("######\n#@ $.#\n######", keys="player")
  moved = state.replace(boxes=state.boxes + 1)
  assert env.key_words == 1 and env.state_key(state).tolist() == [7]
  assert env.state_key(moved).tolist() == [7]
  after = play(env, level, state, [RIGHT])[0].state
  assert env.state_key(after).tolist() == [8]
  with pytest.raises(ValueError, match="keys must be one of"):
    load("#####\n#@$.#\n#####", keys="box")
