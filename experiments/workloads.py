"""Synthetic rollouts with the state statistics of real agents; see `SPECS`.

  python -m experiments.workloads

prints what they look like. A group has hubs (states that many rollouts share)
and detours (chains of states that one rollout saw once): that is what decides
how hard the closure is. Walkers move in lockstep, so two million steps take
about a second.
"""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable

import numpy as np
import rich.console
import rich.table

from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

GROUP = 8  # rollouts of a group
ACTIONS = 4


@dataclasses.dataclass(frozen=True)
class Spec:
  """A kind of agent; rates are per step."""

  horizon: int  # T, truncation
  hubs: int  # shared states of a group
  detour: float  # chance that a step from a hub enters a detour
  detour_length: float  # mean length of a detour
  win: float  # chance of success at the goal, half way round
  quit: float  # chance of failure anywhere


SPECS = {
  "web": Spec(15, 12, 0.19, 1.3, 0.50, 0.002),
  "alfworld": Spec(50, 27, 0.11, 1.4, 0.50, 0.002),
  "swe": Spec(200, 23, 0.55, 7.5, 0.40, 0.002),
  "long": Spec(500, 115, 0.28, 1.6, 0.15, 0.0001),
}
WANTED = {  # steps, largest N, largest M of 16 groups of 8
  "web": (1_800, 42, 11),
  "alfworld": (5_400, 83, 26),
  "grid": (12_000, 59, 50),
  "swe": (18_000, 1_147, 23),
  "long": (55_000, 1_328, 114),
}
"""What is to be matched, from shared/design/numerics.md section 4."""


def make_table(
  name: str, groups: int, *, seed: int = 0, rollouts: int = GROUP
) -> StepTable:
  """`groups` groups of `rollouts` rollouts of a kind of agent.

  Args:
    name: of `SPECS`, or "grid".
    groups: B.
    seed: of everything.
    rollouts: G of each group.

  Returns:
    A table with integer keys, rows in (group, rollout, step) order.
  """
  rng = np.random.default_rng(seed)
  group = np.repeat(np.arange(groups), rollouts)
  if name == "grid":
    return _grid(rng, group)
  return _hub_walks(rng, SPECS[name], group)


def equal_table(groups: int, *, steps: int = 50, seed: int = 0) -> StepTable:
  """Groups of eight rollouts of `steps` steps each; half of them succeed."""
  rng = np.random.default_rng(seed)
  spec = dataclasses.replace(SPECS["alfworld"], horizon=steps, win=0, quit=0)
  table = _hub_walks(rng, spec, np.repeat(np.arange(groups), GROUP))
  boundary = table.boundary.copy()
  ends = np.flatnonzero(boundary != Boundary.NONE)
  boundary[ends[rng.random(len(ends)) < 0.5]] = Boundary.SUCCESS
  columns = {
    name: getattr(table, name)
    for name in ("group_id", "traj_id", "step_idx", "state_key", "action_key")
  }
  return StepTable.from_columns(boundary=boundary, **columns)


def giant_group(steps: int, *, name: str = "long", seed: int = 0) -> StepTable:
  """One group of exactly `steps` steps; the last rollout is cut there."""
  rng = np.random.default_rng(seed)
  spec = SPECS[name]
  walkers = 2 + 3 * steps // spec.horizon  # nobody stops that early
  return _cut(_hub_walks(rng, spec, np.zeros(walkers, np.int64)), steps)


def lattice_group(
  steps: int = 778_000, *, horizon: int = 2_000, seed: int = 0
) -> StepTable:
  """One group of random walks from one corner of an endless lattice.

  Nearly every state branches, so contraction hardly helps: 778,000 steps
  leave about 13,000 branching states of 15,000.
  """
  rng = np.random.default_rng(seed)
  walkers = -(-steps // horizon)
  action = rng.integers(ACTIONS, size=(walkers, horizon)).astype(np.int64)
  moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
  # A soft pull to the start keeps the walkers on ground others know.
  place = np.zeros((walkers, 2), np.int64)
  state = np.empty((walkers, horizon), np.int64)
  for t in range(horizon):
    state[:, t] = (place[:, 0] << 32) + place[:, 1]
    place += moves[action[:, t]]
    place -= (rng.random((walkers, 2)) < 0.0003 * np.abs(place)) * np.sign(
      place
    )
  won = rng.random(walkers) < 0.5
  table = _table(
    np.zeros(walkers, np.int64),
    state + (1 << 48),
    action,
    np.full(walkers, horizon),
    np.where(won, Boundary.SUCCESS, Boundary.TRUNCATED),
  )
  return _cut(table, steps)


def with_text(table: StepTable, characters: int) -> dict[str, list]:
  """Columns with string keys, every string a new object.

  Args:
    table: with integer keys.
    characters: length of a state's text; an action has about ten.

  Returns:
    Keyword arguments of `StepTable.from_columns`, as Python lists: what a
    rollout worker hands over. Make them anew for each measurement, because a
    string remembers its hash.
  """
  filler = "You see a door, a lamp and a drawer. " * (characters // 37 + 1)
  filler = filler[: characters - 20]

  def text(key: int) -> str:
    return f"{key:020d}{filler}"

  return {
    "group_id": [f"task {x}" for x in table.group_id.tolist()],
    "traj_id": [f"rollout {x}" for x in table.traj_id.tolist()],
    "step_idx": table.step_idx.tolist(),
    "state_key": [text(x) for x in table.state_key.tolist()],
    "action_key": [f"action {x}" for x in table.action_key.tolist()],
    "boundary": table.boundary.tolist(),
  }


def text_table(table: StepTable, characters: int) -> StepTable:
  """The same rollouts with strings as keys."""
  return StepTable.from_columns(**with_text(table, characters))


def _hub_walks(
  rng: np.random.Generator, spec: Spec, group: np.ndarray
) -> StepTable:
  """Walkers between the hubs of their group, with private detours."""
  walkers, hubs = len(group), spec.hubs
  # Each group has its own map; an action leads to one of two hubs near by.
  ways = rng.integers(
    -3, 5, size=(group[-1] + 1, hubs, ACTIONS, 2), dtype=np.int64
  )
  state = np.empty((walkers, spec.horizon), np.int64)
  action = rng.integers(ACTIONS, size=state.shape).astype(np.int64)
  length = np.full(walkers, spec.horizon)
  end = np.full(walkers, int(Boundary.TRUNCATED))
  hub, left = np.zeros(walkers, np.int64), np.zeros(walkers, np.int64)
  own = hubs + np.arange(walkers) * spec.horizon  # private state numbers
  alive = np.ones(walkers, bool)
  for t in range(spec.horizon):
    away = left > 0
    state[:, t] = np.where(away, own + t, hub)
    chance = rng.random((3, walkers))
    won = alive & ~away & (hub == hubs // 2) & (chance[0] < spec.win)
    lost = alive & ~won & (chance[1] < spec.quit)
    length[won | lost] = t + 1
    end[won], end[lost] = Boundary.SUCCESS, Boundary.FAILURE
    alive &= ~(won | lost)
    enters = ~away & (chance[2] < spec.detour)
    way = ways[group, hub, action[:, t], (chance[2] * 64).astype(int) % 2]
    hub = np.where(away, hub, (hub + way) % hubs)
    left = np.where(
      enters,
      rng.geometric(1 / spec.detour_length, size=walkers),
      np.maximum(left - 1, 0),
    )
  return _table(group, state, action, length, end)


def _grid(rng: np.random.Generator, group: np.ndarray) -> StepTable:
  """Random walks on an 8 x 8 room with pillars, T = 100: no private states."""
  walkers, side, horizon = len(group), 8, 100
  moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
  pillars = np.zeros((side, side), bool)
  pillars[[1, 3, 4, 6, 6], [2, 5, 1, 4, 6]] = True
  state = np.empty((walkers, horizon), np.int64)
  action = rng.choice(ACTIONS, size=state.shape, p=[0.3, 0.3, 0.2, 0.2])
  length = np.full(walkers, horizon)
  end = np.full(walkers, int(Boundary.TRUNCATED))
  place = np.zeros((walkers, 2), np.int64)
  alive = np.ones(walkers, bool)
  for t in range(horizon):
    state[:, t] = place[:, 0] * side + place[:, 1]
    to = np.clip(place + moves[action[:, t]], 0, side - 1)
    place = np.where(pillars[to[:, 0], to[:, 1], None], place, to)
    won = alive & (place == side - 1).all(axis=1)
    won &= rng.random(walkers) < 0.3
    length[won], end[won] = t + 1, Boundary.SUCCESS
    alive &= ~won
  return _table(group, state, action.astype(np.int64), length, end)


def _table(group, state, action, length, end) -> StepTable:
  """Padded walks [W, T] as a table; nothing follows a last step (key -1)."""
  played = np.arange(state.shape[1]) < length[:, None]
  traj, step = np.nonzero(played)
  following = np.concatenate(
    [state[:, 1:], np.full((len(state), 1), -1)], axis=1
  )
  last = step == length[traj] - 1
  return StepTable.from_columns(
    group_id=group[traj],
    traj_id=traj,
    step_idx=step,
    state_key=state[played],
    action_key=action[played],
    next_state_key=np.where(last, -1, following[played]),
    boundary=np.where(last, end[traj], 0).astype(np.int8),
  )


def _cut(table: StepTable, steps: int) -> StepTable:
  """The first `steps` rows; a rollout that goes on there is truncated."""
  assert len(table) >= steps, (len(table), steps)
  last_traj = table.traj_id[steps - 1]
  kept = table.take(np.arange(steps))
  if kept.boundary[-1] == Boundary.NONE:
    kept.boundary[-1], kept.next_state_key[-1] = Boundary.TRUNCATED, -1
    kept.outcome[kept.traj_id == last_traj] = False
  return kept


@dataclasses.dataclass(frozen=True)
class Statistics:
  """What decides the cost of the closure on a table."""

  groups: int
  steps: int
  states: int  # N of the largest group
  branching: int  # most states of a group with >= 2 live successors
  success: float  # share of the rollouts


def statistics(table: StepTable) -> Statistics:
  """Counts of a table with integer keys in (group, rollout, step) order."""
  state = np.unique(table.state_key, return_inverse=True)[1]
  span = state.max() + 1
  group = np.unique(table.group_id, return_inverse=True)[1]
  anchors, anchor = np.unique(group * span + state, return_inverse=True)
  goes_on = table.boundary[:-1] == Boundary.NONE
  source, target = anchor[:-1][goes_on], anchor[1:][goes_on]
  edges = np.unique((source * len(anchors) + target)[source != target])
  successors = np.bincount(edges // len(anchors), minlength=len(anchors))
  home = anchors // span
  ended = table.boundary != Boundary.NONE
  return Statistics(
    groups=int(group.max()) + 1,
    steps=len(table),
    states=int(np.bincount(home).max()),
    branching=int(np.bincount(home, weights=successors >= 2).max()),
    success=float((table.boundary[ended] == Boundary.SUCCESS).mean()),
  )


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--quick", action="store_true", help="small ones only")
  options = parser.parse_args(argv)
  seed = options.seed
  makers: dict[str, Callable[[], StepTable]] = {
    f"{name}, {groups} groups": functools.partial(
      make_table, name, groups, seed=seed
    )
    for groups in ((16,) if options.quick else (16, 512))
    for name in WANTED
  }
  if not options.quick:
    for name, n in (("long", 65_000), ("long", 2_000_000), ("swe", 740_000)):
      makers[f"{name}, one group, {n:,}"] = functools.partial(
        giant_group, n, name=name, seed=seed
      )
    makers["lattice, one group"] = functools.partial(lattice_group, seed=seed)
  found = rich.table.Table(
    "workload", "steps", "N", "branching", "success", "wanted", "seconds"
  )
  for name, make in makers.items():
    start = time.perf_counter()
    table = make()
    seconds = time.perf_counter() - start
    have = statistics(table)
    wanted = WANTED.get(name.removesuffix(", 16 groups"))
    found.add_row(
      name,
      f"{have.steps:,}",
      f"{have.states:,}",
      f"{have.branching:,}",
      f"{have.success:.2f}",
      " / ".join(f"{n:,}" for n in wanted) if wanted else "",
      f"{seconds:.2f}",
    )
  rich.console.Console(width=100).print(found)


if __name__ == "__main__":
  main()
