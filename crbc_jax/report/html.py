"""The report: one HTML file that needs no server and no network.

Texts from a log never meet the HTML parser: the overview is JSON with every
`<` escaped, each group is compressed JSON in base64, and the page's scripts
only ever set text. A policy in the page lets nothing run but those scripts.
"""

import base64
import gzip
import hashlib
import html
import importlib.resources
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crbc_jax.credit.diagnostics import SIZE_BINS
from crbc_jax.credit.hidden_state import HiddenState
from crbc_jax.credit.table_credit import chains_states
from crbc_jax.files import write_text
from crbc_jax.report.report_data import (
  DEFAULT_ESTIMATORS,
  GroupData,
  ReportGroup,
  View,
  make_view,
  report_groups,
)
from crbc_jax.rollouts.table import RolloutError

MAX_BYTES = 5_000_000
"""What a report may weigh before its texts are cut shorter."""

TEXT_LENGTHS = (300, 120, 40)
"""Characters a text may have; the first that fits is taken."""

_SCRIPTS = (
  "data.js",
  "colours.js",
  "overview.js",
  "graph.js",
  "pane.js",
  "strips.js",
  "state.js",
  "app.js",
)
_CURVE = ("env_steps", "success_sampled", "success_greedy")
_LIBRARIES = {"cytoscape": "cytoscape.min.js", "dagre": "dagre.min.js"}


def write_report(
  groups: Iterable[ReportGroup],
  out: str | os.PathLike,
  *,
  estimators: Sequence[str] = DEFAULT_ESTIMATORS,
  title: str = "Step credit",
  notes: Sequence[str] = (),
  curves: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
  """Writes the report of some groups, or nothing at all.

  Args:
    groups: one table each, with the texts to show.
    out: the HTML file.
    estimators: as `parse_estimator` reads them.
    title: of the page.
    notes: sentences below the title.
    curves: name of a training run -> its evaluations, with env_steps,
      success_sampled and success_greedy.

  Returns:
    groups, rollouts, steps, bytes and text_length of the page.

  Raises:
    ValueError: an estimator that cannot be shown, or none.
    RolloutError: a group that cannot be credited, or no group.
  """
  if not estimators:
    raise ValueError("a report needs at least one estimator")
  views = [make_view(text) for text in dict.fromkeys(estimators)]
  data = list(report_groups(groups, views))
  if not data:
    raise RolloutError("no groups; a report needs at least one")
  for text_length in TEXT_LENGTHS:
    page = render(
      data,
      views,
      title=title,
      notes=[*notes, *_warnings(data, views)],
      curves=curves or {},
      text_length=text_length,
    )
    size = len(page.encode())
    if size <= MAX_BYTES:
      break
  write_text(out, page)
  return {
    "groups": len(data),
    "rollouts": sum(group.summary["rollouts"] for group in data),
    "steps": sum(group.summary["steps"] for group in data),
    "bytes": size,
    "text_length": text_length,
  }


def render(
  data: Sequence[GroupData],
  views: Sequence[View],
  *,
  title: str,
  notes: Sequence[str],
  curves: Mapping[str, Sequence[Mapping[str, Any]]],
  text_length: int,
) -> str:
  """The page as text."""
  overview = {
    "title": title,
    "notes": list(notes),
    "views": [
      {"name": v.name, "depths": v.depth_names, "start": v.start} for v in views
    ],
    "bins": SIZE_BINS,
    "groups": [group.summary for group in data],
    "curves": [
      {"name": name, "points": [{k: point[k] for k in _CURVE} for point in run]}
      for name, run in curves.items()
      if run
    ],
  }
  libraries = [_library(*names) for names in _LIBRARIES.items()]
  program = '"use strict";\n' + "\n".join(map(_asset, _SCRIPTS))
  style = _asset("style.css")
  parts = {
    "policy": _policy([*libraries, program], style),
    "title": html.escape(title),
    "style": style,
    "overview": embedded_json(overview),
    "groups": "\n".join(
      f'<script type="text/plain" class="group">{_packed(g, text_length)}'
      "</script>"
      for g in data
    ),
    "libraries": "\n".join(f"<script>{text}</script>" for text in libraries),
    "program": f"<script>{program}</script>",
  }
  # One pass, so that nothing inside a part is taken for a place.
  return re.sub(
    r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html")
  )


def embedded_json(value: Any) -> str:
  """JSON that cannot end, or comment out, the script element it stands in."""
  text = json.dumps(value, ensure_ascii=False, allow_nan=False)
  # Lone surrogates are JSON, but no UTF-8.
  text = text.encode("utf-8", "replace").decode()
  return re.sub(r"[<>&]", lambda c: f"\\u{ord(c[0]):04x}", text)


def cut(text: str, length: int) -> str:
  """A text of at most `length` characters, with … where it was cut."""
  return text if len(text) <= length else text[: length - 1] + "…"


def _packed(group: GroupData, text_length: int) -> str:
  value = {
    **group.numbers,
    "states": [cut(text, text_length) for text in group.states],
    "actions": [cut(text, text_length) for text in group.actions],
  }
  text = json.dumps(value, separators=(",", ":"), allow_nan=False)
  return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _policy(scripts: Sequence[str], style: str) -> str:
  def digest(text):
    raw = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(raw).decode()}'"

  allowed = " ".join(map(digest, scripts))
  return (
    f"default-src 'none'; script-src {allowed}; style-src {digest(style)}; "
    "base-uri 'none'; form-action 'none'"
  )


def _warnings(data: Sequence[GroupData], views: Sequence[View]) -> list[str]:
  found = []
  inexact = [g.summary["id"] for g in data if g.summary["inexact"]]
  if inexact:
    found.append(
      f"The values of {len(inexact)} group(s) miss their equation by more than "
      f"rounding; the first is {inexact[0]}. A smaller beta solves better."
    )
  evidence = sum((group.evidence for group in data), HiddenState())
  hidden = evidence.warning()
  if hidden and any(chains_states(view.name) for view in views):
    found.append(f"Warning: {hidden}.")
  return found


def _library(name: str, file: str) -> str:
  return f"/*!\n{_asset(f'LICENSE.{name}')}*/\n{_asset(file)}"


def _asset(name: str) -> str:
  folder = importlib.resources.files("crbc_jax.report") / "assets"
  return (folder / name).read_text(encoding="utf-8")
