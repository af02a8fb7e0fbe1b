"""Depth on small problems with known truth: credit error, and training.

Used by `experiments.depth_ablation`. Every problem is drawn anew for each
batch or seed (`envs.problems`); all depths see the same rollouts where error
is measured. In training each depth has its own policy: a table of logits that
follows the advantage.
"""

from typing import Any

import numpy as np
import scipy.special

from crbc_jax.envs import problems
from crbc_jax.rollouts.batching import BatchShape
from crbc_jax.rollouts.from_arrays import ArrayBatch, batch_arrays
from experiments import depth_measures as measures
from experiments.depth_measures import DEPTHS

BETA = 0.95
"""Credit and truth alike: at 1, wandering is free and no depth is any good."""

GROUP_SIZE = 8
LONGEST = 60  # the largest horizon
ANCHORS, PAIRS = 32, 128  # the most keys, and keys times actions


def padded(problem: problems.Problem, rollouts: problems.Sampled) -> ArrayBatch:
  """One shape for all problems, so that one program serves them all."""
  groups, group_size, steps = rollouts.mask.shape
  rows = group_size * LONGEST
  columns = rollouts.columns()
  for name, values in columns.items():
    if name != "final_key":
      widths = [(0, 0)] * values.ndim
      widths[2] = (0, LONGEST - steps)
      columns[name] = np.pad(values, widths)
  shape = BatchShape(
    groups=groups,
    rows=rows,
    anchors=ANCHORS,
    pairs=PAIRS,
    rollouts=group_size,
    transitions=rows,
    branching=ANCHORS,
  )
  return batch_arrays(actions=problem.num_actions, shape=shape, **columns)


def better_policy(problem: problems.Problem) -> np.ndarray:
  """Half uniform, half what is best at a key if all act at random; [K, A]."""
  uniform = problems.uniform_policy(problem)
  _, q = problems.exact_values(problem, uniform, beta=BETA)
  at_key = np.zeros_like(uniform)
  np.add.at(at_key, problem.key, q[0])
  greedy = np.eye(problem.num_actions)[at_key.argmax(axis=1)]
  return 0.5 * uniform + 0.5 * greedy


POLICIES = {"uniform": problems.uniform_policy, "better": better_policy}


def accuracy(name: str, *, batches: int, groups: int) -> list[dict[str, Any]]:
  """Error of credit at every depth; one cell for each policy.

  Args:
    name: of `problems.PROBLEMS`.
    batches: each with a problem and rollouts of its own.
    groups: of a batch.
  """
  cells = []
  for policy_name, make_policy in POLICIES.items():
    found, gaps = [], []
    for b in range(batches):
      problem = problems.PROBLEMS[name](np.random.default_rng([b, 0]))
      policy = make_policy(problem)
      rollouts = problems.sample(
        problem,
        policy,
        groups=groups,
        group_size=GROUP_SIZE,
        rng=np.random.default_rng([b, 1]),
      )
      exact = problems.exact_advantages(problem, policy, rollouts, beta=BETA)
      batch = padded(problem, rollouts)
      at_depths = measures.make_depths_fn(beta=BETA, w_step=5.0)(batch.arrays)
      mask = rollouts.mask
      steps = mask.shape[2]
      raw = measures.by_row(batch, at_depths.raw)[..., :steps]
      live = batch.to_steps(np.asarray(at_depths.live))[..., :steps]
      found.append(measures.errors(raw, exact, mask & live.astype(bool)))
      gaps.append(measures.gaps(at_depths))
    cells.append(
      {
        "setting": name,
        "policy": policy_name,
        "hides_state": problem.hides_state,
        "metrics": measures.per_metric(found),
        "pays_until": measures.pays_until(found),
        **measures.mean_gaps(gaps),
      }
    )
  return cells


def train(
  name: str,
  *,
  seeds: int,
  updates: int = 120,
  groups: int = 4,
  learning_rate: float = 0.1,
) -> np.ndarray:
  """Exact success of the policy after each tenth of training; [D, seeds, 11].

    theta(k, a) += lr sum_rows A (1[a = a_row] - pi(a|k)) / (rows rms(A))

  Every seed has its own problem; depths of a seed share it.

  Args:
    name: of `problems.PROBLEMS`.
    seeds: independent runs of each depth.
    updates: of a run.
    groups: of GROUP_SIZE rollouts, of an update.
    learning_rate: of the step above.
  """
  at_depths = measures.make_depths_fn(beta=BETA, w_step=5.0)
  curves = np.empty((len(DEPTHS), seeds, 11))
  for seed in range(seeds):
    problem = problems.PROBLEMS[name](np.random.default_rng([seed, 2]))
    shape = (len(DEPTHS), problem.num_keys, problem.num_actions)
    logits = np.zeros(shape)
    rng = np.random.default_rng([seed, 3])
    for update in range(updates + 1):
      policies = scipy.special.softmax(logits, axis=-1)
      if update % (updates // 10) == 0:
        curves[:, seed, update // (updates // 10)] = [
          _success(problem, policy) for policy in policies
        ]
      if update == updates:
        break
      rollouts = problems.sample(
        problem,
        np.repeat(policies, groups, axis=0),
        groups=groups * len(DEPTHS),
        group_size=GROUP_SIZE,
        rng=rng,
      )
      batch = padded(problem, rollouts)
      advantage = np.asarray(at_depths(batch.arrays).advantage)
      # Groups of depth d are credited at depth d.
      own = np.repeat(np.arange(len(DEPTHS)), groups)
      own_credit = advantage[np.arange(len(own)), own]
      credit = batch.to_steps(own_credit)[..., : problem.horizon]
      for d in range(len(DEPTHS)):
        some = own == d
        logits[d] += learning_rate * _ascent(
          policies[d],
          rollouts.state_key[some, ..., 0],
          rollouts.action[some],
          credit[some],
          rollouts.mask[some],
        )
  return curves


def _success(problem: problems.Problem, policy: np.ndarray) -> float:
  """Exact probability of success from the start."""
  v, _ = problems.exact_values(problem, policy, beta=1.0)
  return float(problem.start @ v[0])


def _ascent(policy, key, action, credit, mask) -> np.ndarray:
  """Mean of A grad ln pi over the steps, A in units of its RMS; [K, A].

  As the steps of a visit to a key: scaled by the number of keys, so that the
  size of a problem does not set the learning rate.
  """
  key, action, credit = key[mask], action[mask], credit[mask]
  size = np.sqrt((credit**2).mean())
  if size == 0:
    return np.zeros_like(policy)
  step = np.zeros_like(policy)
  np.add.at(step, (key, action), credit)
  total = np.bincount(key, weights=credit, minlength=len(policy))
  step -= total[:, None] * policy
  return step * len(policy) / (size * len(key))
