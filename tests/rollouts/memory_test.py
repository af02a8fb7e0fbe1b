"""Memory of a log is that of its largest group, not of its length."""

import subprocess
import sys

import pytest

from tests.rollouts.logs import step, text

_READ = """
import pathlib, sys, tracemalloc
from crbc_jax.rollouts import keys, log_table, readers, store

tracemalloc.start()
with store.RowStore(pathlib.Path(sys.argv[2])) as rows:
  for _ in rows.add(readers.LogReader([sys.argv[1]])):
    pass
  rows.check()
  functions = keys.state_key("verbatim"), keys.action_key("verbatim")
  count = 0
  for chunk in log_table.log_tables(rows, *functions):
    count += len(chunk.table)
print(count, tracemalloc.get_traced_memory()[1])
"""

GROUP = 8 * 20  # rows


def peak(folder, groups, size):
  """The most bytes that Python held while it read a log of so many groups."""
  path = folder / "log.jsonl"
  with open(path, "w") as file:
    for g in range(groups):
      for traj in range(8):
        rows = [
          step(g, f"{g}.{traj}", t, f"{t}" + "x" * size, "go")
          for t in range(20)
        ]
        rows[-1]["boundary"] = "success" if traj % 2 else "failure"
        file.write(text(rows))
  done = subprocess.run(
    [sys.executable, "-c", _READ, path, folder / f"{groups}.sqlite"],
    capture_output=True,
    text=True,
    check=True,
  )
  count, memory = map(int, done.stdout.split())
  assert count == groups * GROUP
  return memory


@pytest.mark.slow
def test_many_groups_of_long_texts_take_no_more_memory_than_few(tmp_path):
  size = 500_000
  group = GROUP * size  # 80 MB
  few, many = (peak(tmp_path, groups, size) for groups in (4, 12))
  assert many < 1.1 * few
  assert many < 5 * group  # the log is 12


@pytest.mark.slow
def test_many_rows_take_no_more_memory_than_two_chunks(tmp_path):
  # One is credited while the next is read: 66 k rows are two, 130 k are four.
  few, many = (peak(tmp_path, groups, 100) for groups in (410, 820))
  assert many < 1.1 * few
