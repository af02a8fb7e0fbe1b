"""Tables for the terminal."""

import inspect
import json
import pathlib

from rich import box
from rich.console import Group
from rich.markdown import Markdown
from rich.table import Table

from crbc_jax import specs
from crbc_jax.credit import registry
from crbc_jax.learner import branching
from crbc_jax.learner import config as config_lib
from crbc_jax.rollouts import keys as keys_lib
from crbc_jax.rollouts import readers
from crbc_jax.rollouts.readers import canonical


def estimators() -> Group:
  """Every estimator: what it needs, its source, and its options."""
  entries = registry.ESTIMATORS | branching.BRANCHING
  table = Table(
    title="Estimators", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
  )
  table.add_column("name", style="bold", no_wrap=True)
  for name in ("needs", "source", "alone", "failed", "solved"):
    table.add_column(name, overflow="fold")
  options = Table(
    title='Options: --config.estimator="NAME(option=value)"',
    box=box.SIMPLE_HEAD,
    pad_edge=False,
    show_edge=False,
    show_header=False,
  )
  options.add_column(style="bold", no_wrap=True)
  options.add_column(overflow="fold")
  for name in sorted(entries):
    entry = entries[name]
    table.add_row(
      name,
      entry.needs,
      entry.source.removeprefix("arXiv "),
      entry.singleton,
      entry.all_fail,
      entry.all_success,
    )
    summary = (inspect.getdoc(entry.function) or "").split("\n")[0]
    defaults = specs.options_of(entry.function).items()
    listed = ", ".join(f"{k}={v!r}" for k, v in defaults)
    options.add_row(name, f"{summary}\n{listed}\n")
  legend = (
    "alone, failed, solved: what a group of one rollout, of failures and of "
    "successes gets by default. speed: sooner success gets more; raw: a "
    "rollout of one step keeps its score; edges: raw, and later steps of a "
    "success get more; prior: a bias of the smoothing; batch: it is compared "
    "with the other groups; rewards, critic, branches: whatever those say. "
    "Sources are arXiv numbers.\n"
  )
  return Group(table, legend, options)


def formats() -> Group:
  """Formats of logs, and the fields of our own."""
  table = Table(title="Formats of logs", box=box.SIMPLE_HEAD, show_edge=False)
  for name in ("name", "what", "state key", "action key"):
    table.add_column(name, overflow="fold")
  for name, form in readers.FORMATS.items():
    table.add_row(name, form.summary, form.state_key, form.action_key)
  return Group(table, Markdown(canonical.__doc__ or ""))


def keys() -> Group:
  """State and action keys that can be named."""
  parts = []
  for title, known in (
    ("State keys: --state-key", keys_lib.STATE_KEYS),
    ("Action keys: --action-key", keys_lib.ACTION_KEYS),
  ):
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False)
    for name in ("name", "options", "what two have in common"):
      table.add_column(name, overflow="fold")
    for name, function in known.items():
      defaults = specs.options_of(function).items()
      text = (inspect.getdoc(function) or "").split("\n\n")[0]
      listed = ", ".join(f"{k}={v!r}" for k, v in defaults)
      table.add_row(name, listed, " ".join(text.split()))
    parts.append(table)
  return Group(*parts)


def config_keys() -> Table:
  """Every config key and its default."""
  table = Table(title="Config: --config.KEY=VALUE")
  table.add_column("key", style="bold", no_wrap=True)
  table.add_column("default")
  for key, value in config_lib.flat_items(config_lib.get_config()).items():
    table.add_row(key, repr(value))
  return table


def runs(folder: str | pathlib.Path) -> Table:
  """Run folders below `folder`, finished or not.

  Raises:
    FileNotFoundError: the folder does not exist.
  """
  table = Table(title=f"Runs in {folder}")
  for name in (
    "run",
    "estimator",
    "seed",
    "env steps",
    "success (sampled)",
    "success (greedy)",
  ):
    table.add_column(name, overflow="fold")
  if not pathlib.Path(folder).is_dir():
    raise FileNotFoundError(f"{folder}: no such folder; where are the runs?")
  for path in sorted(pathlib.Path(folder).glob("**/config.json")):
    config = json.loads(path.read_text(encoding="utf-8"))
    result = path.with_name("result.json")
    row = [str(path.parent), config["estimator"], str(config["seed"])]
    if result.exists():
      found = json.loads(result.read_text(encoding="utf-8"))
      row += [
        f"{found['env_steps']:,}",
        f"{found['final']['success_sampled']:.3f}",
        f"{found['final']['success_greedy']:.3f}",
      ]
    else:
      row += ["not finished: crbc resume", "", ""]
    table.add_row(*row)
  return table
