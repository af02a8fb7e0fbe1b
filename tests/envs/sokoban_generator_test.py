import json
import time

import numpy as np
import pytest

from crbc_jax.envs import (
  sokoban_generator,
  sokoban_levels,
  sokoban_solver,
)

SMALL = {"layouts": 20, "held_out_layouts": 6, "starts_per_layout": 3}


def layout_keys(levels):
  symmetries = sokoban_generator.grid_symmetries(levels.height, levels.width)
  return [
    sokoban_generator.layout_key(walls + 2 * targets, symmetries)
    for walls, targets in zip(
      levels.walls.astype(np.uint8),
      levels.targets.astype(np.uint8),
      strict=True,
    )
  ]


@pytest.mark.parametrize(
  "size, boxes", [((6, 6), 1), ((7, 7), 1), ((6, 6), 2), ((5, 8), 2)]
)
def test_levels_are_as_asked(size, boxes):
  sets = sokoban_generator.generate(
    5,
    size=size,
    boxes=boxes,
    inner_walls=(1, 3),
    optimal_length=(4, 9),
    **SMALL,
  )
  assert [len(levels) for levels in sets] == [60, 18]
  for levels in sets:
    assert (levels.height, levels.width) == size
    assert levels.num_boxes == boxes
    assert (levels.targets.sum(axis=1) == boxes).all()
    border = 2 * (size[0] + size[1]) - 4
    inner = levels.walls.sum(axis=1) - border
    assert ((inner >= 1) & (inner <= 3)).all()
    for i in range(len(levels)):
      length = sokoban_solver.solve(levels, i).length
      assert length is not None
      assert 4 <= length <= 9


def test_lengths_equal_the_forward_solver_for_every_start():
  levels, _ = sokoban_generator.generate(
    2, boxes=2, inner_walls=(2, 5), layouts=2, held_out_layouts=1
  )
  for i in (0, 8):
    lengths = sokoban_generator.optimal_lengths(
      levels.walls[i], levels.targets[i], width=6, longest=10**6
    )
    floor = np.flatnonzero(~levels.walls[i])
    for player in floor:
      for one in floor:
        for two in floor[floor > one]:
          if player in (one, two):
            continue
          start = sokoban_levels.LevelSet(
            walls=levels.walls[[i]],
            targets=levels.targets[[i]],
            player=np.array([player], np.int32),
            boxes=np.array([[one, two]], np.int32),
            height=6,
            width=6,
            ids=("x",),
          )
          key = int(player), sokoban_solver.bit_set((one, two))
          solution = sokoban_solver.solve(start, 0)
          assert lengths.get(key) == solution.length


def test_layouts_differ_up_to_symmetry_and_starts_differ():
  sets = sokoban_generator.generate(0, inner_walls=(0, 2), **SMALL)
  keys = [layout_keys(levels) for levels in sets]
  for some in keys:  # the starts of a layout stand together
    assert some[::3] == some[1::3] == some[2::3]
  layouts = keys[0][::3] + keys[1][::3]
  assert len(set(layouts)) == len(layouts) == 26
  texts = [levels.text(i) for levels in sets for i in range(len(levels))]
  assert len(set(texts)) == len(texts)


def test_layout_key_knows_all_symmetries():
  rng = np.random.default_rng(0)
  layout = rng.integers(0, 3, (5, 5)).astype(np.uint8)
  symmetries = sokoban_generator.grid_symmetries(5, 5)
  assert symmetries.shape == (8, 25)
  variants = [
    np.rot90(flipped, n) for flipped in (layout, layout[::-1]) for n in range(4)
  ]
  keys = {
    sokoban_generator.layout_key(v.reshape(-1), symmetries) for v in variants
  }
  assert len(keys) == 1
  other = layout.copy()
  other[0, 0] = (other[0, 0] + 1) % 3
  assert sokoban_generator.layout_key(other.reshape(-1), symmetries) not in keys
  assert sokoban_generator.grid_symmetries(4, 6).shape == (4, 24)


def test_deterministic_and_seeded():
  one, other, third = (
    sokoban_generator.generate(seed, **SMALL) for seed in (0, 0, 1)
  )
  assert [s.digest for s in one] == [s.digest for s in other]
  assert one[0].digest != third[0].digest
  # Another digest means that old levels can't be made again: raise FORMAT.
  assert one[0].digest.startswith("512d14ee80b1a510")


def test_exhausted_family_is_an_error_not_endless():
  begin = time.perf_counter()
  with pytest.raises(
    sokoban_levels.LevelError, match=r"found \d+ of 1200 layouts.*inner_walls"
  ):
    sokoban_generator.generate(
      0, inner_walls=(0, 2), layouts=1000, held_out_layouts=200
    )
  assert time.perf_counter() - begin < 30
  with pytest.raises(sokoban_levels.LevelError, match="found 0 of 26"):
    sokoban_generator.generate(0, optimal_length=(90, 99), **SMALL)


@pytest.mark.parametrize(
  "change, word",
  [
    ({"size": (2, 6)}, "size"),
    ({"boxes": 0}, "boxes"),
    ({"inner_walls": (3, 1)}, "inner_walls"),
    ({"inner_walls": (0, 14)}, "inner cells"),
    ({"optimal_length": (0, 3)}, "optimal_length"),
    ({"layouts": 0}, "layouts"),
    ({"starts_per_layout": 0}, "starts_per_layout"),
  ],
)
def test_bad_arguments(change, word):
  with pytest.raises(ValueError, match=word):
    sokoban_generator.generate(0, **change)


def test_written_levels_read_back_equal(tmp_path):
  spec = {"seed": 3, "boxes": 2, **SMALL}
  paths = sokoban_generator.ensure_levels(tmp_path, **spec)
  for path, levels in zip(
    paths, sokoban_generator.generate(**spec), strict=True
  ):
    again = sokoban_levels.read_levels(path)
    assert again.ids == levels.ids
    assert again.digest == levels.digest
    for name in ("walls", "targets", "player", "boxes"):
      np.testing.assert_array_equal(getattr(again, name), getattr(levels, name))


def test_ensure_levels_reuses_repairs_and_complains(tmp_path, monkeypatch):
  folder = tmp_path / "levels"
  spec = {"seed": 0, **SMALL}
  train, held_out = sokoban_generator.ensure_levels(folder, **spec)
  manifest = json.loads((folder / "levels.json").read_text())
  assert manifest["spec"]["size"] == [6, 6]
  assert manifest["files"]["train.txt"]["levels"] == 60
  text = train.read_text()

  # Spelling out a default is the same spec; nothing is generated again.
  with monkeypatch.context() as patch:
    patch.setattr(sokoban_generator, "_draw_layout", None)
    again = sokoban_generator.ensure_levels(folder, size=(6, 6), **spec)
    assert again == (train, held_out)

  train.unlink()  # as after a crash
  sokoban_generator.ensure_levels(folder, **spec)
  assert train.read_text() == text

  with pytest.raises(
    sokoban_levels.LevelError, match=r"another spec \(seed: 0 there, 1 wanted"
  ):
    sokoban_generator.ensure_levels(folder, **spec | {"seed": 1})

  train.write_text(text.replace("@", " ", 1))
  with pytest.raises(
    sokoban_levels.LevelError, match=r"train\.txt.*changed after"
  ):
    sokoban_generator.ensure_levels(folder, **spec)

  train.write_text(text)
  (folder / "levels.json").write_text("[]")
  with pytest.raises(sokoban_levels.LevelError, match="not a levels manifest"):
    sokoban_generator.ensure_levels(folder, **spec)

  (folder / "levels.json").unlink()
  with pytest.raises(
    sokoban_levels.LevelError, match=r"exists without levels\.json"
  ):
    sokoban_generator.ensure_levels(folder, **spec)

  with pytest.raises(TypeError, match="seed"):
    sokoban_generator.ensure_levels(tmp_path / "new")


@pytest.mark.slow
@pytest.mark.parametrize(
  "size, boxes", [((6, 6), 1), ((7, 7), 1), ((6, 6), 2), ((7, 7), 2)]
)
def test_every_level_of_the_full_families_is_solved_exactly(size, boxes):
  """The 12,000 + 1,024 levels a run uses, against the forward search."""
  sets = sokoban_generator.generate(0, size=size, boxes=boxes)
  keys = [set(layout_keys(levels)) for levels in sets]
  assert [len(k) for k in keys] == [1_500, 128]
  assert not keys[0] & keys[1]
  for levels in sets:
    lengths = {}
    for i in range(len(levels)):
      layout = i - i % 8  # levels of one layout stand together
      if i == layout:
        lengths = sokoban_generator.optimal_lengths(
          levels.walls[i],
          levels.targets[i],
          width=levels.width,
          longest=10**6,
        )
      start = int(levels.player[i]), sokoban_solver.bit_set(levels.boxes[i])
      length = sokoban_solver.solve(levels, i).length
      assert length is not None
      assert 3 <= length <= 20
      assert lengths[start] == length
