"""Merging against dictionaries, and what is left of the graph to solve."""

import functools

import numpy as np
import pytest

from crbc_jax.rollouts.batching import make_batch, prepare
from crbc_jax.types import Boundary
from tests import groups as groups_lib
from tests.rollouts import loops

LIVE = (Boundary.NONE, Boundary.TRUNCATED)


@functools.cache
def random_groups():
  return groups_lib.random_groups(
    150, 81, missing=(0, 0, 0.3), max_rollouts=6, max_steps=8
  )


def by_group(groups):
  """(interned, merged) arrays of each group of a table, as small dicts."""
  ids, merged, _ = prepare(groups_lib.table_of(groups))
  for g in range(len(groups)):
    rows, edges, nodes = (
      x == g for x in (ids.group, merged.group, merged.node_group)
    )
    yield (
      {
        f: getattr(ids, f)[rows].tolist()
        for f in ("state", "pair", "next_state", "boundary")
      },
      {"row": merged.row[rows].tolist()}
      | {
        f: getattr(merged, f)[edges].tolist()
        for f in ("number", "pair", "next_state", "boundary", "visits")
      }
      | {
        f: getattr(merged, f)[nodes].tolist()
        for f in ("node_state", "hop", "slot")
      },
    )


def successors(rows):
  """Live successors of each anchor other than itself."""
  found = {s: set() for s in rows["state"]}
  for s, x, end in zip(
    rows["state"], rows["next_state"], rows["boundary"], strict=True
  ):
    if end in LIVE and x >= 0 and x != s:
      found[s].add(x)
  return found


def circles(only):
  """Circles of the map from each anchor to its only successor."""
  found = set()
  for start in only:
    seen = [start]
    while seen[-1] in only and only[seen[-1]] not in seen:
      seen.append(only[seen[-1]])
    if seen[-1] in only:
      found.add(frozenset(seen[seen.index(only[seen[-1]]) :]))
  return found


@pytest.mark.parametrize("make", [random_groups, loops.every_kind])
def test_merging_is_counting_in_a_dictionary(make):
  repeated = 0
  for rows, merged in by_group(make()):
    keys = list(
      zip(rows["pair"], rows["next_state"], rows["boundary"], strict=True)
    )
    number, count = {}, {}
    for key in keys:
      number.setdefault(key, len(number))  # by first row
      count[key] = count.get(key, 0) + 1
    assert merged["row"] == [number[key] for key in keys]
    assert merged["number"] == list(range(len(number)))
    assert merged["visits"] == list(count.values())
    assert list(
      zip(merged["pair"], merged["next_state"], merged["boundary"], strict=True)
    ) == list(number)
    repeated += len(keys) - len(number)
  assert repeated > 50


@pytest.mark.parametrize("make", [random_groups, loops.every_kind])
def test_what_is_left_to_solve(make):
  """Hops where there is one way on; branching where there are several, and
  at one anchor of each circle of hops."""
  met = {"hop": 0, "several": 0, "circle": 0, "end": 0}
  for rows, merged in by_group(make()):
    ways = successors(rows)
    assert merged["node_state"] == list(range(len(ways)))
    only = {s: next(iter(x)) for s, x in ways.items() if len(x) == 1}
    rings = circles(only)
    on_ring = {s for ring in rings for s in ring}
    for s, x in ways.items():
      hop, slot = merged["hop"][s], merged["slot"][s]
      if len(x) != 1:
        assert hop == s and (slot >= 0) == (len(x) > 1)
        met["several" if x else "end"] += 1
      elif s not in on_ring:
        assert (hop, slot) == (only[s], -1)
        met["hop"] += 1
      else:
        assert (hop == only[s]) == (slot == -1)
    for ring in rings:
      opened = [s for s in ring if merged["slot"][s] >= 0]
      assert len(opened) == 1 and merged["hop"][opened[0]] == opened[0]
      met["circle"] += 1
    slots = [n for n in merged["slot"] if n >= 0]
    assert slots == list(range(len(slots)))  # ascending, from 0 in each group
  assert met["hop"] and met["several"] and met["end"]
  assert met["circle"] >= (20 if make is loops.every_kind else 1)


def test_hops_end_from_everywhere():
  for _, merged in by_group(loops.every_kind() + random_groups()[:50]):
    hop = np.array(merged["hop"])
    for _ in range(len(hop).bit_length()):
      hop = hop[hop]
    assert (hop[hop] == hop).all()


@pytest.mark.parametrize("size", loops.SIZES)
def test_circles_by_hand(size):
  ((_, merged),) = by_group([loops.leaving_a_circle(size)])
  ring = range(size)  # numbered along the first rollout
  assert merged["slot"] == [0] + [-1] * (size - 1)
  assert merged["hop"] == [0, *((s + 1) % size for s in ring if s)]


def test_self_loops_and_chains_by_hand():
  (_, loop), _ = by_group([loops.self_loops(), loops.self_loops()])
  assert loop["hop"] == [1, 1] and loop["slot"] == [-1, -1]
  groups = [
    [loops.path("a", "b", "c", end="success")],
    [
      loops.path("a", "b", "b", end="success"),
      loops.path("a", "c", end="failure"),
    ],
  ]
  (_, chain), (_, fork) = by_group(groups)
  assert chain["hop"] == [1, 2, 2] and chain["slot"] == [-1] * 3
  assert fork["hop"] == [0, 1, 2] and fork["slot"] == [0, -1, -1]


def test_truncation_at_a_known_state_is_live():
  """It may be bootstrapped; failure at one never is."""
  ((rows, merged),) = by_group([loops.truncated_at_an_anchor()])
  s, m, t, k = rows["state"][0], rows["state"][1], rows["state"][4], 3
  assert [s, m, t, k] == [0, 1, 2, 3]
  assert successors(rows) == {s: {m}, m: {t, k}, t: set(), k: {s}}
  # s -> m, which leads to t or, cut off, to k; k -> s.
  assert merged["hop"] == [m, m, t, s]
  assert merged["slot"] == [-1, 0, -1, -1]


def test_padding_of_the_merged_arrays():
  groups = loops.every_kind()
  batch = make_batch(groups_lib.table_of(groups))
  merged, arrays = batch.arrays.transitions, batch.arrays
  n, a = arrays.state_mask.shape[1], merged.slot_mask.shape[1]
  for g, (_, want) in enumerate(by_group(groups)):
    edges, nodes = len(want["visits"]), len(want["hop"])
    assert merged.count[g, :edges].tolist() == want["visits"]
    assert not merged.count[g, edges:].any()
    outside = [n if x < 0 else x for x in want["next_state"]]
    assert merged.next_state[g, :edges].tolist() == outside
    assert merged.hop[g, :nodes].tolist() == want["hop"]
    slots = [a if x < 0 else x for x in want["slot"]]
    assert merged.slot[g, :nodes].tolist() == slots
    assert (merged.slot[g, nodes:] == a).all()
    assert merged.slot_mask[g].sum() == max(want["slot"]) + 1
    assert merged.count[g].sum() == arrays.mask[g].sum()
