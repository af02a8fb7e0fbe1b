"""Helpers: groups of the oracle as tables, and credit back in table order.

No logic of the kernels lives here: rollouts become rows one by one, and
results come back through `GroupBatch.to_rows`.
"""

import functools
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from crbc_jax.credit import registry
from crbc_jax.credit.estimators.crbc import crbc_depths
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import GroupArrays, StepCredit
from tests import oracle
from tests.oracle import Rollout, Step

Group = Sequence[Rollout]

SMALL_SHAPE = BatchShape(1, 32, 32, 32, 8, 32, 32)
"""Holds every group of `small_groups`: drawn groups share one compilation."""

FIELDS = ("advantage", "trajectory", "step", "q", "v", "live")


def rollout(path: str, end: str, final_state: Hashable = None) -> Rollout:
  """ "s0 a s1 b" -> two steps, as in the golden example of §10."""
  words = path.split()
  return Rollout(
    tuple(Step(s, a) for s, a in zip(words[::2], words[1::2], strict=True)),
    end,
    final_state,
  )


def golden() -> list[Rollout]:
  """The worked example of methods.md §10."""
  return oracle.golden_group()


def steps(group: Group) -> list[Step]:
  """All steps of a group in table order."""
  return [step for rollout in group for step in rollout.steps]


def columns_of(groups: Iterable[Group]) -> dict[str, list]:
  """Columns of a table of these groups; group ids 0, 1, ...

  Row order is group, rollout, step: that of `flat`.
  """
  rows = []
  number = 0
  for group_id, group in enumerate(groups):
    for rollout in group:
      last = len(rollout.steps) - 1
      for t, step in enumerate(rollout.steps):
        rows.append(
          {
            "group_id": group_id,
            "traj_id": number,
            "step_idx": t,
            "state_key": step.state,
            "action_key": step.action,
            "next_state_key": (
              rollout.final_state if t == last else rollout.steps[t + 1].state
            ),
            "reward": float(step.reward),
            "value": critic_value(step, t),
            "valid": step.valid,
            "boundary": rollout.end if t == last else "none",
          }
        )
      number += 1
  return {name: [row[name] for row in rows] for name in rows[0]}


def critic_value(step: Step, t: int) -> float:
  """Some value in (0, 1) of what the step's rollout shows, in eighths."""
  return (sum(map(ord, repr(step.state))) + 3 * t) % 7 / 8 + 1 / 8


def table_of(groups: Iterable[Group], **columns) -> StepTable:
  """Groups as a table; `columns` replace or add columns."""
  made = columns_of(groups)
  for name in ("group_id", "traj_id"):
    made[name] = np.asarray(made[name])
  return StepTable.from_columns(**(made | columns))


def flat(rows_of_groups: Iterable[Sequence[Sequence]]) -> np.ndarray:
  """Oracle rows of several groups as one float64 array in table order."""
  return np.array(
    [float(x) for rows in rows_of_groups for row in rows for x in row]
  )


def random_groups(
  count: int,
  seed: int,
  *,
  missing: Sequence[float] = (0.0,),
  dyadic: bool = False,
  **sizes,
) -> list[list[Rollout]]:
  """Random oracle groups; `dyadic` rounds rewards to eighths.

  Sums of eighths are exact in float32, so that scores equal on paper are
  equal in the kernel too.
  """
  rng = random.Random(seed)
  groups = [
    oracle.random_group(rng, missing=rng.choice(missing), **sizes)
    for _ in range(count)
  ]
  if dyadic:
    groups = [
      [
        r._replace(
          steps=tuple(
            s._replace(reward=Fraction(round(s.reward * 8), 8)) for s in r.steps
          )
        )
        for r in group
      ]
      for group in groups
    ]
  return groups


@st.composite
def small_groups(draw):
  """A group of at most 6 rollouts, 5 steps each, 4 states, 3 actions."""
  step = st.builds(
    Step,
    st.sampled_from(["s0", "s1", "s2", None]),
    st.sampled_from("abc"),
    st.integers(-3, 3),
  )
  one = st.builds(
    Rollout,
    st.lists(step, min_size=1, max_size=5).map(tuple),
    st.sampled_from(oracle.ENDS),
    st.sampled_from([None, "s0", "s1", "never"]),
  )
  return draw(st.lists(one, min_size=1, max_size=6))


CORE = ("crbc", "gigpo", "graft", "graphgpo", "grpo", "rtmc")


def core_first(names: Iterable[str]) -> list:
  """Names as parameters of a test; all but `CORE` are left to `-m slow`.

  For tests that compile a program of their own for every estimator.
  """
  slow = pytest.mark.slow
  return [
    pytest.param(name, marks=[] if name in CORE else slow) for name in names
  ]


@functools.cache
def credit_fn(name: str, **options) -> Callable[[GroupArrays], StepCredit]:
  """`registry.make_credit_fn`, compiled once per option set and shape."""
  return registry.make_credit_fn(name, **options)


@functools.cache
def depths_fn(**options) -> Callable[[GroupArrays], StepCredit]:
  """Batched, jitted `crbc_depths`: arrays [B, D, R]."""
  return jax.jit(jax.vmap(functools.partial(crbc_depths, **options)))


def credit(
  name: str, source: StepTable | GroupBatch | Iterable[Group], **options
) -> dict[str, np.ndarray]:
  """Every field of an estimator's result, per row, in table order."""
  if not isinstance(source, (StepTable, GroupBatch)):
    source = table_of(source)
  batch = source if isinstance(source, GroupBatch) else make_batch(source)
  result = credit_fn(name, **options)(batch.arrays)
  size = int(batch.row_index.max()) + 1
  if isinstance(source, StepTable):
    size = len(source)
  return {f: batch.to_rows(getattr(result, f), size) for f in FIELDS}


def credit_at_depths(batch: GroupBatch, size: int, **options) -> list[dict]:
  """One dict of table-order fields for each depth of `crbc_depths`."""
  result = depths_fn(**options)(batch.arrays)
  return [
    {
      f: batch.to_rows(np.asarray(getattr(result, f))[:, d], size)
      for f in FIELDS
    }
    for d in range(len(options["depths"]))
  ]


def bits(values) -> np.ndarray:
  """float32 values as their bit patterns, for exact comparison."""
  values = np.asarray(values)
  assert values.dtype == np.float32, values.dtype
  return values.view(np.uint32)


def one(arrays, index: int = 0):
  """The unbatched group `index` of batched arrays."""
  return jax.tree.map(lambda x: x[index], arrays)


def matrix(process) -> np.ndarray:
  """M(s,s') [N, N] of one process, interior successors only."""
  size = len(process.state_count)
  flow = np.zeros((size, size + 1))
  np.add.at(flow, (process.state, process.next_state), process.count)
  return flow[:, :size] / np.maximum(process.state_count, 1)[:, None]
