"""Exact advantages of rollouts on small levels: what step credit estimates.

All reachable states of each level are enumerated, the policy is evaluated on
every one of them, and backward induction (`envs.tabular`) gives its values
under the step limit, with slips. As in CRBC's process, success pays one beta
for each step including the last, and a time-out pays nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.envs import sokoban_solver, tabular
from crbc_jax.envs.sokoban import Sokoban, State
from crbc_jax.envs.sokoban_levels import LevelSet
from crbc_jax.learner.collect import Rollouts
from crbc_jax.policies.grid import LogitsFn
from crbc_jax.rollouts.batching import next_rung
from crbc_jax.rollouts.from_arrays import fold_key_words


@chex.dataclass(frozen=True)
class TrueValues:
  """Exact values of each step of G rollouts on each of P levels.

  Steps left are part of the state: step t counts with `step_limit - t` to go.
  """

  q: np.ndarray  # [P, G, T] float64, Q_t(s_t, a_t); 0 where masked
  v: np.ndarray  # [P, G, T] float64, V_t(s_t); 0 where masked

  @property
  def advantage(self) -> np.ndarray:
    """Q_t(s_t, a_t) - V_t(s_t); [P, G, T]."""
    return self.q - self.v


TrueValuesFn = Callable[[Any, LevelSet, Rollouts], TrueValues]
"""`true_values(params, levels, rollouts)`; `levels` are the P of `rollouts`."""


def make_true_values_fn(
  env: Sokoban,
  logits_fn: LogitsFn,
  *,
  beta: float = 0.98,
  max_states: int = 10_000,
) -> TrueValuesFn:
  """Returns `true_values(params, levels, rollouts) -> TrueValues`.

  The values are those of the policy that samples from the softmax of
  `logits_fn`, which must not look at the clock of a state. The reward of the
  environment doesn't matter, only success does.

  Args:
    env: the environment the rollouts were collected in.
    logits_fn: the policy.
    beta: discount of one step, in (0, 1].
    max_states: the most states of a level. P levels of S states need some
      32 T P S bytes.

  Raises:
    ValueError: the environment's keys do not tell its states apart.

  Returns:
    The function, which raises
      ValueError: a level is solved at its start, or a rollout visits a state
        that can't be reached (the levels are not those of the rollouts).
      StateLimitError: a level has more states than `max_states`.
  """
  if env.keys != "exact":
    raise ValueError("exact values need an environment with keys='exact'")

  @jax.jit
  def on_states(params, levels, states):
    def one(level, state):
      logits = logits_fn(params, level, state)
      return jax.nn.softmax(logits), env.state_key(state)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(levels, states)

  def true_values(params, levels, rollouts):
    if levels.solved.any():
      solved = levels.ids[int(levels.solved.argmax())]
      raise ValueError(f"level {solved} is solved at its start")
    graphs = [
      sokoban_solver.enumerate_states(levels, p, max_states=max_states)
      for p in range(len(levels))
    ]
    size = next_rung(max(len(graph.solved) for graph in graphs))
    policy, key = jax.device_get(
      on_states(params, levels.as_levels(), _padded_states(graphs, size))
    )
    rows = jax.device_get((rollouts.key, rollouts.action, rollouts.mask))
    row_key, action, mask = rows
    state = _find(graphs, key, row_key, mask)  # [P, G, T] in [0, size)

    # One world for all levels: state s of level p is number p * size + s.
    first = size * np.arange(len(levels))
    next_state = np.arange(len(levels) * size)[:, None].repeat(4, axis=1)
    solved = np.zeros(len(levels) * size, bool)
    for begin, graph in zip(first, graphs, strict=True):
      used = slice(begin, begin + len(graph.solved))
      next_state[used] = begin + graph.next_state
      solved[used] = graph.solved
    policy = policy.reshape(next_state.shape).astype(np.float64)
    v, q = tabular.policy_values(
      next_state,
      solved,
      policy / policy.sum(axis=1, keepdims=True),
      beta=beta,
      horizon=env.step_limit,
      slip=env.slip,
    )
    at = (np.arange(mask.shape[2]), first[:, None, None] + state)
    return TrueValues(
      q=np.where(mask, q[(*at, action)], 0.0), v=np.where(mask, v[at], 0.0)
    )

  return true_values


def _padded_states(
  graphs: Sequence[sokoban_solver.StateGraph], size: int
) -> State:
  """The states of P graphs, [P, size]; zeros behind the last of each."""
  player = np.zeros((len(graphs), size), np.int32)
  boxes = np.zeros((*player.shape, graphs[0].boxes.shape[1]), np.int32)
  for p, graph in enumerate(graphs):
    player[p, : len(graph.solved)] = graph.player
    boxes[p, : len(graph.solved)] = graph.boxes
  return State(
    player=jnp.asarray(player),
    boxes=jnp.asarray(boxes),
    step=jnp.zeros(player.shape, jnp.int32),
  )


def _find(
  graphs: Sequence[sokoban_solver.StateGraph],
  key: np.ndarray,
  row_key: np.ndarray,
  mask: np.ndarray,
) -> np.ndarray:
  """Where each row's state is in its graph.

  Args:
    graphs: P graphs.
    key: [P, size, W], keys of their states.
    row_key: [P, G, T, W], keys of the rows' states.
    mask: [P, G, T].

  Returns:
    int64 [P, G, T], 0 where masked.
  """
  wide = row_key.reshape(len(graphs), -1, row_key.shape[-1])
  folded = fold_key_words(np.concatenate([key, wide], axis=1))
  found = np.zeros(mask.shape, np.int64)
  for p, graph in enumerate(graphs):
    known = folded[p, : len(graph.solved)]
    wanted = folded[p, key.shape[1] :].reshape(mask.shape[1:])
    order = np.argsort(known)
    place = np.searchsorted(known[order], wanted)
    index = order[np.minimum(place, len(known) - 1)]
    if (known[index] != wanted)[mask[p]].any():
      raise ValueError(
        f"a rollout of level {p} of the batch visits a state that can't be"
        " reached: these are not the levels of the rollouts"
      )
    found[p] = np.where(mask[p], index, 0)
  return found
