"""ALFWorld's text games on a light engine of our own."""

from crbc_jax.envs.alfworld.engine import AlfworldEnv
from crbc_jax.envs.alfworld.errors import GameError
from crbc_jax.envs.alfworld.expert import expert_command, noisy
from crbc_jax.envs.alfworld.game import Game, make_game
from crbc_jax.envs.alfworld.games import load_games
from crbc_jax.envs.alfworld.generator import generate_games

__all__ = [
  "AlfworldEnv",
  "Game",
  "GameError",
  "expert_command",
  "generate_games",
  "load_games",
  "make_game",
  "noisy",
]
