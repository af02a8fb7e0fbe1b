"""Settings shared by all tests."""

import gc
import os
import pathlib

# Before jax is imported; JAX_PLATFORMS=cuda in the environment wins.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("CRBC_CACHE", "off")  # compilations are counted

import hypothesis
import jax
import pytest

# A silent [N] + [N, M] broadcast is a bug more often than a wish.
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile(
  "ci", deadline=None, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("ci")

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_of_the_module():
  """Drops them after each module.

  A program keeps some fifty memory maps; Linux allows 65,530 in a process, and
  a worker that runs half of these tests would crash there.
  """
  yield
  jax.clear_caches()
  gc.collect()


@pytest.fixture(scope="session")
def real_data() -> pathlib.Path:
  """The folder of public rollout logs, or a skip where there is none."""
  path = pathlib.Path(
    os.environ.get("CRBC_REAL_DATA") or _CHECKOUT.parent / "shared" / "data"
  )
  if not path.is_dir():
    pytest.skip(f"no rollout logs at {path}; set CRBC_REAL_DATA")
  return path
