"""Text games played by a language model that writes its commands."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np

from crbc_jax.agents import play as play_lib
from crbc_jax.agents.chat import END, ByteTokenizer
from crbc_jax.agents.play import AgentEpisode, Response, Speaker
from crbc_jax.agents.prompts import TEMPLATES
from crbc_jax.agents.turns import AgentRollout, Turn, rows_of_steps
from crbc_jax.envs.text import TextEnv
from crbc_jax.learner import cloning
from crbc_jax.learner.checkpoint import kept_params
from crbc_jax.learner.collect import Rollouts
from crbc_jax.learner.row_losses import RowLoss, make_token_loss
from crbc_jax.learner.task import CollectFn
from crbc_jax.learner.text_collect import make_spread, numbered
from crbc_jax.learner.text_games import GameSource, TextGames, open_games
from crbc_jax.learner.text_task import check_estimator, panel_metrics
from crbc_jax.policies.byte_decoder import DecoderSizes, make_decoder
from crbc_jax.types import Boundary

_ROWS = 64
"""Prompts of one call of the model: a batch of any size needs one program."""
_SIZES = ("layers", "width", "heads", "window")
_LADDER = 32
"""Prompt lengths are rounded up to a multiple of this, in bytes."""


@dataclasses.dataclass(frozen=True, eq=False)
class AgentTask:
  """Games and language model of one run; satisfies `task.TaskLike`."""

  train: TextGames
  panel: TextGames
  speaker: Speaker
  params: Any
  logits_fn: Callable[..., Any]
  write: Callable[..., Any]  # of `byte_decoder.make_decoder`
  ratio: str  # one of `row_losses.RATIOS`
  note: str
  critic_params: Any = ()
  value_fn: None = None

  @property
  def num_actions(self) -> int:
    """Any number of distinct commands at an anchor."""
    return 1 << 16

  def collect_fn(self, config: ml_collections.ConfigDict) -> CollectFn:
    """Rollouts of the games drawn; nothing of a game is needed beside them."""
    size = config.rollout.group_size

    def collect(params, drawn, key):
      games = [m for m in self.train.take(drawn).make for _ in range(size)]
      rollouts = self.play(config, params, games, key)
      return (), as_rollouts(
        rollouts,
        group_size=size,
        steps=config.text.step_limit,
        sampled=config.decoder.response,
      )

    return collect

  def panel_fn(
    self, config: ml_collections.ConfigDict
  ) -> Callable[[Any], dict[str, float]]:
    """`evaluate(params)`: success, score and steps, greedy and sampled.

    And the share of responses that were no admissible command.
    """
    key = jax.random.key(config.eval.seed)

    def evaluate_panel(params):
      metrics: dict[str, float] = {}
      for name in ("greedy", "sampled"):
        played = self.play(
          config, params, self.panel.make, key, greedy=name == "greedy"
        )
        found = as_rollouts(
          played,
          group_size=1,
          steps=config.text.step_limit,
          sampled=config.decoder.response,
        )
        metrics |= panel_metrics(self.panel, found, name)
        turns = [turn for rollout in played for turn in rollout.turns]
        metrics[f"invalid_{name}"] = float(
          np.mean([not t.valid for t in turns])
        )
      return metrics

    return evaluate_panel

  def row_loss(self, **options: float) -> RowLoss:
    """Of the sampled bytes."""
    return make_token_loss(self.logits_fn, ratio=self.ratio, **options)

  def play(
    self,
    config: ml_collections.ConfigDict,
    params: Any,
    games: Sequence[Callable[[], TextEnv]],
    key: Any,
    *,
    greedy: bool = False,
  ) -> list[AgentRollout]:
    """One episode of each game."""
    return play_lib.play(
      games,
      make_generate(
        self.write,
        params,
        key,
        limit=config.decoder.response,
        temperature=0.0 if greedy else config.decoder.temperature,
      ),
      self.speaker,
      step_limit=config.text.step_limit,
      state_key=config.text.state_key,
      invalid_penalty=config.decoder.invalid_penalty,
    )


def make_agent_task(config: ml_collections.ConfigDict) -> AgentTask:
  """Opens or generates games, builds the decoder and clones the expert.

  The clone depends on `text.clone_seed` and not on the seed of the run, so
  that runs of a comparison begin from the same policy.

  Raises:
    GameError, ShopError, LevelError: games, products or levels cannot be read.
    ConfigError: an estimator that needs a critic, or states restored.
  """
  check_estimator(config.estimator)
  source = open_games(config)
  decoder, text = config.decoder, config.text
  params, logits_fn, write = make_decoder(
    DecoderSizes(**{key: decoder[key] for key in _SIZES}),
    seed=text.clone_seed,
  )
  speaker = Speaker(
    TEMPLATES[decoder.template], ByteTokenizer(), prompt_limit=decoder.prompt
  )
  if text.demonstrations:
    params = _cloned(params, logits_fn, source, speaker, config)
  return AgentTask(
    train=source.train,
    panel=source.panel,
    speaker=speaker,
    params=jax.tree.map(np.asarray, params),
    logits_fn=logits_fn,
    write=write,
    ratio=decoder.ratio,
    note=source.note,
  )


def make_generate(
  write: Callable[..., Any],
  params: Any,
  key: Any,
  *,
  limit: int,
  temperature: float,
) -> play_lib.Generate:
  """A decoder as the model of `play.play`.

  Prompts are sorted by length into calls of equal size, padded to a few
  lengths. What is sampled depends on the key, the step and the place of the
  prompt alone.
  """

  def generate(prompts: Sequence[np.ndarray], step: int) -> Sequence[Response]:
    step_key = jax.random.fold_in(key, step)
    order = np.argsort([len(p) for p in prompts], kind="stable")
    found: dict[int, Response] = {}
    for first in range(0, len(order), _ROWS):
      index = order[first : first + _ROWS]
      length = max(len(prompts[i]) for i in index)
      padded = np.zeros((_ROWS, -(-length // _LADDER) * _LADDER), np.int32)
      lengths = np.ones(_ROWS, np.int32)
      number = np.full(_ROWS, len(prompts), np.int32)
      for row, i in enumerate(index):
        padded[row, : len(prompts[i])] = prompts[i]
        lengths[row], number[row] = len(prompts[i]), i
      tokens, log_probs = jax.device_get(
        write(
          params,
          padded,
          lengths,
          number,
          step_key,
          limit=limit,
          temperature=temperature,
        )
      )
      for row, i in enumerate(index):
        ended = np.flatnonzero(tokens[row] == END)
        count = ended[0] + 1 if len(ended) else limit
        found[int(i)] = Response(tokens[row, :count], log_probs[row, :count])
    return [found[i] for i in range(len(prompts))]

  return generate


def as_rollouts(
  rollouts: Sequence[AgentRollout],
  *,
  group_size: int,
  steps: int,
  sampled: int,
) -> Rollouts:
  """Episodes as arrays [P, G, T, ...]; the state is the row of tokens.

  Args:
    rollouts: P * G, those of a game together.
    group_size: G.
    steps: T.
    sampled: tokens of a response, at most.
  """
  turns = [turn for rollout in rollouts for turn in rollout.turns]
  length = max(len(turn.prompt) + len(turn.response) for turn in turns)
  rows = rows_of_steps(
    rollouts, length=-(-length // _LADDER) * _LADDER, sampled=sampled
  )
  spread = make_spread(
    [len(r.turns) for r in rollouts], group_size=group_size, steps=steps
  )
  keys, last = numbered(
    [turn.state_key for turn in turns], [r.final_key for r in rollouts]
  )
  (commands,) = numbered([turn.command for turn in turns])
  number = spread(commands, np.int32)
  state = jax.tree.map(lambda x: spread(x, x.dtype), rows)
  return Rollouts(
    # Where nothing was played a row still has to have a token before it.
    state=dataclasses.replace(state, at=np.maximum(state.at, 1)),
    key=spread(keys, np.int32)[..., None],
    final_key=last.reshape(-1, group_size, 1),
    action=number,
    action_key=number,
    log_prob=spread([t.log_prob.sum() for t in turns], np.float32),
    reward=spread([t.reward for t in turns], np.float32),
    boundary=spread([int(t.boundary) for t in turns], np.int32),
    moved=spread([t.moved for t in turns], bool),
    mask=spread(np.ones(len(turns)), bool),
  )


def _cloned(params, logits_fn, source: GameSource, speaker: Speaker, config):
  """Parameters after cloning; kept, for it takes longer than many runs."""
  text, decoder = config.text, config.decoder
  shaping = {
    "games": source.train.digest,
    "task": config.task,
    "template": dataclasses.asdict(speaker.template),
    **{
      key: text[key]
      for key in text
      if key.startswith("clone_")
      or key in ("demonstrations", "noise", "step_limit")
    },
    **{key: decoder[key] for key in (*_SIZES, "prompt")},
  }

  def make():
    turns = [
      _shown(speaker, episode, wanted)
      for episode, wanted in cloning.expert_steps(
        source.train.make,
        source.expert,
        AgentEpisode,
        episodes=text.demonstrations,
        noise=text.noise,
        step_limit=text.step_limit,
        seed=text.clone_seed,
        invalid=text.clone_invalid,
      )
      if wanted
    ]
    rows = rows_of_steps([AgentRollout("", tuple(turns), "")])
    return cloning.clone_tokens(
      params,
      logits_fn,
      rows,
      epochs=text.clone_epochs,
      learning_rate=text.clone_learning_rate,
      minibatch=text.clone_minibatch,
      seed=text.clone_seed,
      decay=text.clone_decay,
    )

  if not decoder.folder:
    return make()
  return kept_params(decoder.folder, shaping, make, like=params)


def _shown(speaker: Speaker, episode: AgentEpisode, wanted: str) -> Turn:
  """The expert's command as if the model had written it."""
  form = "<action>{}</action>" if speaker.template.form == "tags" else "{}"
  response = [*speaker.tokenizer.encode(form.format(wanted)), END]
  return Turn(
    prompt=speaker.prompt(episode.env.goal, episode.now, episode.past),
    response=np.array(response, np.int32),
    log_prob=np.zeros(len(response), np.float32),
    text=wanted,
    command=wanted,
    valid=True,
    state_key="",
    reward=0.0,
    boundary=Boundary.NONE,
    moved=True,
  )
