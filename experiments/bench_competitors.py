"""What the closure is timed against, each written as well as it can be.

The array competitors start from the integer ids of a batch. `dense` does the
whole job of the estimator; SciPy and NumPy stop at V and raw credit Q - V, so
they do less. What starts from strings is in `bench_python`.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from crbc_jax.types import Boundary, GroupArrays

BETA = 0.98


class Ids(NamedTuple):
  """Rows without padding; the successor is -1 where the row was absorbed."""

  state: np.ndarray  # [S] int64
  following: np.ndarray  # [S] int64
  pair: np.ndarray  # [S] int64
  win: np.ndarray  # [S] float64
  states: int  # N
  pairs: int  # M


class Credit(NamedTuple):
  """V of each state and Q - V of each row."""

  v: np.ndarray
  gap: np.ndarray


@dataclasses.dataclass(frozen=True)
class Problem:
  """One batch in the form that each competitor likes best."""

  arrays: GroupArrays  # [B, ...], on the device, padded as `make_batch` does
  tight: GroupArrays  # the same, padded to the largest group only
  groups: list[Ids]  # ids local to each group
  whole: Ids  # one block-diagonal system


def make_problem(arrays: GroupArrays) -> Problem:
  """Takes the padding off (before any clock starts)."""
  groups, states, pairs = [], 0, 0
  parts: dict[str, list[np.ndarray]] = collections.defaultdict(list)
  for b in range(len(arrays.mask)):
    mask = arrays.mask[b]
    if not mask.any():
      continue
    state = arrays.state[b][mask].astype(np.int64)
    pair = arrays.pair[b][mask].astype(np.int64)
    boundary = arrays.boundary[b][mask]
    following = arrays.next_state[b][mask].astype(np.int64)
    following[boundary != Boundary.NONE] = -1
    win = (boundary == Boundary.SUCCESS).astype(np.float64)
    local = Ids(
      state, following, pair, win, int(state.max()) + 1, int(pair.max()) + 1
    )
    groups.append(local)
    parts["state"].append(state + states)
    parts["following"].append(np.where(following < 0, -1, following + states))
    parts["pair"].append(pair + pairs)
    parts["win"].append(win)
    states, pairs = states + local.states, pairs + local.pairs
  whole = Ids(
    **{k: np.concatenate(v) for k, v in parts.items()},
    states=states,
    pairs=pairs,
  )
  return Problem(
    jax.device_put(arrays), jax.device_put(_tight(arrays)), groups, whole
  )


def _tight(arrays: GroupArrays) -> GroupArrays:
  """Without the room for growth, which a dense solve would pay for cubed."""

  def used(mask: np.ndarray) -> int:
    return int(np.flatnonzero(mask.any(axis=0))[-1]) + 1

  rows, pairs = used(arrays.mask), used(arrays.pair_mask)
  states, rollouts = used(arrays.state_mask), used(arrays.traj_mask)
  wide = {
    "pair_state": pairs,
    "pair_mask": pairs,
    "state_mask": states,
    "traj_mask": rollouts,
  }
  # The dense solve reads rows alone, not the merged transitions.
  names = {f.name for f in dataclasses.fields(arrays)} - {"transitions"}
  return dataclasses.replace(
    arrays, **{f: getattr(arrays, f)[:, : wide.get(f, rows)] for f in names}
  )


# -- arrays ------------------------------------------------------------------


def make_dense_fn(
  beta: float = BETA, *, sigma_min: float = 0.1, w_step: float = 5.0
) -> Callable[[GroupArrays], jax.Array]:
  """Padded dense float32 LU in JAX, as crbc_jax did it at first.

  Returns:
    Jitted `advantages(arrays [B, ...]) -> [B, R]`: what CRBC returns.
  """

  def advantages(group: GroupArrays) -> jax.Array:
    n, m = group.state_mask.shape[0], group.pair_mask.shape[0]
    visits = group.mask.astype(jnp.float32)
    count = jnp.zeros(n).at[group.state].add(visits)
    per_visit = 1 / jnp.maximum(count, 1)
    won = (group.mask & (group.boundary == Boundary.SUCCESS)).astype(
      jnp.float32
    )
    goes_on = group.mask & (group.boundary == Boundary.NONE)
    following = jnp.where(goes_on, group.next_state, n)
    moves = jnp.zeros((n, n + 1)).at[group.state, following].add(visits)
    matrix = jnp.eye(n) - beta * moves[:, :n] * per_visit[:, None]
    gain = beta * jnp.zeros(n).at[group.state].add(won) * per_visit
    v = jnp.linalg.solve(matrix, gain)

    target = beta * (won + jnp.append(v, 0.0)[following])
    pair_count = jnp.zeros(m).at[group.pair].add(visits)
    total = jnp.zeros(m).at[group.pair].add(target * visits)
    q = total / jnp.maximum(pair_count, 1)
    seen = pair_count > 0
    gap = jnp.where(seen, q - v[group.pair_state], 0.0)
    actions = jnp.zeros(n, jnp.int32).at[group.pair_state].add(seen)
    weight = pair_count * per_visit[group.pair_state]
    variance = jnp.zeros(n).at[group.pair_state].add(weight * gap**2)
    sigma = jnp.sqrt(jnp.maximum(variance, sigma_min**2))[group.pair_state]
    step = jnp.where((actions >= 2)[group.pair_state], gap / sigma, 0.0)

    rollouts = group.traj_mask.astype(jnp.float32)
    size = jnp.maximum(rollouts.sum(), 2.0)
    score = jnp.zeros(rollouts.shape).at[group.traj].add(won)
    centred = (score - score.sum() / rollouts.sum()) * rollouts
    spread = jnp.sqrt((centred**2).sum() / (size - 1))
    episode = centred / (spread + 1e-6)
    return jnp.where(
      group.mask, episode[group.traj] + w_step * step[group.pair], 0.0
    )

  return jax.jit(jax.vmap(advantages))


def dense_bytes(arrays: GroupArrays, itemsize: int) -> int:
  """Memory of a padded dense solve: matrix, transition counts and LU."""
  groups, states = arrays.state_mask.shape
  return 3 * groups * states**2 * itemsize


def dense_flops(arrays: GroupArrays) -> float:
  """Multiplications and additions of the LU decompositions."""
  groups, states = arrays.state_mask.shape
  return 2 / 3 * groups * float(states) ** 3


def read_credit(ids: Ids, v: np.ndarray, beta: float) -> Credit:
  """Q - V of each row in float64."""
  after = np.append(v, 0.0)[ids.following]  # index -1 is the zero
  total = np.bincount(ids.pair, beta * (ids.win + after), ids.pairs)
  q = total / np.bincount(ids.pair, minlength=ids.pairs)
  return Credit(v, q[ids.pair] - v[ids.state])


def scipy_credit(ids: Ids, beta: float = BETA) -> Credit:
  """float64 `spsolve` on (I - beta M) V = gain of one system."""
  per_visit = 1 / np.bincount(ids.state, minlength=ids.states)
  live = ids.following >= 0
  source, target = ids.state[live], ids.following[live]
  diagonal = np.arange(ids.states)
  matrix = scipy.sparse.coo_array(
    (
      np.concatenate([np.ones(ids.states), -beta * per_visit[source]]),
      (
        np.concatenate([diagonal, source]),
        np.concatenate([diagonal, target]),
      ),
    ),
    shape=(ids.states, ids.states),
  ).tocsc()  # sums duplicates
  gain = beta * np.bincount(ids.state, ids.win, ids.states) * per_visit
  v = scipy.sparse.linalg.spsolve(matrix, gain)
  return read_credit(ids, np.atleast_1d(v), beta)


def scipy_per_group(groups: Sequence[Ids], beta: float = BETA) -> list[Credit]:
  """One `spsolve` for each group."""
  return [scipy_credit(ids, beta) for ids in groups]


def numpy_dense(
  whole: Ids, groups: Sequence[Ids], beta: float = BETA
) -> Credit:
  """Batched float64 `numpy.linalg.solve`, padded to the largest group."""
  sizes = np.array([ids.states for ids in groups])
  n = int(sizes.max())
  number = np.repeat(np.arange(len(groups)), sizes)  # group of a state
  place = np.arange(whole.states) - (np.cumsum(sizes) - sizes)[number]
  per_visit = 1 / np.bincount(whole.state, minlength=whole.states)
  live = whole.following >= 0
  source, target = whole.state[live], whole.following[live]
  flat = (number[source] * n + place[source]) * n + place[target]
  matrix = np.bincount(flat, -beta * per_visit[source], len(groups) * n * n)
  matrix = matrix.reshape(len(groups), n, n)
  matrix[:, np.arange(n), np.arange(n)] += 1
  gain = np.zeros((len(groups), n))
  gain[number, place] = per_visit * np.bincount(
    whole.state, beta * whole.win, whole.states
  )
  v = np.linalg.solve(matrix, gain[..., None])[..., 0]
  return read_credit(whole, v[number, place], beta)


def bincount_pass(ids: Ids) -> np.ndarray:
  """One NumPy pass over the rows: the mean payoff of each state's visits."""
  return np.bincount(ids.state, ids.win, ids.states)
