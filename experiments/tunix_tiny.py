"""Step credit through tunix: a tiny random Qwen2 learns a word game on a CPU.

  python -m experiments.tunix_tiny [--seeds 0 1 2] [--updates 25]

Needs the extra [tunix] (`make tunix-tiny` installs it). Two layers of width 64
and eight tokens learn to answer with one of three letters, twice in a row: the
letter that was shown. The learner is `integrations.tunix.CrbcLearner`; "grpo"
through the same class is the control. Claim: both learn, in at least two of
three seeds; a random model that hardly ever wins has nothing to learn from.
Nothing is claimed of the order of the two: the game has two steps.

Writes results/tunix_tiny.{json,md}. Under a minute a run.
"""

import argparse
import dataclasses
import functools
import itertools
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
import rich

import crbc_jax
from crbc_jax.agents.chat import plain
from crbc_jax.agents.prompts import PromptTemplate
from crbc_jax.envs.text import TextKeys, TextStep
from crbc_jax.files import write_text
from crbc_jax.learner.records import write_json
from crbc_jax.learner.text_games import TextGames
from crbc_jax.types import Boundary
from experiments import commands, statistics
from experiments.bench_credit import markdown_table

LETTERS = "abc"
ROUNDS = 2
ESTIMATORS = ("crbc(w_step=1.0)", "grpo")
TEMPLATE = PromptTemplate(role="", history=0, now="{text}", form="bare")


@dataclasses.dataclass
class Echo:
  """Say the letter that is shown, `ROUNDS` times; a wrong one ends it."""

  letters: str
  said: int = 0
  task_type: str = "echo"
  goal: str = "say the letter"

  @property
  def game_id(self) -> str:
    """The letters to say."""
    return self.letters

  def reset(self) -> TextStep:
    """Begins anew."""
    self.said = 0
    return self._seen()

  def step(self, command: str) -> TextStep:
    """What is no letter changes nothing."""
    if command not in LETTERS or len(command) != 1:
      return self._seen()
    if command != self.letters[self.said]:
      return TextStep("", (), 0.0, Boundary.FAILURE)
    self.said += 1
    if self.said == ROUNDS:
      return TextStep("", (), 1.0, Boundary.SUCCESS)
    return self._seen()

  def describe(self, command: str) -> str:
    """A letter says all."""
    return command

  def copy(self) -> "Echo":
    """An independent episode."""
    return dataclasses.replace(self)

  def keys(self) -> TextKeys:
    """How many were said."""
    return TextKeys(*[f"{self.letters}{self.said}"] * 3)

  def _seen(self) -> TextStep:
    return TextStep(self.letters[self.said], tuple(LETTERS))


def games() -> TextGames:
  """All words of `ROUNDS` letters."""
  words = ["".join(x) for x in itertools.product(LETTERS, repeat=ROUNDS)]
  return TextGames(
    ids=tuple(words),
    make=tuple(functools.partial(Echo, word) for word in words),
    tags=(("echo",),) * len(words),
    content=tuple(words),
  )


class Letters:
  """A tokenizer of a few letters, as tunix calls one; the rest is one token."""

  vocabulary = 8

  def encode(self, text: str, **_: Any) -> list[int]:
    """A token for each character."""
    known = {letter: 3 + i for i, letter in enumerate(LETTERS)}
    return [known.get(x, self.vocabulary - 1) for x in text]

  def decode(self, ids: Any, **_: Any) -> str:
    """The letters; another token is a question mark, special ones nothing."""
    found = (int(i) - 3 for i in ids if int(i) >= 3)
    return "".join(LETTERS[i] if i < len(LETTERS) else "?" for i in found)

  def bos_id(self) -> int:
    """The start."""
    return 2

  def eos_id(self) -> int:
    """The end of a response."""
    return 1

  def pad_id(self) -> int:
    """Padding."""
    return 0


def train(
  estimator: str,
  *,
  seed: int,
  updates: int,
  tasks: int = 4,
  group_size: int = 4,
) -> list[float]:
  """Trains; returns the mean reward of the groups of every update.

  Args:
    estimator: a registered name, with options.
    seed: of the weights, the tasks and the sampling.
    updates: optimiser steps.
    tasks: groups of an update.
    group_size: G.
  """
  from flax import nnx
  from tunix.models.qwen2 import model as qwen2
  from tunix.rl import rl_cluster
  from tunix.rl.agentic.agentic_grpo_learner import GRPOConfig
  from tunix.rl.rollout import base_rollout

  from crbc_jax.integrations import tunix as ours

  length, prompt = 32, 16
  tokenizer = Letters()
  shape = qwen2.ModelConfig(
    num_layers=2,
    vocab_size=tokenizer.vocabulary,
    embed_dim=64,
    hidden_dim=128,
    num_heads=4,
    head_dim=16,
    num_kv_heads=2,
    rope_theta=10_000,
    norm_eps=1e-6,
  )
  actor = qwen2.Qwen2(shape, rngs=nnx.Rngs(seed))
  mesh = jax.sharding.Mesh(
    np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp")
  )
  role = rl_cluster.Role
  cluster = rl_cluster.RLCluster(
    actor=actor,
    tokenizer=tokenizer,
    cluster_config=rl_cluster.ClusterConfig(
      role_to_mesh=dict.fromkeys(
        (role.ACTOR, role.REFERENCE, role.ROLLOUT), mesh
      ),
      rollout_engine=functools.partial(
        ours.SeededRollout, seed=seed, response=1
      ),
      training_config=rl_cluster.RLTrainingConfig(
        actor_optimizer=optax.adam(3e-3),
        eval_every_n_steps=1_000_000,
        max_steps=updates,
        mini_batch_size=tasks,
        train_micro_batch_size=tasks,
      ),
      rollout_config=base_rollout.RolloutConfig(
        max_tokens_to_generate=length,
        max_prompt_length=prompt,
        kv_cache_size=prompt + length + 16,
        temperature=1.0,
        return_logprobs=True,
      ),
    ),
  )
  found: list[float] = []

  def note(prompts, completions, advantages, rewards, **kwargs):
    del prompts, completions, advantages, kwargs
    found.append(float(np.mean(rewards)))
    return {}

  learner = ours.CrbcLearner(
    rl_cluster=cluster,
    algo_config=GRPOConfig(
      num_generations=group_size,
      beta=0.0,
      max_response_length=length,
      max_concurrency=1,
    ),
    estimator=estimator,
    metric_fns=[note],
    chat_parser=ours.ChatParser(plain),
    agent_class=ours.TextAgent,
    env_class=ours.TextEnvironment,
    env_kwargs={
      "games": games(),
      "step_limit": 2 * ROUNDS,
      "template": TEMPLATE,
      "invalid_penalty": 0.1,
    },
  )
  learner.train(_batches(seed, updates, tasks))
  return [
    float(np.mean(found[i : i + tasks])) for i in range(0, len(found), tasks)
  ][:updates]


def _batches(seed: int, updates: int, tasks: int) -> Iterator[dict]:
  rng = np.random.default_rng(seed)
  for _ in range(updates):
    drawn = rng.integers(len(games()), size=tasks)
    yield {"task": np.array([str(x) for x in drawn])}


def main(argv: list[str] | None = None) -> None:
  """Trains every estimator with every seed and writes the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
  parser.add_argument("--updates", type=int, default=25)
  parser.add_argument("--results", default="results", type=pathlib.Path)
  args = parser.parse_args(argv)
  fifth = max(args.updates // 5, 1)
  rows, curves = [], {}
  for estimator in ESTIMATORS:
    runs = [
      train(estimator, seed=seed, updates=args.updates) for seed in args.seeds
    ]
    curves[estimator] = runs
    first = [float(np.mean(run[:fifth])) for run in runs]
    last = [float(np.mean(run[-fifth:])) for run in runs]
    rows.append(
      {
        "estimator": estimator,
        "first": statistics.interval(first),
        "last": statistics.interval(last),
        "mean": statistics.interval([float(np.mean(run)) for run in runs]),
        "risen": int(sum(b > a for a, b in zip(first, last, strict=True))),
      }
    )
  table = markdown_table(
    (
      "estimator",
      "reward, first fifth",
      "last fifth",
      "all updates",
      "seeds that rose",
    ),
    [
      (
        f"`{row['estimator']}`",
        str(row["first"]),
        str(row["last"]),
        str(row["mean"]),
        f"{row['risen']}/{len(args.seeds)}",
      )
      for row in rows
    ],
  )
  command = commands.recorded("experiments.tunix_tiny", argv)
  write_json(
    args.results / "tunix_tiny.json",
    {
      "command": command,
      "version": crbc_jax.__version__,
      "seeds": args.seeds,
      "updates": args.updates,
      "rows": rows,
      "curves": curves,
    },
  )
  write_text(
    args.results / "tunix_tiny.md",
    "<!-- written by experiments/tunix_tiny.py; do not edit -->\n\n"
    f"A tiny random Qwen2 through tunix, {args.updates} updates of 4 groups of"
    f" 4, {len(args.seeds)} seeds; brackets: 95 % bootstrap interval over"
    f" seeds.\n\n`{command}`\n\n{table}\n",
  )
  rich.print(table)


if __name__ == "__main__":
  sys.exit(main())
