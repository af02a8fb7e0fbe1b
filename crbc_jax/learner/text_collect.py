"""Rollouts of text games: environments on the host, one policy call a step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.envs.text import TextEnv, TextStep
from crbc_jax.learner.collect import Rollouts
from crbc_jax.policies import text as policy
from crbc_jax.policies.text import Memory, TextSizes, TextState, TokenTable
from crbc_jax.rollouts.batching import next_rung
from crbc_jax.types import Boundary

KEYS = ("state", "history", "text")
"""Which of `text.TextKeys` is the anchor."""


@dataclasses.dataclass
class Episode:
  """One rollout that is being played."""

  env: TextEnv
  now: TextStep
  memory: Memory

  def play(self, command: str) -> None:
    """Issues a command and remembers what it led to."""
    self.now = self.env.step(command)
    self.memory.add(command, self.now)


class Recorder:
  """Texts of a batch as numbers, and the arrays they make in the end."""

  def __init__(self, sizes: TextSizes):
    self.observations = TokenTable(sizes.vocabulary, sizes.observation)
    self.commands = TokenTable(sizes.vocabulary, sizes.command)

  def rows(self, episodes: Sequence[Episode]) -> list[tuple]:
    """What the policy sees of each episode, as numbers of texts."""
    return [
      (
        self.observations.number(e.now.text),
        [self.commands.number(e.env.describe(c)) for c in e.memory.recent],
        e.memory.verbs.copy(),
        [self.commands.number(e.env.describe(c)) for c in e.now.commands],
        [e.memory.stats(c) for c in e.now.commands],
      )
      for e in episodes
    ]

  def states(self, rows: Sequence[tuple], width: int) -> TextState:
    """Rows as one padded state, leaves [rows, ...] with K = width."""
    size = len(rows)
    commands = np.zeros((size, width), np.int64)
    stats = np.zeros((size, width, policy.STATS), np.float32)
    mask = np.zeros((size, width), bool)
    for i, (_, _, _, numbers, found) in enumerate(rows):
      count = len(numbers)
      commands[i, :count] = numbers
      stats[i, :count] = found
      mask[i, :count] = True
    tokens = self.commands.as_array()
    return TextState(
      observation=self.observations.as_array()[[row[0] for row in rows]],
      recent=tokens[np.array([row[1] for row in rows])],
      verbs=np.stack([row[2] for row in rows]),
      commands=tokens[commands],
      stats=stats,
      mask=mask,
    )


def make_text_collect_fn(
  logits_fn: Callable[..., Any],
  sizes: TextSizes,
  *,
  group_size: int,
  step_limit: int,
  state_key: str,
  greedy: bool = False,
) -> Callable[..., tuple[np.ndarray, Rollouts]]:
  """Returns `collect(params, games, key) -> (goals, Rollouts)`.

  P games, G rollouts each, in lockstep. An episode that is still going on after
  `step_limit` steps is truncated. All randomness comes from `key`.

  Args:
    logits_fn: of `text.make_text_policy`.
    sizes: lengths of the texts.
    group_size: G.
    step_limit: T.
    state_key: which of `text.TextKeys` is the anchor.
    greedy: take the most probable command instead of sampling.

  Args of the returned function:
    params: of the policy.
    games: P functions that make a new episode.
    key: of the sampling.
  """
  act = make_act_fn(logits_fn, greedy=greedy)

  def collect(params, games, key):
    episodes = [
      begin(make, sizes.vocabulary) for make in games for _ in range(group_size)
    ]
    goals = policy.pad_tokens([e.env.goal for e in episodes], sizes)
    recorder = Recorder(sizes)
    played: list[list[dict[str, Any]]] = [[] for _ in episodes]
    final: list[str] = [""] * len(episodes)
    alive = list(range(len(episodes)))
    for t in range(step_limit):
      if not alive:
        break
      rows = recorder.rows([episodes[i] for i in alive])
      width = width_of(rows)
      chosen, log_probs = act(
        params,
        *_padded(goals[alive], recorder.states(rows, width), len(episodes)),
        jax.random.fold_in(key, t),
      )
      going_on = []
      for i, row, choice, log_prob in zip(
        alive, rows, chosen.tolist(), log_probs.tolist(), strict=False
      ):
        episode = episodes[i]
        before, command = episode.now, episode.now.commands[choice]
        key_text = getattr(episode.env.keys(), state_key)
        episode.play(command)
        after = episode.now
        boundary = after.boundary
        if boundary == Boundary.NONE and t + 1 == step_limit:
          boundary = Boundary.TRUNCATED
        played[i].append(
          {
            "row": row,
            "key": key_text,
            "action": choice,
            "command": command,
            "log_prob": log_prob,
            "reward": after.reward,
            "boundary": int(boundary),
            "moved": after.text != before.text,
          }
        )
        if boundary == Boundary.NONE:
          going_on.append(i)
        else:
          final[i] = getattr(episode.env.keys(), state_key)
      alive = going_on
    return goals[::group_size], _rollouts(
      played, final, recorder, group_size=group_size, steps=step_limit
    )

  return collect


def make_act_fn(logits_fn: Callable[..., Any], *, greedy: bool = False):
  """Returns jitted `act(params, goals, states, key) -> (choice, log prob)`.

  All [N]; the policy is applied to N states at once.
  """

  @jax.jit
  def act(params, goals, states, key):
    logits = jax.nn.log_softmax(
      jax.vmap(logits_fn, in_axes=(None, 0, 0))(params, goals, states)
    )
    if greedy:
      choice = jnp.argmax(logits, axis=-1)
    else:
      choice = jax.random.categorical(key, logits)
    return choice, jnp.take_along_axis(logits, choice[:, None], -1)[:, 0]

  return act


def begin(make: Callable[[], TextEnv], vocabulary: int) -> Episode:
  """A new episode of a game."""
  env = make()
  first = env.reset()
  return Episode(env, first, Memory(env.goal, first, vocabulary))


def width_of(rows: Sequence[tuple]) -> int:
  """K: a power of two, so that few programs are compiled."""
  return next_rung(max(len(row[3]) for row in rows), smallest=64)


def _padded(goals: np.ndarray, states: TextState, size: int):
  """Repeats row 0 up to `size` rows."""
  index = np.minimum(np.arange(size), len(goals) - 1)
  return goals[index], jax.tree.map(lambda x: x[index], states)


def make_spread(
  lengths: Sequence[int], *, group_size: int, steps: int
) -> Callable[[Any, Any], np.ndarray]:
  """Returns `spread(values, dtype)`: rows [R, ...] -> [P, G, T, ...].

  Args:
    lengths: [P * G] steps of each episode; their sum is R.
    group_size: G.
    steps: T; what no episode reached is 0.
  """
  at = np.array(
    [i * steps + t for i, length in enumerate(lengths) for t in range(length)],
    int,
  )

  def spread(values, dtype):
    values = np.asarray(values, dtype)
    out = np.zeros((len(lengths) * steps, *values.shape[1:]), dtype)
    out[at] = values
    return out.reshape(-1, group_size, steps, *values.shape[1:])

  return spread


def numbered(*lists: Sequence[str]) -> list[np.ndarray]:
  """Texts as int32 numbers, equal for equal texts of any of the lists."""
  number: dict[str, int] = {}
  return [
    np.array([number.setdefault(x, len(number)) for x in texts], np.int32)
    for texts in lists
  ]


def _rollouts(
  played: list[list[dict[str, Any]]],
  final: list[str],
  recorder: Recorder,
  *,
  group_size: int,
  steps: int,
) -> Rollouts:
  """Rows of every episode as arrays [P, G, T, ...]."""
  rows = [step for episode in played for step in episode]
  spread = make_spread(
    [len(episode) for episode in played], group_size=group_size, steps=steps
  )

  def column(name, dtype):
    return spread([row[name] for row in rows], dtype)

  keys, last = numbered([row["key"] for row in rows], final)
  (commands,) = numbered([row["command"] for row in rows])
  states = recorder.states(
    [row["row"] for row in rows], width_of([row["row"] for row in rows])
  )
  return Rollouts(
    state=jax.tree.map(lambda x: spread(x, x.dtype), states),
    key=spread(keys, np.int32)[..., None],
    final_key=last.reshape(-1, group_size, 1),
    action=column("action", np.int32),
    action_key=spread(commands, np.int32),
    log_prob=column("log_prob", np.float32),
    reward=column("reward", np.float32),
    boundary=column("boundary", np.int32),
    moved=column("moved", bool),
    mask=spread(np.ones(len(rows)), bool),
  )
