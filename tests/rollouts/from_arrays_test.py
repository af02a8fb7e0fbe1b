import itertools

import jax
import numpy as np
import pytest

from crbc_jax.credit import registry
from crbc_jax.learner import collect, training_step
from crbc_jax.rollouts import batching, table
from crbc_jax.rollouts.from_arrays import (
  batch_arrays,
  fixed_shape,
  fold_key_words,
  table_from_arrays,
)
from crbc_jax.rollouts.validation import validate
from crbc_jax.types import Boundary
from tests import tiny_runs

TOP = 2**31 - 1


@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_fold_key_words_is_exact(words):
  # The corners of the range and every near miss of them.
  values = (0, 1, 2, TOP - 1, TOP)
  keys = np.array(list(itertools.product(values, repeat=words)), np.int32)
  folded = fold_key_words(keys)
  assert folded.dtype == np.int64
  assert len(set(folded.tolist())) == len(keys)
  again = fold_key_words(np.stack([keys, keys[::-1]]))  # any leading axes
  assert again.shape == (2, len(keys))
  np.testing.assert_array_equal(again[0], again[1, ::-1])


def test_fold_key_words_of_one_and_two_words_does_not_depend_on_the_others():
  keys = np.array([[5, 7], [TOP, TOP]], np.int32)
  for words in (1, 2):
    whole = fold_key_words(keys[:, :words])
    parts = [fold_key_words(k[None, :words])[0] for k in keys]
    np.testing.assert_array_equal(whole, parts)
  np.testing.assert_array_equal(fold_key_words(keys[:, :1]), [5, TOP])
  assert fold_key_words(keys)[1] == 2**62 - 1


def hand_arrays():
  """Two groups of two rollouts; three steps at most; two words a key."""
  key = np.arange(24).reshape(2, 2, 3, 2)
  boundary = np.zeros((2, 2, 3), int)
  boundary[0, 0, 2] = boundary[1, 0, 2] = Boundary.TRUNCATED
  boundary[0, 1, 0] = boundary[1, 1, 1] = Boundary.SUCCESS
  length = np.array([[3, 1], [3, 2]])
  mask = np.arange(3) < length[..., None]
  final = 100 + np.arange(8).reshape(2, 2, 2)
  for p, g in np.ndindex(2, 2):  # after the end the state stands still
    key[p, g, length[p, g] :] = final[p, g]
  return {
    "state_key": key.astype(np.int32),
    "final_key": final.astype(np.int32),
    "action": np.arange(12).reshape(2, 2, 3) % 4,
    "reward": np.where(boundary == Boundary.SUCCESS, 1.0, -0.5).astype("f4"),
    "boundary": boundary,
    "mask": mask,
  }


def test_table_from_arrays_by_hand():
  arrays = hand_arrays()
  got = table_from_arrays(**arrays)
  validate(got)
  wanted = []
  for p, g in np.ndindex(2, 2):
    steps = int(arrays["mask"][p, g].sum())
    states = [
      int(a) << 31 | int(b)
      for a, b in [
        *arrays["state_key"][p, g, :steps],
        arrays["final_key"][p, g],
      ]
    ]
    for t in range(steps):
      boundary = int(arrays["boundary"][p, g, t])
      wanted.append(
        {
          "group_id": p,
          "traj_id": 2 * p + g,
          "step_idx": t,
          "state_key": states[t],
          "next_state_key": states[t + 1],
          "action_key": int(arrays["action"][p, g, t]),
          "reward": float(arrays["reward"][p, g, t]),
          "boundary": boundary,
          "outcome": g == 1,
          "valid": True,
          "weight": 1.0,
          "row_id": 6 * p + 3 * g + t,
        }
      )
  assert len(got) == len(wanted) == 9
  for name in wanted[0]:
    found = getattr(got, name).tolist()
    assert found == [row[name] for row in wanted], name


def test_values_of_a_critic_follow_their_steps():
  arrays = hand_arrays()
  assert table_from_arrays(**arrays).value is None
  value = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 8
  value[~arrays["mask"]] = np.nan
  got = batch_arrays(**arrays, value=value, actions=4)
  assert got.table.value.tolist() == value[arrays["mask"]].tolist()
  np.testing.assert_array_equal(
    got.to_steps(got.arrays.value), np.where(arrays["mask"], value, 0)
  )
  without = batch_arrays(**arrays, actions=4).arrays.value
  assert without.shape == got.arrays.value.shape
  assert without.dtype == got.arrays.value.dtype == np.float32
  assert not without.any()


def test_fixed_shape_depends_on_the_batch_alone_and_has_few_rungs():
  sizes = {"groups": 4, "rollouts": 3, "steps": 40, "actions": 4}
  shapes = {}
  for anchors in (1, 32, 33, 64, 65, 120):
    needed = batching.BatchShape(
      groups=4,
      rows=60,
      anchors=anchors,
      pairs=60,
      rollouts=3,
      transitions=60,
      branching=1,
    )
    shapes[anchors] = shape = fixed_shape(needed, **sizes)
    assert shape == fixed_shape(needed, **sizes)
    assert (shape.groups, shape.rows, shape.rollouts) == (4, 120, 3)
    assert shape.anchors >= anchors
    assert shape.pairs == 120
  assert shapes[1] == shapes[32] and shapes[33] == shapes[64]
  assert [shapes[n].anchors for n in (1, 33, 65)] == [32, 64, 128]
  assert all(s.branching == s.anchors for s in shapes.values())
  # A group can't have more pairs than anchors times actions.
  few = fixed_shape(needed._replace(anchors=2), **sizes | {"actions": 2})
  assert few.pairs == 64


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_credit_rollouts_equals_a_table_of_object_keys(slip):
  levels = tiny_runs.make_levels()[0].take([0, 9, 18, 27])
  env = tiny_runs.make_env(levels, slip=slip)
  rollouts = collect.make_collect_fn(
    env, lambda params, level, state: params[state.player], group_size=4
  )(
    np.random.default_rng(0).normal(size=(env.cells, 4)).astype(np.float32),
    levels.as_levels(),
    jax.random.key(0),
  )
  credit_fn = registry.make_credit_fn("crbc", truncation="bootstrap")
  advantage, arrays, credit = training_step.credit_rollouts(
    rollouts, credit_fn, actions=env.num_actions
  )

  rollouts = jax.device_get(rollouts)
  rows, places = [], []
  for p, g in np.ndindex(rollouts.mask.shape[:2]):
    states = rollouts.state
    keys = [
      (int(player), *sorted(boxes.tolist()))
      for player, boxes in zip(
        states.player[p, g], states.boxes[p, g], strict=True
      )
    ]
    last = int(rollouts.mask[p, g].sum()) - 1
    for t in range(last + 1):
      rows.append(
        {
          "group_id": f"level {p}",
          "traj_id": (p, g),
          "step_idx": t,
          "state_key": keys[t],
          "next_state_key": (
            keys[t + 1]
            if t + 1 < len(keys)
            else tuple(rollouts.final_key[p, g].tolist())
          ),
          "action_key": "UDLR"[rollouts.action[p, g, t]],
          "reward": float(rollouts.reward[p, g, t]),
          "boundary": int(rollouts.boundary[p, g, t]),
        }
      )
      places.append((p, g, t))
  # The last key is of another form, so look it up where it was acted from.
  by_word = {
    tuple(rollouts.key[at].tolist()): rows[i]["state_key"]
    for i, at in enumerate(places)
  }
  for row in rows:
    row["next_state_key"] = by_word.get(
      row["next_state_key"], row["next_state_key"]
    )
  by_hand = table.StepTable.from_rows(rows)
  validate(by_hand)
  batch = batching.make_batch(by_hand)
  wanted = batch.to_rows(
    np.asarray(credit_fn(batch.arrays).advantage), len(by_hand)
  )
  got = advantage[tuple(np.transpose(places))]
  np.testing.assert_allclose(got, wanted, atol=2e-5)
  assert advantage.shape == rollouts.mask.shape
  assert not advantage[~rollouts.mask].any()
  assert advantage.any(axis=2).any(axis=1).sum() > 1
  assert arrays.mask.sum() == rollouts.mask.sum()
  assert credit.live.shape == arrays.mask.shape
