"""Which key fits which public log? What recurs, and what is told apart.

  python -m experiments.log_keys [--quick] [--results results]

`crbc credit LOG --keys-report` on tau-bench airline, all InterCode bash logs
and Game of 24, below $CRBC_REAL_DATA; a log that is not there is left out.
Nothing is random. Writes log_keys.json and .md; ten seconds, --quick the same
without Game of 24.

Claim: the default key of a format recurs more often than a window of two steps
and aliases less than the last observation alone.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import tempfile

import crbc_jax
from crbc_jax import cli
from crbc_jax.commands import credit
from crbc_jax.files import write_text
from crbc_jax.learner.records import write_json
from experiments import commands
from experiments.bench_credit import markdown_table

LOGS = {
  "tau-bench airline": "tau_bench/*.json",
  "InterCode bash": "intercode_bash/*.json",
  "Game of 24": "game24/gpt-4*.json",
}
QUICK = ("tau-bench airline", "InterCode bash")


def main(argv: list[str] | None = None) -> None:
  """Reads the logs and writes the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--quick", action="store_true", help="the smaller logs")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  root = pathlib.Path(os.environ.get("CRBC_REAL_DATA") or "../shared/data")
  rows = []
  for name in QUICK if args.quick else LOGS:
    paths = sorted(map(str, root.glob(LOGS[name])))
    if not paths:
      print(f"{name}: nothing at {root / LOGS[name]}")
      continue
    rows += [{"log": name, **row} for row in report(paths)]
  if not rows:
    parser.error(f"no log below {root}: set CRBC_REAL_DATA")
  write_json(
    args.results / "log_keys.json",
    {
      "command": commands.recorded("experiments.log_keys", argv),
      "version": crbc_jax.__version__,
      "rows": rows,
    },
  )
  text = markdown(rows)
  write_text(args.results / "log_keys.md", text)
  print(text)


def report(paths: list[str]) -> list[dict]:
  """One row for each pair of keys, the log's own first."""
  printed = io.StringIO()
  # What is skipped is listed beside the log, where nothing may be written.
  with tempfile.TemporaryDirectory() as folder:
    links = [pathlib.Path(folder) / pathlib.Path(path).name for path in paths]
    for link, path in zip(links, paths, strict=True):
      link.symlink_to(pathlib.Path(path).resolve())
    with contextlib.redirect_stdout(printed):
      status = cli.main(
        ["credit", *map(str, links), "--skip-bad", "--keys-report", "--json"]
      )
  if status not in (0, credit.SKIPPED):
    raise RuntimeError(f"{', '.join(paths)}: exit status {status}")
  return [
    {
      "key": f"{row['state_key']}, {row['action_key']}",
      "default": number == 0,
      "steps": row["steps"],
      "recurring": row["recurring"],
      "choice": row["gate"],
      "states_per_step": row["anchors"] / row["steps"],
      "finer": row["finer"],
      "aliasing": row["aliasing"],
    }
    for number, row in enumerate(json.loads(printed.getvalue()))
  ]


def markdown(rows: list[dict]) -> str:
  """The table; the default of a format is bold."""
  return (
    markdown_table(
      (
        "log",
        "state key, action key",
        "steps whose state another rollout visits",
        "steps with a choice",
        "states per step",
        "states of the finest key in one of these",
      ),
      [
        (
          row["log"],
          f"**{row['key']}**" if row["default"] else row["key"],
          f"{row['recurring']:.0%}",
          f"{row['choice']:.0%}",
          f"{row['states_per_step']:.2f}",
          f"{row['aliasing']:.1f}" if row["aliasing"] else "–",
        )
        for row in rows
      ],
    )
    + "\n"
  )


if __name__ == "__main__":
  main()
