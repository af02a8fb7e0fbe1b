import dataclasses

import numpy as np
import pytest

from crbc_jax.envs import sokoban_levels
from crbc_jax.envs.sokoban_levels import LevelError

TWO = """; 0
#####
#@$.#
#####

; 1
#######
#.@ # #
#$ *  #
#     #
#######
"""


def assert_same(one, other):
  for field in dataclasses.fields(one):
    np.testing.assert_array_equal(
      getattr(one, field.name), getattr(other, field.name)
    )


def test_parse():
  levels = sokoban_levels.parse_levels(TWO, "two.txt")
  assert len(levels) == 2
  assert (levels.height, levels.width, levels.num_boxes) == (5, 7, 2)
  assert levels.ids == ("two.txt:0", "two.txt:1")
  assert levels.player.tolist() == [8, 9]
  assert levels.boxes.tolist() == [[9, 35], [15, 17]]
  assert levels.solved.tolist() == [False, False]
  # Smaller levels are padded with walls.
  assert levels.text(0) == ("#######\n#@$.###\n#######\n#######\n#######")
  assert levels.text(1) == "#######\n#.@ # #\n#$ *  #\n#     #\n#######"


def test_dialects_give_the_same_level():
  texts = [
    "######\n#@ $.#\n######",
    "; a title\n; 7\n######\n#@-$.#\n######\n; end",
    "\r\n######\r\n#@_$.#\r\n######\r\n",
    "######  \n#@ $.#\n######\n   \n\n",
  ]
  first, *others = [sokoban_levels.parse_levels(t, "x") for t in texts]
  for other in others:
    assert_same(first, other)
    assert first.digest == other.digest


def test_ragged_lines_keep_the_outside_as_floor():
  text = "  ####\n###  #\n#@$. #\n######"
  levels = sokoban_levels.parse_levels(text, "x")
  assert levels.text(0) == "  ####\n###  #\n#@$. #\n######"
  assert not levels.walls[0, 0]


def test_solved_levels_are_kept_and_marked():
  levels = sokoban_levels.parse_levels(
    "####\n#@*#\n####\n\n#####\n#@$.#\n#####", "x"
  )
  assert levels.solved.tolist() == [True, False]
  plus = sokoban_levels.parse_levels("######\n#+$* #\n######", "x")
  assert plus.solved.tolist() == [False]


def test_take():
  levels = sokoban_levels.parse_levels(TWO, "two.txt")
  assert levels.take([1, 0, 1]).ids == ("two.txt:1", "two.txt:0", "two.txt:1")
  assert levels.take(np.array([False, True])).text(0) == levels.text(1)
  assert levels.take(-1).ids == ("two.txt:1",)
  with pytest.raises(IndexError):
    levels.take([2])


def test_as_levels():
  batch = sokoban_levels.parse_levels(TWO, "two.txt").as_levels()
  assert batch.walls.shape == (2, 35)
  assert str(batch.walls.dtype) == "bool"
  assert str(batch.boxes.dtype) == "int32"
  assert str(batch.player.dtype) == "int32"


def test_wrong_shapes_are_an_error():
  levels = sokoban_levels.parse_levels(TWO, "two.txt")
  with pytest.raises(ValueError, match="player"):
    dataclasses.replace(levels, player=levels.player[:1])


def test_round_trip(tmp_path):
  levels = sokoban_levels.parse_levels(TWO, "two.txt")
  path = tmp_path / "below" / "two.txt"
  sokoban_levels.write_levels(path, levels)
  again = sokoban_levels.read_levels(path)
  assert_same(levels, again)
  assert levels.digest == again.digest
  sokoban_levels.write_levels(path, levels.take([1]))  # replaces
  assert len(sokoban_levels.read_levels(path)) == 1
  assert [p.name for p in path.parent.iterdir()] == ["two.txt"]


def test_digest_follows_the_content_only():
  levels = sokoban_levels.parse_levels(TWO, "a")
  assert levels.digest == sokoban_levels.parse_levels(TWO, "b").digest
  assert levels.digest != levels.take([1, 0]).digest


def test_read_folder_recursively_in_order(tmp_path):
  small = "#####\n#@$.#\n#####"
  (tmp_path / "b").mkdir()
  (tmp_path / "b" / "one.xsb").write_text(small)
  (tmp_path / "a.txt").write_text(TWO)
  (tmp_path / "README.md").write_text("not a level")
  levels = sokoban_levels.read_levels(tmp_path)
  assert levels.ids == ("a.txt:0", "a.txt:1", "b/one.xsb:0")
  assert levels.width == 7


GOOD = "#####\n#@$.#\n#####\n\n"


@pytest.mark.parametrize(
  "bad, words",
  [
    ("#####\n#@x.#\n#####", "line 6, column 3.*unknown character 'x'"),
    ("#####\n#\t@$.#\n#####", "line 6, column 2.*unknown character"),
    ("#####\n# $.#\n#####", "line 5.*no player"),
    ("######\n#@$.@#\n######", "line 5.*2 players"),
    ("#####\n#@  #\n#####", "line 5.*no boxes"),
    ("######\n#@$$.#\n######", "line 5.*fewer targets than boxes"),
    ("######\n#@$..#\n######", "line 5.*more targets than boxes"),
    ("#####\n#@$. \n#####", "line 5.*not closed.*row 2, column 5"),
    ("#####\n#@ $.#\n## ###", "line 5.*not closed.*row 3, column 3"),
  ],
)
def test_bad_level_names_file_level_and_line(bad, words):
  with pytest.raises(LevelError, match=words) as error:
    sokoban_levels.parse_levels(GOOD + bad, "some.txt")
  assert str(error.value).startswith("some.txt: level 1 (line ")
  assert "; " in str(error.value)  # and says what to do


def test_bad_files(tmp_path):
  with pytest.raises(LevelError, match=r"nowhere.*no such file"):
    sokoban_levels.read_levels(tmp_path / "nowhere")
  with pytest.raises(LevelError, match=r"no level files"):
    sokoban_levels.read_levels(tmp_path)
  empty = tmp_path / "empty.txt"
  empty.write_text("; only a title\n\n")
  with pytest.raises(LevelError, match=r"empty\.txt.*no level"):
    sokoban_levels.read_levels(empty)
  empty.write_bytes(b"\x1f\x8b\x08\xff")
  with pytest.raises(LevelError, match=r"empty\.txt.*not a text file"):
    sokoban_levels.read_levels(empty)
