"""Files are replaced whole or not at all."""

import pytest

from crbc_jax import files


def test_writes_and_replaces(tmp_path):
  path = tmp_path / "below" / "a.txt"
  files.write_text(path, "old")
  files.write_text(path, "new\n")
  assert path.read_bytes() == b"new\n"
  assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / "a.txt"
  files.write_text(path, "old")
  monkeypatch.setattr(files.os, "replace", None)
  with pytest.raises(TypeError):
    files.write_text(path, "new")
  assert path.read_text() == "old"
  assert len(list(tmp_path.iterdir())) == 1
