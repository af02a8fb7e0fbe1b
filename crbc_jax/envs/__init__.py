"""Environments; `sokoban_view` (rich, Pillow) is imported on its own."""

from crbc_jax.envs.api import Environment, TimeStep
from crbc_jax.envs.sokoban import Level, Sokoban, State, is_solved
from crbc_jax.envs.sokoban_generator import ensure_levels, generate
from crbc_jax.envs.sokoban_levels import (
  LevelError,
  LevelSet,
  parse_levels,
  read_levels,
  write_levels,
)
from crbc_jax.envs.sokoban_solver import (
  Solution,
  StateGraph,
  StateLimitError,
  enumerate_states,
  solve,
)
from crbc_jax.envs.tabular import policy_values, stationary_values

__all__ = [
  "Environment",
  "Level",
  "LevelError",
  "LevelSet",
  "Sokoban",
  "Solution",
  "State",
  "StateGraph",
  "StateLimitError",
  "TimeStep",
  "ensure_levels",
  "enumerate_states",
  "generate",
  "is_solved",
  "parse_levels",
  "policy_values",
  "read_levels",
  "solve",
  "stationary_values",
  "write_levels",
]
