"""Any step term beside any trajectory term, by the option `trajectory`."""

import functools

import jax
import numpy as np
import pytest

from crbc_jax.credit import combine, registry
from crbc_jax.rollouts.batching import BatchShape, make_batch
from tests import groups as groups_lib

SHAPE = BatchShape(16, 64, 32, 32, 8, 64, 8)  # a small solve compiles fast
NAMES = sorted(
  n
  for n in registry.ESTIMATORS
  if "trajectory" in registry.estimator_options(n)
)
# Names of the weights of the two terms; None where the step term has none.
WEIGHTS = {
  "g2po": ("episode_weight", None),
  "gae": ("w_group", None),
  "gigpo": (None, "step_weight"),
  "graphgpo": ("episode_weight", "graph_weight"),
  "mica": ("w_group", None),
}
W_GROUP, W_STEP = 0.5, 2.0


@functools.cache
def batch():
  """Random groups, one of a single rollout and one of equal outcomes."""
  groups = groups_lib.random_groups(
    10, 71, missing=(0, 0.2), dyadic=True, max_rollouts=6, max_steps=6
  )
  groups += [groups[0][:1], [r._replace(end="success") for r in groups[1]]]
  table = groups_lib.table_of(groups)
  made = make_batch(table, SHAPE)
  assert made.shape == SHAPE
  return len(table), made


@functools.cache
def rows(name, kinds=(None,), options=()):
  """Credit by row for each trajectory kind, all in one program."""
  size, arrays = batch()
  estimators = {
    kind: registry.make_estimator(
      name, **dict(options), **({"trajectory": kind} if kind else {})
    )
    for kind in kinds
  }

  def of_group(group):
    return {kind: f(group) for kind, f in estimators.items()}

  batched = jax.jit(jax.vmap(of_group, axis_name=combine.BATCH_AXIS))
  return {
    kind: {f: arrays.to_rows(getattr(got, f), size) for f in groups_lib.FIELDS}
    for kind, got in batched(arrays.arrays).items()
  }


def term_of(kind, signal, singleton):
  if kind == "none":
    return np.zeros(batch()[0], np.float32)
  options = [("signal", signal)]
  if "singleton" in registry.estimator_options(kind):
    options.append(("singleton", singleton))
  return rows(kind, options=tuple(options))[None]["advantage"]


@pytest.mark.parametrize("kind", combine.TRAJECTORY_TERMS)
@pytest.mark.parametrize("name", groups_lib.core_first(NAMES))
def test_every_trajectory_term_beside_every_step_term(name, kind):
  defaults = registry.estimator_options(name)
  # Rewards under MICA; the raw singletons of GiGPO's relatives are kept.
  signal = defaults.get("signal", "observed" if name == "mica" else "outcome")
  singleton = defaults.get("singleton", "zero")
  if singleton not in combine.SINGLETONS:  # that of a step term
    singleton = "zero"
  group_weight, step_weight = WEIGHTS.get(name, ("w_group", "w_step"))
  weights = [(group_weight, W_GROUP), (step_weight, W_STEP)]
  credit = rows(
    name,
    (*combine.TRAJECTORY_TERMS, defaults["trajectory"]),
    tuple((option, w) for option, w in weights if option),
  )
  got, plain = credit[kind], credit[defaults["trajectory"]]
  np.testing.assert_array_equal(
    got["trajectory"], term_of(kind, signal, singleton)
  )
  if name != "salt":  # whose step term is made of the trajectory term
    for field in ("step", "q", "v", "live"):
      np.testing.assert_array_equal(got[field], plain[field], err_msg=field)
    assert got["step"].any()
  np.testing.assert_allclose(
    got["advantage"],
    (W_GROUP if group_weight else 1.0) * got["trajectory"]
    + (W_STEP if step_weight else 1.0) * got["step"],
    rtol=1e-6,
    atol=1e-6,
  )
  assert got["trajectory"].any() == (kind != "none")
