"""Several files of any format, one after another."""

import gzip

import pytest

from crbc_jax.rollouts import readers
from crbc_jax.rollouts.log import LogError, Rejected
from tests.rollouts.logs import house, text, write
from tests.rollouts.readers import samples


@pytest.mark.parametrize("name", samples.TEXTS)
def test_formats_are_recognised(name, tmp_path):
  path = write(tmp_path / "log", samples.TEXTS[name]())
  assert readers.find_format(path) == name
  form = readers.FORMATS[name]
  expected = (form.state_key, form.action_key)
  assert readers.default_keys([path]) == expected


@pytest.mark.parametrize(
  "content",
  [
    text(house()),
    "\ufeff" + text(house()),
    "what?\n" + text(house()),
    gzip.compress(text(house()).encode())[:-8],
    text([house()[0] | {"state_key": "x" * 100_000}]),
  ],
)
def test_our_own_format_is_recognised_whatever_the_name(content, tmp_path):
  assert readers.find_format(write(tmp_path / "log", content)) == "jsonl"


def test_a_jsonl_file_of_something_else_gets_errors_of_its_lines(tmp_path):
  path = write(tmp_path / "log.jsonl.gz", '{"prompt": "a"}\n')
  (item,) = readers.LogReader([path])
  assert f"{item.place}: {item.reason}" == (
    f"{path}:1: has no field 'group_id'"
  )


def test_what_is_not_recognised_is_refused_with_what_is_known(tmp_path):
  path = write(tmp_path / "notes.txt", "hello\n")
  with pytest.raises(LogError, match=r"name one with --format: .*tau_bench"):
    readers.find_format(path)
  assert readers.default_keys([path]) == ("verbatim", "verbatim")


def test_an_unknown_format_is_an_error_before_anything_is_read():
  with pytest.raises(ValueError, match=r"'jsn' \(did you mean 'jsonl'\?\)"):
    readers.LogReader(["none"], "jsn")


def test_files_come_one_after_another_and_bad_ones_are_rejected(tmp_path):
  first = write(tmp_path / "1.jsonl", house()[:4])
  last = write(
    tmp_path / "3.jsonl.gz", gzip.compress(text(house()[4:]).encode())
  )
  paths = [first, str(tmp_path / "2.jsonl"), str(tmp_path), last]
  reader = readers.LogReader(paths)
  items = list(reader)
  bad = [item for item in items if isinstance(item, Rejected)]
  assert [item.place.file for item in items] == [
    *[first] * 4,
    *paths[1:3],
    *[last] * 2,
  ]
  assert [(item.place.line, item.rows) for item in bad] == [(0, 0), (0, 0)]
  assert reader.done == reader.size > 0
