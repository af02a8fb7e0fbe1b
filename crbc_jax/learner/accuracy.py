"""How close step credit comes to the exact advantages, on small levels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from crbc_jax.credit import combine, registry
from crbc_jax.learner import collect, task, training_step, truth
from crbc_jax.rollouts.batching import BatchShape

_SMALL = 1e-3  # truth below this has no sign to get right
_ROUNDING = 1e-5  # credit below this share of the largest has none either


class Accuracy(NamedTuple):
  """Of one estimator on one batch, over the rows where two actions were seen.

  Both are 0 where they are not defined.
  """

  corr: float  # correlation of the raw credit with the exact advantage
  sign: float  # share of right signs, where both have one


def measure_accuracy(
  current: task.Task,
  params: Any,
  estimators: Sequence[str],
  *,
  levels: int,
  group_size: int,
  batches: int,
  seed: int,
  beta: float = 0.98,
) -> dict[str, list[Accuracy]]:
  """Credits the same rollouts by several estimators and compares with truth.

  Raw credit is Q - V, or the advantage where an estimator has no values. The
  truth is that of `truth.make_true_values_fn`: the values of the acting policy
  under the step limit, found by enumerating every state of a level.

  Args:
    current: a Sokoban task with exact keys.
    params: of its policy.
    estimators: names, also with options.
    levels: of a batch.
    group_size: rollouts of a level.
    batches: how often.
    seed: of levels and rollouts.
    beta: discount of the truth.

  Returns:
    For each estimator one `Accuracy` for each batch; batches are paired.

  Raises:
    ValueError: unknown estimator or option.
  """
  named = {text: registry.parse_estimator(text) for text in estimators}
  kernels = {
    text: registry.make_estimator(name, **options)
    for text, (name, options) in named.items()
  }

  def on_group(group):
    several = registry.make_estimator("crbc", depth=0)(group).live
    return {text: f(group) for text, f in kernels.items()}, several

  credit_fn = jax.jit(jax.vmap(on_group, axis_name=combine.BATCH_AXIS))
  collect_fn = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=group_size
  )
  true_values = truth.make_true_values_fn(
    current.env, current.logits_fn, beta=beta
  )
  shape = widest_shape((levels, group_size, current.env.step_limit))
  found: dict[str, list[Accuracy]] = {text: [] for text in estimators}
  for batch in range(batches):
    drawn = current.train.take(
      task.levels_at(
        batch * levels, levels, num_levels=len(current.train), seed=seed
      )
    )
    key = jax.random.fold_in(jax.random.key(seed), batch)
    rollouts = collect_fn(params, drawn.as_levels(), key)
    padded = training_step.batch_rollouts(
      rollouts, actions=current.env.num_actions, shape=shape
    )
    credit, several = jax.device_get(credit_fn(padded.arrays))
    chosen = padded.to_steps(several) & np.asarray(rollouts.mask)
    exact = true_values(params, drawn, rollouts).advantage[chosen]
    for text, given in credit.items():
      raw = given.q - given.v
      raw = raw if np.any(raw) else given.advantage
      found[text].append(compare(padded.to_steps(raw)[chosen], exact))
  return found


def widest_shape(steps: tuple[int, ...]) -> BatchShape:
  """No more anchors or pairs than rows: one program for all [P, G, T]."""
  groups, group_size, length = steps
  rows = group_size * length
  return BatchShape(
    groups=groups,
    rows=rows,
    anchors=rows,
    pairs=rows,
    rollouts=group_size,
    transitions=rows,
    branching=rows,
  )


def compare(credit: np.ndarray, exact: np.ndarray) -> Accuracy:
  """Correlation and share of right signs of credit [n] and truth [n]."""
  if not len(credit):
    return Accuracy(0.0, 0.0)
  credit = credit.astype(np.float64)
  varies = credit.std() > 0 and exact.std() > 0
  signed = np.abs(exact) > _SMALL
  signed &= np.abs(credit) > _ROUNDING * np.abs(credit).max()
  right = np.sign(credit) == np.sign(exact)
  return Accuracy(
    corr=float(np.corrcoef(credit, exact)[0, 1]) if varies else 0.0,
    sign=float(right[signed].mean()) if signed.any() else 0.0,
  )
