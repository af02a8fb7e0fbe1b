"""Damaged logs: an item for everything, or a LogError, and nothing else."""

import json

import hypothesis
import hypothesis.strategies as st
import pytest

from crbc_jax.rollouts.log import LogError, Rejected, Row
from tests.rollouts.readers import samples
from tests.rollouts.readers.reading import read_text

VALUES = st.sampled_from([None, True, -1, 1 << 80, 1e400, "", "\ud800", [], {}])


def _mutated(draw, value):
  """A JSON value with one thing in it swapped for something odd."""
  if isinstance(value, dict | list) and value and draw(st.integers(0, 6)):
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    key, inner = items[draw(st.integers(0, len(items) - 1))]
    changed = value.copy()
    changed[key] = _mutated(draw, inner)
    return changed
  return draw(VALUES)


@pytest.mark.parametrize(
  "name", [n for n in samples.TEXTS if n != "verl_agent"]
)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60)
def test_damaged_records_raise_log_errors_only(name, data, tmp_path_factory):
  folder = tmp_path_factory.mktemp("damage")
  (folder / "results.json").write_text('{"log": true}')
  text = samples.TEXTS[name]()
  lines = text.splitlines() if name in ("verifiers", "roll") else [text]
  changed = [json.dumps(_mutated(data.draw, json.loads(x))) for x in lines]
  _only_items(name, folder, "\n".join(changed).encode())


@pytest.mark.parametrize("name", samples.TEXTS)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60)
def test_damaged_bytes_raise_log_errors_only(name, data, tmp_path_factory):
  content = samples.TEXTS[name]()
  content = bytearray(
    content if isinstance(content, bytes) else content.encode()
  )
  for _ in range(data.draw(st.integers(1, 4))):
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
      st.integers(0, 255)
    )
  cut = data.draw(st.integers(1, len(content)))
  folder = tmp_path_factory.mktemp("damage")
  (folder / "results.json").write_text('{"log": true}')
  _only_items(name, folder, bytes(content[:cut]))


def _only_items(name, folder, content):
  try:
    rows, rejected = read_text(name, folder, content)
  except LogError as error:
    assert str(folder) in str(error)
    return
  assert all(isinstance(item, Row | Rejected) for item in [*rows, *rejected])
  assert all(item.rows > 0 and item.reason for item in rejected)
