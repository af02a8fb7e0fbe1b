"""Exact contraction: only branching anchors are left to solve for.

Most anchors of long rollouts have one live successor. Eliminating them by
hand leaves a system of a few dozen unknowns where there were thousands.

With N(s) visits, discount g and a payoff total c(s), values solve

  N(s) V(s) = c(s) + g sum_x N(s,x) V(x).

A self-loop is folded into the weight of its anchor, and an anchor with one
other live successor p becomes V(s) = own + onward V(p), where

  onward = g n_out / D,   own = c / D,   lost = leak / D,   D = g n_out + leak,
  leak   = (1 - g) (n_out + n_self) + n_absorbed.

Nothing is subtracted (1 - g is exact in float32 from g = 1/2 on), so D keeps
its relative accuracy however long a loop was. Chains of such anchors collapse
by pointer doubling.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from crbc_jax.credit import solvers
from crbc_jax.types import EmpiricalProcess

DENSE_LIMIT = 512
"""Most branching anchors that are solved densely (1 MB a group)."""


class Chains(NamedTuple):
  """V(s) = own(s) + onward(s) V(end(s)); `lost` is the weight that leaked."""

  end: chex.Array  # [N] int32, where the chain of hops ends
  onward: chex.Array  # [N] float32, 0 where the chain ends by itself
  lost: chex.Array  # [N] float32
  own: chex.Array  # [N] float32


def solve(
  process: EmpiricalProcess, *, discount: chex.Numeric, total: chex.Array
) -> chex.Array:
  """V [N] of `N(s) V(s) = total(s) + discount sum_x N(s,x) V(x)`.

  Args:
    process: one unbatched process.
    discount: in (0, 1]; at 1 every anchor must lead to absorption.
    total: [N] payoff total c(s).

  Returns:
    [N] float32, 0 on anchors without visits.
  """
  num_states, num_slots = len(process.state_count), len(process.slot_mask)
  keep = 1.0 - discount
  live = process.next_state < num_states
  own_loop = process.next_state == process.state

  def at_state(weight):
    return jax.ops.segment_sum(weight, process.state, num_states)

  n_live = at_state(jnp.where(live, process.count, 0.0))
  n_self = at_state(jnp.where(own_loop, process.count, 0.0))
  chains = _collapse(
    process,
    out=discount * (n_live - n_self),
    leak=keep * n_live + (process.state_count - n_live),
    total=total,
  )

  # Each transition of a branching anchor, followed to the end of its chain.
  source = process.slot[process.state]
  after = jnp.where(live, process.next_state, 0)
  weight = jnp.where(live, discount * process.count, 0.0)
  target = process.slot[chains.end[after]]
  flow = weight * chains.onward[after]
  leak = jnp.where(
    live, keep * process.count + weight * chains.lost[after], process.count
  )
  gathered = weight * chains.own[after]

  def at_slot(values):
    return jax.ops.segment_sum(values, source, num_slots)

  of_slot = jnp.zeros(num_slots).at[process.slot].add(total, mode="drop")
  system = (at_slot(leak), of_slot + at_slot(gathered))
  if num_slots <= DENSE_LIMIT:
    dense = jnp.zeros((num_slots, num_slots))
    dense = dense.at[source, target].add(flow, mode="drop")
    solved = solvers.solve_dense(dense, *system)
  else:
    solved = solvers.solve_sparse(source, target, flow, *system)
  at_end = jnp.append(solved, 0.0)[process.slot[chains.end]]
  return chains.own + chains.onward * at_end


def _collapse(
  process: EmpiricalProcess,
  *,
  out: chex.Array,
  leak: chex.Array,
  total: chex.Array,
) -> Chains:
  """Follows every hop to its end, in as many rounds as log2 of the longest."""
  branching = process.slot < len(process.slot_mask)
  weight = out + leak
  visited = weight > 0
  per_weight = jnp.where(visited, 1.0 / jnp.where(visited, weight, 1.0), 0.0)

  def start(values, at_branching):
    return jnp.where(branching, at_branching, values * per_weight)

  chains = Chains(
    end=process.hop,
    onward=start(out, 1.0),
    lost=start(leak, 0.0),
    own=start(total, 0.0),
  )

  def unfinished(chains):
    return jnp.any(chains.end[chains.end] != chains.end)

  def double(chains):
    beyond = Chains(*(x[chains.end] for x in chains))
    return Chains(
      end=beyond.end,
      onward=chains.onward * beyond.onward,
      lost=chains.lost + chains.onward * beyond.lost,
      own=chains.own + chains.onward * beyond.own,
    )

  chains = jax.lax.while_loop(unfinished, double, chains)
  # The last hop of a chain that is resolved where it ends: onward becomes 0.
  return double(chains)
