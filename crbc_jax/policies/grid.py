"""A Flax policy for grid worlds: an MLP on a crop centred on the player."""

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


class GridPolicy(nnx.Module):
  """MLP from a flattened crop to action logits; relu between layers."""

  def __init__(
    self,
    features: int,
    hidden: tuple[int, ...],
    num_actions: int,
    *,
    rngs: nnx.Rngs,
  ):
    sizes = (features, *hidden)
    self.hidden = nnx.List(
      [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
    )
    # A small last layer starts the policy near uniform.
    self.logits = nnx.Linear(
      sizes[-1],
      num_actions,
      rngs=rngs,
      kernel_init=nnx.initializers.variance_scaling(
        1e-4, "fan_in", "truncated_normal"
      ),
    )

  def __call__(self, features: chex.Array) -> chex.Array:
    """Logits [..., A] of flattened crops [..., features]."""
    for layer in self.hidden:
      features = jax.nn.relu(layer(features))
    return self.logits(features)


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
  radius = radius or full_radius(env)
  features = (2 * radius + 1) ** 2 * PLANES
  module = GridPolicy(
    features, hidden, env.num_actions, rngs=nnx.Rngs(params=seed)
  )
  graph, params = nnx.split(module)

  def logits(params, level, state):
    crop = egocentric_crop(env, level, state, radius=radius)
    return nnx.merge(graph, params)(crop.reshape(-1))

  return nnx.to_pure_dict(params), logits
