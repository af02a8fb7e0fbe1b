"""The merged graph of small groups as a figure."""

import pytest

from crbc_jax import RolloutError
from crbc_jax.report.graph_figure import draw_group
from tests import groups
from tests.groups import rollout

STEP = "crbc(beta=0.9, w_group=0.0, w_step=1.0)"


def texts(figure):
  (axis, _) = figure.axes
  return [text.get_text() for text in axis.texts]


def test_the_worked_example():
  figure = draw_group(groups.table_of([groups.golden()]), estimator=STEP)
  shown = texts(figure)
  for text in ("s0", "0.38", "0.59", "0.31", "success", "failure"):
    assert text in shown
  # Credit by hand in methods.md: 1.2247, -.8165, 1, -1, -.5774, 1.7321.
  for text in (
    "a  +1.22  (2x)",
    "b  -0.82  (3x)",
    "c  +1.00",
    "d  -1.00",
    "e  -0.58",
    "e  -0.58  (2x)",
    "f  +1.73",
  ):
    assert text in shown
  assert "truncated" not in shown
  assert "4 rollouts" in figure.axes[0].get_title()


def test_loops_ties_and_a_lonely_step(tmp_path):
  cases = (
    [rollout("s0 a s0 a s0 b s1 c", "truncated", "s0")],
    [rollout("s0 a", "failure")],
    [rollout("s0 a", "success"), rollout("s1 a s0 b s1 a", "failure")],
  )
  for number, case in enumerate(cases):
    path = tmp_path / str(number)
    draw_group(groups.table_of([case]), path, estimator="grpo", title="mine")
    assert path.with_suffix(".png").stat().st_size > 5_000
    assert path.with_suffix(".svg").exists()


def test_what_cannot_be_drawn():
  long = " ".join(f"s{i} a" for i in range(31))
  with pytest.raises(ValueError, match="31 states are too many"):
    draw_group(groups.table_of([[rollout(long, "success")]]))
  two = groups.table_of([groups.golden(), groups.golden()])
  with pytest.raises(RolloutError, match="holds 2 groups"):
    draw_group(two)
