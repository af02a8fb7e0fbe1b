"""A run's records: metrics.jsonl, TensorBoard, JSON files, the curve."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from crbc_jax.files import write_text

METRICS = "metrics.jsonl"


class Records:
  """Appends metrics of one run to JSONL and TensorBoard.

  On resume, lines after the checkpoint (and a last line cut short by a kill)
  are dropped, so the file ends as if nothing had happened.
  """

  def __init__(
    self, folder: pathlib.Path, *, after_update: int, tensorboard: bool
  ):
    self._path = folder / METRICS
    kept = [r for r in read_metrics(folder) if r["update"] <= after_update]
    write_text(self._path, "".join(json.dumps(r) + "\n" for r in kept))
    self._file = self._path.open("a", encoding="utf-8")
    self._writer = None
    if tensorboard:
      import tensorboardX  # two seconds to import: only where wanted

      self._writer = tensorboardX.SummaryWriter(
        str(folder / "tensorboard"),
        # TensorBoard hides what an earlier process wrote from there on.
        purge_step=kept[-1]["env_steps"] + 1 if kept else 0,
      )

  def __enter__(self) -> "Records":
    return self

  def __exit__(self, *_) -> None:
    self._file.close()
    if self._writer:
      self._writer.close()

  def write(
    self, kind: str, *, update: int, env_steps: int, metrics: dict[str, float]
  ) -> None:
    """One line; `kind` is "train" or "eval"."""
    record = {"kind": kind, "update": update, "env_steps": env_steps, **metrics}
    self._file.write(json.dumps(record) + "\n")
    self._file.flush()
    if self._writer:
      for name, value in metrics.items():
        self._writer.add_scalar(f"{kind}/{name}", value, env_steps)


def read_metrics(
  folder: pathlib.Path, kind: str | None = None
) -> list[dict[str, Any]]:
  """Records of a run in order; a last line cut short is left out."""
  return [
    r
    for r in _lines(pathlib.Path(folder) / METRICS)
    if kind is None or r["kind"] == kind
  ]


def write_json(path: pathlib.Path, value: Any) -> None:
  """Writes readable JSON atomically."""
  write_text(path, json.dumps(value, indent=2) + "\n")


def _lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  if not path.exists():
    return
  with path.open(encoding="utf-8") as file:
    for line in file:
      if line.endswith("\n"):
        yield json.loads(line)
