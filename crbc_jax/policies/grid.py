"""A Flax policy and value for grid worlds: MLPs on a crop round the player."""

import itertools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from crbc_jax.envs.sokoban import Level, Sokoban, State

PLANES = 3  # wall, target, box

LogitsFn = Callable[[Any, Level, State], chex.Array]
"""`logits(params, level, state) -> [A]`, for ONE state."""

ValueFn = Callable[[Any, Level, State], chex.Array]
"""`value(params, level, state) -> []`, for ONE state."""


def full_radius(env: Sokoban) -> int:
  """The crop radius that always shows everything inside the outer wall."""
  return max(env.height, env.width) - 3


def egocentric_crop(
  env: Sokoban, level: Level, state: State, *, radius: int
) -> chex.Array:
  """What lies around the player, in planes wall, target and box.

  Cells outside the grid read as wall.

  Args:
    env: static; gives the size of the grid.
    level: one level, arrays as in `Level`.
    state: one state, arrays as in `State`.
    radius: static, cells seen in each direction.

  Returns:
    float32 [2 radius + 1, 2 radius + 1, PLANES] of 0 and 1.
  """
  offset = jnp.arange(-radius, radius + 1)
  row = (state.player // env.width + offset)[:, None]
  column = (state.player % env.width + offset)[None, :]
  inside = ((row >= 0) & (row < env.height)) & (
    (column >= 0) & (column < env.width)
  )
  cell = jnp.clip(row * env.width + column, 0, env.cells - 1)
  wall = level.walls[cell] | ~inside
  target = level.targets[cell] & inside
  box = (cell[:, :, None] == state.boxes[None, None, :]).any(-1) & inside
  return jnp.stack([wall, target, box], axis=-1).astype(jnp.float32)


class GridNetwork(nnx.Module):
  """MLP from a flattened crop to logits or a value; relu between layers."""

  def __init__(
    self,
    features: int,
    hidden: tuple[int, ...],
    outputs: int,
    *,
    rngs: nnx.Rngs,
  ):
    sizes = (features, *hidden)
    self.hidden = nnx.List(
      [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
    )
    # A small last layer starts the policy near uniform, the value near 0.
    self.last = nnx.Linear(
      sizes[-1],
      outputs,
      rngs=rngs,
      kernel_init=nnx.initializers.variance_scaling(
        1e-4, "fan_in", "truncated_normal"
      ),
    )

  def __call__(self, features: chex.Array) -> chex.Array:
    """Outputs [..., A] of flattened crops [..., features]."""
    for layer in self.hidden:
      features = jax.nn.relu(layer(features))
    return self.last(features)


def make_grid_policy(
  env: Sokoban, *, hidden: tuple[int, ...], radius: int, seed: int
) -> tuple[Any, LogitsFn]:
  """Initial parameters and the pure function that applies them.

  Args:
    env: the environment; static.
    hidden: widths of the hidden layers.
    radius: crop radius; 0 means `full_radius`.
    seed: of the initialisation.

  Returns:
    (params, logits function of one state).
  """
  return _on_crop(env, env.num_actions, hidden=hidden, radius=radius, seed=seed)


def make_grid_value(
  env: Sokoban, *, hidden: tuple[int, ...], radius: int, seed: int
) -> tuple[Any, ValueFn]:
  """A value network on the policy's crop, with parameters of its own.

  Like the policy it doesn't see the clock: a state has one value, however many
  steps are left. Arguments as in `make_grid_policy`; the same seed gives other
  weights than there.

  Returns:
    (params, value function of one state).
  """
  own_seed = jax.random.fold_in(jax.random.key(seed), 1)
  params, network = _on_crop(
    env, 1, hidden=hidden, radius=radius, seed=own_seed
  )

  def value(params, level, state):
    return network(params, level, state)[0]

  return params, value


def _on_crop(env, outputs, *, hidden, radius, seed):
  radius = radius or full_radius(env)
  features = (2 * radius + 1) ** 2 * PLANES
  module = GridNetwork(features, hidden, outputs, rngs=nnx.Rngs(params=seed))
  graph, params = nnx.split(module)

  def apply(params, level, state):
    crop = egocentric_crop(env, level, state, radius=radius)
    return nnx.merge(graph, params)(crop.reshape(-1))

  return nnx.to_pure_dict(params), apply
