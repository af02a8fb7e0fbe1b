"""Exact contraction: only branching anchors are left to solve for.

Most anchors of long rollouts have one live successor. Eliminating them by
hand leaves a system of a few dozen unknowns where there were thousands.

With N(s) visits, discount g and a payoff total c(s), values solve

  N(s) V(s) = c(s) + g sum_x N(s,x) V(x).

A self-loop is folded into the weight of its anchor, and an anchor with one
other live successor p becomes V(s) = own + onward V(p), where

  onward = g n_out / D,   own = c / D,   lost = leak / D,
  D      = n_out + n_absorbed + (1 - g) n_self,
  leak   = (1 - g) (n_out + n_self) + n_absorbed.

No two rounded numbers are subtracted (1 - g is exact in float32 from g = 1/2
on, and every kind of visit is counted by itself: counts may be sums of real
weights), so D keeps its relative accuracy however long a loop was. Chains of
such anchors collapse by pointer doubling, which would double the rounding
error of `onward` each round: it is carried in two floats.
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
  onward_rest: chex.Array  # [N] float32, what `onward` lost by rounding
  lost: chex.Array  # [N] float32
  own: chex.Array  # [N] float32


def solve(
  process: EmpiricalProcess, *, discount: chex.Numeric, total: chex.Array
) -> chex.Array:
  """V [N] of `N(s) V(s) = total(s) + discount sum_x N(s,x) V(x)`.

  Args:
    process: one unbatched process.
    discount: in [0, 1]; at 1 every anchor must lead to absorption.
    total: [N] payoff total c(s).

  Returns:
    [N] float32, 0 on anchors without visits.
  """
  num_states, num_slots = len(process.state_count), len(process.slot_mask)
  discount = jnp.asarray(discount, jnp.float32)
  live = process.next_state < num_states
  chains = _collapse(process, live, discount=discount, total=total)

  # Each transition of a branching anchor, followed to the end of its chain;
  # rows are divided by the discount, which leaves whole numbers of visits.
  # Nothing is followed at discount 0, where there is nothing to divide by.
  follows = discount > 0
  divisor = jnp.where(follows, discount, 1.0)
  source = process.slot[process.state]
  after = jnp.where(live, process.next_state, 0)
  count = jnp.where(live & follows, process.count, 0.0)
  target = process.slot[chains.end[after]]
  flow = count * chains.onward[after]
  leak = jnp.where(
    live,
    process.count
    * (
      (1.0 - discount) / divisor + jnp.where(follows, chains.lost[after], 0.0)
    ),
    process.count / divisor,
  )
  gathered = count * chains.own[after]

  def at_slot(values):
    return jax.ops.segment_sum(values, source, num_slots)

  of_slot = jnp.zeros(num_slots).at[process.slot].add(total, mode="drop")
  system = (at_slot(leak), of_slot / divisor + at_slot(gathered))
  if num_slots <= DENSE_LIMIT:
    dense = jnp.zeros((num_slots, num_slots))
    dense = dense.at[source, target].add(flow, mode="drop")
    solved = solvers.solve_dense(dense, *system)
  else:
    solved = solvers.solve_sparse(source, target, flow, *system)
  at_end = jnp.append(solved, 0.0)[process.slot[chains.end]]
  return chains.own + chains.onward * at_end


def _collapse(
  process: EmpiricalProcess, live: chex.Array, *, discount, total
) -> Chains:
  """Follows every hop to its end, in as many rounds as log2 of the longest."""

  def at_state(transitions):
    counted = jnp.where(transitions, process.count, 0.0)
    return jax.ops.segment_sum(counted, process.state, len(total))

  itself = process.next_state == process.state
  n_out = at_state(live & ~itself)
  n_self = at_state(itself)
  n_absorbed = at_state(~live)
  keep = 1.0 - discount
  leak = keep * (n_out + n_self) + n_absorbed
  weight = (n_out + n_absorbed) + keep * n_self
  weight = jnp.where(weight > 0, weight, 1.0)
  branching = process.slot < len(process.slot_mask)

  def start(values, at_branching):
    return jnp.where(branching, at_branching, values)

  chains = Chains(
    end=process.hop,
    onward=start(discount * (n_out / weight), 1.0),
    onward_rest=jnp.zeros_like(leak),
    lost=start(leak / weight, 0.0),
    own=start(total / weight, 0.0),
  )

  def double(chains, further):
    beyond = Chains(*(x[chains.end] for x in chains))
    onward, rest = _product(
      chains.onward, chains.onward_rest, beyond.onward, beyond.onward_rest
    )
    return Chains(
      end=further,
      onward=onward,
      onward_rest=rest,
      lost=chains.lost + chains.onward * beyond.lost,
      own=chains.own + chains.onward * beyond.own,
    )

  def unfinished(carry):
    chains, further = carry
    return jnp.any(further != chains.end)

  def twice_as_far(carry):
    chains, further = carry
    return double(chains, further), further[further]

  first = (chains, chains.end[chains.end])
  chains, further = jax.lax.while_loop(unfinished, twice_as_far, first)
  # The last hop of a chain that is resolved where it ends: onward becomes 0.
  return double(chains, further)


def _product(a, a_rest, b, b_rest):
  """(a + a_rest) (b + b_rest) as a float32 and what it lost by rounding.

  The rounding error of a b comes from products of half-length parts, which
  are exact (Dekker, Numerische Mathematik 18, 1971).
  """

  def split(x):
    high = 4097.0 * x  # 2^12 + 1
    high = high - (high - x)
    return high, x - high

  product = a * b
  (a_high, a_low), (b_high, b_low) = split(a), split(b)
  error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + (
    a_low * b_low
  )
  rest = error + (a * b_rest + a_rest * b)
  rounded = product + rest
  return rounded, rest - (rounded - product)
