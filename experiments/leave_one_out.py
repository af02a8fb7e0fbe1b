"""What does leaving oneself out buy, and how should it be computed?

  python -m experiments.leave_one_out [--seed 0] [--repeats 32] [--quick]
    [--results results]

Two questions on Sokoban 6x6 with one box, initial policy.

1. Bias and variance. On each of 16 levels a policy plays --repeats groups, of
   8 rollouts and (their first) 4 and 2. Credit gives a policy gradient in the
   logits of every state: g(s,b) = sum over the rows at s of credit times
   (1[a = b] - pi(b|s)). The truth is the same sum with the exact Q - V (no
   step limit: 400 steps). Of the mean over groups: "slope", how much of the
   true gradient there is in it (1 is all; plain closure shrinks credit where
   an anchor has few visits), and "cosine". Of single groups: "noise", the RMS
   distance of a group's gradient from the mean, in units of the true gradient,
   and "single", the mean cosine of one group's gradient with the truth. Also
   the RMSE and the slope of credit by row, of live rows. Intervals are 95 %
   bootstrap over levels.
2. Computation: a closure for each rollout left out, solved afresh by
   contraction, against one inverse updated by Woodbury. Error of V against
   float64, and time (the median of five; ratio of the two).

Claim: leaving out removes the shrinkage that is the row's own doing and pays
for it with noise; it is not worth it. Expected at G = 8, closure / left out:
slope .51 / .62, cosine .90 / .88, noise .65 / .90, single .42 / .40, row rmse
.85 / 1.32; less of everything at 4 and 2. The rest of the slope is missing in
both: groups without a success credit nothing. Refitting takes a third of the
time of Woodbury's update, both with an error of 3e-7. Takes two minutes on two
free cores; --quick half of one. Writes leave_one_out.json and .md.
"""

import argparse
import functools
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import rich

import crbc_jax
from crbc_jax.credit import closure, combine
from crbc_jax.credit.estimators.crbc import crbc
from crbc_jax.credit.estimators.loo import crbc_loo
from crbc_jax.credit.leave_one_out import values_without
from crbc_jax.credit.process import build_process
from crbc_jax.files import write_text
from crbc_jax.learner import collect, task, training_step, truth
from crbc_jax.learner.records import write_json
from experiments import commands, credit_accuracy, statistics
from experiments.bench_credit import markdown_table
from experiments.credit_calibration import no_limit
from experiments.credit_measures import credit_steps

BETA = 0.98
LEVELS = 16
SIZES = (8, 4, 2)
NAMES = ("closure", "leave one out", "others")
METRICS = ("slope", "cosine", "noise", "single", "row rmse", "row slope")


def main(argv: list[str] | None = None) -> None:
  """Measures, prints and writes both tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--repeats", type=int, default=32)
  parser.add_argument("--results", type=pathlib.Path, default="results")
  parser.add_argument("--quick", action="store_true")
  args = parser.parse_args(argv)
  repeats = 6 if args.quick else args.repeats
  current = task.make_task(credit_accuracy.run_config(seed=args.seed, slip=0))
  cells = bias_and_variance(current, seed=args.seed, repeats=repeats)
  solves = compare_solves(current, seed=args.seed)
  rows = [
    (str(size), name, *(str(cell[m]) for m in METRICS))
    for (size, name), cell in cells.items()
  ]
  text = (
    f"{LEVELS} levels x {repeats} groups, initial policy\n\n"
    + markdown_table(("G", "credit", *METRICS), rows)
    + "\n\n"
    + markdown_table(
      ("all rollouts left out in turn", "largest error of V", "seconds"),
      [
        (name, f"{x['error']:.1e}", f"{x['seconds']:.4f}")
        for name, x in solves.items()
      ],
    )
  )
  rich.print(text)
  write_json(
    args.results / "leave_one_out.json",
    {
      "command": commands.recorded("experiments.leave_one_out", argv),
      "version": crbc_jax.__version__,
      "seeds": {"levels": args.seed + 1, "rollouts": args.seed},
      "levels": LEVELS,
      "repeats": repeats,
      "cells": [
        {"group_size": size, "credit": name} | cell
        for (size, name), cell in cells.items()
      ],
      "solves": solves,
    },
  )
  write_text(
    args.results / "leave_one_out.md",
    f"<!-- written by experiments/leave_one_out.py; do not edit -->\n{text}\n",
  )


# -- bias and variance -------------------------------------------------------


def make_raw_credit_fn():
  """Returns jitted `credit(arrays) -> ({name: [B, R]}, live [B, R])`."""

  def on_group(group):
    plain = crbc(group, beta=BETA)
    own = crbc_loo(group, beta=BETA)
    others = crbc_loo(group, beta=BETA, readout="others")
    found = dict(zip(NAMES, (plain, own, others), strict=True))
    return {name: x.q - x.v for name, x in found.items()}, plain.live

  return jax.jit(jax.vmap(on_group, axis_name=combine.BATCH_AXIS))


def bias_and_variance(current: task.Task, *, seed: int, repeats: int):
  """{(group size, name): {metric: interval over levels}}, and differences."""
  collect_fn = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=max(SIZES)
  )
  true_values_fn = truth.make_true_values_fn(
    no_limit(current.env), current.logits_fn, beta=BETA
  )
  credit_fn = make_raw_credit_fn()
  policy_fn = jax.jit(
    jax.vmap(  # over levels, rollouts and steps
      jax.vmap(
        jax.vmap(
          lambda params, level, state: jax.nn.softmax(
            current.logits_fn(params, level, state)
          ),
          (None, None, 0),
        ),
        (None, None, 0),
      ),
      (None, 0, 0),
    )
  )
  drawn = current.train.take(
    task.levels_at(0, LEVELS, num_levels=len(current.train), seed=seed + 1)
  )
  gradients: dict = {}
  rows: dict = {}
  for r in range(repeats):
    key = jax.random.fold_in(jax.random.key(seed), r)
    rollouts = collect_fn(current.params, drawn.as_levels(), key)
    exact = true_values_fn(current.params, drawn, rollouts).advantage
    policy = np.asarray(
      policy_fn(current.params, drawn.as_levels(), rollouts.state), float
    )
    for size in SIZES:
      part = jax.tree.map(lambda x, n=size: np.asarray(x)[:, :n], rollouts)
      credit, live = credit_steps(
        part, credit_fn, actions=current.env.num_actions
      )
      for name in NAMES:
        got = {"truth": exact[:, :size], "credit": credit[name].astype(float)}
        for p in range(LEVELS):
          chosen = part.mask[p] & live[p]
          rows.setdefault((size, name, p), []).append(
            np.stack([got[kind][p][chosen] for kind in got])
          )
          for kind, x in got.items():
            gradients.setdefault((size, name, p, kind), []).append(
              gradient(part, p, policy[p, :size], x[p])
            )
  cells = {}
  for size in SIZES:
    plain = _by_level(gradients, rows, size, NAMES[0])
    for name in NAMES:
      found = _by_level(gradients, rows, size, name)
      cells[size, name] = {m: statistics.interval(x) for m, x in found.items()}
      if name != NAMES[0]:  # the same levels and rollouts
        cells[size, f"{name} less closure"] = {
          m: statistics.interval(np.subtract(found[m], plain[m]))
          for m in METRICS
        }
  return cells


def gradient(rollouts, level: int, policy, credit) -> dict:
  """{state key: g(s, .)} of one group."""
  mask = rollouts.mask[level]
  score = np.eye(policy.shape[-1])[rollouts.action[level]] - policy
  found: dict = {}
  for key, own, x in zip(
    rollouts.key[level][mask], score[mask], credit[mask], strict=True
  ):
    at = key.tobytes()
    found[at] = found.get(at, 0.0) + own * x
  return found


def _by_level(gradients, rows, size, name) -> dict[str, list[float]]:
  found: dict = {metric: [] for metric in METRICS}
  for p in range(LEVELS):
    got, true = (
      _dense(gradients[size, name, p, "credit"], gradients[size, name, p, kind])
      for kind in ("credit", "truth")
    )
    mean, goal = got[0].mean(axis=0), true[1].mean(axis=0)
    size_of_goal = np.linalg.norm(goal)
    if size_of_goal == 0:  # nobody could succeed
      continue
    found["slope"].append(mean @ goal / size_of_goal**2)
    found["cosine"].append(_cosine(mean, goal))
    noise = ((got[0] - mean) ** 2).sum(axis=1).mean()
    found["noise"].append(np.sqrt(noise) / size_of_goal)
    found["single"].append(np.mean([_cosine(x, goal) for x in got[0]]))
    truth_, credit = np.concatenate(rows[size, name, p], axis=1)
    square = max((truth_**2).mean(), 1e-30)
    found["row rmse"].append(np.sqrt(((credit - truth_) ** 2).mean() / square))
    found["row slope"].append((credit * truth_).mean() / square)
  return found


def _dense(first: list[dict], second: list[dict]):
  """Both lists of {state: vector} as [groups, coordinates]."""
  keys = sorted({key for some in (*first, *second) for key in some})
  zero = np.zeros_like(next(iter(first[0].values())))
  return tuple(
    np.stack(
      [np.concatenate([some.get(key, zero) for key in keys]) for some in one]
    )
    for one in (first, second)
  )


def _cosine(x, y) -> float:
  size = np.linalg.norm(x) * np.linalg.norm(y)
  return float(x @ y / size) if size > 0 else 0.0


# -- computation -------------------------------------------------------------


def values_by_update(group, *, beta: float, longest: int):
  """V_-i [G, N] from one inverse, by Woodbury's identity.

  With A V = c the count equations and R the rows that rollout i adds to A at
  the anchors S it touched, A_-i = A - E_S R and

    V - V_-i = A^-1 E_S (I - R A^-1 E_S)^-1 (c_i - R V)

  Of an anchor that only i touched a row of the identity stays: V_-i = 0.

  Args:
    group: one unbatched group.
    beta: discount in (0, 1].
    longest: static, the most anchors of a rollout.
  """
  process = build_process(group, beta=beta)
  size = len(process.state_count)
  weight = jnp.where(process.state_count > 0, process.state_count, 1.0)
  flow = jnp.zeros((size, size + 1))
  flow = flow.at[process.state, process.next_state].add(process.count)
  inverse = jnp.linalg.inv(jnp.diag(weight) - beta * flow[:, :size])
  v = inverse @ closure.payoffs(process)

  def without(i):
    mine = (group.mask & (group.traj == i)).astype(jnp.float32)
    visits, paid = (
      jax.ops.segment_sum(x, process.row_state, size)
      for x in (mine, mine * process.row_gain)
    )
    touched = jnp.nonzero(visits > 0, size=longest, fill_value=size)[0]
    at = jnp.minimum(touched, size - 1)
    real = touched < size
    onward = jnp.zeros((size, size + 1))
    onward = onward.at[process.row_state, process.row_next].add(mine)
    alone = (visits == process.state_count).astype(jnp.float32)
    added = jnp.diag(visits - alone) - beta * onward[:, :size]
    added = jnp.where(real[:, None], added[at], 0.0)
    through = jnp.where(real[None], inverse[:, at], 0.0)
    rest = jnp.where(real, paid[at], 0.0) - added @ v
    inner = jnp.eye(longest) - added @ through
    return v - through @ jnp.linalg.solve(inner, rest)

  return jax.vmap(without)(jnp.arange(group.traj_mask.shape[0]))


def refitted(group, *, beta: float) -> np.ndarray:
  """V_-i [G, N] in float64, each solved afresh with dense NumPy."""
  found = np.zeros((len(group.traj_mask), len(group.state_mask)))
  last = group.boundary != 0
  for i in range(len(found)):
    rows = np.flatnonzero(group.mask & (group.traj != i))
    matrix, total = np.eye(found.shape[1]), np.zeros(found.shape[1])
    count = np.bincount(group.state[rows], minlength=found.shape[1])
    for r in rows:
      s = group.state[r]
      if last[r]:
        total[s] += beta * (group.boundary[r] == 1) / count[s]
      else:
        matrix[s, group.next_state[r]] -= beta / count[s]
    found[i] = np.linalg.solve(matrix, total)
  return found


def compare_solves(current: task.Task, *, seed: int):
  """{method: its largest error of V and the seconds of a batch}."""
  collect_fn = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=max(SIZES)
  )
  drawn = current.train.take(
    task.levels_at(0, LEVELS, num_levels=len(current.train), seed=seed + 1)
  )
  rollouts = collect_fn(current.params, drawn.as_levels(), jax.random.key(seed))
  arrays = training_step.batch_rollouts(
    rollouts, actions=current.env.num_actions
  ).arrays
  methods = {
    "refit, contracted": lambda group: values_without(group, beta=BETA)[1].v,
    "Woodbury": functools.partial(
      values_by_update, beta=BETA, longest=current.env.step_limit
    ),
  }
  want = np.stack(
    [
      refitted(jax.tree.map(lambda x, b=b: x[b], arrays), beta=BETA)
      for b in range(LEVELS)
    ]
  )
  found = {}
  for name, method in methods.items():
    run = jax.jit(jax.vmap(method))
    got = np.asarray(run(arrays))
    times = []
    for _ in range(5):
      began = time.perf_counter()
      jax.block_until_ready(run(arrays))
      times.append(time.perf_counter() - began)
    found[name] = {
      "error": float(np.abs(got - want).max()),
      "seconds": float(np.median(times)),
    }
  return found


if __name__ == "__main__":
  sys.exit(main())
