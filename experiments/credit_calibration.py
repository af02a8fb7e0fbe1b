"""Do the error bars of the closure hold what they promise?

  python -m experiments.credit_calibration [--seed 0] [--batches 6] [--quick]
    [--results results]

Sokoban 6x6 with one box, 32 levels x 8 rollouts a batch, T = 30. The truth is
the exact V, Q and Q - V of the policy that acted, without the step limit (400
steps: the closure knows no clock either). Compared with it are intervals of 50,
80 and 95 %: the closure plus or minus z standard errors
(`posterior.standard_errors`), and quantiles of the Bayesian bootstrap (200
draws). Coverage is the share of rows whose truth is inside: of the live rows
(at least two actions seen at the anchor), of those "won" among them whose group
has a success (without one every value is 0 and so is its error), and of the
rows of such groups by the number of visits N(s). "Spread" is the RMS error in
units of the RMS standard error, 1 if the errors are honest.
And is credit better for being shrunk by its standard error? RMSE of the credit
in units of the RMS of the truth, and its correlation.

Claim: they are too short, and no. Expected of the 95 % jackknife interval,
initial / trained policy: coverage of Q - V .51 / .74 of the live rows and .82 /
.81 of the won ones (V .77 / .87, Q .75 / .83); .73 / .53 at two or three
visits, where little varied, .83 / .75 from eight on. The bootstrap covers
within .03 of that, of V and Q of the trained policy .06 to .07 less. Shrinking
by anchor lowers the RMSE by .024 / .020 and the correlation by .021 / .003.
Takes two minutes on two free cores; --quick (initial policy, two batches) half
of one. Means over batches, 95 % bootstrap intervals over them. Writes
credit_calibration.json and .md.
"""

import argparse
import dataclasses
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich
import scipy.stats

import crbc_jax
from crbc_jax.credit import closure, combine, posterior
from crbc_jax.credit.estimators.crbc import crbc
from crbc_jax.credit.estimators.shrunk import crbc_shrunk
from crbc_jax.credit.process import build_process
from crbc_jax.files import write_text
from crbc_jax.learner import collect, task, truth
from crbc_jax.learner.records import write_json
from crbc_jax.types import Boundary
from experiments import commands, credit_accuracy, statistics
from experiments.bench_credit import markdown_table
from experiments.credit_measures import credit_steps

BETA = 0.98
LEVELS = (0.5, 0.8, 0.95)
DRAWS = 200
NO_LIMIT = 400  # .98^370 = .0006 is what the last states may still be worth
VISITS = {"1": (1, 1), "2-3": (2, 3), "4-7": (4, 7), "8+": (8, np.inf)}
BINS = ("live", "won", *VISITS)
KNOWN = 1e-6  # a smaller standard error is rounding: nothing varied
KINDS = ("v", "q", "gap")
METHODS = ("jackknife", "bootstrap")
SHRUNK = ("closure", "by pair", "by anchor")


def main(argv: list[str] | None = None) -> None:
  """Measures, prints and writes the tables."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--batches", type=int, default=6)
  parser.add_argument("--results", type=pathlib.Path, default="results")
  parser.add_argument("--quick", action="store_true")
  args = parser.parse_args(argv)
  batches = 2 if args.quick else args.batches
  if batches < 2:
    parser.error("--batches must be at least 2: an interval needs a spread")
  wanted = credit_accuracy.run_config(seed=args.seed, slip=0.0)
  current = task.make_task(wanted)
  stages = {"initial": (0, current.params)}
  if not args.quick:
    stages |= trained(wanted, current)
  measure = make_measure_fn(current)
  cells = {}
  for stage, (env_steps, params) in stages.items():
    found = measure(params, seed=args.seed, batches=batches)
    cells[stage] = {"env_steps": env_steps} | {
      name: statistics.interval(values)
      for name, values in found.items()
      if np.isfinite(values).all()
    }
  text = "\n\n".join(as_markdown(stage, cell) for stage, cell in cells.items())
  rich.print(text)
  write_json(
    args.results / "credit_calibration.json",
    {
      "command": commands.recorded("experiments.credit_calibration", argv),
      "version": crbc_jax.__version__,
      "seeds": {"levels": args.seed + 1, "rollouts": args.seed},
      "batches": batches,
      "draws": DRAWS,
      "cells": cells,
    },
  )
  write_text(
    args.results / "credit_calibration.md",
    "<!-- written by experiments/credit_calibration.py; do not edit -->\n"
    f"{text}\n",
  )


def trained(wanted, current: task.Task) -> dict[str, tuple[int, Any]]:
  """The policy after 100,000 steps of CRBC."""
  wanted = wanted.copy_and_resolve_references()
  wanted.env_steps = wanted.eval.every = credit_accuracy.STAGES["early"]
  return {
    "trained": credit_accuracy.train(wanted, current, ("early",))["early"]
  }


def no_limit(env):
  """The environment whose exact values are those without a step limit."""
  return dataclasses.replace(env, step_limit=NO_LIMIT)


def make_error_fn():
  """Returns jitted `errors(arrays, key) -> {name: [B, R] or [B, L, R]}`."""
  levels = tuple((1 - x) / 2 for x in LEVELS)
  levels += tuple((1 + x) / 2 for x in LEVELS)

  def on_group(group, key):
    process = build_process(group, beta=BETA)
    values = closure.exact_values(process, beta=BETA)
    drawn = posterior.closure_posterior(
      group, key, draws=DRAWS, levels=levels, beta=BETA
    )
    plain = crbc(group, beta=BETA)
    # Shrinkage is a factor of the step term: 1 where that is 0.
    shares = {
      f"by {level}": jnp.where(
        plain.step != 0,
        crbc_shrunk(group, beta=BETA, level=level).step
        / jnp.where(plain.step != 0, plain.step, 1.0),
        1.0,
      )
      for level in ("pair", "anchor")
    }
    rows = posterior.of_rows(group, values)
    return {
      "estimate": rows._asdict(),
      "sd": posterior.standard_errors(
        group, process, values, beta=BETA
      )._asdict(),
      "quantiles": {
        kind: tuple(getattr(drawn.quantiles, kind)) for kind in KINDS
      },
      "credit": {"closure": rows.gap}
      | {name: share * rows.gap for name, share in shares.items()},
      "visits": process.state_count[group.state],
    }, plain.live

  mapped = jax.vmap(on_group, (0, None), axis_name=combine.BATCH_AXIS)
  return jax.jit(mapped)


def make_measure_fn(current: task.Task, *, levels: int = 32):
  """Returns `measure(params, *, seed, batches) -> {name: [batches]}`."""
  collect_fn = collect.make_collect_fn(
    current.env, current.logits_fn, group_size=8
  )
  true_values_fn = truth.make_true_values_fn(
    no_limit(current.env), current.logits_fn, beta=BETA
  )
  error_fn = make_error_fn()

  def one_batch(params, drawn, key):
    rollouts = collect_fn(params, drawn.as_levels(), key)
    mask = np.asarray(rollouts.mask)
    exact = true_values_fn(params, drawn, rollouts)
    found, live = credit_steps(
      rollouts,
      lambda arrays: error_fn(arrays, jax.random.fold_in(key, 1)),
      actions=current.env.num_actions,
    )
    found = jax.tree.map(lambda x: x[mask].astype(float), found)
    true = {
      kind: x[mask]
      for kind, x in zip(
        KINDS, (exact.v, exact.q, exact.advantage), strict=True
      )
    }
    won = (np.asarray(rollouts.boundary) == Boundary.SUCCESS).any(axis=(1, 2))
    won = np.broadcast_to(won[:, None, None], mask.shape)
    return statistics_of(found, true, live[mask], won[mask])

  def measure(params, *, seed, batches):
    rows = []
    for b in range(batches):
      drawn = task.levels_at(
        b * levels, levels, num_levels=len(current.train), seed=seed + 1
      )
      key = jax.random.fold_in(jax.random.key(seed), b)
      rows.append(one_batch(params, current.train.take(drawn), key))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}

  return measure


def statistics_of(found, true, live, won) -> dict[str, float]:
  """Coverage, spread and shrunk credit (live rows) of n rows.

  Args:
    found: as `make_error_fn`, arrays [n].
    true: {"v", "q", "gap": [n]}.
    live: bool [n].
    won: bool [n], the group has a success.

  Returns:
    {"jackknife 0.95 gap 2-3": share, "spread gap": ..., "rmse by pair": ...};
    nan of visits that no row has.
  """
  visits = found["visits"]
  bins = {"live": live, "won": live & won} | {
    name: won & (visits >= low) & (visits <= high)
    for name, (low, high) in VISITS.items()
  }
  out = {f"rows {name}": part.mean() for name, part in bins.items()}
  for kind in KINDS:
    error = found["estimate"][kind] - true[kind]
    sd, quantiles = found["sd"][kind], found["quantiles"][kind]
    for name, part in bins.items():
      square = (sd[part] ** 2).mean() if part.any() else 0.0
      out[f"spread {kind} {name}"] = (
        np.sqrt((error[part] ** 2).mean() / square)
        if square > KNOWN**2
        else np.nan
      )
    for i, level in enumerate(LEVELS):
      low, high = quantiles[i], quantiles[len(LEVELS) + i]
      inside = {
        "jackknife": np.abs(error)
        <= scipy.stats.norm.ppf((1 + level) / 2) * sd + 1e-6,
        "bootstrap": (low - 1e-6 <= true[kind]) & (true[kind] <= high + 1e-6),
      }
      for method, covered in inside.items():
        for name, part in bins.items():
          share = covered[part].mean() if part.any() else np.nan
          out[f"{method} {level} {kind} {name}"] = share
  gap = true["gap"][live]
  size = np.sqrt((gap**2).mean())
  for name in SHRUNK:  # the closure first
    credit = found["credit"][name][live]
    out[f"rmse {name}"] = np.sqrt(((credit - gap) ** 2).mean()) / size
    out[f"corr {name}"] = np.corrcoef(credit, gap)[0, 1]
    for other in ("rmse", "corr"):
      gain = out[f"{other} {name}"] - out[f"{other} closure"]
      out[f"{other} {name} less closure"] = gain
  return out


def as_markdown(stage: str, cell) -> str:
  """Coverage by kind and visits, then what shrinking does."""

  def get(name):
    found = cell.get(name)
    return "–" if found is None else f"{found.mean:.3f}"

  coverage = markdown_table(
    ("interval", "of", "visits", *(f"{x:.0%}" for x in LEVELS), "spread"),
    [
      (
        method,
        {"v": "V", "q": "Q", "gap": "Q - V"}[kind],
        name,
        *(get(f"{method} {x} {kind} {name}") for x in LEVELS),
        get(f"spread {kind} {name}") if method == "jackknife" else "",
      )
      for method in METHODS
      for kind in KINDS
      for name in BINS
    ],
  )
  credit = markdown_table(
    ("credit", "rmse", "less closure's", "corr", "less closure's"),
    [
      (
        name,
        get(f"rmse {name}"),
        str(cell[f"rmse {name} less closure"]),
        get(f"corr {name}"),
        str(cell[f"corr {name} less closure"]),
      )
      for name in SHRUNK
    ],
  )
  rows = ", ".join(f"{name}: {get(f'rows {name}')}" for name in BINS)
  return (
    f"**{stage} policy ({cell['env_steps']:,} steps)**; share of the rows, by"
    f" visits: {rows}\n\n{coverage}\n\n{credit}"
  )


if __name__ == "__main__":
  sys.exit(main())
