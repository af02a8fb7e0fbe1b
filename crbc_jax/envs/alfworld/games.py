"""ALFWorld games from files: a game, a released folder, or a bundle.

| path | holds |
|---|---|
| `.../game.tw-pddl` | one game, with its text grammar |
| a folder | `<split>/<task>/<trial>/game.tw-pddl`, as released (json_2.1.1) |
| `*.jsonl[.gz]` | a game per line; `alfworld_logic.json[.gz]` stands beside |

A game's id is `<split>/<task>/<trial>`, however it was loaded. Games that the
release marks as unsolvable are left out, as alfworld itself does.

The release of 2020 has 3,553 train games, 140 valid_seen and 134 valid_unseen.
"""

import functools
import gzip
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from crbc_jax.envs.alfworld.errors import GameError
from crbc_jax.envs.alfworld.game import Game, make_game

GAME_FILE = "game.tw-pddl"
LOGIC_FILE = "alfworld_logic.json"

_TEMPLATE = re.compile(r'action\s+(\w+)\s*\{\s*template\s*::\s*"([^"]*)"')
_HELP = re.compile(r'action\s+help\s*\{[^"]*"help"[^"]*"\s*([^"]*)"')
_GOAL = re.compile(r'"Your task is to: (.*?)\.?"\s*\}')
TEMPLATES = {  # commands by action, as of alfworld 0.4
  "GotoLocation": "go to [{r.name | receptacleatlocation(r:receptacle,"
  " lend:location)}]",
  "OpenObject": "open {r}",
  "CloseObject": "close {r}",
  "PickupObject": "take {o} from {r}",
  "PutObject": "move {o} to {r}",
  "inventory": "inventory",
  "examineReceptacle": "examine {r}",
  "examineObject": "examine {o}",
  "ToggleObject": "use {o}",
  "HeatObject": "heat {o} with {r}",
  "CleanObject": "clean {o} with {r}",
  "CoolObject": "cool {o} with {r}",
  "SliceObject": "slice {co} with {ko}",
  "look": "look",
  "help": "help",
}


def load_games(
  path: str | os.PathLike, *, split: str | None = None
) -> list[Game]:
  """Loads games, sorted by id.

  Args:
    path: a game, a folder or a bundle; see the module.
    split: only games of this split, such as "valid_unseen".

  Raises:
    GameError: names the file, the line and what is wrong with it.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    found = _from_folder(path, split)
  elif path.name.endswith((".jsonl", ".jsonl.gz")):
    found = _from_bundle(path, split)
  elif path.name.endswith(".tw-pddl"):
    found = (game for game in [_from_file(path)] if game)
  elif path.exists():
    raise GameError(str(path), f"is neither a {GAME_FILE} nor a .jsonl[.gz]")
  else:
    raise GameError(str(path), "no such file or folder")
  games = sorted(
    (game for game in found if split in (None, game.split)),
    key=lambda game: game.id,
  )
  if not games:
    of_split = f" of split {split!r}" if split else ""
    raise GameError(str(path), f"holds no solvable game{of_split}")
  for one, other in itertools.pairwise(games):
    if one.id == other.id:
      raise GameError(str(path), f"holds the game {one.id} twice")
  return games


def _from_folder(path: pathlib.Path, split: str | None) -> Iterator[Game]:
  files = sorted(path.glob(f"**/{GAME_FILE}"))
  for file in files:
    # Neither is among the six task types.
    if "movable" in str(file.parent) or "Sliced" in str(file.parent):
      continue
    if split in (None, _identity(file)[0]) and (game := _from_file(file)):
      yield game


def _identity(file: pathlib.Path) -> tuple[str, ...]:
  """Split, task and trial of a game's file, by its folders."""
  return file.resolve().parent.parts[-3:]


def _from_file(path: pathlib.Path) -> Game | None:
  place = str(path)
  fields = _object(_read(path), place)
  identity = _identity(path)
  goal, help = _read_grammar(_text(fields, "grammar", place), place)
  return _game(fields, place, identity, goal, help)


def _from_bundle(path: pathlib.Path, split: str | None) -> Iterator[Game]:
  logic = path.with_name(LOGIC_FILE)
  logic = logic if logic.exists() else path.with_name(f"{LOGIC_FILE}.gz")
  if not logic.exists():
    raise GameError(str(path), f"needs {LOGIC_FILE}[.gz] beside it")
  fields = _object(_read(logic), str(logic))
  _, help = _read_grammar(_text(fields, "grammar", str(logic)), str(logic))
  for number, line in enumerate(_read(path).splitlines(), 1):
    place = f"{path}:{number}"
    fields = _object(line, place)
    identity = tuple(
      _text(fields, name, place) for name in ("split", "task", "trial")
    )
    if split in (None, identity[0]):
      goal = _text(fields, "goal_text", place)
      if game := _game(fields, place, identity, goal, help):
        yield game


def _game(
  fields: Mapping[str, Any],
  place: str,
  identity: tuple[str, ...],
  goal: str,
  help: str,
) -> Game | None:
  """The game of one record, or None where it is marked as unsolvable."""
  if not fields.get("solvable", True):
    return None
  walkthrough = fields.get("walkthrough")
  return make_game(
    _text(fields, "pddl_problem", place),
    goal,
    id="/".join(identity),
    split=identity[0],
    help=help,
    walkthrough=walkthrough and tuple(walkthrough),
    place=place,
  )


def _read(path: pathlib.Path) -> str:
  try:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
  except (OSError, EOFError, UnicodeDecodeError) as error:
    raise GameError(str(path), f"cannot be read: {error}") from None


def _object(text: str, place: str) -> Mapping[str, Any]:
  try:
    fields = json.loads(text)
  except ValueError as error:
    raise GameError(place, f"is not JSON: {error}") from None
  if not isinstance(fields, dict):
    raise GameError(place, "is not a JSON object")
  return fields


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
  value = fields.get(name)
  if not isinstance(value, str):
    raise GameError(place, f"has no text in its field {name!r}")
  return value


def _read_grammar(grammar: str, place: str) -> tuple[str, str]:
  """The instruction and the help text of a text grammar.

  Raises:
    GameError: its commands are not those that the engine speaks.
  """
  goal = _GOAL.search(grammar)
  if not goal:
    raise GameError(place, 'its grammar has no "Your task is to: ..."')
  rest = grammar[: goal.start(1)] + grammar[goal.end(1) :]
  help, reason = _read_commands(rest)
  if reason:
    raise GameError(place, reason)
  return goal[1], help


@functools.lru_cache(maxsize=8)  # all games of a release share one grammar
def _read_commands(grammar: str) -> tuple[str, str]:
  """The help text, and why the grammar can't be played ("" if it can)."""
  templates = dict(_TEMPLATE.findall(grammar))
  for action, expected in TEMPLATES.items():
    found = templates.get(action)
    if found != expected:
      return "", (
        f"its grammar says {found!r} for {action}, the engine {expected!r}:"
        " take the games of alfworld 0.4 or newer (alfworld-download)"
      )
  help = _HELP.search(grammar)
  return (help[1], "") if help else ("", "its grammar has no text for help")
