"""Explanations of credit for the terminal.

Texts from logs never reach the terminal as markup or control characters.
"""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crbc_jax.report.explain import (
  GroupExplanation,
  StepExplanation,
  TrajectoryExplanation,
  number,
  one_line,
)

_ACTION_WIDTH = 32


def group_view(found: GroupExplanation) -> Group:
  """One line for each rollout."""
  table = _table()
  table.add_column("trajectory", overflow="fold")
  table.add_column("outcome")
  table.add_column("steps", justify="right")
  for name in found.estimators:
    table.add_column(f"sum\n{name}", justify="right", overflow="fold")
  table.add_column(f"largest\n{found.estimators[0]}", overflow="fold")
  table.add_column(f"smallest\n{found.estimators[0]}", overflow="fold")
  for one in found.trajectories:
    table.add_row(
      _text(str(one.traj)),
      _outcome(one.outcome),
      str(one.steps),
      *(_signed(one.total[name]) for name in found.estimators),
      *(
        _text(f"{end.advantage:+.2f} at {end.step}: {end.action}")
        for end in (one.largest, one.smallest)
      ),
    )
  return Group(
    _text(
      f"Group {found.group}: {found.successes} of {found.rollouts} rollouts"
      " succeeded"
    ),
    table,
    *_notes(found.notes),
  )


def trajectory_view(found: TrajectoryExplanation) -> Group:
  """The steps of one rollout as a table, and why they got their credit."""
  table = _table()
  table.add_column("step", justify="right")
  table.add_column("action", overflow="fold")
  table.add_column("V", justify="right")
  table.add_column("Q", justify="right")
  for name in found.estimators:
    table.add_column(name, justify="right", overflow="fold")
  table.add_column("visits", justify="right")
  table.add_column("rollouts", justify="right")
  why = Table(box=None, show_header=False, pad_edge=False)
  why.add_column(justify="right")
  why.add_column(overflow="fold")
  for step in found.steps:
    table.add_row(
      str(step.step),
      _text(step.action),
      number(step.v),
      number(step.q),
      *(_signed(step.credit[name].advantage) for name in found.estimators),
      str(step.visits),
      f"{step.rollouts}/{found.rollouts}",
    )
    why.add_row(str(step.step), Text(step.why))
  return Group(
    _title(found), table, *_notes(found.notes), Text("why", style="bold"), why
  )


def step_view(found: TrajectoryExplanation, step: StepExplanation) -> Group:
  """One step in full: its state, the alternatives, each term of its credit."""
  choices = _table()
  choices.add_column("action seen here", overflow="fold")
  choices.add_column("visits", justify="right")
  choices.add_column("share", justify="right")
  choices.add_column("Q", justify="right")
  choices.add_column("Q - V", justify="right")
  for choice in step.choices:
    choices.add_row(
      Text(one_line(choice.action, 200), style="bold" if choice.taken else ""),
      str(choice.visits),
      f"{choice.visits / step.visits:.0%}",
      number(choice.q),
      _signed(choice.q - step.v),
    )
  credit = _table()
  credit.add_column("estimator", overflow="fold")
  for name in ("advantage", "trajectory term", "step term"):
    credit.add_column(name, justify="right")
  for name, terms in step.credit.items():
    credit.add_row(
      name,
      _signed(terms.advantage),
      _signed(terms.trajectory),
      _signed(terms.step),
    )
  return Group(
    _title(found),
    Text(f"step {step.step}", style="bold"),
    Text("state: " + _printable(step.state)),
    Text("action: " + _printable(step.action)),
    choices,
    credit,
    Text(step.why),
    *_notes(found.notes),
  )


def _title(found: TrajectoryExplanation) -> Text:
  return _text(
    f"Group {found.group} ({found.successes} of {found.rollouts} rollouts"
    f" succeeded), trajectory {found.traj}: {found.outcome}. V and Q:"
    f" {found.estimators[0]}",
    width=1_000,
  )


def _table() -> Table:
  return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _text(text: str, *, width: int | None = None) -> Text:
  return Text(one_line(text, width or _ACTION_WIDTH + 16))


def _printable(text: str) -> str:
  return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _notes(notes: tuple[str, ...]) -> list[RenderableType]:
  return [Text(f"note: {note}", style="yellow") for note in notes]


def _signed(value: float) -> Text:
  colour = "green" if value > 0.005 else "red" if value < -0.005 else "dim"
  return Text(f"{value:+.2f}" if abs(value) >= 0.005 else "0", style=colour)


def _outcome(word: str) -> Text:
  return Text(word, style="green" if word == "success" else "red")
