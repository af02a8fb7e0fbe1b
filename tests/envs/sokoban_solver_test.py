import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.envs import (
  sokoban,
  sokoban_generator,
  sokoban_levels,
  sokoban_solver,
)
from crbc_jax.types import Boundary

UP, DOWN, LEFT, RIGHT = range(4)


def parse(text):
  return sokoban_levels.parse_levels(text, "test")


def make_env(levels):
  return sokoban.Sokoban(
    height=levels.height,
    width=levels.width,
    boxes=levels.num_boxes,
    step_limit=1000,
  )


@pytest.mark.parametrize(
  "text, length, actions",
  [
    ("#####\n#@$.#\n#####", 1, (RIGHT,)),
    ("######\n#@ $.#\n######", 2, (RIGHT, RIGHT)),
    ("#####\n#@* #\n#####", 0, ()),
    ("#####\n#.$ #\n#   #\n#  @#\n#####", 3, (UP, UP, LEFT)),
  ],
)
def test_known_solutions(text, length, actions):
  solution = sokoban_solver.solve(parse(text), 0)
  assert (solution.length, solution.actions) == (length, actions)


def test_unsolvable():
  solution = sokoban_solver.solve(parse("######\n#$@ .#\n######"), 0)
  assert solution.length is None
  assert solution.actions is None
  assert solution.reachable_states == 3


def test_known_graph():
  graph = sokoban_solver.enumerate_states(parse("######\n#@ $.#\n######"), 0)
  np.testing.assert_array_equal(graph.player, [7, 8, 9])
  np.testing.assert_array_equal(graph.boxes, [[9], [9], [10]])
  np.testing.assert_array_equal(
    graph.next_state, [[0, 0, 0, 1], [1, 1, 0, 2], [2, 2, 2, 2]]
  )
  np.testing.assert_array_equal(graph.solved, [False, False, True])
  assert graph.next_state.dtype == np.int32


def test_state_limit_is_a_clear_error():
  levels = parse("########\n#@     #\n#  $ $ #\n# .. $.#\n########")
  with pytest.raises(
    sokoban_solver.StateLimitError, match=r"test:0.*max_states=100"
  ):
    sokoban_solver.enumerate_states(levels, 0, max_states=100)


@pytest.mark.parametrize(
  "size, boxes", [((6, 6), 1), ((6, 6), 2), ((5, 7), 2), ((7, 7), 3)]
)
def test_graph_is_what_jax_does(size, boxes):
  levels, _ = sokoban_generator.generate(
    3,
    size=size,
    boxes=boxes,
    inner_walls=(1, 4),
    layouts=4,
    held_out_layouts=1,
    starts_per_layout=1,
  )
  env = make_env(levels)
  over_actions = jax.vmap(env.step, in_axes=(None, None, 0, None))
  over_states = jax.jit(jax.vmap(over_actions, in_axes=(None, 0, None, None)))
  for i in range(len(levels)):
    graph = sokoban_solver.enumerate_states(levels, i)
    level = jax.tree.map(lambda x, i=i: x[i], levels.as_levels())
    states = sokoban.State(
      player=jnp.asarray(graph.player),
      boxes=jnp.asarray(graph.boxes),
      step=jnp.zeros_like(graph.player),
    )
    out = over_states(level, states, jnp.arange(4), None)
    live = ~graph.solved
    after = graph.next_state[live]
    np.testing.assert_array_equal(
      np.asarray(out.state.player)[live], graph.player[after]
    )
    np.testing.assert_array_equal(
      np.sort(np.asarray(out.state.boxes), axis=-1)[live], graph.boxes[after]
    )
    np.testing.assert_array_equal(
      np.asarray(out.boundary)[live] == Boundary.SUCCESS, graph.solved[after]
    )


def test_solution_replays_to_success_in_exactly_its_length():
  levels, _ = sokoban_generator.generate(
    0, size=(6, 7), boxes=2, layouts=6, held_out_layouts=1, starts_per_layout=3
  )
  env = make_env(levels)
  step = jax.jit(env.step)
  for i in range(len(levels)):
    solution = sokoban_solver.solve(levels, i)
    assert len(solution.actions) == solution.length
    level = jax.tree.map(lambda x, i=i: x[i], levels.as_levels())
    state = env.reset(level)
    boundaries = []
    for action in solution.actions:
      out = step(level, state, jnp.int32(action), None)
      state = out.state
      boundaries.append(int(out.boundary))
    assert boundaries == [0] * (solution.length - 1) + [Boundary.SUCCESS]
