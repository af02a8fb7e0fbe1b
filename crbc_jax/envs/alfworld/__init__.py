"""ALFWorld's text games on a light engine of our own.

  games = load_games("json_2.1.1", split="valid_unseen")  # or a bundle
  games = generate_games(100, seed=0)  # without any data
  env = AlfworldEnv(games[0])
  step = env.step(expert_command(env))

No third-party data or code: the games are the user's (`alfworld-download`) or
generated. `results/alfworld_equivalence.json` says what was compared with the
real alfworld and textworld.
"""

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
