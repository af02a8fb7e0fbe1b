"""Does the state key hide state? Tests on the rollouts themselves.

Where a key leaves out what matters, histories that differ share an anchor, the
closure joins them into routes that nobody could walk, and its credit can point
the wrong way however many rollouts there are. Two witnesses, both ours, both
NumPy on the host:

  `hidden_state`      a test: what follows (anchor, action) must not depend on
                      how the anchor was reached
  `root_calibration`  a heuristic: the closure promises more at the start than
                      rollouts earned

Under a key that hides nothing the successor of (anchor, action) is a draw from
P(.|s,a), whatever went before and however the policy chose: only what follows
the action is looked at, so a policy that sees more than the key does no harm,
and neither does a time limit (its last steps are left out).
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from crbc_jax.checks import check_choice, check_discount
from crbc_jax.types import Boundary, GroupArrays

RESPONSES = ("successor", "ending", "action", "outcome")
"""What may depend on the history; see `dependence`."""

WARN_BELOW = 1e-2
"""p-value of `hidden_state` below which a log is warned of."""

POOLED_BELOW = 1e-5
"""The same for evidence that is looked at again and again while it grows."""

WARNING = (
  "the state key seems to hide state: what follows a state and action depends"
  " on how the state was reached (p = {p:.0e}, most at {where}), and credit"
  " by closure can then point the wrong way; use a finer state key, or"
  " estimators that trust keys less, such as --estimators crbc_anchored"
)

_WORD = 64  # anchors in a word of a set of them
_WORDS = 4  # beyond 256 anchors several share a bit: still a fair history
_CELLS = 1 << 20  # pairs of visits held at once
_ROUNDING = 1e-9
_TOP = 8
_NAMED = 3


class Place(NamedTuple):
  """An anchor and its part in a statistic."""

  group: int  # index in the batch, or what names it
  anchor: int
  excess: float


@dataclasses.dataclass(frozen=True)
class Dependence:
  """Sums of one test; those of other groups add up.

  Under independence every part has mean 0 and a known variance, and different
  parts are uncorrelated (see `dependence`): `z` has mean 0 and variance 1.
  """

  total: float = 0.0  # sum of the parts, positive under dependence
  variance: float = 0.0  # sum of theirs
  third: float = 0.0  # sum of their variances to the power 3/2
  parts: int = 0  # anchors (or groups) that were tested: the others can't tell
  weight: float = 0.0  # of the likeness that was compared
  places: tuple[Place, ...] = ()  # that contribute most, largest first

  @property
  def z(self) -> float:
    """The statistic, total / sqrt(variance)."""
    return self.total / math.sqrt(self.variance) if self.variance > 0 else 0.0

  @property
  def p_value(self) -> float:
    """One-sided, by the chi-square that is as skewed as z may be.

    k = 4 variance^3 / third^2 degrees: each part half as skewed as a
    chi-square of one degree, the most that it can be. (With eight rollouts on
    problems that hide nothing that is about right: see
    experiments/hidden_state.py.) The tail is Wilson and Hilferty's. 1 where
    nothing could be tested.
    """
    if self.variance <= 0:
      return 1.0
    degrees = 4 * self.variance**3 / self.third**2
    narrow = 2 / (9 * degrees)
    root = max(1 + self.z * math.sqrt(2 / degrees), 0.0) ** (1 / 3)
    return 0.5 * math.erfc((root - 1 + narrow) / math.sqrt(2 * narrow))

  @property
  def excess(self) -> float:
    """How much likelier like histories agree, in [-1, 1]; the effect size."""
    return self.total / self.weight if self.weight > 0 else 0.0

  def __add__(self, other: "Dependence") -> "Dependence":
    places = sorted(self.places + other.places, key=lambda x: -x.excess)
    return Dependence(
      total=self.total + other.total,
      variance=self.variance + other.variance,
      third=self.third + other.third,
      parts=self.parts + other.parts,
      weight=self.weight + other.weight,
      places=tuple(places[:_TOP]),
    )


@dataclasses.dataclass(frozen=True)
class HiddenState:
  """Both responses that a sound key leaves independent of the history."""

  successor: Dependence = Dependence()
  ending: Dependence = Dependence()

  @property
  def p_value(self) -> float:
    """min(1, 2 min p): Bonferroni over the two responses."""
    return min(1.0, 2 * min(self.successor.p_value, self.ending.p_value))

  @property
  def z(self) -> float:
    """The larger of the two."""
    return max(self.successor.z, self.ending.z)

  @property
  def failed(self) -> Dependence:
    """The response with the smaller p-value."""
    return min(self.successor, self.ending, key=lambda x: x.p_value)

  def warning(self, *, below: float = WARN_BELOW) -> str | None:
    """The sentence to show when `p_value < below`, else None."""
    if not self.p_value < below:
      return None
    where = ", ".join(
      f"{x.anchor} of {x.group}" for x in self.failed.places[:_NAMED]
    )
    return WARNING.format(p=self.p_value, where=where)

  def __add__(self, other: "HiddenState") -> "HiddenState":
    return HiddenState(
      self.successor + other.successor, self.ending + other.ending
    )


class Calibration(NamedTuple):
  """What the closure promises at the start over what rollouts earned."""

  ratio: float  # 1 where it promises what was earned
  low: float  # lower end of a two-sided 95 % interval
  high: float

  @property
  def alarms(self) -> bool:
    """Whether the whole interval lies above `ALARM_RATIO`."""
    return self.low > ALARM_RATIO


ALARM_RATIO = 1.1
"""Above it a root calibration is suspicious; from ten small problems."""


def hidden_state(arrays: GroupArrays) -> HiddenState:
  """Tests successors and endings; see `dependence`.

  Endings alone (success, failure, or going on) see what the many successors of
  a slippery world drown: a door that opens to some histories only.

  Args:
    arrays: groups with leading axis [B], at least one.

  Returns:
    The evidence; that of other batches adds up.
  """
  history = _History(arrays)
  return HiddenState(
    successor=_dependence(history, "successor"),
    ending=_dependence(history, "ending"),
  )


def dependence(arrays: GroupArrays, *, of: str = "successor") -> Dependence:
  """Do visits of an anchor with like histories go on alike?

    T = sum_{i != j} K_ij ((n - 1) A_ij - sum_{l != i} A_il)

  over the first visits of n rollouts of a group to one (anchor, action). A_ij
  = 1 where i and j met the same response; K_ij is the Jaccard index of the sets
  of anchors that i and j went through before. A visit's history is settled
  before its response is drawn, and rollouts are independent: so, given the
  histories, responses may be exchanged and T has mean 0 and Mantel's
  permutation variance, with no assumption on the policy. (Later visits of a
  rollout would not do: whether they exist depends on what was drawn before.)
  Of two responses of a rollout the later one is fair given the earlier, so the
  T of different strata are uncorrelated up to terms 1/n.

    successor  the next anchor, or how the rollout ended, of (anchor, action)
    ending     success, failure, or neither, of (anchor, action)
    action     of the anchor: fails too where the policy sees more than the key
    outcome    of the anchor, whether success follows within half the time
               limit, for visits that leave so much: fails too where the policy
               sees more than the key. One rollout says much the same at all
               its anchors, so the parts are groups, of variance T^2

  Steps as late in a group as one that was cut off by the limit are left out:
  what such a step led to is not always known.

  Args:
    arrays: groups with leading axis [B].
    of: the response.

  Returns:
    The sums; `z` of them is the statistic.
  """
  check_choice("of", of, RESPONSES)
  return _dependence(_History(arrays), of)


def root_calibration(
  arrays: GroupArrays, v: np.ndarray, *, beta: float
) -> Calibration:
  """sum_i V(s_{i,0}) / sum_i G_{i,0}, with a jackknife over groups.

    G_{i,0} = beta^{T_i} [i succeeded]

  Impossible shortcuts make the closure promise more than was earned. Without
  them it promises as much or, since it forgets the time limit the other way
  round (truncated rollouts fail where they stand), less. At beta = 1 the ratio
  is close to 1 whatever the key hides. The interval is wide where few groups
  succeed, and infinite for fewer than two groups that do.

  Args:
    arrays: groups with leading axis [B].
    v: [B, R], the values of the exact closure at each row (`StepCredit.v`).
    beta: discount they were computed with, in (0, 1).
  """
  check_discount("beta", beta)
  mask = np.asarray(arrays.mask)
  first = mask & (np.asarray(arrays.step) == 0)
  won = mask & (np.asarray(arrays.boundary) == Boundary.SUCCESS)
  length = np.where(won, np.asarray(arrays.step) + 1, 0)
  promised = np.where(first, np.asarray(v, np.float64), 0.0).sum(axis=1)
  earned = np.where(won, float(beta) ** length, 0.0).sum(axis=1)
  groups = int((earned > 0).sum())
  if groups == 0:
    return Calibration(math.nan, -math.inf, math.inf)
  ratio = float(promised.sum() / earned.sum())
  if groups == 1:
    return Calibration(ratio, -math.inf, math.inf)
  real = first.any(axis=1)
  count = int(real.sum())
  left = earned.sum() - earned[real]
  without = (promised.sum() - promised[real]) / left
  spread = math.sqrt((count - 1) * float(without.var()))
  return Calibration(ratio, ratio - 1.96 * spread, ratio + 1.96 * spread)


class _History:
  """Rows of a batch, flat, with what went before each."""

  def __init__(self, arrays: GroupArrays):
    mask = np.asarray(arrays.mask)
    self.group, _ = np.nonzero(mask)
    self.anchors = arrays.state_mask.shape[1]
    self.arrays, self.mask = arrays, mask
    state = self.column("state")
    self.step = self.column("step")
    self.boundary = self.column("boundary")
    self.traj = self.group * arrays.traj_mask.shape[1] + self.column("traj")
    self.anchor = self.group * self.anchors + state
    words = min(-(-self.anchors // _WORD), _WORDS)
    rollouts = mask.shape[0] * arrays.traj_mask.shape[1]
    steps = int(self.step.max(initial=0)) + 2
    passed = np.zeros((words, rollouts, steps), np.uint64)
    bit = np.uint64(1) << (state % _WORD).astype(np.uint64)
    passed[state // _WORD % words, self.traj, self.step + 1] = bit
    np.bitwise_or.accumulate(passed, axis=2, out=passed)
    self.passed = passed[:, self.traj, self.step]  # [words, rows]

  def column(self, name: str) -> np.ndarray:
    """A field of the rows."""
    return np.asarray(getattr(self.arrays, name))[self.mask]

  @property
  def pair(self) -> np.ndarray:
    """(anchor, action) of each row, distinct over the batch."""
    return self.group * self.arrays.pair_mask.shape[1] + self.column("pair")

  def limit(self, *, none: int) -> np.ndarray:
    """Length of the shortest rollout of each group that was cut off, [B]."""
    found = np.full(self.mask.shape[0], none)
    cut = self.boundary == Boundary.TRUNCATED
    np.minimum.at(found, self.group[cut], self.step[cut] + 1)
    return found

  def before_limit(self) -> np.ndarray:
    """False on steps as late as one at which a rollout was cut off; [rows]."""
    steps = int(self.step.max(initial=0)) + 1
    cut = self.boundary == Boundary.TRUNCATED
    late = np.zeros((self.mask.shape[0], steps), bool)
    late[self.group[cut], self.step[cut]] = True
    return ~late[self.group, self.step]


def _dependence(history: _History, of: str) -> Dependence:
  ends = np.where(
    history.boundary == Boundary.NONE, 0, history.anchors + history.boundary
  )
  cluster = history.anchor
  if of in ("successor", "ending"):
    following = np.where(ends, ends, history.column("next_state"))
    response = following if of == "successor" else ends
    stratum, usable = history.pair, history.before_limit()
  elif of == "action":
    response, stratum = history.column("action"), history.anchor
    usable = np.ones(len(response), bool)
  else:
    response, usable = _windowed_outcome(history)
    stratum, cluster = history.anchor, history.group
  rows = _first_visits(stratum, history.traj, response, usable)
  if not len(rows):
    return Dependence()
  total, variance, weight = _contrast(rows, response, history.passed)
  at = rows[:, 0]
  told = weight > 0
  parts, index = np.unique(cluster[at[told]], return_inverse=True)
  if of == "outcome":
    part = np.bincount(index, total[told], minlength=len(parts))
    variance = part**2
  anchors, which = np.unique(history.anchor[at], return_inverse=True)
  by_anchor = np.bincount(which, total)
  largest = [i for i in np.argsort(-by_anchor)[:_TOP] if by_anchor[i] > 0]
  return Dependence(
    total=float(total.sum()),
    variance=float(variance.sum()),
    third=float((variance**1.5).sum()),
    parts=len(parts),
    weight=float(weight.sum()),
    places=tuple(
      Place(
        int(anchors[i] // history.anchors),
        int(anchors[i] % history.anchors),
        float(by_anchor[i]),
      )
      for i in largest
    ),
  )


def _windowed_outcome(history: _History) -> tuple[np.ndarray, np.ndarray]:
  """Success within half the limit, and the visits that leave so much time."""
  forever = np.iinfo(np.int64).max // 2
  limit = history.limit(none=forever)[history.group]
  window = limit // 2
  won = history.boundary == Boundary.SUCCESS
  win = np.full(int(history.traj.max(initial=0)) + 1, forever)
  win[history.traj[won]] = history.step[won]
  soon = win[history.traj] - history.step < window
  return soon.astype(int), history.step + window <= limit


def _first_visits(stratum, traj, response, usable) -> np.ndarray:
  """Rows of the first visit of each rollout to a stratum: [S, G], -1 padding.

  Strata of fewer than three rollouts, or of one response, can't tell.
  """
  row = np.flatnonzero(usable)
  _, first = np.unique(
    stratum[row] * (int(traj.max(initial=0)) + 1) + traj[row],
    return_index=True,  # the earliest: rows are sorted by time
  )
  row = row[first]
  if not len(row):
    return np.zeros((0, 0), int)
  start = np.flatnonzero(np.diff(stratum[row], prepend=-1))
  size = np.diff(np.append(start, len(row)))
  low = np.minimum.reduceat(response[row], start)
  high = np.maximum.reduceat(response[row], start)
  tells = (size >= 3) & (low < high)
  start, size = start[tells], size[tells]
  if not len(start):
    return np.zeros((0, 0), int)
  column = np.arange(size.max())
  inside = column < size[:, None]
  return np.where(
    inside, row[np.minimum(start[:, None] + column, len(row) - 1)], -1
  )


def _contrast(rows, response, passed) -> np.ndarray:
  """T of each stratum, its variance, its weight sum_ij (n - 1) K_ij; [3, S].

  All 0 where the histories are equally alike: nothing was compared.
  """
  width = rows.shape[1]
  pieces = max(1, len(rows) * width**2 // _CELLS)
  found = [
    _contrast_of(some, response, passed)
    for some in np.array_split(rows, pieces)
  ]
  return np.concatenate(found, axis=1)


def _contrast_of(rows, response, passed) -> np.ndarray:
  there = rows >= 0
  pairs = there[:, :, None] & there[:, None, :]
  pairs &= ~np.eye(rows.shape[1], dtype=bool)
  met = response[rows]
  alike = pairs & (met[:, :, None] == met[:, None, :])
  size = there.sum(axis=1).astype(float)
  likeness = np.where(pairs, _jaccard(passed[:, rows]), 0.0)
  own = likeness.sum(axis=2)
  contrast = (size - 1)[:, None, None] * likeness
  contrast -= (own[:, :, None] + own[:, None, :]) / 2
  contrast = np.where(pairs, contrast, 0.0)
  total = (contrast * alike).sum(axis=(1, 2))
  weight = (size - 1) * own.sum(axis=1)
  # Equally alike histories compare nothing, but for rounding.
  flat = np.abs(contrast).max(axis=(1, 2)) <= _ROUNDING * size
  variance = _permuted_variance(contrast, alike.astype(float), size)
  return np.where(flat, 0.0, (total, variance, weight))


def _permuted_variance(b, a, n) -> np.ndarray:
  """Variance of sum_ij B_ij A_ij if the rows of A are permuted; [S].

  Mantel's, for symmetric matrices with zero diagonals where sum B = 0: pairs
  of pairs share two, one or no index.
  """

  def sums(x):
    square, marginal = (x**2).sum(axis=(1, 2)), x.sum(axis=2)
    return square, (marginal**2).sum(axis=1), marginal.sum(axis=1) ** 2

  (b2, b3, b1), (a2, a3, a1) = sums(b), sums(a)
  two, three = n * (n - 1), n * (n - 1) * (n - 2)
  four = np.maximum(three * (n - 3), 1)  # no such pairs where n = 3
  variance = (
    2 * b2 * a2 / two
    + 4 * (b3 - b2) * (a3 - a2) / three
    + (b1 + 2 * b2 - 4 * b3) * (a1 + 2 * a2 - 4 * a3) / four
  )
  return np.maximum(variance, 0.0)  # rounding


def _jaccard(sets: np.ndarray) -> np.ndarray:
  """(|both| + 1) / (|either| + 1) of sets [words, S, G]; [S, G, G]."""
  left, right = sets[:, :, :, None], sets[:, :, None, :]
  both = np.bitwise_count(left & right).sum(axis=0, dtype=float)
  either = np.bitwise_count(left | right).sum(axis=0, dtype=float)
  return (both + 1) / (either + 1)
