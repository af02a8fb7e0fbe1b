"""The `crbc` command; what reads logs is in `commands`."""

import argparse
import importlib
import json
import os
import pathlib
import re
import sys

import rich
from absl import flags, logging
from ml_collections import config_flags
from rich import progress as rich_progress
from rich import table as rich_table

from crbc_jax.checks import UsageError, suggestion

_EXAMPLES = """\
examples:
  crbc train
  crbc train --config=configs/sokoban.py --config.estimator=grpo
  crbc train --config.levels=boxoban/medium --config.env.step_limit=120
  crbc train --config.estimator="crbc(depth=2, w_step=1.0)" --run_dir=runs/d2
  crbc resume runs/d2
  crbc eval runs/d2
  crbc view runs/d2 --out episode.gif
  crbc credit rollouts.jsonl --out credit.parquet
  crbc explain rollouts.jsonl --group task-7 --traj a
  crbc report rollouts.jsonl --out credit.html
  crbc doctor
  crbc bench all --quick
  crbc list estimators

exit status: 0 done; 1 doctor found something, or an experiment of bench failed;
2 bad usage or bad input, nothing written; 3 credited, but rows were skipped;
130 interrupted. More: crbc COMMAND --help
"""

_LOG_COMMANDS = {
  "credit": "credit every step of a log of rollouts",
  "explain": "say why a rollout's steps got their credit",
  "report": "write one HTML page about a log or runs",
  "doctor": "check this installation: versions, devices, precision, data",
  "bench": "run the experiments behind the README's tables, in a checkout",
}
"""Modules of `commands`, imported when they are asked for."""


def main(argv: list[str] | None = None) -> int:
  """Runs a command; returns its exit status, 2 with one line for an error."""
  argv = sys.argv[1:] if argv is None else argv
  parser = _parser(argv[0] if argv else "")
  args, rest = parser.parse_known_args(argv)
  logging.set_verbosity(logging.ERROR)  # Orbax warns about its own defaults
  if rest and args.command != "train":
    parser.error(f"unknown argument {rest[0]!r}")
  try:
    # JAX and Flax take a second to import: only after the line was parsed.
    if args.command in _LOG_COMMANDS:
      from crbc_jax.commands import logs

      logs.remember_compilations()
      return _log_command(args.command).run(args)
    _COMMANDS[args.command](args, rest)
  except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    return 130
  except Exception as error:
    if not _is_expected(error):
      raise
    print(f"crbc {args.command}: {error}", file=sys.stderr)
    return 2
  return 0


def _log_command(name: str):
  return importlib.import_module(f"crbc_jax.commands.{name}")


def _parser(wanted: str) -> argparse.ArgumentParser:
  """The parser; a command of `commands` has its arguments if it is wanted."""
  parser = argparse.ArgumentParser(
    prog="crbc",
    description="Step-level credit for agents trained with group-based RL.",
    epilog=_EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(
    dest="command", required=True, metavar="COMMAND"
  )

  def add(name, text, epilog=None):
    return commands.add_parser(
      name,
      help=text,
      description=text[0].upper() + text[1:] + ".",
      epilog=epilog,
      formatter_class=argparse.RawDescriptionHelpFormatter,
    )

  train = add(
    "train",
    "train an agent into a new run folder",
    "--config=FILE reads a config file; --config.KEY=VALUE changes "
    "one value.\n`crbc list config` shows every key and its default.",
  )
  train.add_argument(
    "--run_dir",
    help="run folder (default: runs/ESTIMATOR-"
    "sSEED, with a number where that exists)",
  )
  resume = add("resume", "go on with an interrupted run, exactly")
  resume.add_argument("run_dir")
  evaluate = add("eval", "evaluate a run's checkpoint on held-out levels")
  evaluate.add_argument("run_dir")
  evaluate.add_argument(
    "--checkpoint", type=int, help="update number (default: the last)"
  )
  evaluate.add_argument(
    "--levels",
    help="level file or folder of the run's "
    "grid size (default: the run's own panel)",
  )
  evaluate.add_argument(
    "--json", action="store_true", help="print JSON instead of a table"
  )
  listing = add("list", "list estimators, formats, keys, config or runs")
  listing.add_argument(
    "what", choices=("estimators", "formats", "keys", "config", "runs")
  )
  listing.add_argument(
    "folder", nargs="?", default="runs", help="where runs are (default: runs)"
  )
  view = add("view", "show a level, or an episode of a trained agent")
  view.add_argument("source", help="level file or folder, or a run folder")
  view.add_argument(
    "--level",
    type=int,
    default=0,
    help="which level, from 0 (of a run: of its held-out panel)",
  )
  view.add_argument(
    "--sampled",
    action="store_true",
    help="sample actions instead of taking the likeliest",
  )
  view.add_argument("--seed", type=int, default=0, help="of --sampled")
  view.add_argument("--out", help="also write the episode as .gif or .png")
  for name, text in _LOG_COMMANDS.items():
    if name != wanted:
      commands.add_parser(name, help=text)
      continue
    module = _log_command(name)
    module.add_arguments(add(name, text, module.EXAMPLES))
  return parser


def _train(args, rest) -> None:
  from crbc_jax.learner import config as config_lib
  from crbc_jax.learner import loop

  config = _read_config(rest)
  config_lib.validate(config)
  run_dir = pathlib.Path(args.run_dir or _new_run_dir(config))

  def announce(note):
    print(f"{note}\n" * bool(note) + f"run folder {run_dir}", flush=True)

  _with_progress(
    config.env_steps,
    lambda report: loop.start_run(
      config, run_dir, report=report, announce=announce
    ),
    run_dir,
  )


def _resume(args, _) -> None:
  from crbc_jax.learner import loop

  config = loop.read_config(args.run_dir)
  _with_progress(
    config.env_steps,
    lambda report: loop.resume_run(args.run_dir, report=report),
    pathlib.Path(args.run_dir),
  )


def _eval(args, _) -> None:
  from crbc_jax.learner import finished

  found = finished.evaluate_run(
    args.run_dir, update=args.checkpoint, levels=args.levels
  )
  if args.json:
    print(json.dumps(found))
    return
  title = f"{args.run_dir}, update {found['update']}"
  rich.get_console().print(title, soft_wrap=True, highlight=False)
  kinds = ("greedy", "sampled")
  table = rich_table.Table("", *kinds)
  for name in found:  # success, length, score, and success by kind of game
    metric, _, tag = name.partition("_greedy")
    if tag or name.endswith("_greedy"):
      numbers = (found[f"{metric}_{kind}{tag}"] for kind in kinds)
      table.add_row(
        {"length": "mean steps"}.get(metric, metric) + tag.replace("/", ", "),
        *(f"{x:.1f}" if metric == "length" else f"{x:.3f}" for x in numbers),
      )
  rich.print(table)
  rich.print(f"{found['count']} held out, sha256 {found['sha256']}")


def _list(args, _) -> None:
  from crbc_jax.report import tables

  rich.print(
    {
      "estimators": tables.estimators,
      "formats": tables.formats,
      "keys": tables.keys,
      "config": tables.config_keys,
      "runs": lambda: tables.runs(args.folder),
    }[args.what]()
  )


def _view(args, _) -> None:
  from crbc_jax.envs import sokoban_view
  from crbc_jax.learner import finished, loop

  if not os.path.exists(os.path.join(args.source, "config.json")):
    if args.out:
      raise UsageError("--out needs a run folder: a level alone has no episode")
    level, width, name = finished.one_level(args.source, args.level)
    rich.print(f"level {name}")
    rich.print(sokoban_view.level_text(level, width=width))
    return
  if loop.read_config(args.source).task != "sokoban":
    if args.out:
      raise UsageError("--out is for Sokoban: a text game is printed")
    for line in finished.play_text(
      args.source, args.level, sampled=args.sampled, seed=args.seed
    ):
      rich.get_console().print(
        line, soft_wrap=True, highlight=False, markup=False
      )
    return
  if args.out and pathlib.Path(args.out).suffix not in (".gif", ".png"):
    raise UsageError(f"--out must end in .gif or .png, got {args.out!r}")
  episode = finished.play_episode(
    args.source, args.level, sampled=args.sampled, seed=args.seed
  )
  rich.print(
    f"level {episode.name}: {episode.outcome} after "
    f"{len(episode.actions)} steps"
  )
  shown = (episode.level, episode.states, episode.actions)
  rich.print(sokoban_view.rollout_view(*shown, width=episode.width))
  if args.out:
    save = (
      sokoban_view.save_gif
      if args.out.endswith(".gif")
      else sokoban_view.save_strip
    )
    save(args.out, *shown, width=episode.width)
    rich.print(f"wrote {args.out}")


_COMMANDS = {
  "train": _train,
  "resume": _resume,
  "eval": _eval,
  "list": _list,
  "view": _view,
}


def _read_config(rest: list[str]):
  """The config of `--config...` arguments, with errors of one line."""
  from crbc_jax.learner import config as config_lib

  for argument in rest:
    if not re.match(r"--config(\.[\w.]+)?=", argument):
      raise UsageError(
        f"unknown argument {argument!r}; config values are "
        "given as --config.KEY=VALUE, a file as --config=FILE"
      )
    key = argument.removeprefix("--config.").split("=")[0]
    known = list(config_lib.flat_items(config_lib.get_config()))
    if argument.startswith("--config.") and key not in known:
      raise UsageError(
        f"unknown config key {key!r}{suggestion(key, known)}; "
        "`crbc list config` shows them all"
      )
  argv = ["crbc", *rest]
  values = flags.FlagValues()
  try:
    config_flags.DEFINE_config_file(
      "config", default=config_lib.__file__, flag_values=values, sys_argv=argv
    )
    values(argv)
    config = values["config"].value
    # A file that could not be read raises its error at this first look.
    resolved = getattr(config, "copy_and_resolve_references", None)
    if resolved is None:
      raise UsageError(
        "get_config() of a config file must return a ConfigDict, got "
        f"{type(config).__name__}"
      )
    return resolved()
  except (
    flags.Error,
    AttributeError,
    KeyError,
    ValueError,
    TypeError,
    OSError,
    SyntaxError,
  ) as error:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines[0].endswith("parsing config file:"):  # a traceback follows
      lines = [f"{lines[0]} {lines[-1]}"]
    raise UsageError(
      lines[-1] if isinstance(error, OSError) else lines[0]
    ) from None


def _new_run_dir(config) -> pathlib.Path:
  label = re.sub(r"[^\w.=-]+", "-", config.estimator).strip("-")
  first = pathlib.Path("runs") / f"{label}-s{config.seed}"
  path, number = first, 2
  while path.exists():
    path, number = first.with_name(f"{first.name}-{number}"), number + 1
  return path


def _with_progress(total: int, run, run_dir: pathlib.Path) -> None:
  """Runs with a progress bar on a terminal, else a line at evaluations."""
  console = rich.get_console()
  columns = (
    rich_progress.TextColumn("{task.description}"),
    rich_progress.BarColumn(),
    rich_progress.TextColumn("{task.completed:,}/{task.total:,} steps"),
    rich_progress.TimeElapsedColumn(),
    rich_progress.TextColumn("ETA"),
    rich_progress.TimeRemainingColumn(),
  )
  with rich_progress.Progress(
    *columns, console=console, disable=not console.is_terminal
  ) as bar:
    task = bar.add_task("training", total=total)

    def report(env_steps, metrics):
      bar.update(
        task,
        completed=min(env_steps, total),
        description=f"success {metrics['success']:.2f}",
      )
      if "success_sampled" in metrics:
        bar.console.print(
          f"{env_steps:>10,} steps  held-out success "
          f"{metrics['success_sampled']:.3f} sampled  "
          f"{metrics['success_greedy']:.3f} greedy",
          highlight=False,
        )

    result = run(report)
  final = result["final"]
  rich.print(
    f"done: held-out success {final['success_sampled']:.3f} sampled, "
    f"{final['success_greedy']:.3f} greedy on "
    f"{result['panel']['count']} levels; see {run_dir}/result.json"
  )


def _is_expected(error: Exception) -> bool:
  """Errors whose message is for the user; anything else is a bug."""
  from crbc_jax.credit.table_credit import ClosureError
  from crbc_jax.envs.sokoban_levels import LevelError
  from crbc_jax.envs.text import GameDataError
  from crbc_jax.learner.checkpoint import CheckpointError
  from crbc_jax.learner.config import ConfigError
  from crbc_jax.learner.loop import RunError
  from crbc_jax.rollouts.table import RolloutError

  return isinstance(
    error,
    (
      UsageError,
      ClosureError,
      RolloutError,
      LevelError,
      GameDataError,
      CheckpointError,
      ConfigError,
      RunError,
      FileNotFoundError,
      PermissionError,
    ),
  )
