import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
from PIL import Image

from crbc_jax.envs import sokoban, sokoban_levels, sokoban_view

WIDTH = 6


def episode():
  levels = sokoban_levels.parse_levels("######\n#@ $.#\n#    #\n######", "x")
  level = jax.tree.map(lambda x: x[0], levels.as_levels())
  states = sokoban.State(
    player=jnp.array([7, 8, 9]),
    boxes=jnp.array([[9], [9], [10]]),
    step=jnp.arange(3),
  )
  return level, states, np.array([3, 3])


def test_text_shows_every_cell():
  level, _, _ = episode()
  lines = sokoban_view.level_text(level, width=WIDTH).plain.split("\n")
  assert [len(line) for line in lines] == [2 * WIDTH] * 4
  assert lines[1] == "██●   ▣ ◇ ██"


def test_rollout_view_shows_steps_and_arrows():
  screen = rich.console.Console(file=io.StringIO(), width=100)
  screen.print(sokoban_view.rollout_view(*episode(), width=WIDTH))
  shown = screen.file.getvalue()
  assert all(word in shown for word in ("0 →", "1 →", "2 end", "▣✓"))


def test_strip_and_gif(tmp_path):
  strip, gif = tmp_path / "a" / "strip.png", tmp_path / "b" / "run.gif"
  sokoban_view.save_strip(strip, *episode(), width=WIDTH, tile=20)
  with Image.open(strip) as image:
    assert image.width == 3 * (WIDTH * 20 + 10) + 10
  sokoban_view.save_gif(gif, *episode(), width=WIDTH, tile=20)
  with Image.open(gif) as image:
    assert image.n_frames == 3
    assert image.size == (WIDTH * 20, 4 * 20 + 16)


def test_wrong_number_of_states_is_an_error():
  level, states, actions = episode()
  with pytest.raises(ValueError, match=r"1 actions need 2 states.*got 3"):
    sokoban_view.rollout_view(level, states, actions[:1], width=WIDTH)
