"""`crbc doctor`: what it finds, and when it says that something is wrong."""

import argparse
import json

import jax
import pytest

from crbc_jax.commands import doctor
from crbc_jax.credit import precision


@pytest.fixture(autouse=True)
def measured(monkeypatch):
  """What the precision check finds: a list to change."""
  found = [
    precision.Precision("ring", 1.0, setting, 1e-8, 1e-8)
    for setting in precision.MATMUL_PRECISIONS
  ]
  monkeypatch.setattr(precision, "measure_precision", lambda: found)
  return found


@pytest.fixture
def installed(monkeypatch, tmp_path):
  """Installs crbc_jax, as far as its metadata says, with requirements."""

  def install(*requirements):
    folder = tmp_path / "crbc_jax-9.9.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: crbc_jax", "Version: 9.9"]
    lines += ["Provides-Extra: figures", "Provides-Extra: all"]
    lines += [f"Requires-Dist: {r}" for r in requirements]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)

  return install


def run(*argv):
  parser = argparse.ArgumentParser()
  doctor.add_arguments(parser)
  return doctor.run(parser.parse_args(argv))


def report(capsys):
  status = run("--json")
  found = json.loads(capsys.readouterr().out)
  assert found["ok"] == (status == 0)
  return status, {f["name"]: f for f in found["findings"]}


def test_all_is_fine(installed, capsys):
  installed("jax>=0.10", 'rich; extra == "figures"')
  status, found = report(capsys)
  assert status == 0
  assert found["jax"]["found"] == jax.__version__ and found["jax"]["required"]
  assert found["rich"]["section"] == "extra figures"
  assert not found["rich"]["required"]
  assert found["cpu:0"]["ok"]


def test_a_missing_requirement_is_wrong(installed, capsys):
  installed("no_such_package_here>=2")
  status, found = report(capsys)
  assert status == 1
  assert found["no_such_package_here"] == {
    "section": "versions",
    "name": "no_such_package_here",
    "found": "not installed",
    "ok": False,
    "required": True,
    "remedy": "pip install 'no_such_package_here>=2'",
  }


def test_an_old_requirement_is_wrong(installed, capsys):
  installed("jax>=999")
  status, found = report(capsys)
  assert status == 1
  assert found["jax"]["found"] == f"{jax.__version__}, but >=999 is needed"


def test_a_missing_extra_is_only_mentioned(installed, capsys):
  installed(
    'no_such_package_here; extra == "figures"',
    'crbc_jax[figures]; extra == "all"',
  )
  status, found = report(capsys)
  assert status == 0
  assert not found["no_such_package_here"]["ok"]
  remedy = found["no_such_package_here"]["remedy"]
  assert remedy == "pip install 'crbc_jax[figures]'"


def test_another_platforms_requirement_is_not_asked_for(installed, capsys):
  installed('no_such_package_here; sys_platform == "nowhere"')
  status, found = report(capsys)
  assert status == 0 and "no_such_package_here" not in found


@pytest.mark.parametrize(
  ("v", "gap", "status"),
  [(5e-6, 1e-6, 0), (6e-6, 0, 1), (0, 2e-6, 1), (float("nan"), 0, 1)],
)
def test_precision_decides(measured, capsys, v, gap, status):
  measured.append(precision.Precision("self-loop", 0.98, "default", v, gap))
  assert run() == status
  shown = capsys.readouterr().out
  assert ("Something required" in shown) == (status == 1)


def test_a_device_that_fails_is_said_so(monkeypatch, capsys):
  def fails():
    raise RuntimeError("no accelerator\nlong trace")

  monkeypatch.setattr(jax, "devices", fails)
  monkeypatch.setattr(precision, "measure_precision", fails)
  status, found = report(capsys)
  assert status == 1
  assert found["jax"]["found"] == "no accelerator"
  assert "JAX_PLATFORMS=cpu" in found["closure"]["remedy"]


def test_data_folders(monkeypatch, tmp_path, capsys):
  (tmp_path / "logs" / "game24").mkdir(parents=True)
  monkeypatch.setenv("CRBC_REAL_DATA", str(tmp_path / "logs"))
  monkeypatch.chdir(tmp_path)
  _, found = report(capsys)
  assert found["rollout logs"]["found"].endswith("logs: game24")
  assert not found["levels"]["ok"] and not found["levels"]["required"]
