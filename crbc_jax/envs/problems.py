"""Ten small decision processes whose credit is known exactly.

States are numbers 0 .. S-1; two more, S and S + 1, are absorbing success and
failure. The policy and the anchors see the *key* of a state, nothing else:
where two states share a key, the key hides state. All rollouts of a group begin
in the same state. An episode that reaches the horizon is truncated, which is
worth nothing, as failure is.

Sources: the shapes are ours; what each is to separate is in its docstring.
Everything here is float64 NumPy.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from crbc_jax.types import Boundary


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
  """A finite decision process; S states, A actions, K keys."""

  transition: np.ndarray  # [S, A, S + 2], rows are distributions
  start: np.ndarray  # [S], distribution of the first state of a group
  key: np.ndarray  # [S] int, in [0, K): all that policy and anchors see
  horizon: int  # steps until truncation

  def __post_init__(self):
    states, _, after = self.transition.shape
    if after != states + 2 or self.start.shape != (states,):
      raise ValueError(
        "transition must be [S, A, S + 2] and start [S], got"
        f" {self.transition.shape} and {self.start.shape}"
      )
    for name in ("transition", "start"):
      rows = getattr(self, name)
      if (rows < 0).any() or not np.allclose(rows.sum(axis=-1), 1.0):
        raise ValueError(f"{name} must hold distributions")

  @property
  def num_actions(self) -> int:
    """A."""
    return self.transition.shape[1]

  @property
  def num_keys(self) -> int:
    """K."""
    return int(self.key.max()) + 1

  @property
  def hides_state(self) -> bool:
    """Whether two states share a key."""
    return len(np.unique(self.key)) < len(self.key)


@dataclasses.dataclass(frozen=True, eq=False)
class Sampled:
  """Rollouts of a problem: P groups of G rollouts, at most T steps each."""

  state: np.ndarray  # [P, G, T] int, the state itself, hidden or not
  state_key: np.ndarray  # [P, G, T, 1] int, its key
  final_key: np.ndarray  # [P, G, 1] int, key of the state after the last step
  action: np.ndarray  # [P, G, T] int
  boundary: np.ndarray  # [P, G, T] int, a `Boundary`
  mask: np.ndarray  # [P, G, T] bool, steps that were played

  @property
  def reward(self) -> np.ndarray:
    """1 on a step that succeeds; [P, G, T] float64."""
    return (self.boundary == Boundary.SUCCESS).astype(float)

  def columns(self) -> dict[str, np.ndarray]:
    """For `from_arrays.batch_arrays` and `from_arrays.table_from_arrays`."""
    names = ("state_key", "final_key", "action", "reward", "boundary", "mask")
    return {name: getattr(self, name) for name in names}


def exact_values(
  problem: Problem, policy: np.ndarray, *, beta: float
) -> tuple[np.ndarray, np.ndarray]:
  """Values of a policy under the horizon, by backward induction.

    Q_t(s,a) = beta sum_x P(x|s,a) V_{t+1}(x),   V_t(s) = sum_a pi(a|k(s)) Q_t
    V_t(success) = 1,   V_t(failure) = 0,   V_T(s) = 0

  Args:
    problem: the process.
    policy: [K, A], action probabilities at each key.
    beta: discount of one step, in (0, 1].

  Returns:
    v: [T, S], index t = steps already taken; q: [T, S, A].
  """
  states, actions, _ = problem.transition.shape
  acting = policy[problem.key]
  v = np.zeros((problem.horizon + 1, states + 2))
  v[:, states] = 1.0
  q = np.empty((problem.horizon, states, actions))
  for t in reversed(range(problem.horizon)):
    q[t] = beta * problem.transition @ v[t + 1]
    v[t, :states] = (acting * q[t]).sum(axis=1)
  return v[:-1, :states], q


def exact_advantages(
  problem: Problem, policy: np.ndarray, rollouts: Sampled, *, beta: float
) -> np.ndarray:
  """Q_t(s,a) - V_t(s) of every step; [P, G, T], 0 where masked."""
  v, q = exact_values(problem, policy, beta=beta)
  time = np.arange(rollouts.mask.shape[2])
  state = np.where(rollouts.mask, rollouts.state, 0)
  advantage = q[time, state, rollouts.action] - v[time, state]
  return np.where(rollouts.mask, advantage, 0.0)


def sample(
  problem: Problem,
  policy: np.ndarray,
  *,
  groups: int,
  group_size: int,
  rng: np.random.Generator,
) -> Sampled:
  """Plays P groups of G rollouts.

  Args:
    problem: the process.
    policy: [K, A], action probabilities at each key, or [P, K, A], those of
      each group.
    groups: P.
    group_size: G.
    rng: everything random comes from it.
  """
  states, _, _ = problem.transition.shape
  shape = (groups, group_size, problem.horizon)
  state, action = np.zeros(shape, int), np.zeros(shape, int)
  boundary, mask = np.zeros(shape, int), np.zeros(shape, bool)
  policy = np.broadcast_to(policy, (groups, *policy.shape[-2:]))
  group = np.arange(groups)[:, None]
  first = _draw(np.broadcast_to(problem.start, (groups, states)), rng)
  now = np.repeat(first[:, None], group_size, axis=1)
  shown = now.copy()  # the last state that is not absorbing
  for t in range(problem.horizon):
    live = now < states
    here = np.where(live, now, 0)
    chosen = _draw(policy[group, problem.key[here]], rng)
    after = _draw(problem.transition[here, chosen], rng)
    state[:, :, t], action[:, :, t] = here, np.where(live, chosen, 0)
    mask[:, :, t] = live
    kinds = np.select(
      [after == states, after == states + 1],
      [Boundary.SUCCESS, Boundary.FAILURE],
      Boundary.TRUNCATED if t == problem.horizon - 1 else Boundary.NONE,
    )
    boundary[:, :, t] = np.where(live, kinds, Boundary.NONE)
    now = np.where(live, after, now)
    shown = np.where(now < states, now, shown)
  key = np.where(mask, problem.key[state], 0)
  return Sampled(
    state=state,
    state_key=key[..., None],
    final_key=problem.key[shown][..., None],
    action=action,
    boundary=boundary,
    mask=mask,
  )


def uniform_policy(problem: Problem) -> np.ndarray:
  """[K, A], every action alike."""
  shape = (problem.num_keys, problem.num_actions)
  return np.full(shape, 1.0 / problem.num_actions)


def _draw(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """One index of the last axis for each row of probabilities."""
  total = np.cumsum(weights, axis=-1)
  point = rng.random(weights.shape[:-1])[..., None] * total[..., -1:]
  return (total <= point).sum(axis=-1)


# Moves of a grid: up, right, down, left.
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def _process(states: int, actions: int) -> np.ndarray:
  return np.zeros((states, actions, states + 2))


def _at(states: int, place: int) -> np.ndarray:
  start = np.zeros(states)
  start[place] = 1.0
  return start


def _grid(free: np.ndarray, *, goal: int, slip: float) -> np.ndarray:
  """Moves between the free cells of a map [H, W]; the goal succeeds."""
  cells = np.argwhere(free)
  number = {tuple(cell): i for i, cell in enumerate(cells)}
  transition = _process(len(cells), len(_MOVES))
  for i, (y, x) in enumerate(cells):
    for a, (dy, dx) in enumerate(_MOVES):
      after = number.get((y + dy, x + dx), i)
      after = len(cells) if after == goal else after
      transition[i, a, after] += 1.0 - slip
      transition[i, :, after] += slip / len(_MOVES)
  return transition


def gridworld(rng: np.random.Generator) -> Problem:
  """Random walls on 5 x 5 and a slip of 10 %: many routes that merge."""
  while True:
    free = rng.random((5, 5)) > 0.2
    free[0, 0] = free[-1, -1] = True
    transition = _grid(free, goal=int(free.sum()) - 1, slip=0.1)
    states = len(transition)
    found = Problem(transition, _at(states, 0), np.arange(states), 40)
    v, _ = exact_values(found, uniform_policy(found), beta=1.0)
    if v[0, 0] > 0:  # the goal is not walled off
      return found


def loops(rng: np.random.Generator) -> Problem:
  """A chain of six; one action of three goes on, others fall back.

  Which action goes on differs from state to state. Going back is walked again
  and again: evidence of many rollouts merges at each state.
  """
  length = 6
  transition = _process(length, 3)
  for s in range(length):
    ahead, stay, back = rng.permutation(3)
    transition[s, ahead, s + 1 if s + 1 < length else length] += 0.9
    transition[s, ahead, s] += 0.1
    transition[s, stay, s] = 1.0
    transition[s, back, max(s - 2, 0)] = 0.98
    transition[s, back, length + 1] = 0.02
  return Problem(transition, _at(length, 0), np.arange(length), 40)


def rare_shortcut(rng: np.random.Generator) -> Problem:
  """A gamble that succeeds at once, one time in twenty, beside a long way.

  Each of six places of the way offers its own gamble. A shortest path takes
  the lucky one for the way.
  """
  length = 6
  transition = _process(length, 2)
  for s in range(length):
    gamble = int(rng.integers(2))
    transition[s, gamble, length] = 0.05
    transition[s, gamble, length + 1] = 0.95
    transition[s, 1 - gamble, s + 1 if s + 1 < length else length] = 0.95
    transition[s, 1 - gamble, s] += 0.05
  return Problem(transition, _at(length, 0), np.arange(length), 20)


def rare_hub(rng: np.random.Generator) -> Problem:
  """Five doors; four lead to one hub from which success is rare.

  The fifth leads through four rooms to a success that is likely. The more
  rollouts, the surer one of them was lucky in the hub.
  """
  hub, first, rooms = 1, 2, 4
  states = first + rooms
  transition = _process(states, 5)
  good = int(rng.integers(5))
  transition[0, :, hub] = 1.0
  transition[0, good] = 0.0
  transition[0, good, first] = 1.0
  transition[hub, :, states] = 0.08
  transition[hub, :, states + 1] = 0.92
  for i in range(rooms):
    after = first + i + 1 if i + 1 < rooms else states
    ahead = rng.permutation(5)[:3]
    transition[first + i, :, first + i] = 1.0
    transition[first + i, ahead] = 0.0
    transition[first + i, ahead, after] = 0.9
    transition[first + i, ahead, states + 1] = 0.1
  return Problem(transition, _at(states, 0), np.arange(states), 20)


def _fetch(rng: np.random.Generator, *, hidden: bool) -> Problem:
  """A 3 x 4 grid: fetch a thing in one corner, bring it to another."""
  height, width = 3, 4
  cells = height * width
  corners = [0, width - 1, cells - width, cells - 1]
  begin, thing, goal = (int(x) for x in rng.permutation(corners)[:3])
  free = np.ones((height, width), bool)
  moves = _grid(free, goal=-1, slip=0.05)[:, :, :cells]
  transition = _process(2 * cells, len(_MOVES))
  for has in (0, 1):
    for a in range(len(_MOVES)):
      for cell in range(cells):
        for after in range(cells):
          weight = moves[cell, a, after]
          holds = has or after == thing
          place = (
            2 * cells if holds and after == goal else after + cells * holds
          )
          transition[cell + cells * has, a, place] += weight
  key = np.tile(np.arange(cells), 2) if hidden else np.arange(2 * cells)
  return Problem(transition, _at(2 * cells, begin), key, 40)


def fetch(rng: np.random.Generator) -> Problem:
  """Fetch and bring; whether the thing is held is part of the key."""
  return _fetch(rng, hidden=False)


def fetch_hidden(rng: np.random.Generator) -> Problem:
  """`fetch` whose key leaves out what is held: impossible shortcuts.

  The goal was reached by some and the thing was not yet fetched by others:
  merged, one seems to win without it.
  """
  return _fetch(rng, hidden=True)


def rooms(rng: np.random.Generator) -> Problem:
  """Four 2 x 2 rooms with narrow doors: every route passes a few states."""
  free = np.ones((5, 5), bool)
  free[2, :] = free[:, 2] = False
  for y, x in ((2, 0), (0, 2), (2, 4), (4, 2)):
    free[y, x] = True
  if rng.random() < 0.5:
    free[0, 2], free[1, 2] = False, True
  goal = int(free.sum()) - 1
  transition = _grid(free, goal=goal, slip=0.05)
  start = _at(len(transition), 0)
  return Problem(transition, start, np.arange(len(start)), 60)


def tree(rng: np.random.Generator) -> Problem:
  """A tree of depth five: no state has two predecessors, nothing merges.

  Closure and visit averages are the same there.
  """
  depth, actions = 5, 2
  inner = 2**depth - 1
  transition = _process(inner, actions)
  for s in range(inner):
    for a in range(actions):
      child = 2 * s + 1 + a
      if child < inner:
        transition[s, a, child] = 1.0
      else:
        win = rng.random() ** 2
        transition[s, a, inner], transition[s, a, inner + 1] = win, 1.0 - win
  return Problem(transition, _at(inner, 0), np.arange(inner), depth + 1)


def alias_rooms(rng: np.random.Generator) -> Problem:
  """Three corridors of three cells in a row that look alike.

  The key is the cell of a corridor, not which corridor: the end of the last
  one, which succeeds, looks like that of the first, which leads on.
  """
  corridors, cells = 3, 3
  states = corridors * cells
  transition = _process(states, 3)
  right = [rng.permutation(3) for _ in range(cells)]
  for s in range(states):
    ahead, back, stay = right[s % cells]
    transition[s, ahead, s + 1 if s + 1 < states else states] = 1.0
    transition[s, back, max(s - 1, 0)] = 1.0
    transition[s, stay, s] = 0.98
    transition[s, stay, states + 1] = 0.02
  return Problem(transition, _at(states, 0), np.arange(states) % cells, 60)


def t_maze(rng: np.random.Generator) -> Problem:
  """A cue at the start, hidden on the way, says where to turn at its end.

  The key hides the cue, but all rollouts of a group have the same one: what
  the key hides does not vary within a group, so it does no harm to credit.
  """
  length = 4
  states = 2 * (length + 1)
  transition = _process(states, 3)
  left, right, ahead = rng.permutation(3)
  for cue, turn in enumerate((left, right)):
    first = cue * (length + 1)
    for i in range(length):
      transition[first + i, :, first + i] = 1.0
      transition[first + i, ahead] = 0.0
      transition[first + i, ahead, first + i + 1] = 1.0
    end = first + length
    transition[end, :, states + 1] = 1.0
    transition[end, turn] = 0.0
    transition[end, turn, states] = 1.0
    transition[end, ahead] = 0.0
    transition[end, ahead, end] = 1.0
  start = np.zeros(states)
  start[[0, length + 1]] = 0.5
  # The cue itself is seen at the start: keys 0 and 1.
  key = np.r_[0, np.arange(2, length + 2), 1, np.arange(2, length + 2)]
  return Problem(transition, start, key, 30)


PROBLEMS: dict[str, Callable[[np.random.Generator], Problem]] = {
  "gridworld": gridworld,
  "loops": loops,
  "rare shortcut": rare_shortcut,
  "rare hub": rare_hub,
  "fetch": fetch,
  "rooms": rooms,
  "tree": tree,
  "T-maze": t_maze,
  "alias rooms": alias_rooms,
  "fetch hidden": fetch_hidden,
}
"""Name -> a problem drawn from a generator."""

MISLEADING = ("alias rooms", "fetch hidden")
"""Where the key hides state that differs between the rollouts of a group."""
