"""HGPO: numbers worked by hand, degenerate groups, GiGPO as a special case."""

import numpy as np
import pytest

from crbc_jax.credit.estimators.gigpo import gigpo
from crbc_jax.credit.estimators.hgpo import hgpo
from tests import groups as groups_lib
from tests import kernels
from tests.groups import rollout
from tests.oracle import Rollout, Step

# The golden group, gamma .95: returns 9.5 and 10 on the two successes, else 0.
# Last 1 state:  s0 [9.5 0 9.5 0 0], s1 [10 0], s2 [0 10 0 0]
# Last 2:  start-s0 [9.5 0 9.5 0], s0-s1 [10 0], s0-s2 [10 0 0]; alone: s1-s2
#          of the second rollout and s2-s0 of the fourth
# Last 3:  as before, but s0-s2 keeps [10 0] and s2-s0-s2 is alone
LEVELS = np.array(
  [
    [
      *(1.224745, 1, -0.816497, -1, -0.577350, 1.224745),
      *(1.732051, -0.816497, -0.577350, -0.816497, -0.577350),
    ],
    [1, 1, -1, -1, 0, 1, 1.414214, -1, -0.707107, 0, -0.707107],
    [1, 1, -1, -1, 0, 1, 1, -1, -1, 0, 0],
  ]
)


SPACED = [(a, d) for a in (1, 3, 7, 11) for d in (2, 5, 7, 13)]


def golden(**options):
  return kernels.credit(hgpo, [groups_lib.golden()], **options)


@pytest.mark.parametrize("history", [0, 1, 2])
def test_golden_paper_weights(history):
  got = golden(history=history)
  weight = np.arange(1, history + 2)
  want = weight @ LEVELS[: history + 1] / weight.sum()
  np.testing.assert_allclose(got["step"], want, atol=2e-6)
  np.testing.assert_array_equal(got["advantage"], got["step"])
  assert not got["trajectory"].any()


def test_golden_paper_weights_as_numbers():
  np.testing.assert_allclose(
    golden()["step"],
    [
      *(1.037457, 1, -0.969416, -1, -0.096225, 1.037457),
      *(1.260080, -0.969416, -0.831927, -0.136083, -0.331927),
    ],
    atol=2e-6,
  )


def test_golden_code_weights_leave_zero_levels_out():
  np.testing.assert_allclose(
    golden(weights="code")["step"],
    [
      *(1.049943, 1, -0.959221, -1, -0.577350, 1.049943),
      *(1.300749, -0.959221, -0.808447, -0.816497, -0.655204),
    ],
    atol=2e-6,
  )


def test_golden_powers_that_overflow_leave_the_last_level():
  np.testing.assert_allclose(golden(alpha=900.0)["step"], LEVELS[2], atol=2e-6)
  got = golden(alpha=900.0, weights="code")["step"]  # the last that is not 0
  np.testing.assert_allclose(
    got[[0, 4, 10]], [1, -0.57735, -0.707107], atol=2e-6
  )


def test_golden_equal_levels_and_weights_of_the_terms():
  got = golden(alpha=0.0, trajectory="grpo", w_group=2.0, w_step=3.0)
  np.testing.assert_allclose(got["step"], LEVELS.mean(0), atol=2e-6)
  np.testing.assert_allclose(
    got["trajectory"],
    np.repeat([0.866024, -0.866024] * 2, [2, 3, 2, 4]),
    atol=1e-6,
  )
  np.testing.assert_allclose(
    got["advantage"], 2 * got["trajectory"] + 3 * got["step"], atol=1e-6
  )


def test_golden_values_and_live_rows():
  got = golden()
  np.testing.assert_allclose(
    got["q"], [9.5, 10, 0, 0, 0, 9.5, 10, 0, 0, 0, 0], atol=1e-6
  )
  np.testing.assert_allclose(
    got["v"], [3.8, 5, 3.8, 5, 2.5, 3.8, 2.5, 3.8, 2.5, 3.8, 2.5], atol=1e-6
  )
  assert got["live"].all()


@pytest.mark.parametrize("weights", ["paper", "code"])
@pytest.mark.parametrize("norm", ["mean_std", "mean"])
def test_without_history_it_is_the_step_term_of_gigpo(norm, weights):
  groups = groups_lib.random_groups(16, 3, missing=(0, 0.2), max_rollouts=6)
  table = groups_lib.table_of(
    [[Rollout(r.steps[:6], *r[1:]) for r in g] for g in groups]
  )
  want = kernels.credit(gigpo, table, norm=norm, eps=0.0)
  got = kernels.credit(
    hgpo, table, history=0, norm=norm, weights=weights, eps=0.0
  )
  factor = np.ones(len(table))
  if norm == "mean_std":
    anchors = [
      (g, k if k is not None else i)
      for i, (g, k) in enumerate(
        zip(table.group_id, table.state_key, strict=True)
      )
    ]
    n = np.array([anchors.count(x) for x in anchors])
    factor = np.sqrt(n / np.maximum(n - 1, 1))
  np.testing.assert_allclose(got["step"], want["step"] * factor, atol=2e-4)
  assert np.abs(got["step"]).max() > 1
  for field in ("q", "v", "live"):
    np.testing.assert_array_equal(got[field], want[field])


def test_a_return_at_the_mean_is_no_evidence_for_the_code():
  """Three evenly spaced returns: the middle one is 0 up to rounding."""
  middle = [(a / 30, (a + d) / 30, (a + 2 * d) / 30) for a, d in SPACED]
  groups = [
    [Rollout((Step("u", "a"), Step("s", "a", reward=r)), "failure") for r in rs]
    + [Rollout((Step("s", "a", reward=-1),), "failure")]
    for rs in middle
  ]
  options = {"signal": "observed", "history": 1, "norm": "mean", "gamma": 1.0}
  # Second row of each second rollout: level 0 alone, against all four.
  level0 = np.array([m - (3 * m - 1) / 4 for _, m, _ in middle])
  rows = 7 * np.arange(len(middle)) + 3
  got = kernels.credit(hgpo, groups, weights="code", **options)["step"][rows]
  np.testing.assert_allclose(got, level0, atol=1e-6)
  got = kernels.credit(hgpo, groups, **options)["step"][rows]
  np.testing.assert_allclose(got, level0 / 3, atol=1e-6)


def test_rows_of_unequal_history_do_not_meet():
  """Both rows see (s0, s1), but one has a step before: apart at level 2."""
  group = [
    rollout("s0 a s1 a", "success"),
    rollout("s9 a s0 a s1 a", "failure"),
    rollout("s9 b s0 b s1 b", "success"),
  ]
  got = kernels.credit(hgpo, [group], alpha=0.0, norm="mean", gamma=1.0)
  third = 10 / 3
  # s1 rows: [10 0 10] at levels 0 and 1; [10], [0 10] at level 2.
  np.testing.assert_allclose(
    got["step"][[1, 4, 7]],
    [
      (third + third + 0) / 3,
      (-2 * third - 2 * third - 5) / 3,
      (third + third + 5) / 3,
    ],
    atol=2e-6,
  )


@pytest.mark.parametrize("weights", ["paper", "code"])
def test_degenerate_groups_get_exactly_zero(weights):
  groups = [
    [rollout("s0 a s1 b", "success")],  # one rollout
    [rollout("s0 a s1 a", "failure"), rollout("s0 b s0 b s1 a", "truncated")],
    [rollout("s0 a s1 b", "success"), rollout("s0 b s1 a", "success")],
    [rollout("s0 a", "success"), rollout("s1 a", "failure")],  # alone
    [
      Rollout((Step(None, "a"),), "success"),  # missing states never meet
      Rollout((Step(None, "a"),), "failure"),
    ],
  ]
  got = kernels.credit(hgpo, groups, weights=weights)
  assert not got["step"].any()
  np.testing.assert_array_equal(
    got["live"], [0] * 2 + [1] * 5 + [1] * 4 + [0] * 4
  )


def test_one_step_episodes_and_faster_successes():
  groups = [
    [rollout("s a", "success"), rollout("s b", "failure")],
    [rollout("s a", "success"), rollout("s b t a", "success")],
  ]
  got = kernels.credit(hgpo, groups)
  np.testing.assert_allclose(got["step"], [1, -1, 1, -1, 0], atol=1e-5)


def test_invalid_actions_pay_the_penalty():
  group = [
    Rollout((Step("s", "a"),), "failure"),
    Rollout((Step("s", "<invalid>", valid=False),), "failure"),
  ]
  got = kernels.credit(hgpo, [group], norm="mean", invalid_penalty=0.5)
  np.testing.assert_allclose(got["step"], [0.25, -0.25], atol=1e-6)
  np.testing.assert_allclose(got["q"], [0, -0.5])


CASES = [
  {},
  {"weights": "code", "history": 4, "trajectory": "rloo"},
  {"signal": "observed", "norm": "mean", "weights": "code"},
  {"signal": "observed", "trajectory": "grpo"},
]


@pytest.mark.parametrize("options", CASES)
def test_padding_does_not_matter(options):
  kernels.check_padding(hgpo, kernels.mixed_batch(), **options)


@pytest.mark.parametrize("options", CASES[2:])
def test_gradients_by_reward(options):
  kernels.check_gradients(hgpo, kernels.mixed_batch(), **options)


def test_memory_is_linear_in_the_rows():
  kernels.check_linear_memory(hgpo, history=4)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"history": -1}, "history must be an integer >= 0, got -1"),
    ({"history": 1.5}, "history must be an integer >= 0"),
    ({"gamma": 0.0}, r"gamma must be in \(0, 1\]"),
    ({"alpha": -1.0}, "alpha must be >= 0"),
    ({"alpha": float("inf")}, "alpha must be >= 0"),
    ({"weights": "both"}, "weights must be one of paper, code"),
    ({"norm": "std"}, "norm must be one of"),
    ({"trajectory": "ppo"}, "trajectory term must be one of"),
    ({"signal": "reward"}, "signal must be one of"),
  ],
)
def test_options_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    golden(**options)
