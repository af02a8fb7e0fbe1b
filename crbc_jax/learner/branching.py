"""Estimators that play extra rollouts from states of the rollouts they credit.

They need an environment that can be restored to a state, so they are no
estimators of a logged table; in training they are named like the others,
`--config.estimator="vineppo(samples=4)"`. Every extra step they play counts
into the budget of environment steps, so equal budgets are equal.
"""

from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax import specs
from crbc_jax.checks import (
  check_choice,
  check_count,
  check_discount,
  check_share,
  is_number,
)
from crbc_jax.credit import combine
from crbc_jax.credit.catalogue import Entry
from crbc_jax.envs.sokoban import Level, Sokoban
from crbc_jax.learner.branch_tree import tree_credit
from crbc_jax.learner.collect import Rollouts
from crbc_jax.learner.continuations import make_continue_fn
from crbc_jax.policies.grid import LogitsFn
from crbc_jax.rollouts.from_arrays import ArrayBatch
from crbc_jax.types import Boundary, StepCredit

SHARES = ("state", "none")


@chex.dataclass(frozen=True)
class BranchCredit:
  """Credit of the steps of rollouts [P, G, T]; 0 where masked."""

  advantage: chex.Array  # [P, G, T] float32, what the learner uses
  trajectory: chex.Array  # [P, G, T] float32, unweighted trajectory term
  step: chex.Array  # [P, G, T] float32, unweighted step term
  q: chex.Array  # [P, G, T] float32, value after the step
  v: chex.Array  # [P, G, T] float32, what it is compared with
  live: chex.Array  # [P, G, T] bool, the step term could differ from 0
  clip_low_extra: chex.Array | None  # [P, G, T] float32, or None: as it is
  aux: Mapping[str, chex.Array]  # what else the method found; see each


BranchFn = Callable[
  [Any, Level, Rollouts, chex.PRNGKey], tuple[BranchCredit, chex.Array]
]
"""`branch(params, levels, rollouts, key) -> (credit, extra env steps)`."""


def make_vineppo_fn(
  env: Sokoban,
  logits_fn: LogitsFn,
  *,
  samples: int = 4,
  beta: float = 0.98,
  share: str = "state",
) -> BranchFn:
  """VinePPO: Monte Carlo values of every state from fresh continuations.

    V(s_t) = mean over K continuations of beta^(steps until success), else 0
    A_t    = beta x_{t+1} - V(s_t)
    x_{t+1} = V(s_{t+1}), or 1 after success, or 0 after any other end

  This is r_t + beta V(s_{t+1}) - V(s_t) with the reward r_t = beta on success
  and V = 0 once the rollout has ended, the convention of `build_process`: the
  step that succeeds pays one beta too. The reward of the environment doesn't
  enter. A continuation starts with the clock of its state. Differences within
  rounding are exactly 0. Source: VinePPO (arXiv 2410.01679).

  Args:
    env: the environment the rollouts were collected in.
    logits_fn: the policy.
    samples: K, continuations from each state. A mean of few is noisy: one K
      for s_t and another for s_{t+1} enter each advantage.
    beta: discount of one step, in (0, 1].
    share: our option. "state": steps of a group with the same state and the
      same clock share one estimate, which saves steps and makes their errors
      equal; "none": K continuations for each step, as in the paper.

  Returns:
    Jitted `branch`; `step` is the advantage, there is no trajectory term.
    aux["extra_rollouts"] counts the continuations.

  Raises:
    ValueError: an option out of its range.
  """
  samples = check_count("samples", samples)
  check_discount("beta", beta)
  check_choice("share", share, SHARES)
  continue_from = make_continue_fn(env, logits_fn, samples=samples)

  def branch(params, levels, rollouts, key):
    mask = rollouts.mask
    row = jnp.arange(mask.size)
    level, clock = _level_and_step(mask)
    source = _first_like_it(rollouts) if share == "state" else row
    asked = mask.reshape(-1) & (source == row)
    state = jax.tree.map(
      lambda x: x.reshape(mask.size, *x.shape[3:]), rollouts.state
    )
    found = continue_from(params, levels, level, state, clock, asked, key)
    worth = jnp.where(
      found.success, beta ** found.length.astype(jnp.float32), 0.0
    )
    v = jnp.mean(worth, axis=1)[source].reshape(mask.shape)
    v = jnp.where(mask, v, 0.0)
    later = jnp.pad(v[..., 1:], ((0, 0), (0, 0), (0, 1)))
    after = jnp.where(
      rollouts.boundary == int(Boundary.NONE),
      later,
      (rollouts.boundary == int(Boundary.SUCCESS)).astype(jnp.float32),
    )
    q = jnp.where(mask, beta * after, 0.0)
    gap = q - v
    # Rounding alone must not become a signal when advantages are scaled.
    size = jnp.maximum(jnp.abs(q), jnp.abs(v))
    gap = jnp.where(jnp.abs(gap) > combine.ROUNDING * size, gap, 0.0)
    credit = BranchCredit(
      advantage=gap,
      trajectory=jnp.zeros_like(gap),
      step=gap,
      q=q,
      v=v,
      live=mask,
      clip_low_extra=None,
      aux={"extra_rollouts": samples * jnp.sum(asked)},
    )
    return credit, jnp.sum(found.length)

  return jax.jit(branch)


def make_elpo_fn(
  env: Sokoban,
  logits_fn: LogitsFn,
  *,
  budget: int = 16,
  lam: float = 0.5,
  relax: float = 0.115,
  norm: str = "mean",
  eps: float = 1e-6,
) -> BranchFn:
  """ELPO: the first irrecoverable step of failed rollouts, and branch returns.

    A_t = lam A_branch + (1 - lam) A_traj,   A_traj as `grpo`

  Source: arXiv 2602.09598, of which only notes could be read. They give the
  binary search with branch rollouts, N = 16, node return = mean of the
  children's, the mixture with lam = .5 and the lower clip relaxed by .115 on
  the critical suffix. The rest is our reading:

  - Budget: N extra rollouts for each failed rollout. Of its T steps, a binary
    search over prefixes asks at most n = ceil(log2 T) (T the step limit), each
    time with N // n branches of the policy (if N < n, N prefixes with one).
  - A prefix is recoverable if a branch from its end succeeds; the empty one is
    taken to be. Step t is the first irrecoverable one when the prefix before
    it is recoverable and the one with it isn't; it begins the critical suffix.
    A search cut short by its budget takes the last prefix known recoverable.
    The clock counts: too little time left is irrecoverable too.
  - Tree: the root's children are the group's G rollouts. The children of a
    node that was branched from are its branches (1 or 0) and the rest of its
    own rollout, whose return is that of the next such node, or the outcome.
  - A_branch of a step: return of the child it lies on against all children of
    the node where that child begins, x - mean (or also divided by their
    standard deviation). Equal ones give exactly 0.
  - The number of branches doesn't depend on entropy, and branches are not
    trained on: they are evidence about the steps of their rollout.

  Args:
    env: the environment the rollouts were collected in.
    logits_fn: the policy.
    budget: N, extra rollouts for each failed one, at most.
    lam: weight of A_branch, in [0, 1].
    relax: added to the learner's lower clip on the critical suffix, >= 0.
    norm: of A_branch, "mean" or "mean_std". Among the few children of a node a
      division would hide how much they differ.
    eps: added to standard deviations.

  Returns:
    Jitted `branch`; q is the return of a step's child, v the mean it is
    compared with. aux: critical [P, G] int32 (-1 for a success), branched
    [P, G, T] bool (there were branches from before that step) and
    extra_rollouts.

  Raises:
    ValueError: an option out of its range.
  """
  budget = check_count("budget", budget)
  check_choice("norm", norm, combine.NORMS)
  check_share("lam", lam)
  if is_number(relax) and not 0 <= relax < float("inf"):
    raise ValueError(f"relax must be >= 0 and finite, got {relax}")
  probes = min((env.step_limit - 1).bit_length(), budget)
  samples = budget // max(probes, 1)
  continue_from = make_continue_fn(env, logits_fn, samples=samples)

  def search(params, levels, rollouts, failed, key):
    """(first irrecoverable step [L], outcomes [L, T, K], branched, steps)."""
    mask = rollouts.mask
    steps = mask.shape[2]
    lane = jnp.arange(failed.shape[0])
    level = lane // mask.shape[1]
    states = jax.tree.map(
      lambda x: x.reshape(failed.shape + x.shape[2:]), rollouts.state
    )

    def probe(carry, probe_key):
      low, high, outcome, branched, played = carry
      asked = failed & (high - low > 1)
      middle = (low + high) // 2
      state = jax.tree.map(lambda x: x[lane, middle], states)
      found = continue_from(
        params, levels, level, state, middle, asked, probe_key
      )
      recovered = jnp.any(found.success, axis=1)
      low = jnp.where(asked & recovered, middle, low)
      high = jnp.where(asked & ~recovered, middle, high)
      at = jnp.where(asked, middle, steps)
      outcome = outcome.at[lane, at].set(
        found.success.astype(jnp.float32), mode="drop"
      )
      branched = branched.at[lane, at].set(True, mode="drop")
      return (
        low,
        high,
        outcome,
        branched,
        played + jnp.sum(found.length),
      ), None

    begin = (
      jnp.zeros(failed.shape, jnp.int32),
      jnp.sum(mask, axis=2).reshape(-1).astype(jnp.int32),
      jnp.zeros((*failed.shape, steps, samples)),
      jnp.zeros((*failed.shape, steps), bool),
      jnp.zeros((), jnp.int32),
    )
    (low, _, *found), _ = jax.lax.scan(
      probe, begin, jax.random.split(key, probes)
    )
    return low, *found

  def branch(params, levels, rollouts, key):
    mask = rollouts.mask
    num_levels, group_size, steps = mask.shape
    won = mask & (rollouts.boundary == int(Boundary.SUCCESS))
    won = jnp.any(won, axis=2).reshape(-1)
    critical, outcome, branched, played = search(
      params, levels, rollouts, ~won, key
    )
    group = jnp.arange(num_levels * group_size) // group_size
    every = jnp.ones_like(won)
    score = won.astype(jnp.float32)
    trajectory = combine.centred_scores(
      score, group, every, num_levels, eps=eps
    )
    q, v, step = tree_credit(
      score, outcome, branched, group, num_levels, norm=norm, eps=eps
    )
    suffix = ~won[:, None] & (jnp.arange(steps)[None] >= critical[:, None])

    def on_steps(x):
      return jnp.where(mask, x.reshape(mask.shape), jnp.zeros((), x.dtype))

    trajectory = jnp.broadcast_to(trajectory[:, None], step.shape)
    critical = jnp.where(won, -1, critical)
    credit = BranchCredit(
      advantage=on_steps(lam * step + (1 - lam) * trajectory),
      trajectory=on_steps(trajectory),
      step=on_steps(step),
      q=on_steps(q),
      v=on_steps(v),
      live=mask,
      clip_low_extra=on_steps(jnp.where(suffix, relax, 0.0)),
      aux={
        "critical": critical.reshape(num_levels, group_size),
        "branched": branched.reshape(mask.shape),
        "extra_rollouts": samples * jnp.sum(branched),
      },
    )
    return credit, played

  return jax.jit(branch)


BRANCHING = {
  "elpo": Entry(
    make_elpo_fn,
    "extra rollouts",
    "arXiv 2602.09598",
    singleton="branches",
    all_fail="branches",
    all_success="zero",
  ),
  "vineppo": Entry(
    make_vineppo_fn,
    "extra rollouts",
    "arXiv 2410.01679",
    singleton="branches",
    all_fail="branches",
    all_success="branches",
  ),
}
"""By the name that `--config.estimator` gives them."""


def make_branch_fn(
  name: str, env: Sokoban, logits_fn: LogitsFn, **options: Any
) -> BranchFn:
  """The `BranchFn` of one of `BRANCHING` with its options bound.

  Raises:
    ValueError: an unknown option, or a value of the wrong type or outside its
      range.
  """
  make = BRANCHING[name].function
  specs.check_options(f"estimator {name!r}", options, specs.options_of(make))
  return make(env, logits_fn, **options)


def check_branching(name: str, options: dict[str, Any]) -> None:
  """Raises what `make_branch_fn` would; needs no environment."""
  smallest = Sokoban(height=3, width=3, boxes=1, step_limit=1)
  make_branch_fn(name, smallest, lambda *_: jnp.zeros(4), **options)


def for_records(
  found: BranchCredit, extra_steps: chex.Array, batch: ArrayBatch
) -> tuple[StepCredit, dict[str, float]]:
  """What a `BranchFn` returned, as the records of a run want it.

  Returns:
    (credit per padded row [P, R], metrics extra_steps and extra_rollouts).
  """
  names = ("advantage", "trajectory", "step", "q", "v", "live")
  credit = StepCredit(
    aux={}, **{n: batch.from_steps(getattr(found, n)) for n in names}
  )
  return credit, {
    "extra_steps": int(extra_steps),
    "extra_rollouts": int(found.aux["extra_rollouts"]),
  }


def _level_and_step(mask: chex.Array) -> tuple[chex.Array, chex.Array]:
  """Level and step of each row of [P, G, T], flat; int32 [P G T]."""
  row = jnp.arange(mask.size)
  return row // (mask.shape[1] * mask.shape[2]), row % mask.shape[2]


def _first_like_it(rollouts: Rollouts) -> chex.Array:
  """First row with the same level, step and state as each row; [P G T]."""
  mask, key = rollouts.mask, rollouts.key
  _, group_size, steps = mask.shape
  level, step = _level_and_step(mask)
  # Every rollout against every other of its group, at the same step.
  same = (key[:, :, None] == key[:, None]).all(-1) & mask[:, None]
  first = jnp.argmax(same, axis=2).reshape(-1)  # of a masked row: any
  return (level * group_size + first) * steps + step
