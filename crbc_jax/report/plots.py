"""Figures, the same colour and marker for one estimator everywhere."""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402  (after the backend)

# Okabe and Ito's palette, safe for colour-blind readers.
STYLES = {
  "CRBC exact": ("#0072B2", "o"),
  "CRBC depth 2": ("#56B4E9", "v"),
  "CRBC depth 0": ("#009E73", "^"),
  "GraphGPO": ("#E69F00", "s"),
  "GiGPO": ("#D55E00", "D"),
  "GiGPO mean": ("#CC79A7", "d"),
  "RTMC": ("#B5A400", "P"),
  "RLOO": ("#777777", "X"),
  "GRPO": ("#000000", "x"),
}


def learning_curves(
  panels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
  path: pathlib.Path,
) -> None:
  """Mean held-out success over seeds, with the range of seeds shaded.

  Args:
    panels: title -> estimator -> one {"env_steps", "success"} per seed.
    path: without suffix; writes .png and .svg.
  """
  figure, axes = plt.subplots(
    1,
    len(panels),
    figsize=(4.6 * len(panels), 3.8),
    squeeze=False,
    layout="constrained",
  )
  for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
    for label, seeds in curves.items():
      colour, marker = STYLES.get(label, ("#444444", "."))
      last = min(s["env_steps"][-1] for s in seeds)
      grid = np.linspace(0, last, 50)
      heights = np.array(
        [np.interp(grid, s["env_steps"], s["success"]) for s in seeds]
      )
      axis.plot(
        grid / 1e3,
        heights.mean(axis=0),
        color=colour,
        marker=marker,
        markevery=7,
        markersize=4,
        linewidth=1.4,
        label=label,
      )
      axis.fill_between(
        grid / 1e3,
        heights.min(axis=0),
        heights.max(axis=0),
        color=colour,
        alpha=0.12,
        linewidth=0,
      )
    axis.set(title=title, xlabel="environment steps (thousands)", ylim=(0, 1))
    axis.grid(alpha=0.3)
  axes[0, 0].set_ylabel("held-out success")
  axes[0, 0].legend(fontsize=7, loc="upper left")
  save(figure, path)


def save(figure, path: pathlib.Path) -> None:
  """Writes `path`.png and `path`.svg and closes the figure."""
  path.parent.mkdir(parents=True, exist_ok=True)
  for suffix in (".png", ".svg"):
    figure.savefig(path.with_suffix(suffix), dpi=150)
  plt.close(figure)
