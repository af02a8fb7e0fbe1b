"""The picture of the idea: four rollouts, merged, with credit on each step.

  python -m experiments.merged_graph [--beta 0.9] [--results results]

Claim: on the example of `envs.four_rollouts` the closure separates the first
actions a and b, which the outcomes alone do not: Q - V is +.151 for a and -.101
for b at beta .9, while GRPO credits all steps of a rollout alike.

A few seconds. Writes merged_graph.png, .svg and .json.
"""

import argparse
import pathlib

import rich.console
import rich.table

import crbc_jax
from crbc_jax import credit_table
from crbc_jax.envs.four_rollouts import four_rollouts
from crbc_jax.learner.records import write_json
from crbc_jax.report import graph_figure, plots
from crbc_jax.report.merged_graph import ENDS, MergedGraph, merge
from experiments import commands


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--beta", type=float, default=0.9)
  parser.add_argument("--results", type=pathlib.Path, default="results")
  options = parser.parse_args(argv)

  table = four_rollouts()
  credit = credit_table(table, "crbc", beta=options.beta)
  figure = graph_figure.group_figure(table, credit_table(table, "grpo"), credit)
  plots.save(figure, options.results / "merged_graph")
  rows = edge_rows(merge(table, credit))
  write_json(
    options.results / "merged_graph.json",
    {
      "command": commands.recorded("experiments.merged_graph", argv),
      "version": crbc_jax.__version__,
      "seeds": "none: nothing is random",
      "edges": rows,
    },
  )
  shown = rich.table.Table(*rows[0])
  for row in rows:
    shown.add_row(
      *(f"{x:+.4f}" if isinstance(x, float) else str(x) for x in row.values())
    )
  rich.console.Console().print(shown)


def edge_rows(graph: MergedGraph) -> list[dict]:
  """State, action, successor, count, V of the state and Q - V of each edge."""
  names = (*graph.states, *(ENDS[end] for end in graph.ends))
  return [
    {
      "state": names[edge.source],
      "action": edge.action,
      "leads to": names[edge.target],
      "steps": edge.count,
      "V": round(float(graph.v[edge.source]), 6),
      "Q - V": round(edge.credit, 6),
    }
    for edge in graph.edges
  ]


if __name__ == "__main__":
  main()
