import gzip
import json

import pytest

from crbc_jax.envs.alfworld import GameError, generator, load_games, make_game
from crbc_jax.envs.alfworld.games import TEMPLATES
from tests.envs.alfworld.problems import GOALS, KITCHEN, kitchen

HELP = "Available commands:\n  look: look\n"


def grammar(goal, templates=TEMPLATES):
  actions = "\n".join(
    f'action {name} {{\n  template :: "{template}";\n  feedback :: "#x#";\n}}'
    for name, template in templates.items()
    if name != "help"
  )
  return (
    f'grammar :: """{{"task": [{{"rhs": "Your task is to: {goal}." }}]}}""";\n'
    f"{actions}\n"
    f'action help {{\n  template :: "help";\n  feedback :: "\n{HELP}";\n}}\n'
  )


def record(index, goal_type="place", **changes):
  return {
    "split": ("train", "valid_seen")[index % 2],
    "task": "pick_and_place_simple-Apple-None-Fridge-1",
    "trial": f"trial_{index}",
    "goal_text": "put a apple in fridge",
    "pddl_problem": f"{KITCHEN}{GOALS[goal_type]})",
    "solvable": True,
    "walkthrough": ["go to fridge_bar_1", "open fridge_bar_1"],
    **changes,
  }


def write_folder(root, records, templates=TEMPLATES):
  for r in records:
    folder = root / r["split"] / r["task"] / r["trial"]
    folder.mkdir(parents=True)
    fields = {
      "pddl_domain": "",
      "grammar": grammar(r["goal_text"], templates),
      "pddl_problem": r["pddl_problem"],
      "solvable": r["solvable"],
      "walkthrough": r["walkthrough"],
    }
    (folder / "game.tw-pddl").write_text(json.dumps(fields))


def write_bundle(root, records, compress=True):
  text = "".join(json.dumps(r) + "\n" for r in records)
  path = root / ("games.jsonl.gz" if compress else "games.jsonl")
  path.write_bytes(gzip.compress(text.encode()) if compress else text.encode())
  logic = json.dumps({"pddl_domain": "", "grammar": grammar("UNKNOWN GOAL")})
  (root / "alfworld_logic.json").write_text(logic)
  return path


def test_every_form_gives_the_same_games(tmp_path):
  records = [record(i) for i in range(3)] + [record(3, solvable=False)]
  write_folder(tmp_path / "released", records)
  forms = [
    load_games(tmp_path / "released"),
    load_games(write_bundle(tmp_path, records)),
    load_games(write_bundle(tmp_path, records, compress=False)),
  ]
  for games in forms:
    assert [g.id for g in games] == [
      "train/pick_and_place_simple-Apple-None-Fridge-1/trial_0",
      "train/pick_and_place_simple-Apple-None-Fridge-1/trial_2",
      "valid_seen/pick_and_place_simple-Apple-None-Fridge-1/trial_1",
    ]
    for game in games:
      assert game.goal == "put a apple in fridge"
      assert game.help == HELP
      # Raw ids become names.
      assert game.walkthrough == ("go to fridge 1", "open fridge 1")
      assert game.start == kitchen().start
      assert game.objects == kitchen().objects


def test_one_split_or_one_file(tmp_path):
  write_folder(tmp_path, [record(i) for i in range(4)])
  assert len(load_games(tmp_path, split="train")) == 2
  file = next(tmp_path.glob("valid_seen/*/trial_3/*"))
  (game,) = load_games(file)
  assert game.id.endswith("trial_3") and game.split == "valid_seen"
  with pytest.raises(GameError, match="no solvable game of split 'test'"):
    load_games(tmp_path, split="test")


def test_task_types_come_from_the_goal():
  types = {kind: kitchen(kind).task_type for kind in GOALS}
  assert types == {
    "place": "pick_and_place_simple",
    "hot": "pick_heat_then_place_in_recep",
    "two": "pick_two_obj_and_place",
    "light": "look_at_obj_in_light",
  }


@pytest.mark.parametrize(
  "before, after, message",
  [
    ("(openable Fridge", "(opnable Fridge", r"line 24 .*\(opnable"),
    ("(pickupable Knife_bar_1)", "(pickupable Fork_bar_1)", "fork_bar_1"),
    ("(openable F", "(objectType start MugType)(openable F", "start is no ALF"),
    ("(:init", "(:start", r"no section \(:init"),
    ("(cleanable Apple_bar_1)", "(cleanable Apple_bar_1", "cut off"),
    ("(atLocation agent1 start)", "", "exactly one location"),
    ("(objectType Mug_bar_1 MugType)", "", "mug_bar_1 has no type"),
    ("(receptacleAtLocation Fridge_bar_1 window)", "", "fridge_bar_1 has no"),
    ("(exists (?r - receptacle)", "(forall (?r - receptacle)", "goal is"),
    ("?o AppleType", "?o PearType", "asks for is not there"),
    ("?r FridgeType", "?r SofaType", "asks for is not there"),
    ("(inReceptacle ?o ?r)", "(not (inReceptacle ?o ?r))", "goal is not"),
    ("(receptacleType ?r FridgeType)", "", "goal is not"),
    (
      "(inReceptacle ?o ?r)",
      "(inReceptacle ?o ?r) (isSliced ?o)",
      "goal is not",
    ),
  ],
)
def test_damaged_problems_are_refused(before, after, message):
  problem = f"{KITCHEN}{GOALS['place']})"
  assert before in problem
  with pytest.raises(GameError, match=rf"^here: .*{message}"):
    make_game(problem.replace(before, after, 1), "x", id="x", place="here")


def test_a_light_goal_with_another_atom_is_refused():
  for change in ("(holds ?a)", "(holds ?a ?o) (isClean ?o)"):
    goal = GOALS["light"].replace("(holds ?a ?o)", change)
    with pytest.raises(GameError, match="goal is not one of ALFWorld's six"):
      make_game(f"{KITCHEN}{goal})", "x", id="x")


def test_two_objects_must_be_two():
  goal = GOALS["two"].replace("(not (= ?a ?b))", "")
  with pytest.raises(GameError, match="goal is not one of ALFWorld's six"):
    make_game(f"{KITCHEN}{goal})", "x", id="x")


def test_bad_files_are_named(tmp_path):
  with pytest.raises(GameError, match="nowhere: no such file"):
    load_games(tmp_path / "nowhere")
  other = tmp_path / "game.z8"
  other.write_text("")
  with pytest.raises(GameError, match=r"game.z8: is neither a game.tw-pddl"):
    load_games(other)
  path = write_bundle(tmp_path, [record(0), record(1, goal_text=None)])
  with pytest.raises(GameError, match=r"jsonl.gz:2: has no text in .*goal_tex"):
    load_games(path)
  path = write_bundle(tmp_path, [record(0), record(0)])
  with pytest.raises(GameError, match="trial_0 twice"):
    load_games(path)
  path.write_bytes(path.read_bytes()[:-20])
  with pytest.raises(GameError, match="cannot be read"):
    load_games(path)
  plain = write_bundle(tmp_path, [record(0)], compress=False)
  plain.write_text(plain.read_text() + "{oops\n")
  with pytest.raises(GameError, match=r"games.jsonl:2: is not JSON"):
    load_games(plain)
  (tmp_path / "alfworld_logic.json").unlink()
  with pytest.raises(GameError, match=r"needs alfworld_logic\.json"):
    load_games(plain)


def test_games_of_an_older_alfworld_are_refused(tmp_path):
  old = {**TEMPLATES, "PutObject": "put {o} in/on {r}"}
  write_folder(tmp_path, [record(0)], old)
  with pytest.raises(GameError, match=r"tw-pddl: .*put \{o\}.*alfworld 0.4"):
    load_games(tmp_path)


def test_generated_games_can_be_saved_and_loaded(tmp_path):
  problem, goal = generator.generate_problem(0, 5)
  written = record(0, pddl_problem=problem, goal_text=goal, walkthrough=None)
  (loaded,) = load_games(write_bundle(tmp_path, [written]))
  made = generator.generate_game(0, 5)
  assert (loaded.goal, loaded.start) == (made.goal, made.start)
  assert loaded.task_type == made.task_type == "pick_two_obj_and_place"
