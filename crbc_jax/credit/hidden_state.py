"""Does the state key hide state? Tests on the rollouts themselves.

Where a key leaves out what matters, histories that differ share an anchor, the
closure joins them into routes that nobody could walk, and its credit can point
the wrong way however many rollouts there are. The test, which is ours: what
follows (anchor, action) must not depend on how the anchor was reached. NumPy on
the host.

Under a key that hides nothing the successor of (anchor, action) is a draw from
P(.|s,a), whatever went before and however the policy chose: only what follows
the action is looked at, so a policy that sees more than the key does no harm,
and neither does a time limit (its last steps are left out).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from crbc_jax.checks import check_choice
from crbc_jax.credit import likeness
from crbc_jax.rollouts.batching import GroupBatch
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary, GroupArrays

RESPONSES = ("successor", "ending", "action", "outcome")
"""What may depend on the history; see `dependence`."""

WARN_BELOW = 1e-2
"""p-value of `hidden_state` below which a log is warned of."""

POOLED_BELOW = 1e-5
"""The same for evidence that is looked at again and again while it grows."""

WARNING = (
  "the state key seems to hide state: what follows a state and action depends"
  " on how the state was reached (p = {p:.0e}{where}), and credit"
  " by closure can then point the wrong way; use a finer state key, or"
  " estimators that trust keys less, such as --estimators crbc_anchored"
)

_WORD = 64  # anchors in a word of a set of them
_WORDS = 4  # beyond 256 anchors several share a bit: still a fair history
_TOP = 8
_NAMED = 3
_KEY_TEXT = 60  # characters of a key in the warning


class Place(NamedTuple):
  """An anchor and its part in a statistic."""

  group: Any  # index in the batch, or what names it
  anchor: Any
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
    named = [
      f"{x.anchor!r} of group {x.group}"
      for x in self.failed.places[:_NAMED]
      if isinstance(x.anchor, str)
    ]
    where = f", most at {', '.join(named)}" if named else ""
    return WARNING.format(p=self.p_value, where=where)

  def __add__(self, other: "HiddenState") -> "HiddenState":
    return HiddenState(
      self.successor + other.successor, self.ending + other.ending
    )

  def as_json(self) -> dict[str, Any]:
    """What `from_json` reads."""
    return dataclasses.asdict(self)

  @classmethod
  def from_json(cls, found: Mapping[str, Any] | None) -> "HiddenState":
    """Evidence that was kept; none of None."""
    return cls(
      **{
        name: Dependence(
          **(sums | {"places": tuple(Place(*x) for x in sums["places"])})
        )
        for name, sums in (found or {}).items()
      }
    )


def hidden_state(arrays: GroupArrays) -> HiddenState:
  """Tests successors and endings; see `dependence`.

  Endings alone (success, failure, or going on) see what the many successors of
  a slippery world drown: a door that opens to some histories only.

  Args:
    arrays: groups with leading axis [B], at least one.

  Returns:
    The evidence; that of other batches adds up.
  """
  history = History(arrays)
  return HiddenState(
    successor=_dependence(history, "successor"),
    ending=_dependence(history, "ending"),
  )


def hidden_state_of(batch: GroupBatch, table: StepTable) -> HiddenState:
  """`hidden_state` of a batch, with places named as its table names them."""

  def named(place: Place) -> Place:
    rows = np.flatnonzero(
      batch.arrays.mask[place.group]
      & (batch.arrays.state[place.group] == place.anchor)
    )
    key = table.state_key[batch.row_index[place.group, rows[0]]]
    return Place(
      str(batch.group_ids[place.group]), _short(str(key)), place.excess
    )

  def renamed(found: Dependence) -> Dependence:
    return dataclasses.replace(found, places=tuple(map(named, found.places)))

  found = hidden_state(batch.arrays)
  return HiddenState(renamed(found.successor), renamed(found.ending))


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
    The sums; `Dependence.z` of them is the statistic.
  """
  check_choice("of", of, RESPONSES)
  return _dependence(History(arrays), of)


def _short(text: str) -> str:
  """One line of a key, for a sentence."""
  line = " ".join(text.split())
  return line if len(line) <= _KEY_TEXT else line[: _KEY_TEXT - 1] + "…"


class History:
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
    self.passed = _passed(state, self.traj, anchors=self.anchors)

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
    place = self.group * (int(self.step.max(initial=0)) + 1) + self.step
    return ~np.isin(place, place[self.boundary == Boundary.TRUNCATED])


def _passed(state, traj, *, anchors: int) -> np.ndarray:
  """Sets of the anchors that a rollout saw before each row, [words, rows]."""
  words = min(-(-anchors // _WORD), _WORDS)
  sets = np.zeros((words, len(state)), np.uint64)
  bit = np.uint64(1) << (state % _WORD).astype(np.uint64)
  sets[state // _WORD % words, np.arange(len(state))] = bit
  starts = np.diff(traj, prepend=-1) != 0
  row = np.arange(len(state))
  age = row - np.maximum.accumulate(np.where(starts, row, 0))
  before = np.where(age > 0, np.roll(sets, 1, axis=1), np.uint64(0))
  for doubling in range(int(age.max(initial=0)).bit_length()):
    far = age > (shift := 1 << doubling)
    before[:, far] |= before[:, np.flatnonzero(far) - shift]
  return before


def responses(
  history: History, of: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Response, stratum and whether it may be used, of each row."""
  ends = np.where(
    history.boundary == Boundary.NONE, 0, history.anchors + history.boundary
  )
  if of == "successor":
    following = np.where(ends, ends, history.column("next_state"))
    return following, history.pair, history.before_limit()
  if of == "ending":
    return ends, history.pair, history.before_limit()
  if of == "action":
    usable = np.ones(len(ends), bool)
    return history.column("action"), history.anchor, usable
  soon, usable = _windowed_outcome(history)
  return soon, history.anchor, usable


def _dependence(history: History, of: str) -> Dependence:
  response, stratum, usable = responses(history, of)
  rows = likeness.first_visits(stratum, history.traj, response, usable)
  if not len(rows):
    return Dependence()
  total, variance, weight = likeness.contrast(rows, response, history.passed)
  at = rows[:, 0]
  told = weight > 0
  cluster = history.group if of == "outcome" else history.anchor
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


def _windowed_outcome(history: History) -> tuple[np.ndarray, np.ndarray]:
  """Success within half the limit, and the visits that leave so much time."""
  forever = np.iinfo(np.int64).max // 2
  limit = history.limit(none=forever)[history.group]
  window = limit // 2
  won = history.boundary == Boundary.SUCCESS
  win = np.full(int(history.traj.max(initial=0)) + 1, forever)
  win[history.traj[won]] = history.step[won]
  soon = win[history.traj] - history.step < window
  return soon.astype(int), history.step + window <= limit
