"""Rollout logs of many formats -> rows, one module per format."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

from crbc_jax import specs
from crbc_jax.checks import suggestion
from crbc_jax.rollouts.log import Item, LogError, Rejected
from crbc_jax.rollouts.readers import (
  canonical,
  game24,
  intercode,
  mini_swe_agent,
  parquet,
  roll,
  swe_agent,
  tau_bench,
  trl,
  verifiers,
  verl_agent,
)
from crbc_jax.rollouts.readers.source import Source


@dataclasses.dataclass(frozen=True)
class Format:
  """A format of rollout logs."""

  summary: str
  read: Callable[[Source], Iterator[Item]]
  recognises: Callable[[str], bool]
  """Whether the first characters of a file look like it."""
  state_key: str = "verbatim"  # unless another is asked for
  action_key: str = "verbatim"


_SWE = {"state_key": "swe_signature", "action_key": "swe_signature"}
_TOOLS = {"state_key": "tool_history", "action_key": "tool_call"}

FORMATS: dict[str, Format] = {
  "jsonl": Format(
    "ours: a JSON object per step", canonical.read, canonical.recognises
  ),
  "game24": Format(
    "Game of 24, Tree of Thoughts: chains of thought",
    game24.read,
    game24.recognises,
    state_key="game24",
    action_key="game24",
  ),
  "tau_bench": Format(
    "tau-bench: records with task_id, trial, reward, traj",
    tau_bench.read,
    tau_bench.recognises,
    **_TOOLS,
  ),
  "intercode": Format(
    "InterCode: runs with turn_history, a file per model",
    intercode.read,
    intercode.recognises,
    # One answer is no state: alike answers to other commands would merge.
    state_key="window(n=1)",
  ),
  "swe_agent": Format(
    "SWE-agent .traj; labels in results.json",
    swe_agent.read,
    swe_agent.recognises,
    **_SWE,
  ),
  "mini_swe_agent": Format(
    "mini-swe-agent messages; labels in results.json",
    mini_swe_agent.read,
    mini_swe_agent.recognises,
    **_SWE,
  ),
  "verifiers": Format(
    "verifiers and prime-rl traces: message graphs",
    verifiers.read,
    verifiers.recognises,
    **_TOOLS,
  ),
  "roll": Format(
    "ROLL's agentic columns, JSON lines or Parquet", roll.read, roll.recognises
  ),
  "verl_agent": Format(
    "verl-agent's DataProto exported to .npz",
    verl_agent.read,
    verl_agent.recognises,
  ),
  "trl": Format("TRL completions, Parquet", trl.read, trl.recognises),
  "parquet": Format(
    "ours: the same fields as columns", parquet.read, parquet.recognises
  ),
}
"""By name; tried in this order on a file whose format is not named."""


def format_of(name: str) -> Format:
  """The format of a name, or of an import path "my_module:MY_FORMAT".

  Raises:
    ValueError: there is none.
  """
  if name in FORMATS:
    return FORMATS[name]
  if name.count(":") != 1:
    raise ValueError(
      f"unknown format {name!r}{suggestion(name, FORMATS)}; known: auto,"
      f" {', '.join(FORMATS)}"
    )
  found = specs.import_function("format", name)
  if not isinstance(found, Format):
    raise ValueError(
      f"format {name!r} must be a readers.Format, got {type(found).__name__}"
    )
  return found


def find_format(path: str, name: str = "auto") -> str:
  """The name of a file's format.

  Raises:
    ValueError: unknown name.
    LogError: the file cannot be opened, or no format recognises it.
  """
  if name != "auto":
    format_of(name)
    return name
  source = Source(path)
  if source.is_stream:
    return "jsonl"
  head = source.head()
  for known, form in FORMATS.items():
    if form.recognises(head):
      return known
  if ".jsonl" in pathlib.PurePath(path).suffixes:
    return "jsonl"  # its errors say more than that nothing is recognised
  raise source.fail(
    f"is in no format that is recognised; name one with --format:"
    f" {', '.join(FORMATS)}"
  )


class LogReader:
  """The items of several files, one file after another.

  What cannot be read of a file as a whole comes as a `Rejected` of no rows.

  Args:
    paths: at least one; "-" is standard input.
    name: of their format; by default that of each file is recognised.

  Raises:
    ValueError: unknown format.
  """

  def __init__(self, paths: Sequence[str], name: str = "auto"):
    self._paths, self._name = paths, name
    if name != "auto":
      find_format("", name)
    self.size = sum(os.path.getsize(p) for p in paths if os.path.isfile(p))
    self._done = 0
    self._source: Source | None = None

  @property
  def done(self) -> int:
    """Bytes of the files read so far, of `size`."""
    return self._done + (self._source.position if self._source else 0)

  def __iter__(self) -> Iterator[Item]:
    for path in self._paths:
      self._source = Source(path)
      try:
        form = format_of(find_format(path, self._name))
        yield from form.read(self._source)
      except LogError as error:
        yield Rejected(error.place, error.reason, rows=0)
      self._done, self._source = self.done, None


def default_keys(paths: Sequence[str], name: str = "auto") -> tuple[str, str]:
  """The state and action key of the first file whose format is recognised."""
  for path in paths:
    try:
      form = format_of(find_format(path, name))
    except LogError:
      continue
    return form.state_key, form.action_key
  return "verbatim", "verbatim"
