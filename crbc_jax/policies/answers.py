"""Several answers to one prompt, scored in one pass of a decoder.

The prompt is read once. Behind it stand all the answers; a token of one sees
the prompt and its own answer, at the position it would have if it stood alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from crbc_jax.policies import decoder
from crbc_jax.policies.decoder_shape import DecoderShape


class Answers(NamedTuple):
  """One prompt and K answers to it, T tokens of which S are of answers."""

  tokens: np.ndarray  # [T] int32
  position: np.ndarray  # [T] int32, in the text of prompt and answer
  branch: np.ndarray  # [T] int32: 0 prompt, 1 to K an answer, -1 padding
  at: np.ndarray  # [S] int32, places of the tokens of answers
  before: np.ndarray  # [S] int32, place of the token before each
  owner: np.ndarray  # [S] int32, 0 to K - 1; K in the padding


def pack(
  prompt: Sequence[int],
  answers: Sequence[Sequence[int]],
  *,
  tokens: int = 0,
  sampled: int = 0,
) -> Answers:
  """Lays out a prompt and its answers.

  Args:
    prompt: tokens, at least one.
    answers: K >= 0 lists of tokens.
    tokens: T; 0: as many as there are.
    sampled: S; 0: as many as there are.

  Raises:
    ValueError: no prompt, or T or S is too small.
  """
  if not len(prompt):
    raise ValueError("the prompt must have at least one token")
  flat, position, branch = (
    list(prompt),
    [*range(len(prompt))],
    [0] * len(prompt),
  )
  at, before, owner = [], [], []
  for k, answer in enumerate(answers):
    for i, token in enumerate(answer):
      before.append(len(flat) - 1 if i else len(prompt) - 1)
      at.append(len(flat))
      owner.append(k)
      flat.append(token)
      position.append(len(prompt) + i)
      branch.append(k + 1)

  def padded(values, length, fill, what):
    if length and length < len(values):
      raise ValueError(f"{what} must be at least {len(values)}, got {length}")
    missing = max(length - len(values), 0)
    return np.array([*values, *[fill] * missing], np.int32)

  return Answers(
    padded(flat, tokens, 0, "tokens"),
    padded(position, tokens, 0, "tokens"),
    padded(branch, tokens, -1, "tokens"),
    padded(at, sampled, 0, "sampled"),
    padded(before, sampled, 0, "sampled"),
    padded(owner, sampled, len(answers), "sampled"),
  )


def hidden(
  params: decoder.Params,
  x: chex.Array,
  answers: Answers,
  *,
  shape: DecoderShape,
) -> chex.Array:
  """`decoder.layers` [T, D] of x [T, D], each answer apart from the others."""
  place = jnp.arange(answers.tokens.shape[0])
  mine = answers.branch[:, None] == answers.branch[None]
  seen = (place[:, None] >= place[None]) & (mine | (answers.branch == 0)[None])
  return decoder.layers(params, x, answers.position, seen, shape=shape)


def scores(
  params: decoder.Params,
  x: chex.Array,
  answers: Answers,
  *,
  embedding: chex.Array,
  count: int,
  shape: DecoderShape,
) -> chex.Array:
  """Teacher-forced log-probability of each answer: sum of ln p(y_t | y_<t).

  Args:
    params: the layers that are left, and the last norm.
    x: [T, D], embedded tokens or what lower layers made of them.
    answers: the texts.
    embedding: [V, D], the output layer.
    count: K, or more; the rest is 0.
    shape: sizes of the model.

  Returns:
    [count] float32, each <= 0.
  """
  x = hidden(params, x, answers, shape=shape)[answers.before]
  logits = decoder.unembed(embedding, params["last_norm"], x, shape=shape)
  every = jax.nn.log_softmax(logits)
  token = answers.tokens[answers.at]
  taken = jnp.take_along_axis(every, token[:, None], axis=-1)[:, 0]
  live = answers.branch[answers.at] > 0
  taken = jnp.where(live, taken, 0.0)
  return jax.ops.segment_sum(taken, answers.owner, num_segments=count + 1)[:-1]
