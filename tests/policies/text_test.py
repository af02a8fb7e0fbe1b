"""The text policy: tokens, memory, and what the network may depend on."""

import jax
import numpy as np
import pytest

from crbc_jax.envs.text import TextStep
from crbc_jax.policies import text as policy

SIZES = policy.TextSizes(vocabulary=64, observation=8, goal=4, command=3)


def test_tokens_are_words_and_numbers_and_never_padding():
  tokens = policy.tokenize("Take Mug 12, from shelf-1!", 4_096)
  assert len(tokens) == 6 and min(tokens) > 0
  assert tokens == policy.tokenize("take mug 12 from shelf 1", 4_096)
  assert tokens[2] != tokens[5]  # 12 and 1
  assert policy.tokenize("…", 4_096) == []


def test_a_table_numbers_texts_as_they_come_and_cuts_them():
  table = policy.TokenTable(4_096, 3)
  assert [table.number(t) for t in ("a b c d", "x", "a b c d", "")] == [
    1,
    2,
    1,
    0,
  ]
  rows = table.as_array()
  assert rows.shape == (3, 3) and rows.dtype == np.int32
  assert rows[0].tolist() == [0, 0, 0]
  assert rows[1].tolist() == policy.tokenize("a b c", 4_096)
  assert rows[2].tolist() == [*policy.tokenize("x", 4_096), 0, 0]


def test_memory_knows_what_a_command_led_to():
  memory = policy.Memory("find the mug", TextStep("a hall", ()), 4_096)
  assert memory.stats("open box") == (0.0, 0.0, 0.0, 0.0)
  memory.add("open box", TextStep("a mug", ()))
  # Issued once, just now; one of the three words of the goal; it did something.
  assert memory.stats("open box") == pytest.approx((np.log(2), 1.0, 1 / 3, 0.0))
  memory.add("look", TextStep("a mug", ()))
  memory.add("open box", TextStep("a mug", ()))
  memory.add("open door", TextStep("a garden", ()))
  assert memory.stats("open box") == pytest.approx(
    (np.log(3), 1 / 2, 1 / 3, np.log(2))
  )
  assert list(memory.recent) == ["look", "open box", "open door"]
  assert sorted(memory.verbs.tolist())[-2:] == [1.0, 3.0]  # look, open


def random_state(rng, commands, width):
  """A state with so many commands, padded to `width`."""
  mask = np.arange(width) < commands
  tokens = rng.integers(1, 64, (width, 3)).astype(np.int32)
  stats = rng.normal(size=(width, policy.STATS)).astype(np.float32)
  return policy.TextState(
    observation=rng.integers(0, 64, 8).astype(np.int32),
    recent=rng.integers(0, 64, (policy.RECENT, 3)).astype(np.int32),
    verbs=rng.random(policy.VERBS).astype(np.float32),
    commands=np.where(mask[:, None], tokens, 0).astype(np.int32),
    stats=np.where(mask[:, None], stats, 0).astype(np.float32),
    mask=mask,
  )


@pytest.fixture(scope="module")
def network():
  params, logits_fn = policy.make_text_policy(SIZES, width=8, hidden=16, seed=0)
  # A last layer of usual size: the small one of a new policy hides mistakes.
  params["last"]["kernel"] = 1e2 * params["last"]["kernel"]
  return params, jax.jit(logits_fn)


def test_padding_gets_no_probability_and_changes_nothing(network):
  params, logits_fn = network
  rng = np.random.default_rng(0)
  goal = np.array([5, 6, 0, 0], np.int32)
  state = random_state(rng, 5, 16)
  logits = np.asarray(logits_fn(params, goal, state))
  assert (logits[5:] == policy.MASKED).all()
  assert np.ptp(logits[:5]) > 1e-3
  tight = jax.tree.map(np.asarray, state)
  tight = policy.TextState(
    **{
      name: value[:5] if name in ("commands", "stats", "mask") else value
      for name, value in tight.items()
    }
  )
  np.testing.assert_allclose(
    logits_fn(params, goal, tight), logits[:5], rtol=1e-5
  )
  grads = jax.grad(lambda p: logits_fn(p, goal, state)[:5].sum())(params)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))


def test_commands_may_come_in_any_order(network):
  params, logits_fn = network
  rng = np.random.default_rng(1)
  goal = np.array([5, 6, 7, 0], np.int32)
  state = random_state(rng, 6, 6)
  order = rng.permutation(6)
  moved = state.replace(
    commands=state.commands[order], stats=state.stats[order]
  )
  np.testing.assert_allclose(
    logits_fn(params, goal, moved),
    np.asarray(logits_fn(params, goal, state))[order],
    rtol=1e-5,
  )


def test_a_command_that_names_the_goal_is_told_apart(network):
  params, logits_fn = network
  rng = np.random.default_rng(2)
  state = random_state(rng, 4, 4)
  goal = np.zeros(4, np.int32)
  goal[0] = state.commands[2, 0]
  other = goal.copy()
  other[0] = state.commands[1, 1]
  difference = np.asarray(
    logits_fn(params, goal, state) - logits_fn(params, other, state)
  )
  assert abs(difference[2] - difference[0]) > 1e-4


def test_parameters_are_few():
  params, _ = policy.make_text_policy(
    policy.TextSizes(), width=64, hidden=128, seed=0
  )
  assert sum(x.size for x in jax.tree.leaves(params)) < 2_000_000
