"""Shell and editor commands of coding agents -> operations on files.

Understands SWE-agent's commands (open, edit, str_replace_editor, …), which act
on an open file, and the shell as agents use it. It reads, it runs nothing; what
it does not know is the operation `other`.
"""

import hashlib
import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

from crbc_jax.rollouts import shell


class Operation(NamedTuple):
  """One thing a command does."""

  category: str  # view, search, modify, create, execute, test, install, …
  target: str = ""  # file, directory or program
  scope: str = ""  # lines, tag of the text, or pattern
  mark: str = ""  # how a state remembers it; "" = not at all
  result: str = ""  # ok or error, where the observation tells


_VIEW = {"cat", "head", "tail", "less", "more", "nl", "bat", "wc"}
_SEARCH = {"grep", "egrep", "fgrep", "rg", "ag", "find", "fd", "ls", "tree"}
_SEARCH |= {"find_file", "search_dir", "search_file", "locate", "which"}
_FILEOP = {"cp", "mv", "rm", "mkdir", "rmdir", "chmod", "ln"}
_TEST = {"pytest", "py.test", "tox", "nosetests", "nose2", "unittest", "jest"}
_RUN = {"python", "python3", "python2", "bash", "sh", "node", "ruby", "make"}
_INSTALL = {"pip", "pip3", "apt", "apt-get", "conda", "npm", "yarn", "poetry"}
_SILENT = {
  "cd",
  "pwd",
  "true",
  "export",
  "set",
  "source",
  ".",
  "sleep",
  ":",
  "echo",
}
_FINISH = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_EDIT = re.compile(
  r"^edit\s+(\d+:\d+)[^\n]*\n(.*?)(?:\nend_of_edit\s*)?$", re.DOTALL
)
_LINES = re.compile(r"(\d+)(?:,(\d+|\$))?p")


class Parser:
  """Parses the commands of one trajectory in order.

  It remembers the working directory and the file open in the editor.
  """

  def __init__(self, *, root: str):
    self._root = root.rstrip("/")
    self._folder = self._root
    self._open = ""
    self._line = 1

  def parse(self, text: str) -> list[Operation]:
    """The operations of one action, in order; [] for an empty one."""
    text = text.strip()
    edit = _EDIT.match(text)
    if edit:
      return [self._change(self._open, f"{edit[1]}\n{edit[2]}")]
    found = [op for c in shell.split(text) for op in self._command(c, text)]
    return found or ([Operation("other")] if text else [])

  def _command(self, command: shell.Command, text: str) -> list[Operation]:
    """The operations of one simple command."""
    words = list(command.words)
    if _FINISH in words:
      return [Operation("finish")]
    if command.output:
      path = self._path(command.output)
      content = command.body or " ".join(words)
      return [
        self._change(path, content)
        if command.append
        else Operation("create", path, _tag(content), "C")
      ]
    while words and (words[0] in ("sudo", "time", "env") or "=" in words[0]):
      words = words[1:]
    if not words:
      return []
    name, rest = posixpath.basename(words[0]), words[1:]
    if name == "cd":
      self._folder = self._absolute(rest[0]) if rest else self._root
    if name in _SILENT:
      return []
    special: Callable[[list[str], str], list[Operation]] | None = getattr(
      self, f"_do_{name}", None
    )
    if special is not None:
      return special(rest, text)
    return [self._plain(name, rest, command.body)]

  def _plain(self, name: str, rest: list[str], body: str) -> Operation:
    """A command whose arguments need no special reading."""
    files = [word for word in rest if not word.startswith("-")]
    last = self._path(files[-1]) if files else ""
    if name in _VIEW:
      return Operation("view", last, "full", "Vf")
    if name in _SEARCH:
      named = {"ls", "tree", "find"}
      pattern = files[0] if files and name not in named else ""
      if name == "find":
        last = self._path(files[0]) if files else "."
        pattern = " ".join(rest[1:])
      elif name not in named and len(files) < 2:
        last = self._open if name == "search_file" else self._path(".")
      return Operation("search", last or self._path("."), pattern, "S")
    if name in _FILEOP:
      return Operation("fileop", last, name)
    if name in _INSTALL:
      return Operation("install", " ".join(files[1:] or files))
    if name in _TEST:
      return Operation("test", last)
    if name in _RUN:
      return self._run(name, rest, files, body)
    return Operation("other", name)

  def _run(
    self, name: str, rest: list[str], files: list[str], body: str
  ) -> Operation:
    """An interpreter: a test, an installation, or a run."""
    if name == "make" or rest[:1] == ["-m"]:
      module = files[0] if files else ""
      if module in _TEST or module in ("test", "check"):
        return Operation("test", self._path(files[-1]) if files[1:] else "")
      if module in _INSTALL:
        return Operation("install", " ".join(files[1:]))
      return Operation("execute", module or name)
    if rest[:1] == ["-c"]:
      return Operation("execute", name, _tag(" ".join(rest[1:])))
    if body:
      return Operation("execute", name, _tag(body))
    script = self._path(files[0]) if files else name
    base = posixpath.basename(script)
    testing = base.startswith(("test_", "runtests")) or "test" in files[1:]
    return Operation("test" if testing else "execute", script)

  # -- SWE-agent's editor, and commands that change files ---------------------

  def _do_open(self, rest: list[str], text: str) -> list[Operation]:
    if rest:
      self._open = self._path(rest[0])
    line = rest[1] if len(rest) > 1 else "1"
    self._line = int(line) if line.isdecimal() else 1
    return [self._view_at_line()]

  def _do_goto(self, rest: list[str], text: str) -> list[Operation]:
    if rest and rest[0].isdecimal():
      self._line = int(rest[0])
    return [self._view_at_line()]

  def _do_scroll_down(self, rest: list[str], text: str) -> list[Operation]:
    self._line += 100
    return [self._view_at_line()]

  def _do_scroll_up(self, rest: list[str], text: str) -> list[Operation]:
    self._line = max(self._line - 100, 1)
    return [self._view_at_line()]

  def _do_create(self, rest: list[str], text: str) -> list[Operation]:
    self._open = self._path(rest[0]) if rest else ""
    return [Operation("create", self._open, "", "C")]

  def _do_touch(self, rest: list[str], text: str) -> list[Operation]:
    return [Operation("create", self._path(p), "", "C") for p in rest[-1:]]

  def _do_insert(self, rest: list[str], text: str) -> list[Operation]:
    return [Operation("modify", self._open, _tag(text), "I")]

  def _do_submit(self, rest: list[str], text: str) -> list[Operation]:
    return [Operation("finish")]

  def _do_exit(self, rest: list[str], text: str) -> list[Operation]:
    return [Operation("finish")]

  def _do_think(self, rest: list[str], text: str) -> list[Operation]:
    return [Operation("think")]

  def _do_edit(self, rest: list[str], text: str) -> list[Operation]:
    return [self._change(self._open, text)]

  def _do_str_replace_editor(
    self, rest: list[str], text: str
  ) -> list[Operation]:
    action, path = (*rest, "", "")[:2]
    path = self._path(path)
    change = " ".join(rest[2:])
    if action == "view":
      line = re.search(r"--view_range\s+\[?(\d+)", text)
      return [_view(path, int(line[1]) if line else None)]
    if action == "create":
      return [Operation("create", path, _tag(change), "C")]
    if action == "insert":
      return [Operation("modify", path, _tag(change), "I")]
    return [self._change(path, change or action)]

  def _do_sed(self, rest: list[str], text: str) -> list[Operation]:
    path = self._path(rest[-1]) if rest else ""
    if any(word.startswith(("-i", "--in-place")) for word in rest):
      return [self._change(path, " ".join(rest[:-1]))]
    lines = _LINES.search(" ".join(rest))
    return [_view(path, int(lines[1]) if lines else None)]

  def _do_tee(self, rest: list[str], text: str) -> list[Operation]:
    return [self._change(self._path(p), text) for p in rest[-1:]]

  def _do_patch(self, rest: list[str], text: str) -> list[Operation]:
    return [self._change("patch", text)]

  def _do_git(self, rest: list[str], text: str) -> list[Operation]:
    if rest[:1] == ["apply"]:
      return [self._change("patch", text)]
    if rest[:1] == ["grep"]:
      return [self._plain("grep", rest[1:], "")]
    return [Operation("other", " ".join(["git", *rest[:1]]))]

  # -- small pieces -----------------------------------------------------------

  def _view_at_line(self) -> Operation:
    return _view(self._open, self._line)

  def _change(self, path: str, change: str) -> Operation:
    return Operation("modify", path, _tag(change), "M")

  def _absolute(self, path: str) -> str:
    return posixpath.normpath(posixpath.join(self._folder or "/", path))

  def _path(self, path: str) -> str:
    """A path as keys have it: below the root, relative to it."""
    full = self._absolute(path)
    below = full.removeprefix(self._root).lstrip("/")
    return below or "." if full.startswith(self._root) else full


def _view(path: str, line: int | None) -> Operation:
  if line is None:
    return Operation("view", path, "full", "Vf")
  return Operation("view", path, str(line // 100), f"V[{line // 100}]")


def _tag(text: str) -> str:
  """Four hexadecimal digits that stand for a text, as in RTMC."""
  data = text.encode("utf-8", "surrogatepass")  # JSON may hold half a character
  return hashlib.md5(data, usedforsecurity=False).hexdigest()[:4]
