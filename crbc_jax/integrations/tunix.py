"""Step credit in google-tunix's agentic GRPO learner (extra `[tunix]`).

Tunix collects, samples and trains; what is ours: the steps of an episode are
kept (`StepEngine`), a group of them gets credit by a registered estimator, and
every sampled token its step's advantage (`CrbcLearner`). Guarded traps of
tunix 0.1.7, all of them silent:

- its own sampler without a seed makes all rollouts of a group the same
  (`SeededRollout`; a group of equal rollouts that should differ is an error);
- sequence packing drops every turn behind the first (refused);
- each new length to generate compiles again (`SeededRollout` rounds it);
- it trains a copy of the actor it was given (`trained_model`).
"""

import dataclasses
import threading
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np

from crbc_jax.agents.chat import ChatTemplate, Message, chatml
from crbc_jax.agents.parsing import INVALID, parse_response
from crbc_jax.agents.prompts import Past, PromptTemplate, template_for
from crbc_jax.credit.table_credit import make_table_credit_fn
from crbc_jax.integrations.group_tokens import (
  check_varied,
  group_table,
  rounded_budget,
  token_advantages,
  turns,
)
from crbc_jax.learner.text_games import TextGames
from crbc_jax.types import Boundary

TESTED = "0.1.7"

try:
  from tunix.rl.agentic import agentic_grpo_learner
  from tunix.rl.agentic.agents import agent_types, base_agent
  from tunix.rl.agentic.environments import base_environment
  from tunix.rl.agentic.trajectory import trajectory_collect_engine
  from tunix.rl.rollout import base_rollout, vanilla_rollout
except ImportError as error:
  raise ImportError(
    f"this needs google-tunix {TESTED}: pip install 'crbc_jax[tunix]' ({error})"
  ) from error
if metadata.version("google-tunix") != TESTED:
  raise ImportError(
    f"crbc_jax.integrations.tunix is written against google-tunix {TESTED};"
    f" {metadata.version('google-tunix')} is installed: pip install"
    f" google-tunix=={TESTED}"
  )

# -- episodes ----------------------------------------------------------------


class TextEnvironment(base_environment.BaseTaskEnv):
  """Any `envs.text.TextEnv`, by the number of its game in the task."""

  def __init__(
    self,
    task: dict[str, Any],
    *,
    games: TextGames,
    step_limit: int,
    template: PromptTemplate | None = None,
    state_key: str = "state",
    success_reward: float = 1.0,
    invalid_penalty: float = 0.1,
    need_thought: bool = False,
    **kwargs: Any,
  ):
    """An episode.

    Args:
      task: {"task": number of the game}, one or an array of one.
      games: what is played.
      step_limit: an episode that goes on for longer is truncated.
      template: of the prompts; by default the one of the game's type.
      state_key: which of `envs.text.TextKeys` is the anchor.
      success_reward: for which the environment's reward counts 1.
      invalid_penalty: off the reward of a step without a valid command.
      need_thought: a response without <think> is invalid.
      **kwargs: tunix's group_id and pair_index.
    """
    super().__init__(task, max_steps=step_limit, **kwargs)
    self.game = int(np.asarray(task["task"]).reshape(-1)[0])
    self._env = games.make[self.game]()
    self._template = template or template_for(self._env.task_type)
    self._state_key = state_key
    self._success_reward = success_reward
    self._penalty = invalid_penalty
    self._need_thought = need_thought

  def _initial_observation(self) -> dict[str, Any]:
    self._now = self._env.reset()
    self._past: list[Past] = []
    text = self._template.render(self._env.goal, self._now, [])
    # What tunix hands to reward and metric functions.
    return {"prompts": [text], "task": [str(self.game)]}

  def _step_impl(self, action: Any) -> base_environment.EnvStepResult:
    parsed = parse_response(
      str(getattr(action, "action", action)),
      self._now.commands,
      form=self._template.form,
      need_thought=self._need_thought,
    )
    before = self._key()
    self._past.append(Past(self._now.text, parsed.command))
    self._now = self._env.step(parsed.command if parsed.valid else INVALID)
    done = self._now.boundary != Boundary.NONE
    reward = self._success_reward * self._now.reward
    return base_environment.EnvStepResult(
      observation=self._template.render(
        self._env.goal, self._now, self._past, heading=False
      ),
      reward=reward - (0.0 if parsed.valid else self._penalty),
      done=done,
      info={
        "state_key": before,
        "next_state_key": self._key(),
        "action_key": parsed.command,
        "valid": parsed.valid,
        "boundary": int(self._now.boundary),
      },
    )

  def _key(self) -> str:
    return getattr(self._env.keys(), self._state_key)


class TextAgent(base_agent.ConversationAgentBase):
  """Says what the model said; the environment reads the command in it."""

  def __init__(self, system_prompt: str = ""):
    super().__init__(system_prompt=system_prompt)

  def _init_messages(self, system_prompt: str) -> None:
    self._messages = []
    if system_prompt:
      self._messages = [{"role": "system", "content": system_prompt}]

  def _observation_to_messages(self, observation, reward, done, info) -> None:
    text = observation
    if isinstance(observation, dict):
      text = observation["prompts"][0]
    self._messages.append({"role": "user", "content": text})

  def update_from_model(self, response: str, **kwargs) -> agent_types.Action:
    """Appends the response as a turn and a step."""
    self._messages.append({"role": "assistant", "content": response})
    action = agent_types.Action(action=response)
    self.trajectory.steps.append(
      agent_types.Step(action=action, model_response=response)
    )
    return action


class ChatParser:
  """A template of `agents.chat` where tunix wants a parser."""

  def __init__(self, chat: ChatTemplate = chatml):
    self._chat = chat

  def parse(
    self,
    messages: Sequence[dict[str, str]],
    add_generation_prompt: bool = False,
    is_first_msg: bool = False,
  ) -> str:
    """Text of messages, a whole conversation or those after a response."""
    said = [Message(m["role"], m["content"]) for m in messages]
    whole = ""
    begin = 0
    for i, message in enumerate(said):
      if message.role != "assistant":
        continue
      # What the model was shown, and its words as they were: the end token it
      # sampled is written here as the text of that token.
      whole += self._chat(said[begin:i], is_first_msg and begin == 0)
      whole += message.text + self._end()
      begin = i + 1
    if begin < len(said) or add_generation_prompt:
      whole += self._chat(said[begin:], is_first_msg and begin == 0)
    return whole

  def _end(self) -> str:
    return "<|im_end|>" if self._chat is chatml else ""


class StepEngine(trajectory_collect_engine.TrajectoryCollectEngine):
  """Keeps the steps of an episode beside its flat tokens, as "steps"."""

  async def collect(self, mode: str = "Conversation") -> Any:
    """As tunix, and in "Token" mode `turns` of the trajectory."""
    found = await super().collect(mode)
    if mode == "Token":
      found["steps"] = turns(
        self.agent.trajectory.steps, len(found["conversation_tokens"])
      )
    return found


# -- credit ------------------------------------------------------------------


class CrbcLearner(agentic_grpo_learner.GRPOLearner):
  """Tunix's agentic GRPO learner with any registered estimator.

  `estimator="grpo"` is the control: the same code with the same advantage on
  every token of an episode.
  """

  def __init__(self, *args: Any, estimator: str = "crbc", **kwargs: Any):
    """As tunix; `chat_parser` is ChatML by default.

    Rewards are those of the environment, and `reward_fns` are added to them in
    tunix's metrics alone.

    Args:
      *args: of `GRPOLearner`.
      estimator: a registered name, also with options: "crbc(w_step=5.0)".
      **kwargs: of `GRPOLearner`.

    Raises:
      ValueError: an unknown estimator, or sequence packing.
    """
    self._credit = make_table_credit_fn(estimator)
    kwargs.setdefault("chat_parser", ChatParser())
    super().__init__(*args, **kwargs)
    if self._training_config.max_seq_token_per_tpu is not None:
      raise ValueError(
        "max_seq_token_per_tpu: sequence packing of tunix 0.1.7 loses every"
        " turn behind the first; leave it None"
      )

  def _build_orchestrator(self):
    orchestrator = super()._build_orchestrator()
    orchestrator.engine_cls = StepEngine
    return orchestrator

  def _process_results(self, trajectories, *args: Any, **kwargs: Any):
    examples = super()._process_results(trajectories, *args, **kwargs)
    played = [item.traj for item in trajectories]
    check_varied(played, temperature=self.algo_config.temperature)
    (example,) = examples
    length = example.completion_ids.shape[1]
    steps = [traj["steps"] for traj in played]
    advantage = np.zeros(0, np.float32)
    if any(steps):
      advantage = self._credit(group_table(steps)).advantage
    advantages = token_advantages(steps, advantage, length=length)
    return [example.replace(advantages=jax.numpy.asarray(advantages))]


# -- sampling ----------------------------------------------------------------


class SeededRollout(vanilla_rollout.VanillaRollout):
  """Tunix's own sampler with new random numbers in every call.

  Call n of a run draws from `fold_in(seed, n)`; `calls` belongs to the state
  of a run. Options are set with `functools.partial`, which tunix accepts.
  """

  def __init__(
    self,
    *,
    rollout_actor: Any,
    tokenizer: Any,
    mesh: Any = None,
    rollout_config: base_rollout.RolloutConfig,
    seed: int = 0,
    response: int | None = None,
  ):
    """A sampler.

    Args:
      rollout_actor, tokenizer, mesh, rollout_config: from tunix.
      seed: of the run.
      response: tokens of one response, at most; by default what is left of
        the episode's budget.
    """
    del mesh  # that of the actor
    shape = rollout_actor.config
    super().__init__(
      rollout_actor,
      tokenizer,
      cache_config_or_size=base_rollout.CacheConfig(
        cache_size=rollout_config.kv_cache_size,
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
      ),
    )
    self.calls = 0
    self._seed, self._response = seed, response
    self._lock = threading.Lock()  # episodes are played by threads

  def generate(
    self,
    prompts: list[str],
    rollout_config: base_rollout.RolloutConfig,
    **kwargs: Any,
  ) -> base_rollout.RolloutOutput:
    """Samples; the number of tokens is rounded down to a few lengths."""
    with self._lock:
      call, self.calls = self.calls, self.calls + 1
      key = jax.random.fold_in(jax.random.PRNGKey(self._seed), call)
      config = dataclasses.replace(
        rollout_config,
        seed=key,
        max_tokens_to_generate=rounded_budget(
          rollout_config.max_tokens_to_generate, response=self._response
        ),
      )
      return super().generate(prompts, config, **kwargs)


def trained_model(cluster: Any) -> Any:
  """The model that training changed: the actor passed in is a copy's source."""
  return cluster.actor_trainer.model
