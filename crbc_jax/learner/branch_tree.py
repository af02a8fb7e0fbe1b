"""Returns on a tree of rollouts with branches, and each step's share of them.

A group is a tree: its rollouts begin at the root, and a state of one of them
that was branched from is a node, whose children are the branches and the rest
of the rollout.
"""

import chex
import jax
import jax.numpy as jnp

from crbc_jax.credit import combine


def tree_credit(
  score: chex.Array,
  outcome: chex.Array,
  branched: chex.Array,
  group: chex.Array,
  num_levels: int,
  *,
  norm: str,
  eps: float,
) -> tuple[chex.Array, chex.Array, chex.Array]:
  """Each step's child against all children of the node where it begins.

    R(node) = mean over its children of R(child)
    A_t     = R(child of step t) - mean over the siblings, itself included

  The root's children are the rollouts of a group. See
  `branching.make_elpo_fn`, whose reading of arXiv 2602.09598 this is.

  Args:
    score: [L] float32, outcomes of the rollouts.
    outcome: [L, T, K] float32, outcomes of the branches from before a step,
      where `branched`; not before the first step, which begins at the root.
    branched: [L, T] bool, there are such branches.
    group: [L] int32, in [0, num_levels).
    num_levels: static.
    norm, eps: as in `combine.centred_scores`.

  Returns:
    (return of the step's child [L, T], mean of the children it is compared
    with [L, T], A_branch [L, T]).
  """
  samples = outcome.shape[2]

  def up(below, node):
    total, is_node = node
    here = jnp.where(is_node, (total + below) / (samples + 1), below)
    return here, (here, below)

  _, (here, below) = jax.lax.scan(
    up, score, (jnp.sum(outcome, axis=2).T, branched.T), reverse=True
  )
  here, below = here.T, below.T  # return of the node before, of the child after

  children = jnp.concatenate([outcome, below[..., None]], axis=2)
  node = jnp.repeat(jnp.arange(branched.size), samples + 1)
  at_node = combine.centred_scores(
    children.reshape(-1),
    node,
    branched.reshape(-1)[node],
    branched.size,
    norm=norm,
    eps=eps,
  ).reshape(children.shape)[..., -1]
  root = (here[:, 0], group, jnp.ones_like(score, bool), num_levels)
  at_root = combine.centred_scores(*root, norm=norm, eps=eps)
  _, root_mean, _ = combine.segment_moments(*root)

  step = jnp.arange(branched.shape[1])
  start = jax.lax.cummax(jnp.where(branched, step, -1), axis=1)
  from_node = start >= 0
  start = jnp.maximum(start, 0)
  return (
    below,
    jnp.where(
      from_node,
      jnp.take_along_axis(here, start, axis=1),
      root_mean[group][:, None],
    ),
    jnp.where(
      from_node,
      jnp.take_along_axis(at_node, start, axis=1),
      at_root[:, None],
    ),
  )
