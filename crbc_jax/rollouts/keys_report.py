"""How well candidate keys fit a log: what recurs, what is told apart.

Step-level credit lives on anchors that several rollouts of a group visit. A key
too fine makes every anchor its own; one too coarse calls different states the
same (aliasing), and the merged graph gets shortcuts nobody could walk.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from crbc_jax.rollouts import keys
from crbc_jax.rollouts.log import Row


@dataclasses.dataclass(frozen=True)
class KeyReport:
  """What a pair of keys makes of a log."""

  state_key: str
  action_key: str
  steps: int
  anchors: int  # distinct states that a step was taken from
  recurring: float  # share of steps whose anchor another rollout visits
  gated: int  # anchors with at least two distinct actions
  gate: float  # share of steps at those; elsewhere Q - V is 0
  finer: str | None  # the finest candidate that splits these anchors, if any
  aliasing: float | None  # its anchors per anchor of this key

  @property
  def anchors_per_step(self) -> float:
    """1 if every step has an anchor of its own."""
    return self.anchors / self.steps if self.steps else 0.0


class _Counts:
  """Sums over groups for one candidate."""

  def __init__(self) -> None:
    self.anchors = 0
    self.recurring = 0
    self.gated = 0
    self.gate = 0

  def add(self, visits: Sequence[tuple[int, int, keys.Key]]) -> None:
    """Counts one group: (anchor, rollout, action) of every step."""
    rollouts, actions = (collections.defaultdict(set) for _ in range(2))
    steps = collections.Counter(anchor for anchor, _, _ in visits)
    for anchor, rollout, action in visits:
      rollouts[anchor].add(rollout)
      actions[anchor].add(action)
    for anchor, count in steps.items():
      several = len(actions[anchor]) > 1
      self.anchors += 1
      self.recurring += count * (len(rollouts[anchor]) > 1)
      self.gated += several
      self.gate += count * several


def compare_keys(
  groups: Iterable[Sequence[Sequence[Row]]],
  candidates: Sequence[tuple[str, str]],
) -> list[KeyReport]:
  """Compares pairs of keys on the same rollouts, one group at a time.

  A candidate is finer than another if, on this log, equal keys of the one have
  equal keys of the other and it has more anchors.

  Args:
    groups: of each task its rollouts, of each rollout its rows in order; rows
      of weight 0 are left out.
    candidates: (state key, action key) as `keys.state_key` and
      `keys.action_key` take them.

  Returns:
    A report for each candidate, in their order.

  Raises:
    ValueError: an unknown key or option.
    LogError: a key function fails on a trajectory.
  """
  functions = [(keys.state_key(s), keys.action_key(a)) for s, a in candidates]
  counts = [_Counts() for _ in candidates]
  pairs: collections.Counter[tuple[int, int]] = collections.Counter()
  total = 0
  for group in groups:
    rollouts = [[row for row in rows if row.weight > 0] for rows in group]
    rollouts = [rows for rows in rollouts if rows]
    total += sum(map(len, rollouts))
    anchors: list[list[int]] = []
    for (state_key, action_key), count in zip(functions, counts, strict=True):
      numbers: dict[object, int] = {}
      visits = []
      for i, rows in enumerate(rollouts):
        found = zip(state_key(rows), action_key(rows), strict=False)
        for t, (state, action) in enumerate(found):
          anchor = (i, t) if state is None else state  # a missing one is alone
          number = numbers.setdefault(anchor, len(numbers))
          visits.append((number, i, action))
      count.add(visits)
      anchors.append([anchor for anchor, _, _ in visits])
    for i, coarse in enumerate(anchors):
      for j, fine in enumerate(anchors):
        pairs[i, j] += len(set(zip(coarse, fine, strict=True)))
  reports = []
  for i, (state, action) in enumerate(candidates):
    finer = [
      j
      for j in range(len(candidates))
      if counts[j].anchors > counts[i].anchors
      and pairs[i, j] == counts[j].anchors
    ]
    best = max(finer, key=lambda j: counts[j].anchors, default=None)
    c = counts[i]
    reports.append(
      KeyReport(
        state_key=state,
        action_key=action,
        steps=total,
        anchors=c.anchors,
        recurring=c.recurring / total if total else 0.0,
        gated=c.gated,
        gate=c.gate / total if total else 0.0,
        finer=None if best is None else candidates[best][0],
        aliasing=None if best is None else counts[best].anchors / c.anchors,
      )
    )
  return reports
