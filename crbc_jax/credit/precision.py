"""How precise is the closure on this device? Compared with float64.

Three groups that lose digits where a solve is careless, at two discounts: a
state that follows itself for long, two cliques that are hardly connected, and
a ring without a branching state.
"""

import dataclasses

import jax
import numpy as np

from crbc_jax.credit.closure import exact_values
from crbc_jax.credit.process import build_process
from crbc_jax.rollouts.batching import make_batch
from crbc_jax.rollouts.interning import intern_table
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

V_LIMIT = 5e-6  # relative to the state's own value
GAP_LIMIT = 1e-6  # absolute, for values in [0, 1]
BETAS = (1.0, 0.98)
MATMUL_PRECISIONS = ("default", "bfloat16")
"""Settings of JAX that must not matter: the device's own, and the coarsest."""

_ACTIONS = 3


@dataclasses.dataclass(frozen=True)
class Precision:
  """The largest errors of one group at one discount."""

  group: str
  beta: float
  matmul_precision: str
  v_error: float  # of V, relative
  gap_error: float  # of Q - V

  @property
  def ok(self) -> bool:
    """Both within their limits; False also where one isn't a number."""
    return self.v_error <= V_LIMIT and self.gap_error <= GAP_LIMIT


def measure_precision() -> list[Precision]:
  """Solves every group under every setting on the default device."""
  table = careless_groups()
  batch = make_batch(table)
  found = []
  for setting in MATMUL_PRECISIONS:
    with jax.default_matmul_precision(setting):
      solve = jax.jit(jax.vmap(_closure, (0, None)))
      for beta in BETAS:
        v, gap = (
          batch.to_rows(np.asarray(x, np.float64), len(table))
          for x in jax.device_get(solve(batch.arrays, np.float32(beta)))
        )
        for name in GROUPS:
          rows = table.group_id == name
          want_v, want_gap = reference(table.take(rows), beta)
          found.append(
            Precision(
              group=name,
              beta=beta,
              matmul_precision=setting,
              v_error=float(np.max(np.abs(v[rows] / want_v - 1))),
              gap_error=float(np.max(np.abs(gap[rows] - want_gap))),
            )
          )
  return found


def _closure(group, beta):
  """V and Q - V of each row."""
  process = build_process(group, beta=beta)
  values = exact_values(process, beta=beta)
  return values.v[group.state], values.gap[group.pair]


def reference(table: StepTable, beta: float) -> tuple[np.ndarray, np.ndarray]:
  """V and Q - V of each row of one group, by a solve in float64.

    N(s) V(s) - beta sum_x N(s,x) V(x) = beta (successes at s)

  Args:
    table: rows of one group in canonical order.
    beta: rounded to float32, as the device gets it.
  """
  ids = intern_table(table)
  beta = float(np.float32(beta))
  size = int(ids.state.max()) + 1
  won = ids.boundary == Boundary.SUCCESS
  goes_on = ids.boundary == Boundary.NONE
  matrix = np.diag(np.bincount(ids.state).astype(np.float64))
  np.add.at(matrix, (ids.state[goes_on], ids.next_state[goes_on]), -beta)
  v = np.linalg.solve(
    matrix, beta * np.bincount(ids.state[won], minlength=size)
  )
  after = np.where(goes_on, v[ids.next_state], won)
  gap = beta * after - v[ids.state]
  mean = np.bincount(ids.pair, gap) / np.bincount(ids.pair)
  return v[ids.state], mean[ids.pair]


def _self_loop() -> list[np.ndarray]:
  return [np.zeros(500, int)] * 4


def _two_cliques() -> list[np.ndarray]:
  here, there = np.random.default_rng(0).integers(12, size=(2, 2, 300))
  return [np.append(here[0], 12 + there[0]), np.append(12 + there[1], here[1])]


def _ring() -> list[np.ndarray]:
  laps = np.arange(500) % 100
  return [laps, laps[:-30]]


GROUPS = {
  "self-loop": _self_loop,
  "two cliques": _two_cliques,
  "ring": _ring,
}
"""Name -> the states that its rollouts go through; the first succeeds."""


def careless_groups() -> StepTable:
  """The groups as a table, rows in canonical order, with random actions."""
  rng = np.random.default_rng(0)
  rows = [
    {
      "group_id": group,
      "traj_id": f"{group} {number}",
      "step_idx": step,
      "state_key": int(state),
      "action_key": int(rng.integers(_ACTIONS)),
      "boundary": _boundary(number, last=step == len(path) - 1),
    }
    for group, make in GROUPS.items()
    for number, path in enumerate(make())
    for step, state in enumerate(path)
  ]
  return StepTable.from_rows(rows)


def _boundary(number: int, *, last: bool) -> Boundary:
  if not last:
    return Boundary.NONE
  return Boundary.SUCCESS if number == 0 else Boundary.FAILURE
