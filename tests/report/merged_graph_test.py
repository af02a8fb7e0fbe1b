import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch

from crbc_jax import (
  Boundary,
  RolloutError,
  StepTable,
  TableCredit,
  credit_table,
)
from crbc_jax.envs.four_rollouts import four_rollouts, table_of_paths
from crbc_jax.report import graph_figure
from crbc_jax.report.merged_graph import layers, merge, positions
from tests.report import logs

# State, action, target, steps, Q - V at beta .9: methods worked by hand.
EDGES = {
  ("s0", "a", "s1"): (2, 0.150784),
  ("s0", "b", "s2"): (3, -0.100523),
  ("s1", "c", "success"): (1, 0.310278),
  ("s1", "d", "s2"): (1, -0.310278),
  ("s2", "e", "s0"): (1, -0.196503),
  ("s2", "e", "failure"): (2, -0.196503),
  ("s2", "f", "success"): (1, 0.589508),
}


def some_credit(table, size=1.0):
  """Numbers that no kernel was compiled for."""
  numbers = np.random.default_rng(0).normal(size=len(table))
  zero = np.zeros(len(table), np.float32)
  q = (size * numbers).astype(np.float32)
  return TableCredit(
    advantage=q, trajectory=zero, step=q, q=q, v=zero, live=zero > 0
  )


@pytest.fixture(scope="module")
def golden():
  table = four_rollouts()
  return table, credit_table(table, "crbc", beta=0.9)


def test_golden_example(golden):
  graph = merge(*golden)
  assert graph.states == ("s0", "s1", "s2")
  assert graph.ends == (Boundary.SUCCESS, Boundary.FAILURE)
  np.testing.assert_allclose(graph.v, [0.379966, 0.589722, 0.310492], atol=2e-6)
  np.testing.assert_array_equal(graph.visits, [5, 2, 4])
  names = (*graph.states, "success", "failure")
  found = {
    (names[e.source], e.action, names[e.target]): (e.count, e.credit)
    for e in graph.edges
  }
  assert found.keys() == EDGES.keys()
  for edge, (count, credit) in EDGES.items():
    assert found[edge] == (count, pytest.approx(credit, abs=2e-6))
  assert graph.reach == pytest.approx(0.589508, abs=2e-6)


def test_layers_and_positions_of_the_golden_example(golden):
  graph = merge(*golden)
  np.testing.assert_array_equal(layers(graph), [0, 1, 1, 2, 2])
  np.testing.assert_array_equal(
    positions(graph), [[0, 0], [1, 0.5], [1, -0.5], [2, 0.5], [2, -0.5]]
  )


def test_every_state_has_a_place_of_its_own():
  table = logs.walk(5)
  graph = merge(table, some_credit(table))
  place = positions(graph)
  assert len(graph.states) > 4
  assert len(np.unique(place, axis=0)) == len(place)
  assert len(place) == len(graph.states) + len(graph.ends)
  assert sum(edge.count for edge in graph.edges) == len(table)
  layer = layers(graph)
  for edge in graph.edges:
    if edge.target < len(graph.states):
      assert layer[edge.target] <= layer[edge.source] + 1


def test_states_of_another_start_begin_at_zero():
  table = table_of_paths([("x a y b", "success"), ("p a q b", "truncated")])
  graph = merge(table, some_credit(table))
  np.testing.assert_array_equal(layers(graph), [0, 1, 0, 1, 2, 2])
  assert graph.ends == (Boundary.SUCCESS, Boundary.TRUNCATED)


def test_several_groups_are_refused():
  rows = logs.walk_rows(0, "p") + logs.walk_rows(1, "q")
  table = StepTable.from_rows(rows)
  with pytest.raises(RolloutError, match="one group, the table holds 2"):
    merge(table, some_credit(table))


@pytest.mark.parametrize("path", ["s0", "", "s0 a s1"])
def test_half_a_step_is_refused(path):
  with pytest.raises(ValueError, match="states and actions in turn"):
    table_of_paths([(path, "success")])


def arrows(axis):
  return [p for p in axis.patches if isinstance(p, FancyArrowPatch)]


def drawn(figure):
  """Draws it, so that clipping and text are computed too."""
  figure.canvas.draw()
  return figure


def test_figure_of_a_graph_shows_every_edge_and_value(golden):
  graph = merge(*golden)
  axis = drawn(graph_figure.graph_figure(graph, title="four")).axes[0]
  assert len(arrows(axis)) == len(graph.edges)
  shown = {text.get_text() for text in axis.texts}
  assert {"V 0.38", "V 0.59", "V 0.31", "success", "failure"} <= shown
  assert {"a ×2\n+0.15", "e ×2\n−0.20", "f\n+0.59"} <= shown
  width = {a.get_linewidth() for a in arrows(axis)}
  assert len(width) == len({edge.count for edge in graph.edges})


def test_figures_share_one_scale_and_layout(golden):
  table, exact = golden
  visits = credit_table(table, "crbc", beta=0.9, depth=0)
  figure = graph_figure.depth_figure(table, {"0": visits, "∞": exact})
  one, other, _ = drawn(figure).axes
  assert len(arrows(one)) == len(arrows(other)) == len(EDGES)
  assert "V 0.32" in {t.get_text() for t in one.texts}
  assert one.get_xlim() == other.get_xlim()
  colours = [a.get_edgecolor() for axis in (one, other) for a in arrows(axis)]
  assert colours[: len(EDGES)] != colours[len(EDGES) :]


def test_group_figure_has_a_chain_for_each_rollout(golden):
  table, exact = golden
  figure = graph_figure.group_figure(table, credit_table(table, "grpo"), exact)
  left = drawn(figure).axes[0]
  assert len(arrows(left)) == len(table)
  numbers = [t.get_text() for t in left.texts if "0.87" in t.get_text()]
  assert numbers == ["+0.87", "−0.87", "+0.87", "−0.87"]


@pytest.mark.parametrize("end", ["success", "failure", "truncated"])
def test_groups_with_one_outcome_and_a_loop_can_be_drawn(end):
  table = table_of_paths([("s0 stay s0 go", end), ("s0 go", end)])
  graph = merge(table, some_credit(table, size=0.0))
  assert graph.reach == 0
  axis = drawn(graph_figure.graph_figure(graph)).axes[0]
  assert len(arrows(axis)) == 3 - 1


def test_busy_graphs_lose_their_labels_not_their_edges():
  table = logs.walk(2, rollouts=16, steps=16, states=15, falls=0.0)
  graph = merge(table, some_credit(table))
  assert len(graph.edges) > 40
  axis = drawn(graph_figure.graph_figure(graph)).axes[0]
  assert len(arrows(axis)) == len(graph.edges)
  assert not any(text.get_text().startswith("walk") for text in axis.texts)
