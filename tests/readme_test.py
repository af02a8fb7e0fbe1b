"""What the README shows must run, and what it points to must exist."""

import pathlib
import re

import pytest

from crbc_jax import ESTIMATORS, cli

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", "results/README.md", "colab/README.md")

if not (ROOT / "README.md").exists():
  pytest.skip("no README beside the tests", allow_module_level=True)


def text_of(page):
  path = ROOT / page
  if not path.exists():
    pytest.skip(f"{page} is not here")
  return path.read_text(encoding="utf-8")


def test_its_code_runs_and_prints(capsys):
  """All blocks in turn, in one session, as a reader would."""
  blocks = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.S)
  assert len(blocks) >= 3
  session: dict = {}
  estimators = set(ESTIMATORS)
  exec(blocks[0], session)
  shown = capsys.readouterr().out.splitlines()
  assert len(shown) == 6
  credit = {
    step: float(number)
    for step, _, number in (line.rpartition(" ") for line in shown)
  }
  said = re.search(r"# (.*)", blocks[0]).group(1).replace(" ...", ",")
  for line in said.split(", "):
    step, _, number = line.rpartition(" ")
    assert credit[step] == pytest.approx(float(number), abs=1e-5)
  try:
    for block in blocks[1:]:
      exec(block, session)
  finally:
    for name in set(ESTIMATORS) - estimators:
      del ESTIMATORS[name]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
  for target in re.findall(r"\]\(([^)#\s]+)", text_of(page)):
    if not target.startswith(("http://", "https://")):
      assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page):
  text = text_of(page)
  known = set(cli._parser("")._subparsers._group_actions[0].choices)
  assert set(re.findall(r"(?:^|`)crbc ([a-z]+)\b", text, re.M)) <= known
  makefile = ROOT / "Makefile"
  if makefile.exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile.read_text(), re.M))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) <= targets
  if (ROOT / "experiments").exists():
    for name in re.findall(r"experiments\.([a-z_]+)", text):
      assert (ROOT / "experiments" / f"{name}.py").exists(), name
