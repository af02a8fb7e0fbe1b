"""The real ALFWorld text environment, to compare ours with: extra [alfworld].

`make_stock(record)` is alfworld's environment on TextWorld. Stock TextWorld
parses its text grammar anew at every step and copies whole states; `fast()`
patches that away for the process (same texts: `alfworld_equivalence` compares
transcripts played before and after).
"""

import copy
import functools
import gzip
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

BUNDLE = "alfworld_games_474.jsonl.gz"


class Seen(NamedTuple):
  """What the stock environment showed."""

  text: str
  commands: tuple[str, ...]
  won: bool


class Stock:
  """One episode of the real environment."""

  def __init__(self, record: Mapping[str, str]):
    argv = list(sys.argv)
    # alfworld makes a folder in the home directory where this isn't set.
    os.environ.setdefault("ALFWORLD_DATA", tempfile.mkdtemp())
    import textworld
    from alfworld.agents.environment import alfred_tw_env
    from textworld.envs import PddlEnv

    infos = textworld.EnvInfos(admissible_commands=True, won=True)
    self._env = alfred_tw_env.AlfredDemangler(PddlEnv(infos))
    self._env.load(dict(record))
    sys.argv[:] = argv  # the translator overwrites it

  def reset(self) -> Seen:
    return self._seen(self._env.reset())

  def step(self, command: str) -> Seen:
    return self._seen(self._env.step(command)[0])

  def _seen(self, state) -> Seen:
    commands = tuple(state["admissible_commands"])
    return Seen(state.feedback, commands, bool(state["won"]))


def bundle_path() -> pathlib.Path:
  """Where the bundle of real games is expected."""
  root = os.environ.get("CRBC_REAL_DATA")
  checkout = pathlib.Path(__file__).resolve().parents[1]
  data = pathlib.Path(root) if root else checkout.parent / "shared" / "data"
  return data / "alfworld" / BUNDLE


def read_logic(bundle: pathlib.Path) -> dict[str, str]:
  """The domain and the text grammar of the release."""
  with gzip.open(bundle.with_name("alfworld_logic.json.gz"), "rt") as file:
    return json.load(file)


def record(logic: Mapping[str, str], problem: str, goal: str) -> dict[str, str]:
  """A game as TextWorld loads it."""
  return {
    "pddl_domain": logic["pddl_domain"],
    "grammar": logic["grammar"].replace("UNKNOWN GOAL", goal),
    "pddl_problem": problem,
  }


def read_records(bundle: pathlib.Path) -> dict[str, dict[str, str]]:
  """Games of a bundle as TextWorld loads them, by the ids of `load_games`."""
  logic = read_logic(bundle)
  records = {}
  with gzip.open(bundle, "rt") as file:
    for line in file:
      game = json.loads(line)
      identity = "/".join(game[k] for k in ("split", "task", "trial"))
      records[identity] = record(logic, game["pddl_problem"], game["goal_text"])
  return records


def fast() -> None:
  """Patches TextWorld for speed, for the rest of the process."""
  import fast_downward
  from textworld.envs.pddl import textgen
  from textworld.logic import Rule

  parse_query = functools.lru_cache(maxsize=None)(Rule.parse_conjunctive_query)
  Rule.parse_conjunctive_query = staticmethod(parse_query)

  parse = functools.lru_cache(maxsize=65536)(textgen._parse_and_convert)
  textgen._parse_and_convert = lambda text, rule_name, trace=False: [
    _fresh(symbol) for symbol in parse(text, rule_name=rule_name)
  ]
  textgen.copy_context = lambda context: {
    **context,
    "variables": dict(context["variables"]),
    "mapping": dict(context["mapping"]),
  }
  textgen.Symbol.copy = lambda self, context: _with_context(
    _fresh(self), context
  )
  textgen.deepcopy = lambda value: (
    [_fresh(symbol) for symbol in value] if isinstance(value, list) else value
  )

  translate = functools.lru_cache(maxsize=4)(fast_downward.pddl2sas)
  # The second, optimised translation serves the planner, which is not used.
  fast_downward.pddl2sas = (
    lambda domain, problem, verbose=False, optimize=False: translate(
      domain, problem
    )
  )


def _fresh(symbol):
  """A copy of a grammar symbol with a context of its own."""
  twin = copy.copy(symbol)
  inner = twin.__dict__.get("symbol")
  if hasattr(inner, "context"):
    twin.symbol = _fresh(inner)
  expression = twin.__dict__.get("expression")
  if hasattr(expression, "context"):
    twin.expression = _fresh(expression)
  return twin


def _with_context(symbol, context):
  symbol.context = dict(context)
  return symbol


def versions() -> dict[str, str]:
  """Of what was compared with."""
  from importlib import metadata

  names = ("alfworld", "textworld", "fast-downward-textworld", "tatsu")
  return {name: metadata.version(name) for name in names}
