"""Every notebook runs from the first cell to the last, with small numbers."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from crbc_jax import credit_table
from crbc_jax.envs.four_rollouts import four_rollouts

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "colab"

if not (FOLDER / "notebooks.py").exists():
  pytest.skip("no colab/ beside the tests", allow_module_level=True)

spec = importlib.util.spec_from_file_location("nb", FOLDER / "notebooks.py")
assert spec is not None and spec.loader is not None
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)

# Values of the form fields: minutes become seconds.
PARAMETERS = {
  "closure_in_five_minutes": {"depth": 2},
  "credit_your_log": {"rollout": 1},
  "depth_ablation": {
    "layouts": 4,
    "levels": 4,
    "batches": 2,
    "env_steps": 600,
  },
  "write_an_estimator": {"layouts": 4, "levels": 4, "batches": 1},
}
LAST = 'import json; print("CREDIT", json.dumps(credit))'


def stems():
  return [path.stem for path in notebooks.paths()]


def test_all_notebooks_are_known():
  assert stems() == sorted(PARAMETERS)


def source(name):
  return notebooks.read(FOLDER / f"{name}.ipynb")


def printed(executed):
  return "".join(
    "".join(output.get("text", ""))
    for cell in executed["cells"]
    for output in cell.get("outputs", ())
  )


@pytest.mark.training
@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_it_runs(name, tmp_path, monkeypatch):
  pytest.importorskip("nbclient")
  pytest.importorskip("ipykernel")
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  notebook = notebooks.with_parameters(source(name), PARAMETERS[name])
  notebook["cells"].append(
    {
      "cell_type": "code",
      "execution_count": None,
      "metadata": {},
      "outputs": [],
      "source": [LAST],
    }
  )
  executed = notebooks.execute(notebook, tmp_path)
  assert notebooks.figures(executed)
  assert (tmp_path / "report.html").stat().st_size > 10_000
  text = printed(executed)
  if name == "write_an_estimator":
    assert "refused:" in text
  (line,) = (x for x in text.splitlines() if x.startswith("CREDIT "))
  rows = json.loads(line.removeprefix("CREDIT "))
  table = four_rollouts()
  assert [(r["traj_id"], r["step_idx"]) for r in rows] == [
    (str(t), i) for t, i in zip(table.traj_id, table.step_idx, strict=True)
  ]
  # V by hand, beta .98.
  by_hand = {"s0": 0.473741, "s1": 0.666923, "s2": 0.361066}
  np.testing.assert_allclose(
    [row["crbc.v"] for row in rows],
    [by_hand[state] for state in table.state_key],
    atol=2e-6,
  )
  for estimator in ("crbc", "gigpo", "grpo"):
    np.testing.assert_allclose(
      [row[f"{estimator}.advantage"] for row in rows],
      credit_table(table, estimator).advantage,
      rtol=1e-6,
    )


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_it_is_clean_in_git(name):
  notebook = source(name)
  assert notebooks.problems(notebook) == []
  assert notebooks.normalised(notebook) == notebook


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_its_badge_opens_it(name):
  first = notebooks.source(source(name)["cells"][0])
  assert f"/colab/{name}.ipynb)" in first
  assert f"{name}.ipynb" in (FOLDER / "README.md").read_text(encoding="utf-8")


def dirty(change):
  notebook = source("closure_in_five_minutes")
  change(notebook)
  return notebook


def code_cell(notebook):
  return next(c for c in notebook["cells"] if c["cell_type"] == "code")


TEXT = {"output_type": "stream", "name": "stdout", "text": ["x"]}


@pytest.mark.parametrize(
  ("change", "said"),
  [
    (lambda n: code_cell(n).update(execution_count=3), "execution count"),
    (lambda n: code_cell(n)["metadata"].update(id="x"), "metadata"),
    (lambda n: n["metadata"].update(widgets={}), "metadata other"),
    (lambda n: n.update(nbformat_minor=5), "another format"),
    (lambda n: code_cell(n)["outputs"].append(TEXT), "outputs; keep one"),
    (lambda n: [c.update(outputs=[]) for c in n["cells"]], "0 outputs"),
  ],
)
def test_noise_is_found_and_removed(change, said):
  notebook = dirty(change)
  assert any(said in problem for problem in notebooks.problems(notebook))
  left = notebooks.problems(notebooks.normalised(notebook))
  assert left == (["0 outputs; keep one figure"] if said == "0 outputs" else [])


def test_parameters_replace_defaults_and_unknown_ones_are_refused():
  notebook = source("closure_in_five_minutes")
  made = notebooks.with_parameters(notebook, {"beta": 0.5})
  text = "\n".join(map(notebooks.source, made["cells"]))
  assert 'beta = 0.5  # @param {type:"slider"' in text
  assert notebook == source("closure_in_five_minutes")
  with pytest.raises(ValueError, match="no form field named gamma"):
    notebooks.with_parameters(notebook, {"gamma": 1})
