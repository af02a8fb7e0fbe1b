import json
import pathlib
import re
import subprocess
import sys

import pytest
from PIL import Image

import crbc_jax
from crbc_jax import cli
from crbc_jax.credit import registry
from crbc_jax.envs import sokoban_levels
from crbc_jax.learner import config as config_lib
from tests import tiny_runs
from tests.tiny_runs import compiled_programs  # noqa: F401

COMMANDS = ("train", "resume", "eval", "list", "view")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
  """Runs and levels have relative defaults; a wide terminal wraps nothing."""
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  monkeypatch.setenv("COLUMNS", "200")
  # ml_collections runs every config file in a module of this one name.
  monkeypatch.delitem(sys.modules, "config_config", raising=False)


@pytest.fixture
def crbc(capsys):
  """Runs a command; returns (status, standard output, errors)."""

  def run(*arguments):
    try:
      status = cli.main([str(a) for a in arguments])
    except SystemExit as stop:  # argparse
      status = stop.code
    return status, *capsys.readouterr()

  return run


@pytest.fixture
def refusal(crbc):
  """The one line that a command ends with."""

  def run(*arguments):
    status, _, errors = crbc(*arguments)
    assert status == 2
    assert "Traceback" not in errors
    lines = errors.strip().splitlines()
    if lines[0].startswith("usage: "):  # argparse shows the usage first
      lines = lines[-1:]
    (line,) = lines
    assert re.match(r"crbc( \w+)?: ", line)
    return line

  return run


def test_help_as_a_module():
  source = pathlib.Path(crbc_jax.__file__).parents[1]
  done = subprocess.run(
    [sys.executable, "-m", "crbc_jax", "--help"],
    capture_output=True,
    text=True,
    cwd=source,
    timeout=60,
  )
  assert done.returncode == 0, done.stderr
  assert "examples:" in done.stdout and "crbc resume runs/d2" in done.stdout
  for command in COMMANDS:
    assert re.search(rf"^    {command} +\w", done.stdout, re.MULTILINE)
  done = subprocess.run(
    [sys.executable, "-m", "crbc_jax", "list", "nothing"],
    capture_output=True,
    text=True,
    cwd=source,
    timeout=60,
  )
  assert done.returncode == 2 and "nothing" in done.stderr


@pytest.mark.parametrize(
  "command, words",
  [
    ("train", ("--config=FILE", "--config.KEY=VALUE", "--run_dir")),
    ("resume", ("run_dir", "exactly")),
    ("eval", ("run_dir", "--checkpoint", "--levels")),
    ("list", ("estimators", "config", "runs")),
    ("view", ("source", "--level", "--sampled", "--seed", "--out")),
  ],
)
def test_help_of_each_command(crbc, command, words):
  status, output, _ = crbc(command, "--help")
  assert status == 0
  assert all(word in output for word in words)


@pytest.mark.parametrize(
  "argument, words",
  [
    ("--config.sed=3", "unknown config key 'sed' (did you mean 'seed'?)"),
    ("--config.rollout=3", "unknown config key 'rollout'"),
    ("--config.learner.clipp=3", "did you mean 'learner.clip'"),
    ("--config.seed=abc", "--config.seed=abc"),
    ("--config.seed=1.5", "--config.seed=1.5"),
    ("--config.tensorboard=maybe", "tensorboard"),
    ("--config.policy.hidden=(64", "policy.hidden"),
    ("--config.env.slip=2", "config.env.slip must be in [0, 1], got 2.0"),
    ("--config.estimator=crcb", "did you mean 'crbc'?"),
    ("--config.estimator=crbc(dept=2)", "did you mean 'depth'?"),
    ("--config.generator.size=(2,2)", "config.generator: size must be"),
    ("--config.held_out=x.txt", "config.levels is not"),
    ("--config.levels=none.txt", "none.txt: no such file"),
    ("--config.seed", "unknown argument '--config.seed'"),
    ("--sed=3", "unknown argument '--sed=3'"),
    ("fast", "unknown argument 'fast'"),
    ("--config=none.py", "none.py"),
  ],
)
def test_train_refuses_in_one_line(refusal, argument, words):
  assert words in refusal("train", argument, "--run_dir=run")
  assert not pathlib.Path("run").exists()


@pytest.mark.parametrize(
  "text, words",
  [
    ("x = (\n", "was never closed"),
    ("x = 1\n", "get_config"),
    ("def get_config():\n  return 3\n", "ConfigDict"),
    ("def get_config():\n  return int('three')\n", "'three'"),
    (
      "from crbc_jax.learner import config\n"
      "def get_config():\n"
      "  c = config.get_config()\n"
      "  c.learner.clipp = 1\n"
      "  return c\n",
      "unknown key config.learner.clipp (did you mean 'clip'?)",
    ),
  ],
)
def test_bad_config_files(refusal, text, words):
  pathlib.Path("bad.py").write_text(text)
  assert words in refusal("train", "--config=bad.py", "--run_dir=run")


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_what_is_no_run_is_refused(refusal, command):
  line = refusal(command, "nowhere")
  assert line == (
    f"crbc {command}: nowhere is not a run folder (no config.json)"
  )


@pytest.mark.parametrize(
  "arguments",
  [
    ("fly",),
    (),
    ("list", "levels"),
    ("resume",),
    ("eval", "runs/a", "--levls=x"),
    ("view", "x.txt", "--level=one"),
  ],
)
def test_usage_errors(refusal, arguments):
  assert "error: " in refusal(*arguments)


BAD_LEVELS = {
  "empty": ("", "holds no level"),
  "letter": ("#####\n#@$x#\n#####\n", "unknown character 'x'"),
  "open": ("#####\n#@$.\n#####\n", "not closed"),
  "players": ("#####\n#@$.#\n#@  #\n#####\n", "2 players"),
}


@pytest.mark.parametrize("name", BAD_LEVELS)
def test_bad_level_files(refusal, name):
  text, words = BAD_LEVELS[name]
  pathlib.Path("bad.txt").write_text(text)
  assert words in refusal("view", "bad.txt")
  assert words in refusal("train", "--config.levels=bad.txt")
  assert not pathlib.Path("runs").exists()


def test_list_estimators(crbc):
  status, output, _ = crbc("list", "estimators")
  assert status == 0
  for name in registry.ESTIMATORS:
    assert name in output
    for option in registry.estimator_options(name):
      assert f"{option}=" in output


def test_list_config(crbc):
  status, output, _ = crbc("list", "config")
  assert status == 0
  items = config_lib.flat_items(config_lib.get_config())
  shown = [line.strip("│ ") for line in output.splitlines() if "│" in line]
  for key, value in items.items():
    assert any(
      line.startswith(f"{key} ") and repr(value) in line for line in shown
    ), key


def test_view_a_level(crbc, refusal):
  levels, _ = tiny_runs.make_levels(layouts=2)
  sokoban_levels.write_levels("own.txt", levels)
  status, output, _ = crbc("view", "own.txt", "--level=5")
  assert status == 0
  first, *board = output.strip().splitlines()
  assert first == "level own.txt:5"
  assert len(board) == 5 and "●" in output
  assert "there are 8, from 0" in refusal("view", "own.txt", "--level=8")
  assert "needs a run folder" in refusal("view", "own.txt", "--out=a.gif")
  assert "no such file" in refusal("view", "none.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Folder of a run that `crbc train` made."""
  folder = tmp_path_factory.mktemp("trained")
  flags = tiny_runs.flags(folder, estimator="crbc(depth=2, w_step=1.0)")
  run_dir = folder / "runs" / "deep"
  assert cli.main(["train", *flags, f"--run_dir={run_dir}"]) == 0
  return run_dir


@pytest.mark.training
def test_train_with_a_config_file_names_its_run_folder(crbc, tmp_path):
  path = tmp_path / "mine.py"
  values = tiny_runs.values(tmp_path, env_steps=100, seed=3)
  path.write_text(
    "from crbc_jax.learner import config\n"
    "def get_config():\n"
    "  c = config.get_config()\n"
    f"  c.update_from_flattened_dict({values!r})\n"
    "  return c\n"
  )
  arguments = "train", f"--config={path}", "--config.estimator=grpo(eps=0.1)"
  for name in ("grpo-eps=0.1-s3", "grpo-eps=0.1-s3-2"):
    status, output, errors = crbc(*arguments)
    assert status == 0, errors
    assert f"run folder runs/{name}" in output
    assert "done: held-out success" in output
    run_dir = pathlib.Path("runs") / name
    saved = json.loads((run_dir / "config.json").read_text())
    assert saved["seed"] == 3 and saved["estimator"] == "grpo(eps=0.1)"
    assert saved["policy"]["hidden"] == [16]
    assert f"{run_dir}/result.json" in output


@pytest.mark.training
def test_train_does_not_overwrite(refusal, trained):
  line = refusal("train", f"--run_dir={trained}")
  assert "holds a run already" in line and f"crbc resume {trained}" in line


@pytest.mark.training
def test_eval(crbc, refusal, trained, tmp_path):
  result = json.loads((trained / "result.json").read_text())
  status, output, _ = crbc("eval", trained)
  assert status == 0
  for name, shown, digits in (("success", "success", 3), ("length", "mean", 1)):
    row = next(r for r in output.splitlines() if shown in r)
    numbers = [
      f"{result['final'][f'{name}_{kind}']:.{digits}f}"
      for kind in ("greedy", "sampled")
    ]
    assert [cell for cell in row.split() if cell in numbers] == numbers
  status, output, _ = crbc("eval", trained, "--json")
  assert json.loads(output).items() >= result["final"].items()
  status, output, _ = crbc("eval", trained)
  assert f"8 held out, sha256 {result['panel']['sha256']}" in output
  assert f"update {result['update']}" in output
  own = tmp_path / "own.txt"
  own.write_text("#####\n#@$.#\n#####\n")
  status, output, _ = crbc("eval", trained, f"--levels={own}")
  assert status == 0 and "1 held out" in output
  assert "no checkpoint 99" in refusal("eval", trained, "--checkpoint=99")
  own.write_text("######\n#@ $.#\n######\n")
  assert "do not fit" in refusal("eval", trained, f"--levels={own}")


@pytest.mark.training
def test_resume(crbc, trained):
  before = (trained / "result.json").read_bytes()
  status, output, _ = crbc("resume", trained)
  assert status == 0 and "done: held-out success" in output
  assert (trained / "result.json").read_bytes() == before


@pytest.mark.training
def test_view_a_run(crbc, refusal, trained, tmp_path):
  for name in ("a.gif", "b.png"):
    out = tmp_path / "new" / name
    status, output, _ = crbc("view", trained, "--level=2", f"--out={out}")
    assert status == 0
    assert "level held_out.txt:2: " in output and f"wrote {out}" in output
    steps = int(re.search(r"after (\d+) steps", output)[1])
    with Image.open(out) as picture:
      frames = getattr(picture, "n_frames", 1)
      assert frames == (steps + 1 if name.endswith("gif") else 1)
  assert ".gif or .png" in refusal("view", trained, "--out=a.jpg")
  assert "there are 8" in refusal("view", trained, "--level=8")
  status, output, _ = crbc("view", trained, "--sampled", "--seed=1")
  assert status == 0 and "end" in output


@pytest.mark.training
def test_list_runs(crbc, refusal, trained):
  assert "no such folder" in refusal("list", "runs")
  other = trained.parent / "other"
  other.mkdir(exist_ok=True)
  (other / "config.json").write_bytes((trained / "config.json").read_bytes())
  status, output, _ = crbc("list", "runs", trained.parent)
  assert status == 0
  result = json.loads((trained / "result.json").read_text())
  done = next(line for line in output.splitlines() if "deep" in line)
  assert "crbc(depth=2, w_step=1.0)" in done
  assert f"{result['env_steps']:,}" in done
  assert f"{result['final']['success_sampled']:.3f}" in done
  cut = next(line for line in output.splitlines() if "other" in line)
  assert "not finished: crbc resume" in cut
