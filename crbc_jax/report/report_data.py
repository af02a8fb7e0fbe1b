"""The numbers of a report: values and credit of groups, by the kernels."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from crbc_jax.credit import combine, registry
from crbc_jax.credit.diagnostics import SIZE_BINS, batch_diagnostics
from crbc_jax.credit.estimators.crbc import crbc_depths
from crbc_jax.credit.hidden_state import HiddenState, hidden_state_of
from crbc_jax.rollouts.batching import BatchShape, GroupBatch, make_batch
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.types import Boundary, GroupArrays, StepCredit

DEPTHS = (0, 1, 2, 4, 8, 16, math.inf)
"""What the slider offers; a depth that the estimator names is added."""

DEFAULT_ESTIMATORS = ("crbc", "gigpo", "graphgpo", "grpo")

SIGNIFICANT_DIGITS = 4

MISSING_STATE = "(state not recorded)"


class ReportGroup(NamedTuple):
  """One group, and the texts to show instead of its keys."""

  table: StepTable  # S rows of one group
  state_text: Sequence[str | None] | None = None  # [S], None = the key
  action_text: Sequence[str | None] | None = None  # [S]


@dataclasses.dataclass(frozen=True)
class View:
  """An estimator as the report shows it."""

  name: str  # as the user wrote it
  depths: tuple[float, ...]  # of the slider; empty where there is none
  start: int  # where the slider stands first
  credit_fn: Callable[[GroupArrays], StepCredit]  # [B, D, R], D >= 1

  @property
  def depth_names(self) -> list[str]:
    """Depths as words."""
    return ["∞" if math.isinf(d) else f"{d:g}" for d in self.depths]


@dataclasses.dataclass(frozen=True)
class GroupData:
  """One group of a report, ready for JSON; R rows in canonical order."""

  summary: dict[str, Any]  # what the overview needs
  numbers: dict[str, Any]  # graph, trajectories and views
  states: list[str]  # text of each anchor
  actions: list[str]  # distinct texts of actions
  evidence: HiddenState  # of states that the keys hide


def make_view(text: str) -> View:
  """Reads an estimator such as "gigpo" or "crbc(depth=2, w_step=1.0)".

  Raises:
    ValueError: unknown estimator or option, or one that logged states, actions
      and outcomes are not enough for.
  """
  name, options = registry.parse_estimator(text)
  if registry.lookup(name).needs_critic:
    raise ValueError(
      f"estimator {name!r} needs a critic; a report shows what rollouts alone "
      "say: leave it out, or use `crbc credit`"
    )
  registry.make_estimator(name, **options)  # checks the options
  if name != "crbc":
    credit_fn = registry.make_credit_fn(name, **options)
    return View(
      name=text,
      depths=(),
      start=0,
      credit_fn=lambda arrays: jax.tree.map(
        lambda x: x[:, None], credit_fn(arrays)
      ),
    )
  own = options.pop("depth", math.inf)
  depths = tuple(sorted({*DEPTHS, own}))
  kernel = functools.partial(crbc_depths, depths=depths, **options)
  return View(
    name=text,
    depths=depths,
    start=depths.index(own),
    credit_fn=jax.jit(jax.vmap(kernel, axis_name=combine.BATCH_AXIS)),
  )


def report_groups(
  groups: Iterable[ReportGroup], views: Sequence[View]
) -> Iterator[GroupData]:
  """Credits groups one at a time, with shapes that settle.

  Every group is a batch of its own, so its numbers do not depend on what else
  is in the report.

  Raises:
    RolloutError: a table cannot be credited, or holds several groups.
  """
  shape: BatchShape | None = None
  for group in groups:
    batch = make_batch(group.table, shape)
    shape = batch.shape
    if len(batch.group_ids) != 1:
      raise RolloutError(
        f"one table of a report holds {len(batch.group_ids)} groups; give it "
        "one table for each group"
      )
    credits = [jax.device_get(view.credit_fn(batch.arrays)) for view in views]
    yield _group_data(group, batch, views, credits)


def _group_data(
  group: ReportGroup,
  batch: GroupBatch,
  views: Sequence[View],
  credits: Sequence[StepCredit],
) -> GroupData:
  arrays = jax.tree.map(lambda x: x[0], batch.arrays)
  rows = int(arrays.mask.sum())
  source = batch.row_index[0, :rows]  # rows of the table, canonical order
  anchors = int(arrays.state[:rows].max()) + 1
  _, first_visit = np.unique(arrays.state[:rows], return_index=True)
  states = _texts(group.state_text, group.table.state_key, source[first_visit])
  action_of_row = _texts(group.action_text, group.table.action_key, source)
  actions = list(dict.fromkeys(action_of_row))
  number = {text: i for i, text in enumerate(actions)}
  row_action = [number[text] for text in action_of_row]
  trajs = _trajectories(group.table, arrays, source)
  outcomes = [t["outcome"] for t in trajs]
  return GroupData(
    summary={
      "id": str(batch.group_ids[0]),
      "rollouts": len(trajs),
      "steps": rows,
      "anchors": anchors,
      **{kind: outcomes.count(kind) for kind in _ENDS.values()},
      **_shares(batch, views, credits),
    },
    numbers={
      "trajs": trajs,
      "state": arrays.state[:rows].tolist(),
      "action": row_action,
      "pair": arrays.pair[:rows].tolist(),
      "edge": arrays.transitions.row[:rows].tolist(),
      "edges": _edges(arrays, row_action, rows, anchors),
      "views": [
        _view_numbers(credit, arrays.state[:rows], anchors)
        for credit in credits
      ],
    },
    states=states,
    actions=actions,
    evidence=hidden_state_of(batch, group.table),
  )


_ENDS = {
  Boundary.SUCCESS: "success",
  Boundary.FAILURE: "failure",
  Boundary.TRUNCATED: "truncated",
}


def _texts(texts, keys: np.ndarray, rows: np.ndarray) -> list[str]:
  """Texts of rows; the key where there is none."""
  shown = [None] * len(rows) if texts is None else [texts[row] for row in rows]
  return [
    text if text is not None else MISSING_STATE if key is None else str(key)
    for text, key in zip(shown, keys[rows].tolist(), strict=True)
  ]


def _trajectories(table, arrays, source) -> list[dict[str, Any]]:
  """Id, first row and outcome of each trajectory."""
  traj = arrays.traj[: len(source)]
  starts = np.flatnonzero(np.append(True, traj[1:] != traj[:-1]))
  lasts = np.append(starts[1:], len(source)) - 1
  return [
    {
      "id": str(table.traj_id[source[start]]),
      "start": int(start),
      "outcome": _ENDS[Boundary(int(arrays.boundary[last]))],
    }
    for start, last in zip(starts, lasts, strict=True)
  ]


def _edges(arrays, row_action, rows: int, anchors: int) -> dict[str, list]:
  """Merged transitions; target N, N + 1 or N + 2 is an end, as `_ENDS`."""
  merged = arrays.transitions
  edge = merged.row[:rows]
  count = int(edge.max()) + 1
  _, first = np.unique(edge, return_index=True)
  boundary = merged.boundary[:count]
  target = np.where(
    boundary == Boundary.NONE,
    merged.next_state[:count],
    anchors + boundary - Boundary.SUCCESS,
  )
  return {
    "source": arrays.state[:rows][first].tolist(),
    "target": target.tolist(),
    "action": [row_action[row] for row in first],
    "count": merged.count[:count].tolist(),
  }


def _view_numbers(
  credit: StepCredit, state: np.ndarray, anchors: int
) -> dict[str, Any]:
  """V at anchors, Q and credit at rows, one list for each depth."""
  rows = len(state)
  visits = np.bincount(state, minlength=anchors)

  def at_anchors(values):
    return np.bincount(state, values, minlength=anchors) / visits

  return {
    "v": [rounded(at_anchors(v[:rows])) for v in credit.v[0]],
    "q": [rounded(q[:rows]) for q in credit.q[0]],
    "credit": [rounded(a[:rows]) for a in credit.advantage[0]],
    "live": [round(float(x[:rows].mean()), 4) for x in credit.live[0]],
  }


def _shares(batch, views, credits) -> dict[str, Any]:
  """Diagnostics of one group, at the depth where the slider stands first."""
  at_start = [
    jax.tree.map(lambda x, i=view.start: x[:, i], credit)
    for view, credit in zip(views, credits, strict=True)
  ]
  found = [batch_diagnostics(batch.arrays, credit) for credit in at_start]
  return {
    "singletons": found[0]["singleton_share"],
    "sizes": [found[0][f"group_size_{low}"] for low in SIZE_BINS],
    "live": [f["live_share"] for f in found],
    "inexact": any(f["residual_warnings"] for f in found),
  }


def rounded(values: np.ndarray) -> list[float]:
  """Numbers to four significant digits."""
  return [
    float(f"{x:.{SIGNIFICANT_DIGITS}g}") + 0.0  # no minus zero
    for x in np.asarray(values, np.float64).tolist()
  ]
