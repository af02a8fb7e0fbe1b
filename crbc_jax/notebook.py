"""What the notebooks in `colab/` need beside the library; works anywhere.

Nothing here needs Jupyter: objects that a notebook shows have the methods it
looks for.
"""

import argparse
import html
import io
import json
import math
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from crbc_jax.commands import credit as credit_command
from crbc_jax.commands import groups
from crbc_jax.commands import report as report_command
from crbc_jax.credit.table_credit import credit_table
from crbc_jax.envs.four_rollouts import four_rollouts
from crbc_jax.learner.accuracy import Accuracy
from crbc_jax.rollouts.table import StepTable
from crbc_jax.types import Boundary

SAMPLE_LOG = "four_rollouts.jsonl"

_SHOWN_ROWS = 30
_COLUMNS = ("group_id", "traj_id", "step_idx")


class Picture:
  """A figure that a notebook shows as PNG.

  Args:
    figure: of matplotlib, in no need of pyplot.
    dpi: dots per inch.
  """

  def __init__(self, figure: Figure, *, dpi: int = 80):
    self.figure = figure
    self._dpi = dpi

  def _repr_png_(self) -> bytes:
    out = io.BytesIO()
    self.figure.savefig(
      out, format="png", dpi=self._dpi, metadata={"Software": None}
    )
    return out.getvalue()


class Page:
  """An HTML page that a notebook shows in a frame of its own.

  Args:
    path: of the page.
    height: of the frame in pixels.
  """

  def __init__(self, path: str | pathlib.Path, *, height: int = 700):
    self.path = pathlib.Path(path)
    self._height = height

  def _repr_html_(self) -> str:
    page = html.escape(self.path.read_text(encoding="utf-8"))
    return (
      f'<iframe width="100%" height="{self._height}" '
      f'style="border:1px solid #ddd" srcdoc="{page}"></iframe>'
    )


def compare_steps(table: StepTable, estimators: Sequence[str]) -> Table:
  """Unweighted step credit of each step, by several estimators.

  Args:
    table: S rows.
    estimators: as `registry.parse_estimator` reads them; one without a step
      term shows its trajectory term.
  """
  shown = Table("rollout", "state", "action", "end", box=box.SIMPLE_HEAD)
  columns = []
  for text in estimators:
    shown.add_column(text, justify="right")
    given = credit_table(table, text)
    columns.append(given.step if given.live.any() else given.trajectory)
  for row in range(len(table)):
    end = Boundary(int(table.boundary[row]))
    shown.add_row(
      str(table.traj_id[row]),
      str(table.state_key[row]),
      str(table.action_key[row]),
      "" if end == Boundary.NONE else end.name.lower(),
      *(f"{column[row]:+.2f}" for column in columns),
      end_section=end != Boundary.NONE,
    )
  return shown


def accuracy_view(found: Mapping[str, Sequence[Accuracy]]) -> Table:
  """Mean and range over batches of `accuracy.measure_accuracy`."""
  shown = Table(
    "estimator",
    "correlation with the truth",
    "right signs",
    box=box.SIMPLE_HEAD,
  )
  for text, batches in found.items():
    cells = []
    for values in zip(*batches, strict=True):
      mean = sum(values) / len(values)
      cells.append(f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})")
    shown.add_row(text, *cells)
  return shown


def spread(
  found: Mapping[str, Sequence[Accuracy]],
) -> list[tuple[float, float, float]]:
  """(mean, least, largest) correlation of each estimator, for `plots`."""
  correlations = [[one.corr for one in batches] for batches in found.values()]
  return [(sum(c) / len(c), min(c), max(c)) for c in correlations]


def upload_log(folder: str | pathlib.Path = ".") -> list[str]:
  """Asks for log files in Colab; elsewhere writes a small sample.

  Args:
    folder: where the sample goes.

  Returns:
    Paths; the sample is the four-rollout example, nothing was uploaded.
  """
  try:
    from google.colab import files
  except ImportError:
    uploaded = []
  else:
    uploaded = list(files.upload())
  return uploaded or [str(write_sample(pathlib.Path(folder) / SAMPLE_LOG))]


def write_sample(path: pathlib.Path) -> pathlib.Path:
  """The four-rollout example as a log, one JSON object for each step."""
  table = four_rollouts()
  lines = [
    json.dumps(
      {
        "group_id": table.group_id[row],
        "traj_id": str(table.traj_id[row]),
        "step_idx": int(table.step_idx[row]),
        "state_key": table.state_key[row],
        "action_key": table.action_key[row],
        "boundary": Boundary(int(table.boundary[row])).name.lower(),
      }
    )
    for row in range(len(table))
  ]
  path.write_text("\n".join(lines) + "\n", encoding="utf-8")
  return path


def compare_log_keys(logs: Sequence[str]) -> None:
  """Prints which keys fit a log, as `crbc credit --keys-report`."""
  _run(credit_command, [*logs, "--keys-report"])


def credit_log(
  logs: Sequence[str], *, estimators: str = "crbc", **options: Any
) -> list[dict[str, Any]]:
  """Credits a log as `crbc credit` does, and prints its summary.

  Args:
    logs: files.
    estimators: separated by commas.
    **options: of the command, such as `state_key="verbatim"`; empty text is
      the default of the command.

  Returns:
    A dict for each step: ids, then what `credit_files.write_credit` lists.

  Raises:
    RolloutError: a log that cannot be read, or breaks a rule.
    UsageError: unknown format, key, estimator or option.
  """
  with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "credit.jsonl"
    flags = ["--out", str(out), "--estimators", estimators]
    _run(credit_command, [*logs, *flags, *_flags(options)])
    lines = out.read_text(encoding="utf-8").splitlines()
  return [json.loads(line) for line in lines]


def first_group(logs: Sequence[str], **options: Any) -> StepTable:
  """The first group of a log as a table; options as `credit_log`."""
  parser = argparse.ArgumentParser()
  report_command.add_arguments(parser)
  args = parser.parse_args([*logs, *_flags(options)])
  return next(groups.open_groups(args)).table


def credit_view(
  rows: Sequence[Mapping[str, Any]], *, most: int = _SHOWN_ROWS
) -> Table:
  """The ids and every number of the first steps.

  Args:
    rows: of `credit_log`.
    most: rows that are shown.
  """
  names = [
    name
    for name, value in rows[0].items()
    if name in _COLUMNS or isinstance(value, float)
  ]
  shown = Table(*names, box=box.SIMPLE_HEAD)
  for row in rows[:most]:
    shown.add_row(*(_cell(row[name]) for name in names))
  if len(rows) > most:
    shown.caption = f"{len(rows) - most:,} more"
  return shown


def report(
  logs: Sequence[str], *, out: str = "report.html", estimators: str = ""
) -> Page:
  """Writes the report of a log as `crbc report` does, and shows it.

  Raises:
    RolloutError, UsageError: as `credit_log`.
  """
  chosen = ["--estimators", estimators] if estimators else []
  _run(report_command, [*logs, "--out", out, *chosen])
  return Page(out)


def _run(command: Any, argv: Sequence[str]) -> None:
  """Runs a command of `crbc` in this process."""
  parser = argparse.ArgumentParser()
  command.add_arguments(parser)
  command.run(parser.parse_args(list(argv)))


def _flags(options: Mapping[str, Any]) -> list[str]:
  return [
    f"--{name.replace('_', '-')}={value}"
    for name, value in options.items()
    if value != ""
  ]


def _cell(value: Any) -> str:
  number = isinstance(value, float) and math.isfinite(value)
  return f"{value:+.3f}" if number else str(value)
