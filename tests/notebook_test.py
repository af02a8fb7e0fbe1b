import io
import json

import numpy as np
import pytest
import rich.console
from matplotlib.figure import Figure

from crbc_jax import RolloutError, credit_table, notebook
from crbc_jax.envs.four_rollouts import four_rollouts
from crbc_jax.learner.accuracy import Accuracy


def text_of(renderable):
  console = rich.console.Console(file=io.StringIO(), width=200)
  console.print(renderable)
  return console.file.getvalue()


@pytest.fixture(scope="module")
def credited(tmp_path_factory):
  folder = tmp_path_factory.mktemp("log")
  logs = notebook.upload_log(folder)
  rows = notebook.credit_log(logs, estimators="crbc,grpo", state_key="")
  return logs, rows


def test_credit_of_the_sample_is_that_of_the_table(credited):
  _, rows = credited
  wanted = credit_table(four_rollouts(), "crbc")
  np.testing.assert_allclose([r["crbc.v"] for r in rows], wanted.v, rtol=1e-6)
  np.testing.assert_allclose(
    [r["crbc.advantage"] for r in rows], wanted.advantage, rtol=1e-6
  )


def test_table_of_credit_has_its_rows(credited):
  _, rows = credited
  text = text_of(notebook.credit_view(rows, most=3))
  assert "crbc.advantage" in text and "8 more" in text
  assert "+0.474" in text  # V(s0) at beta .98
  assert "+0.361" not in text  # s2 comes later


def test_first_group_is_the_sample(credited):
  logs, _ = credited
  table = notebook.first_group(logs, state_key="verbatim")
  wanted = four_rollouts()
  assert table.state_key.tolist() == wanted.state_key.tolist()
  assert table.boundary.tolist() == wanted.boundary.tolist()


def test_keys_are_compared(credited, capsys):
  notebook.compare_log_keys(credited[0])
  assert "verbatim" in capsys.readouterr().out


def test_bad_logs_are_refused(tmp_path):
  path = tmp_path / "bad.jsonl"
  row = {"group_id": "g", "traj_id": "a", "state_key": "s", "action_key": "a"}
  path.write_text(json.dumps(row) + "\n", encoding="utf-8")
  with pytest.raises(RolloutError, match="bad"):
    notebook.credit_log([str(path)])


def test_pages_are_shown_in_a_frame(tmp_path):
  path = tmp_path / "page.html"
  path.write_text('<b class="x">5 < 6</b>', encoding="utf-8")
  shown = notebook.Page(path, height=100)._repr_html_()
  assert 'height="100"' in shown
  assert 'srcdoc="&lt;b class=&quot;x&quot;&gt;5 &lt; 6&lt;/b&gt;"' in shown


def test_pictures_are_png():
  figure = Figure(figsize=(1, 1))
  small = notebook.Picture(figure, dpi=20)._repr_png_()
  assert small.startswith(b"\x89PNG")
  assert small == notebook.Picture(figure, dpi=20)._repr_png_()


def test_steps_side_by_side():
  """GRPO follows the outcome, GraphGPO sees no difference at s0."""
  text = text_of(notebook.compare_steps(four_rollouts(), ["grpo", "graphgpo"]))
  first = next(line for line in text.splitlines() if " s0 " in line)
  assert first.split()[-2:] == ["+0.87", "+0.00"]


def test_accuracy_in_words():
  found = {"crbc": [Accuracy(0.5, 1.0), Accuracy(0.7, 0.8)]}
  assert notebook.spread(found) == [(pytest.approx(0.6), 0.5, 0.7)]
  text = text_of(notebook.accuracy_view(found))
  assert "0.60 (0.50 to 0.70)" in text and "0.90 (0.80 to 1.00)" in text
