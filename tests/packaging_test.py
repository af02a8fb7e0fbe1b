"""What an installed crbc_jax must carry, editable or as a wheel."""

import importlib.metadata
import pathlib

import crbc_jax

_METADATA = importlib.metadata.metadata("crbc_jax")


def test_version_is_the_same_in_the_module_and_its_metadata():
  assert crbc_jax.__version__ == _METADATA["Version"]


def test_licence_travels_with_the_package():
  assert _METADATA["License-Expression"] == "Apache-2.0"
  assert "LICENSE" in _METADATA.get_all("License-File")


def test_package_is_typed():
  assert (pathlib.Path(crbc_jax.__file__).parent / "py.typed").exists()


def test_console_script_is_declared():
  (script,) = importlib.metadata.entry_points(
    group="console_scripts", name="crbc"
  )
  assert script.value == "crbc_jax.cli:main"
