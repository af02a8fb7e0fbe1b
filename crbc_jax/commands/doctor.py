"""`crbc doctor`: is everything here that crbc_jax needs, and is it precise?"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Callable, Iterator

import jax
import rich.console
import rich.table
from packaging.requirements import Requirement
from rich.text import Text

import crbc_jax
from crbc_jax.credit import precision
from crbc_jax.learner import config

EXAMPLES = """\
examples:
  crbc doctor
  crbc doctor --json

exit status: 0 if all that is required is fine, else 1
"""

_PACKAGE = "crbc_jax"


@dataclasses.dataclass(frozen=True)
class Finding:
  """One thing that was looked at."""

  section: str
  name: str
  found: str
  ok: bool
  required: bool
  remedy: str = ""  # what to do where it isn't fine


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """What this command takes."""
  parser.add_argument(
    "--json", action="store_true", help="print JSON instead of a table"
  )


def run(args: argparse.Namespace) -> int:
  """Prints what was found; returns 0 if all that is required is fine."""
  found = [finding for look in LOOKS for finding in look()]
  healthy = all(finding.ok for finding in found if finding.required)
  if args.json:
    listed = [dataclasses.asdict(finding) for finding in found]
    print(json.dumps({"ok": healthy, "findings": listed}, indent=2))
  else:
    console = rich.console.Console(highlight=False)
    console.print(_view(found))
    console.print(
      "All that is required is fine."
      if healthy
      else "Something required is missing or wrong: see above."
    )
  return 0 if healthy else 1


def find_versions() -> Iterator[Finding]:
  """Python, this package and what it cannot do without."""
  yield Finding("versions", "python", platform.python_version(), True, True)
  yield Finding("versions", _PACKAGE, crbc_jax.__version__, True, True)
  try:
    required = importlib.metadata.requires(_PACKAGE) or []
  except importlib.metadata.PackageNotFoundError:
    yield Finding(
      "versions",
      "requirements",
      "not known: running from a folder, not installed",
      ok=False,
      required=False,
      remedy="pip install -e . in that folder",
    )
    return
  for requirement in map(Requirement, required):
    if _applies(requirement, extra=""):
      yield _package("versions", requirement, f"pip install '{requirement}'")


def find_extras() -> Iterator[Finding]:
  """Packages that some commands use where they are installed."""
  try:
    metadata = importlib.metadata.metadata(_PACKAGE)
  except importlib.metadata.PackageNotFoundError:
    return
  for extra in metadata.get_all("Provides-Extra") or []:
    for requirement in map(
      Requirement, importlib.metadata.requires(_PACKAGE) or []
    ):
      if (
        requirement.name != _PACKAGE
        and _applies(requirement, extra=extra)
        and not _applies(requirement, extra="")
      ):
        yield _package(
          f"extra {extra}",
          requirement,
          f"pip install '{_PACKAGE}[{extra}]'",
          required=False,
        )


def find_devices() -> Iterator[Finding]:
  """What JAX computes on."""
  try:
    devices = jax.devices()
  except RuntimeError as error:
    yield Finding(
      "devices",
      "jax",
      str(error).splitlines()[0],
      ok=False,
      required=True,
      remedy="set JAX_PLATFORMS=cpu, or install JAX for your accelerator",
    )
    return
  for device in devices:
    name = f"{device.platform}:{device.id}"
    yield Finding("devices", name, device.device_kind, True, True)


def find_precision() -> Iterator[Finding]:
  """The closure on the default device against float64."""
  try:
    measured = precision.measure_precision()
  except RuntimeError as error:
    yield Finding(
      "precision",
      "closure",
      str(error).splitlines()[0],
      ok=False,
      required=True,
      remedy="the device cannot run it: set JAX_PLATFORMS=cpu",
    )
    return
  for setting in precision.MATMUL_PRECISIONS:
    some = [m for m in measured if m.matmul_precision == setting]
    v = max(some, key=lambda m: m.v_error)
    gap = max(some, key=lambda m: m.gap_error)
    yield Finding(
      "precision",
      f"closure, matmul {setting}",
      f"V {v.v_error:.1e} of its size ({v.group}), Q - V {gap.gap_error:.1e}"
      f" ({gap.group}); at most {precision.V_LIMIT:g} and"
      f" {precision.GAP_LIMIT:g}",
      ok=all(m.ok for m in some),
      required=True,
      remedy="set JAX_PLATFORMS=cpu, and please report the device",
    )


def find_data() -> Iterator[Finding]:
  """Logs that tests and experiments read, and levels made before."""
  logs = pathlib.Path(os.environ.get("CRBC_REAL_DATA") or "../shared/data")
  yield _folder(
    "rollout logs", logs, "set CRBC_REAL_DATA (for experiments and tests only)"
  )
  levels = pathlib.Path(config.get_config().generator.folder)
  yield _folder("levels", levels, "none needed: `crbc train` makes them")


LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
  find_versions,
  find_devices,
  find_precision,
  find_extras,
  find_data,
)


def _applies(requirement: Requirement, *, extra: str) -> bool:
  marker = requirement.marker
  return marker is None or marker.evaluate({"extra": extra})


def _package(
  section: str, requirement: Requirement, remedy: str, *, required: bool = True
) -> Finding:
  wanted = requirement.specifier
  try:
    version = importlib.metadata.version(requirement.name)
  except importlib.metadata.PackageNotFoundError:
    return Finding(
      section, requirement.name, "not installed", False, required, remedy
    )
  ok = wanted.contains(version, prereleases=True)
  found = version if ok else f"{version}, but {wanted} is needed"
  return Finding(section, requirement.name, found, ok, required, remedy)


def _folder(name: str, path: pathlib.Path, remedy: str) -> Finding:
  if not path.is_dir():
    return Finding(
      "data", name, f"no folder {path.absolute()}", False, False, remedy
    )
  inside = sorted(p.name for p in path.iterdir() if p.is_dir())
  found = f"{path.resolve()}: {', '.join(inside) or 'empty'}"
  return Finding("data", name, found, True, False)


def _view(found: list[Finding]) -> rich.table.Table:
  table = rich.table.Table(box=None, show_header=False, pad_edge=False)
  for _ in range(2):
    table.add_column(no_wrap=True)
  table.add_column(no_wrap=True)
  table.add_column(overflow="fold")
  section = ""
  for finding in found:
    mark, style = (
      ("ok", "green")
      if finding.ok
      else ("MISSING", "bold red")
      if finding.required
      else ("-", "yellow")
    )
    said = Text(finding.found)
    if not finding.ok:
      said.append(f" ({finding.remedy})", style="dim")
    table.add_row(
      Text("" if finding.section == section else finding.section, "bold"),
      finding.name,
      Text(mark, style),
      said,
    )
    section = finding.section
  return table
