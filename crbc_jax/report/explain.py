"""Why a step got its credit: the numbers, and what they rest on, in words.

Facts about a group (who came where, what was tried there, what can still
succeed) come from its table alone; values and credit from the estimators.
"""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from crbc_jax.credit.table_credit import TableCredit
from crbc_jax.rollouts.interning import intern_table
from crbc_jax.rollouts.table import RolloutError, StepTable
from crbc_jax.types import Boundary

REPEATS = 3
"""Visits of one rollout to one anchor that are worth a hint."""

_SHORT = 40  # characters of an action inside a sentence
_NAMED = 10  # ids in an error
_LISTED = 4  # alternatives named in a sentence
_ENDS = {
  Boundary.SUCCESS: "The rollout succeeds with this step.",
  Boundary.FAILURE: "The rollout fails with this step.",
  Boundary.TRUNCATED: "The rollout is cut off after this step.",
}


@dataclasses.dataclass(frozen=True)
class Credit:
  """What one estimator gave a step."""

  advantage: float
  trajectory: float  # unweighted trajectory term
  step: float  # unweighted step term


@dataclasses.dataclass(frozen=True)
class Choice:
  """An action seen at an anchor."""

  action: str
  visits: int  # how often it was taken there, by all rollouts
  q: float  # mean over those visits
  taken: bool  # by the step that is explained


@dataclasses.dataclass(frozen=True)
class StepExplanation:
  """One step of a rollout."""

  step: int
  state: str
  action: str
  v: float
  q: float
  credit: dict[str, Credit]  # by estimator
  visits: int  # of the group to the anchor
  rollouts: int  # that came to the anchor
  choices: tuple[Choice, ...]  # seen there, most frequent first
  why: str


@dataclasses.dataclass(frozen=True)
class TrajectoryExplanation:
  """One rollout, step by step; V and Q are the first estimator's."""

  group: Hashable
  traj: Hashable
  outcome: str
  rollouts: int  # of the group
  successes: int
  estimators: tuple[str, ...]
  steps: tuple[StepExplanation, ...]
  notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Extreme:
  """The step of a rollout with the largest or smallest advantage."""

  step: int
  action: str
  advantage: float


@dataclasses.dataclass(frozen=True)
class TrajectorySummary:
  """One rollout in a line; extremes are the first estimator's."""

  traj: Hashable
  outcome: str
  steps: int
  total: dict[str, float]  # summed advantage by estimator
  largest: Extreme
  smallest: Extreme


@dataclasses.dataclass(frozen=True)
class GroupExplanation:
  """A group, one line for each rollout."""

  group: Hashable
  rollouts: int
  successes: int
  estimators: tuple[str, ...]
  trajectories: tuple[TrajectorySummary, ...]
  notes: tuple[str, ...]


def explain_group(
  table: StepTable,
  credits: Mapping[str, TableCredit],
  *,
  action_text: Sequence[str | None] | None = None,
) -> GroupExplanation:
  """Every rollout of a group in a line.

  Args:
    table: S rows of one group.
    credits: estimator -> its credit of the table; the first gives extremes.
    action_text: [S] what was done, in full; None: the key.

  Raises:
    RolloutError: the table holds more than one group.
  """
  facts = _Facts(table)
  actions = _texts(table.action_key, action_text)
  main = next(iter(credits.values())).advantage

  def extreme(rows, pick):
    row = rows[pick(main[rows])]
    return Extreme(int(table.step_idx[row]), actions[row], float(main[row]))

  return GroupExplanation(
    group=facts.group,
    rollouts=facts.rollouts,
    successes=facts.successes,
    estimators=tuple(credits),
    trajectories=tuple(
      TrajectorySummary(
        traj=_plain(table.traj_id, rows[0]),
        outcome=_outcome(table, rows),
        steps=len(rows),
        total={
          name: float(credit.advantage[rows].sum())
          for name, credit in credits.items()
        },
        largest=extreme(rows, np.argmax),
        smallest=extreme(rows, np.argmin),
      )
      for rows in (
        facts.order[facts.traj == number] for number in range(facts.rollouts)
      )
    ),
    notes=facts.notes(),
  )


def explain_trajectory(
  table: StepTable,
  credits: Mapping[str, TableCredit],
  traj_id: Hashable,
  *,
  state_text: Sequence[str | None] | None = None,
  action_text: Sequence[str | None] | None = None,
) -> TrajectoryExplanation:
  """One rollout of a group, step by step.

  Args:
    table: S rows of one group.
    credits: estimator -> its credit of the table; the first gives V and Q.
    traj_id: which rollout; also as text.
    state_text, action_text: [S] in full; None: the key.

  Raises:
    RolloutError: the table holds more than one group, or no such rollout.
  """
  facts = _Facts(table)
  states = _texts(table.state_key, state_text)
  actions = _texts(table.action_key, action_text)
  ids = table.traj_id[facts.order].tolist()
  own = [place for place, traj in enumerate(ids) if str(traj) == str(traj_id)]
  if not own:
    raise RolloutError(
      f"group {facts.group!r} has no trajectory {str(traj_id)!r}; it has: "
      + listed(dict.fromkeys(map(str, ids)))
    )
  values = next(iter(credits.values()))
  steps = []
  for place in own:
    row = facts.order[place]
    choices = facts.choices(place, values.q, actions)
    steps.append(
      StepExplanation(
        step=int(table.step_idx[row]),
        state=states[row],
        action=actions[row],
        v=float(values.v[row]),
        q=float(values.q[row]),
        credit={
          name: Credit(
            advantage=float(credit.advantage[row]),
            trajectory=float(credit.trajectory[row]),
            step=float(credit.step[row]),
          )
          for name, credit in credits.items()
        },
        visits=int(facts.at_anchor(place).sum()),
        rollouts=facts.rollouts_at(place),
        choices=choices,
        why=facts.why(place, choices, float(values.v[row])),
      )
    )
  return TrajectoryExplanation(
    group=facts.group,
    traj=_plain(table.traj_id, facts.order[own[0]]),
    outcome=_outcome(table, facts.order[own]),
    rollouts=facts.rollouts,
    successes=facts.successes,
    estimators=tuple(credits),
    steps=tuple(steps),
    notes=(*facts.notes(), *facts.repeats(own, states)),
  )


class _Facts:
  """What a group's table says by itself; `place` numbers rows in order."""

  def __init__(self, table: StepTable):
    ids = intern_table(table)
    if len(ids.group_row) != 1:
      raise RolloutError(
        f"can explain one group at a time, got {len(ids.group_row)}"
      )
    self.order, self.traj, self.state = ids.order, ids.traj, ids.state
    self.pair, self.boundary = ids.pair, ids.boundary
    self.group = _plain(table.group_id, ids.order[0])
    self.rollouts = int(ids.traj.max()) + 1
    self.successes = int((ids.boundary == Boundary.SUCCESS).sum())
    # Of each anchor, and last (index -1) of what was never acted from.
    hopeful = np.zeros(ids.state.max() + 2, bool)
    hopeful[ids.state[ids.boundary == Boundary.SUCCESS]] = True
    goes_on = ids.boundary == Boundary.NONE
    before, after = ids.state[goes_on], ids.next_state[goes_on]
    while True:
      new = before[hopeful[after] & ~hopeful[before]]
      if not len(new):
        break
      hopeful[new] = True
    self.hopeful = hopeful[ids.state]
    self.hopeful_after = np.where(
      goes_on, hopeful[ids.next_state], ids.boundary == Boundary.SUCCESS
    )

  def at_anchor(self, place: int) -> np.ndarray:
    """Rows at the anchor of a row, [S] bool."""
    return self.state == self.state[place]

  def rollouts_at(self, place: int) -> int:
    """Rollouts that came to the anchor of a row."""
    return len(set(self.traj[self.at_anchor(place)].tolist()))

  def choices(
    self, place: int, q: np.ndarray, actions: Sequence[str]
  ) -> tuple[Choice, ...]:
    """Actions seen at the anchor of a row, most frequent first."""
    found = []
    for pair in dict.fromkeys(self.pair[self.at_anchor(place)].tolist()):
      rows = self.order[self.pair == pair]
      taken = pair == self.pair[place]
      text = actions[self.order[place] if taken else rows[0]]
      found.append(Choice(text, len(rows), float(q[rows].mean()), taken))
    return tuple(sorted(found, key=lambda choice: -choice.visits))

  def why(self, place: int, choices: Sequence[Choice], v: float) -> str:
    """Words on what the credit of a row rests on."""
    visits = int(self.at_anchor(place).sum())
    rollouts = self.rollouts_at(place)
    if visits == 1:
      said = "Only this rollout came here, once: nothing to compare with"
    else:
      verb = "pass" if rollouts > 1 else "passes"
      said = f"{rollouts} of {self.rollouts} rollouts {verb} here"
      if visits > rollouts:
        said += f" ({visits} visits)"
      if len(choices) == 1:
        said += (
          f", always with {_quoted(choices[0].action)}: no alternative seen"
        )
      else:
        said += f": {_listed(choices)}"
    said += f"; V {number(v)}."
    if self.boundary[place] != Boundary.NONE:
      return f"{said} {_ENDS[self.boundary[place]]}"
    if not self.hopeful[place]:
      return f"{said} No way seen from here leads to success."
    if not self.hopeful_after[place]:
      return f"{said} No way seen after this step leads to success."
    return said

  def notes(self) -> tuple[str, ...]:
    """What holds for the whole group."""
    if self.rollouts == 1:
      return (
        "The group is one rollout: only its own revisits can be compared.",
      )
    if not self.successes:
      return (
        "No rollout of the group succeeded: outcomes cannot tell its steps"
        " apart.",
      )
    if self.successes == self.rollouts:
      return (
        "All rollouts of the group succeeded: only how soon can tell its steps"
        " apart.",
      )
    return ()

  def repeats(
    self, own: Sequence[int], states: Sequence[str]
  ) -> tuple[str, ...]:
    """A hint where one rollout came to one anchor many times."""
    anchors, counts = np.unique(self.state[own], return_counts=True)
    most = int(np.argmax(counts))
    if counts[most] < REPEATS:
      return ()
    place = own[int(np.argmax(self.state[own] == anchors[most]))]
    more = int((counts >= REPEATS).sum()) - 1
    also = f" ({more} more like it)" if more else ""
    return (
      f"State {_quoted(states[self.order[place]])} occurs"
      f" {counts[most]} times in this rollout{also}: it goes in circles, or"
      " the state key hides what changed. If it does, a finer key is safer, or"
      " crbc_anchored.",
    )


def number(value: float) -> str:
  """Two decimals, without a leading zero: .74, -1.20."""
  text = f"{value:z.2f}"  # z: no minus before zero
  return text.replace("0.", ".", 1) if abs(value) < 1 else text


def listed(names: Iterable[str]) -> str:
  """The first ten names, and how many more there are."""
  names = list(names)
  more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
  return ", ".join(names[:_NAMED]) + more


def one_line(text: str, width: int) -> str:
  """Printable text of at most `width` characters."""
  text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
  return text if len(text) <= width else text[: width - 1] + "…"


def _quoted(text: str) -> str:
  return f"'{one_line(text, _SHORT)}'"


def _listed(choices: Sequence[Choice]) -> str:
  """The most frequent choices and the one that was taken, in a phrase."""
  by_interest = sorted(
    range(len(choices)), key=lambda i: (not choices[i].taken, i)
  )
  named = sorted(by_interest[:_LISTED])
  phrases = [
    f"{_quoted(choices[i].action)} {'was taken ' if i == named[0] else ''}"
    f"{_times(choices[i].visits)} (Q {number(choices[i].q)})"
    for i in named
  ]
  rest = len(choices) - len(named)
  others = f" and {rest} other{'s' if rest > 1 else ''}" if rest else ""
  return ", ".join(phrases) + others


def _times(count: int) -> str:
  return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _texts(keys: np.ndarray, texts: Sequence[str | None] | None) -> list[str]:
  """What is shown of each row: its text, or its key where there is none."""
  given = [None] * len(keys) if texts is None else texts
  return [
    text if text is not None else "(missing)" if key is None else str(key)
    for key, text in zip(keys.tolist(), given, strict=True)
  ]


def _plain(column: np.ndarray, row: int) -> Hashable:
  """An id as written in the log, not as np.int64."""
  return column[row : row + 1].tolist()[0]


def _outcome(table: StepTable, rows: np.ndarray) -> str:
  """How a trajectory ended, as a word."""
  return Boundary(int(table.boundary[rows].max())).name.lower()
