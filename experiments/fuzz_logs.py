"""Can a damaged log do anything but be credited or refused with a reason?

  python -m experiments.fuzz_logs [--count 100000] [--seed 0] [--start 0]

Small valid logs of every format are damaged (flipped bytes, cuts, exchanged
values and types, dropped, repeated and shuffled lines) and read twice, strictly
and with bad rows skipped. What must hold, of every one:

  - nothing but a `RolloutError` comes out, and a reason names the file;
  - rows read = rows kept + rejected, and all that are kept can be credited;
  - a log is refused strictly exactly if some of it is rejected when skipping.

Every 200th log is credited by the command: an output is complete or not there,
and nothing else is left behind.

Prints how many logs were accepted and refused, by reason, and the number of
each log that broke a rule (--start NUMBER --count 1 repeats it); exit status 1
then. 100,000 logs take some ten minutes on one core.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time
import traceback

from crbc_jax import cli
from crbc_jax.rollouts import keys, readers
from crbc_jax.rollouts.log import LogError, Row
from crbc_jax.rollouts.log_table import log_tables
from crbc_jax.rollouts.store import RowStore
from crbc_jax.rollouts.table import RolloutError
from experiments import log_mutations

CREDIT_EVERY = 200
_SHOWN = 40  # reasons


def main() -> int:
  """Fuzzes; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--count", type=int, default=100_000)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--start", type=int, default=0)
  args = parser.parse_args()
  began = time.perf_counter()
  found = fuzz(args.seed, range(args.start, args.start + args.count))
  seconds = time.perf_counter() - began
  print(
    f"{args.count:,} logs in {seconds:.0f} s: {found.accepted:,} accepted,"
    f" {args.count - found.accepted:,} refused; {found.credited:,} given to"
    f" crbc credit; the slowest took {found.slowest:.2f} s"
  )
  for reason, number in found.reasons.most_common(_SHOWN):
    print(f"{number:>8,}  {reason}")
  for failure in found.failures:
    print(f"FAILED {failure}")
  print(f"{len(found.failures)} broke a rule")
  return 1 if found.failures else 0


class Findings:
  """What came of a number of damaged logs."""

  def __init__(self):
    self.accepted = self.credited = 0
    self.slowest = 0.0
    self.reasons: collections.Counter[str] = collections.Counter()
    self.failures: list[str] = []


def fuzz(seed: int, numbers: range) -> Findings:
  """Damages, reads and checks the logs of these numbers."""
  found = Findings()
  valid = log_mutations.logs()
  fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
  with tempfile.TemporaryDirectory(prefix="fuzz-", dir=fast) as name:
    folder = pathlib.Path(name)
    (folder / "results.json").write_text('{"log": true}')
    for number in numbers:
      rng = random.Random(f"{seed}.{number}")
      log = rng.choice(valid)
      path = folder / f"log{log.suffix}"
      began = time.perf_counter()
      try:
        path.write_bytes(log_mutations.damaged(log, rng))
        form = log.format if rng.random() < 0.5 else "auto"
        single = rng.random() < 0.5
        reason = check_reading(path, form, allow_single=single)
        if number % CREDIT_EVERY == 0:
          found.credited += 1
          check_command(path, form, skip_bad=rng.random() < 0.5)
      except Exception:
        last = traceback.format_exc(limit=-3)
        found.failures.append(f"log {number} ({log.format}): {last}")
        continue
      finally:
        path.unlink(missing_ok=True)
        found.slowest = max(found.slowest, time.perf_counter() - began)
      found.accepted += reason is None
      if reason is not None:
        found.reasons[_kind_of(reason)] += 1
  return found


def check_reading(
  path: pathlib.Path, form: str, *, allow_single: bool
) -> str | None:
  """Reads a log strictly and skipping; returns why it is refused, or None.

  Raises:
    AssertionError: a rule is broken.
  """
  refused = None
  try:
    with _store(skip_bad=False) as store:
      _tables(store, path, form, allow_single)
      assert not list(store.rejected())
  except RolloutError as error:
    refused = error.reason
    assert str(path) in str(error), f"does not name the file: {error}"
    assert isinstance(error, LogError), f"does not name a place: {error}"
  with _store(skip_bad=True) as store:
    read, in_tables = _tables(store, path, form, allow_single)
    counts, rejected = store.counts(), list(store.rejected())
  assert counts.read == counts.kept + counts.rejected == read, (counts, read)
  assert counts.kept == in_tables + counts.copies, (counts, in_tables)
  assert counts.rejected == sum(item.rows for item in rejected)
  assert bool(rejected) == (refused is not None), (refused, rejected[:1])
  assert all(item.reason and item.place.file == str(path) for item in rejected)
  return refused


def check_command(path: pathlib.Path, form: str, *, skip_bad: bool) -> None:
  """Credits a log with the command; its output is whole or not there.

  Raises:
    AssertionError: a rule is broken.
  """
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    out = pathlib.Path(folder) / "out.jsonl"
    argv = ["credit", str(path), "--format", form, "--out", str(out), "--json"]
    argv += ["--estimator", "grpo", *["--skip-bad"] * skip_bad]
    said, complaint = io.StringIO(), io.StringIO()
    with (
      contextlib.redirect_stdout(said),
      contextlib.redirect_stderr(complaint),
    ):
      status = cli.main(argv)
    left = {file.name for file in pathlib.Path(folder).iterdir()}
    if status == 2:
      assert not left, f"left behind: {left}"
      assert str(path) in complaint.getvalue(), complaint.getvalue()
      return
    summary = json.loads(said.getvalue())
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(written) == summary["credited"] > 0
    assert summary["read"] == summary["credited"] + summary["rejected"]
    skipped = {"out.jsonl.rejected.jsonl"} if status == 3 else set()
    tokens = {"out.tokens.jsonl"} & left
    assert left == {"out.jsonl"} | skipped | tokens, left
    assert status == (3 if summary["rejected_rows"] else 0)


def _store(*, skip_bad: bool) -> RowStore:
  return RowStore(pathlib.Path(":memory:"), skip_bad=skip_bad)


def _tables(
  store: RowStore, path: pathlib.Path, form: str, allow_single: bool
) -> tuple[int, int]:
  """Rows that a log holds, and rows that can be credited."""
  read = 0

  def counted():
    nonlocal read
    for item in readers.LogReader([str(path)], form):
      read += 1 if isinstance(item, Row) else item.rows
      yield item

  for _ in store.add(counted()):
    pass
  store.check()
  state, action = readers.default_keys([str(path)], form)
  tables = log_tables(
    store,
    keys.state_key(state),
    keys.action_key(action),
    allow_single=allow_single,
  )
  return read, sum(len(chunk.table) for chunk in tables)


def _kind_of(reason: str) -> str:
  """A reason without what differs from log to log."""
  short = re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)?|-?\d[\d.e+]*", "…", reason)
  return short if len(short) <= 68 else f"{short[:67]}…"


if __name__ == "__main__":
  sys.exit(main())
