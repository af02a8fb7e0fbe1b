"""The agent loop: many episodes in lockstep, one call of the model a step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from crbc_jax.agents.chat import ChatTemplate, Message, Tokenizer, plain
from crbc_jax.agents.parsing import INVALID, parse_response
from crbc_jax.agents.prompts import Past, PromptTemplate
from crbc_jax.agents.turns import AgentRollout, Turn
from crbc_jax.checks import check_choice
from crbc_jax.envs.text import TextEnv, TextStep
from crbc_jax.types import Boundary

LAYOUTS = ("step", "conversation")


class Response(NamedTuple):
  """What a model wrote after one prompt."""

  tokens: np.ndarray  # [S] int32, with the end token if it got that far
  log_prob: np.ndarray  # [S] float32


class Generate(Protocol):
  """Samples one response for each prompt; `step` picks the random numbers."""

  def __call__(
    self, prompts: Sequence[np.ndarray], step: int
  ) -> Sequence[Response]:
    """Responses to prompts [L] int32, in their order."""


@dataclasses.dataclass(frozen=True)
class Speaker:
  """How states become tokens and responses become commands.

  Attributes:
    template: words of the prompt.
    tokenizer: of the model.
    chat: wrapping of the model.
    layout: "step", a fresh prompt with a few steps of history each step, or
      "conversation", which goes on from all that was said.
    prompt_limit: tokens; of a longer prompt the end is kept. 0: no limit, and
      none is possible in a conversation.
    need_thought: a response without <think> is invalid.
  """

  template: PromptTemplate
  tokenizer: Tokenizer
  chat: ChatTemplate = plain
  layout: str = "step"
  prompt_limit: int = 0
  need_thought: bool = False

  def __post_init__(self):
    check_choice("layout", self.layout, LAYOUTS)
    if self.layout == "conversation" and self.prompt_limit:
      raise ValueError(
        "a conversation cannot be cut: prompt_limit must be 0, with a"
        " step_limit that fits the model"
      )

  def prompt(
    self,
    goal: str,
    now: TextStep,
    past: Sequence[Past],
    said: np.ndarray | None = None,
  ) -> np.ndarray:
    """Tokens [L] int32 of the next prompt; `said`: all tokens so far."""
    opening = self.layout == "step" or said is None
    text = self.template.render(goal, now, past, heading=opening)
    ids = self.tokenizer.encode(self.chat([Message("user", text)], opening))
    new = np.asarray(ids, np.int32)
    if not opening:
      return np.concatenate([said, new])
    return new[-self.prompt_limit :] if self.prompt_limit else new


class AgentEpisode:
  """One episode that is being played."""

  def __init__(self, make: Callable[[], TextEnv]):
    self.env = make()
    self.now = self.env.reset()
    self.past: list[Past] = []

  def play(self, command: str) -> None:
    """Issues a command and remembers it."""
    self.past.append(Past(self.now.text, command))
    self.now = self.env.step(command)


def play(
  games: Sequence[Callable[[], TextEnv]],
  generate: Generate,
  speaker: Speaker,
  *,
  step_limit: int,
  state_key: str,
  invalid_penalty: float = 0.0,
  report: Callable[[int, int], Any] | None = None,
) -> list[AgentRollout]:
  """Plays one episode of each game; those still going on are truncated.

  Args:
    games: functions that make a new episode; G of the same one are a group.
    generate: the model.
    speaker: prompts and parsing.
    step_limit: T.
    state_key: which of `text.TextKeys` is the anchor.
    invalid_penalty: taken from the reward of a step whose response is invalid;
      the environment is told `INVALID`, which changes nothing.
    report: is told (steps so far, episodes going on).
  """
  episodes = [AgentEpisode(make) for make in games]
  turns: list[list[Turn]] = [[] for _ in games]
  final = [""] * len(games)
  said: list[np.ndarray | None] = [None] * len(games)
  alive = list(range(len(games)))
  for t in range(step_limit):
    if not alive:
      break
    prompts = [
      speaker.prompt(e.env.goal, e.now, e.past, said[i])
      for i, e in ((i, episodes[i]) for i in alive)
    ]
    going_on = []
    responses = generate(prompts, t)
    for i, prompt, response in zip(alive, prompts, responses, strict=True):
      episode = episodes[i]
      text = speaker.tokenizer.decode(response.tokens.tolist())
      parsed = parse_response(
        text,
        episode.now.commands,
        form=speaker.template.form,
        need_thought=speaker.need_thought,
      )
      key = getattr(episode.env.keys(), state_key)
      before = episode.now.text
      episode.play(parsed.command if parsed.valid else INVALID)
      boundary = episode.now.boundary
      if boundary == Boundary.NONE and t + 1 == step_limit:
        boundary = Boundary.TRUNCATED
      penalty = 0.0 if parsed.valid else invalid_penalty
      turns[i].append(
        Turn(
          prompt=prompt,
          response=np.asarray(response.tokens, np.int32),
          log_prob=np.asarray(response.log_prob, np.float32),
          text=text,
          command=parsed.command,
          valid=parsed.valid,
          state_key=key,
          reward=float(episode.now.reward) - penalty,
          boundary=boundary,
          moved=episode.now.text != before,
        )
      )
      said[i] = np.concatenate([prompt, turns[i][-1].response])
      if boundary == Boundary.NONE:
        going_on.append(i)
      else:
        final[i] = getattr(episode.env.keys(), state_key)
    alive = going_on
    if report:
      report(t + 1, len(alive))
  return [
    AgentRollout(episode.env.game_id, tuple(played), last)
    for episode, played, last in zip(episodes, turns, final, strict=True)
  ]
