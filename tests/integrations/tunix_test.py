"""Step credit inside tunix's learner, with a tiny Qwen2 on a CPU.

About a minute, most of it compilation; needs the extra [tunix].
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

pytest.importorskip("tunix", reason="needs the extra [tunix]")

from crbc_jax.agents.chat import plain
from crbc_jax.integrations import tunix as ours
from experiments import tunix_tiny

pytestmark = [
  pytest.mark.training,
  pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def any_rank():
  """In all threads, for tunix samples in others."""
  before = jax.config.jax_numpy_rank_promotion
  jax.config.update("jax_numpy_rank_promotion", "allow")
  yield
  jax.config.update("jax_numpy_rank_promotion", before)


def test_an_update_puts_the_credit_of_steps_on_their_tokens(monkeypatch):
  seen = []
  process = ours.CrbcLearner._process_results

  def watched(self, trajectories, *args, **kwargs):
    examples = process(self, trajectories, *args, **kwargs)
    seen.append(([item.traj for item in trajectories], examples[0]))
    return examples

  monkeypatch.setattr(ours.CrbcLearner, "_process_results", watched)
  rewards = tunix_tiny.train("gigpo", seed=0, updates=2)
  assert len(rewards) == 2 and np.isfinite(rewards).all()
  assert len(seen) == 8  # 2 updates of 4 groups
  credited = 0
  for played, example in seen:
    assert len(played) == 4
    advantages = np.asarray(example.advantages)
    mask = np.asarray(example.completion_mask)
    assert advantages.shape == mask.shape
    assert not advantages[mask == 0].any()  # observations and padding
    credited += (advantages != 0).any()
    for row, traj in enumerate(played):
      spans = [(s["token_start"], s["token_end"]) for s in traj["steps"]]
      sampled = np.zeros(mask.shape[1], int)
      for first, last in spans:
        sampled[first:last] = 1
        # One number for all tokens of a step.
        assert len(set(advantages[row, first:last].tolist())) <= 1
      np.testing.assert_array_equal(sampled, mask[row])
    texts = {tuple(t["conversation_tokens"].tolist()) for t in played}
    assert len(texts) > 1  # sampled with different numbers
  assert credited


def sampler(seed=0, response=None):
  from flax import nnx
  from tunix.models.qwen2 import model as qwen2
  from tunix.rl.rollout import base_rollout

  config = base_rollout.RolloutConfig(
    max_tokens_to_generate=8,
    max_prompt_length=8,
    kv_cache_size=32,
    temperature=1.0,
    return_logprobs=True,
  )
  shape = qwen2.ModelConfig(
    num_layers=1,
    vocab_size=tunix_tiny.Letters.vocabulary,
    embed_dim=16,
    hidden_dim=32,
    num_heads=2,
    head_dim=8,
    num_kv_heads=1,
    rope_theta=10_000,
    norm_eps=1e-6,
  )
  made = ours.SeededRollout(
    rollout_actor=qwen2.Qwen2(shape, rngs=nnx.Rngs(0)),
    tokenizer=tunix_tiny.Letters(),
    rollout_config=config,
    seed=seed,
    response=response,
  )
  return made, config


def test_the_sampler_draws_anew_and_its_counter_is_its_state():
  made, config = sampler()
  first = [made.generate(["ab"], config).tokens[0].tolist() for _ in range(3)]
  assert len({tuple(tokens) for tokens in first}) == 3
  assert made.calls == 3
  made.calls = 1
  again = made.generate(["ab"], config).tokens[0].tolist()
  assert again == first[1]


def test_a_response_has_its_own_limit():
  made, config = sampler(response=2)
  longer = dataclasses.replace(config, max_tokens_to_generate=7)
  for _ in range(4):
    assert len(made.generate(["ab"], longer).tokens[0]) <= 2


def test_sequence_packing_is_refused(monkeypatch):
  from tunix.rl import rl_cluster

  monkeypatch.setattr(
    rl_cluster,
    "RLTrainingConfig",
    functools.partial(rl_cluster.RLTrainingConfig, max_seq_token_per_tpu=64),
  )
  with pytest.raises(ValueError, match="max_seq_token_per_tpu"):
    tunix_tiny.train("grpo", seed=0, updates=1)


def test_the_parser_writes_what_was_shown_and_said():
  parser = ours.ChatParser()
  opening = [{"role": "user", "content": "go"}]
  whole = [
    *opening,
    {"role": "assistant", "content": "left"},
    {"role": "user", "content": "wall"},
  ]
  first = parser.parse(opening, add_generation_prompt=True, is_first_msg=True)
  # As tunix calls it for what follows a response.
  later = parser.parse(whole[2:], add_generation_prompt=True)
  assert parser.parse(whole, add_generation_prompt=True, is_first_msg=True) == (
    first + "left<|im_end|>" + later
  )
  assert ours.ChatParser(plain).parse(whole, True, True) == "goleft\nwall"


def test_an_episode_of_the_environment():
  env = ours.TextEnvironment(
    {"task": ["0"]},
    games=tunix_tiny.games(),
    step_limit=4,
    template=tunix_tiny.TEMPLATE,
    success_reward=10.0,
    group_id=0,
    pair_index=0,
  )
  first, _ = env.reset()
  assert first["prompts"] == ["a"] and first["task"] == ["0"]
  _, reward, done, info = env.step("zzz")
  assert (reward, done, info["valid"]) == (-0.1, False, False)
  assert info["action_key"] == "<invalid>"
  assert info["state_key"] == info["next_state_key"] == "aa0"
  for _ in range(2):
    _, reward, done, info = env.step("a")
  assert (reward, done, info["state_key"]) == (10.0, True, "aa1")
