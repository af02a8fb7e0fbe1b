"""What is raised for games that cannot be played."""

from crbc_jax.envs.text import GameDataError


class GameError(GameDataError):
  """A game that cannot be played; the message names the file and the line."""

  def __init__(self, place: str, reason: str):
    super().__init__(f"{place}: {reason}")
    self.place, self.reason = place, reason
