"""Tables for the terminal."""

import inspect
import json
import pathlib

from rich.table import Table

from crbc_jax.credit import registry
from crbc_jax.learner import branching
from crbc_jax.learner import config as config_lib


def estimators() -> Table:
  """Estimators with their options and defaults."""
  table = Table(
    title='Estimators: --config.estimator=NAME or "NAME(option=value)"'
  )
  table.add_column("name", style="bold", no_wrap=True)
  table.add_column("what it does")
  table.add_column("options and defaults")
  functions = registry.ESTIMATORS | branching.BRANCHING
  for name in sorted(functions):
    summary = (inspect.getdoc(functions[name]) or "").split("\n")[0]
    options = registry.options_of(functions[name])
    table.add_row(
      name, summary, ", ".join(f"{k}={v!r}" for k, v in options.items())
    )
  return table


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
