"""Figures, the same colour and marker for one estimator everywhere."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

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
  "CRBC anchored": ("#332288", "<"),
  "GraphHCA": ("#882255", ">"),
  "G2PO": ("#AA7744", "h"),
  "PPO + GAE": ("#44AA99", "*"),
}

# Of quantities of one estimator, CRBC: its own colour first, then greys.
_QUANTITIES = (("#0072B2", "o"), ("#000000", "s"), ("#888888", "^"))


def learning_curves(
  panels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
  path: pathlib.Path,
) -> None:
  """Mean held-out success over seeds, with the range of seeds shaded.

  Args:
    panels: title -> estimator -> one {"env_steps", "success"} per seed.
    path: without suffix; writes .png and .svg.
  """
  figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
  axes = figure.subplots(1, len(panels), squeeze=False)
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


def against_depth(
  panels: Mapping[str, tuple[Sequence[Any], Mapping[str, float]]],
  path: pathlib.Path,
  *,
  depths: Sequence[float],
  rows: int,
  ylabel: str,
) -> None:
  """A quantity of CRBC against depth, other estimators as dashed lines.

  Args:
    panels: title -> ((mean, low, high) at each depth, estimator -> value).
    path: without suffix; writes .png and .svg.
    depths: in the order of the values; inf is the closure.
    rows: rows of panels.
    ylabel: what is shown, in [0, 1].
  """
  columns = -(-len(panels) // rows)
  figure = Figure(
    figsize=(1.2 + 3.1 * columns, 2.8 * rows), layout="constrained"
  )
  axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
  place = np.arange(len(depths))
  colour = STYLES["CRBC exact"][0]
  for axis, (title, (levels, others)) in zip(
    axes.reshape(-1), panels.items(), strict=True
  ):
    mean, low, high = np.array(levels).T
    axis.fill_between(place, low, high, color=colour, alpha=0.2, lw=0)
    axis.plot(place, mean, "o-", color=colour, label="CRBC")
    for label, value in others.items():
      axis.plot(
        place,
        np.full(len(place), value),
        color=STYLES[label][0],
        marker=STYLES[label][1],
        markersize=4,
        ls="--",
        lw=1,
        label=label,
      )
    axis.set_title(title, fontsize=9)
    axis.set_xticks(place, [f"{d:g}".replace("inf", "∞") for d in depths])
    axis.set_ylim(0, 1)
    axis.grid(axis="y", lw=0.4)
  figure.supxlabel("depth of the closure", fontsize=10)
  figure.supylabel(ylabel, fontsize=10)
  handles, labels = axes[0, 0].get_legend_handles_labels()
  figure.legend(
    handles,
    labels,
    loc="outside upper center",
    ncols=min(len(labels), 3 * columns),
    frameon=False,
  )
  save(figure, path)


def depth_panels(
  panels: Mapping[str, Mapping[str, Sequence[Any] | None]],
  path: pathlib.Path,
  *,
  depths: Sequence[float],
  columns: int = 4,
  log: bool = False,
) -> None:
  """Small panels of quantities against depth, one scale for all.

  Args:
    panels: title -> name -> values at each depth: numbers, or (mean, low, high)
      with the interval shaded; None is left out.
    path: without suffix; writes .png and .svg.
    depths: in the order of the values; inf is the closure.
    columns: of panels.
    log: logarithmic scale, zeros left out; else from 0 to 1.
  """
  rows = -(-len(panels) // columns)
  figure = Figure(
    figsize=(2.6 * columns, 2.2 * rows + 0.6), layout="constrained"
  )
  axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
  place = np.arange(len(depths))
  names = list(dict.fromkeys(n for panel in panels.values() for n in panel))
  looks = dict(zip(names, _QUANTITIES, strict=False))
  handles: dict[str, Any] = {}
  for place_left, axis in enumerate(axes.flat):
    if place_left >= len(panels):
      axis.remove()
    elif place_left + columns >= len(panels):  # the lowest of its column
      axis.tick_params(labelbottom=True)
  for axis, (title, panel) in zip(
    axes.reshape(-1), panels.items(), strict=False
  ):
    for name, values in panel.items():
      if values is None:
        continue
      colour, marker = looks[name]
      points = np.array(
        [(np.nan,) * 3 if v is None else np.broadcast_to(v, 3) for v in values],
        float,
      )
      if log:
        points[points <= 0] = np.nan
      axis.fill_between(
        place, points[:, 1], points[:, 2], color=colour, alpha=0.2, lw=0
      )
      (handles[name],) = axis.plot(
        place, points[:, 0], marker=marker, color=colour, ms=4, lw=1.2
      )
    axis.set_title(title, fontsize=9)
    axis.set_xticks(place, [f"{d:g}".replace("inf", "∞") for d in depths])
    if log:
      axis.set_yscale("log")
    else:
      axis.set_ylim(0, 1.02)
    axis.grid(axis="y", lw=0.4)
  figure.supxlabel("depth of the closure", fontsize=10)
  figure.legend(
    handles.values(),
    handles.keys(),
    loc="outside upper center",
    ncols=len(handles),
    frameon=False,
  )
  save(figure, path)


def factors(
  panels: Mapping[str, Mapping[str, Sequence[float]]],
  path: pathlib.Path,
  *,
  xlabel: str,
  columns: int = 3,
) -> None:
  """One point with its interval for each setting of each factor.

  Args:
    panels: factor -> setting -> (mean, low, high).
    path: without suffix; writes .png and .svg.
    xlabel: what is shown.
    columns: of panels.
  """
  rows = -(-len(panels) // columns)
  figure = Figure(figsize=(4.2 * columns, 2.5 * rows), layout="constrained")
  axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
  for axis in axes.reshape(-1)[len(panels) :]:
    axis.remove()
  colour = STYLES["CRBC exact"][0]
  for axis, (title, settings) in zip(
    axes.reshape(-1), panels.items(), strict=False
  ):
    mean, low, high = np.array(list(settings.values())).T
    place = np.arange(len(settings))[::-1]
    axis.hlines(place, low, high, color=colour, lw=2)
    axis.plot(mean, place, "o", color=colour)
    axis.set_yticks(place, list(settings), fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.grid(axis="x", lw=0.4)
  figure.supxlabel(xlabel, fontsize=10)
  save(figure, path)


def profiles(
  shares: Mapping[str, Sequence[Sequence[float]]],
  path: pathlib.Path,
  *,
  levels: Sequence[float],
  xlabel: str,
) -> None:
  """Performance profiles: the share of runs above each level.

  Args:
    shares: estimator -> (share, low, high) at each level.
    path: without suffix; writes .png and .svg.
    levels: of the score.
    xlabel: what the score is.
  """
  figure = Figure(figsize=(6.4, 3.8), layout="constrained")
  axis = figure.subplots()
  for label, points in shares.items():
    colour, marker = STYLES.get(label, ("#444444", "."))
    share, low, high = np.array(points).T
    axis.plot(
      levels, share, color=colour, marker=marker, ms=4, lw=1.4, label=label
    )
    axis.fill_between(levels, low, high, color=colour, alpha=0.12, lw=0)
  axis.set(xlabel=xlabel, ylabel="share of runs above", ylim=(0, 1.02))
  axis.grid(alpha=0.3)
  axis.legend(fontsize=7)
  save(figure, path)


def save(figure: Figure, path: pathlib.Path) -> None:
  """Writes `path`.png and `path`.svg; the same figure gives the same bytes."""
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path.with_suffix(".png"), dpi=150)
  with matplotlib.rc_context({"svg.hashsalt": path.name}):
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
