"""Checks, runs and normalises the notebooks of this folder.

  python -m colab.notebooks            # says what is wrong with them
  python -m colab.notebooks --execute  # runs them and keeps one figure each

A notebook in git holds no execution counts, no metadata but the kernel's name,
and no output but one small PNG.
"""

import argparse
import base64
import json
import pathlib
import re
import tempfile
from typing import Any

FOLDER = pathlib.Path(__file__).parent
MOST_BYTES = 150_000  # of the figure

METADATA = {
  "colab": {"provenance": []},
  "kernelspec": {"display_name": "Python 3", "name": "python3"},
  "language_info": {"name": "python"},
}
_PARAMETER = re.compile(r"^(\w+) = (.+?)(  # @param.*)$", re.M)

Notebook = dict[str, Any]


def paths() -> list[pathlib.Path]:
  """All notebooks."""
  return sorted(FOLDER.glob("*.ipynb"))


def read(path: pathlib.Path) -> Notebook:
  """A notebook as JSON."""
  return json.loads(path.read_text(encoding="utf-8"))


def source(cell: Notebook) -> str:
  """The text of a cell."""
  return "".join(cell["source"])


def with_parameters(notebook: Notebook, values: dict[str, Any]) -> Notebook:
  """A copy whose form fields (`name = value  # @param`) have other values.

  Raises:
    ValueError: no field of such a name.
  """
  made = json.loads(json.dumps(notebook))
  left = set(values)
  for cell in made["cells"]:
    if cell["cell_type"] != "code":
      continue

    def replaced(field):
      if field[1] not in values:
        return field[0]
      left.discard(field[1])
      return f"{field[1]} = {values[field[1]]!r}{field[3]}"

    text = _PARAMETER.sub(replaced, source(cell))
    cell["source"] = text.splitlines(keepends=True)
  if left:
    raise ValueError(f"no form field named {', '.join(sorted(left))}")
  return made


def figures(notebook: Notebook) -> list[bytes]:
  """The PNGs among the outputs."""
  return [
    base64.b64decode("".join(output["data"]["image/png"]))
    for cell in notebook["cells"]
    for output in cell.get("outputs", ())
    if "image/png" in output.get("data", {})
  ]


def problems(notebook: Notebook) -> list[str]:
  """What keeps a notebook out of git, in words."""
  found = []
  if notebook["metadata"] != METADATA:
    found.append("metadata other than the kernel's")
  if (notebook["nbformat"], notebook["nbformat_minor"]) != (4, 4):
    found.append("another format than 4.4")
  outputs = []
  for number, cell in enumerate(notebook["cells"]):
    if cell["metadata"] or "id" in cell:
      found.append(f"cell {number}: metadata")
    if cell.get("execution_count") is not None:
      found.append(f"cell {number}: an execution count")
    outputs += cell.get("outputs", [])
  pictures = figures(notebook)
  if len(outputs) != 1 or len(pictures) != 1:
    found.append(f"{len(outputs)} outputs; keep one figure")
  elif set(outputs[0]["data"]) != {"image/png"}:
    found.append("an output with more than a PNG")
  if any(len(picture) > MOST_BYTES for picture in pictures):
    found.append(f"a figure of more than {MOST_BYTES:,} bytes")
  return found


def normalised(notebook: Notebook) -> Notebook:
  """A copy with its first figure and nothing else that a run leaves."""
  kept = False
  cells = []
  for cell in notebook["cells"]:
    made = {"cell_type": cell["cell_type"], "metadata": {}}
    if cell["cell_type"] == "code":
      made |= {"execution_count": None, "outputs": []}
      for output in cell["outputs"]:
        if "image/png" in output.get("data", {}) and not kept:
          kept = True
          png = "".join(output["data"]["image/png"]).strip()
          made["outputs"] = [
            {
              "data": {"image/png": png},
              "metadata": {},
              "output_type": "display_data",
            }
          ]
    made["source"] = source(cell).splitlines(keepends=True)
    cells.append(dict(sorted(made.items())))
  return {
    "cells": cells,
    "metadata": METADATA,
    "nbformat": 4,
    "nbformat_minor": 4,
  }


def write(path: pathlib.Path, notebook: Notebook) -> None:
  """Writes a notebook as git keeps it."""
  text = json.dumps(notebook, indent=1, ensure_ascii=False)
  path.write_text(text + "\n", encoding="utf-8")


def execute(notebook: Notebook, folder: pathlib.Path) -> Notebook:
  """Runs all cells in a fresh kernel whose folder is `folder`.

  Raises:
    CellExecutionError: a cell that fails, with its traceback.
  """
  import nbformat
  from nbclient import NotebookClient

  made = nbformat.reads(json.dumps(notebook), as_version=4)
  NotebookClient(
    made,
    timeout=600,
    kernel_name="python3",
    resources={"metadata": {"path": str(folder)}},
  ).execute()
  return json.loads(nbformat.writes(made))


def main(argv: list[str] | None = None) -> int:
  """Returns 1 if a notebook is not as it should be."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("notebooks", nargs="*", type=pathlib.Path)
  parser.add_argument("--execute", action="store_true")
  options = parser.parse_args(argv)
  failed = False
  for path in options.notebooks or paths():
    if options.execute:
      with tempfile.TemporaryDirectory() as folder:
        write(path, normalised(execute(read(path), pathlib.Path(folder))))
    for problem in problems(read(path)):
      failed = True
      print(f"{path.name}: {problem}")
  return int(failed)


if __name__ == "__main__":
  raise SystemExit(main())
