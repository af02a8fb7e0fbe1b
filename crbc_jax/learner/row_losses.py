"""The objective of one minibatch of rows: for actions, and for tokens.

A row loss is `loss(params, reference, levels, rows, share) -> (loss [],
metrics)`: R rows, whose shares are their part of the mean (0 on padding), and
scalars that add up over minibatches.
"""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from crbc_jax.agents.turns import TokenRows
from crbc_jax.checks import check_choice
from crbc_jax.learner import losses

RowLoss = Callable[..., tuple[chex.Array, dict[str, chex.Array]]]
RATIOS = ("token", "step")
MEANS: tuple[str, ...] = (
  "loss",
  "policy_loss",
  "entropy",
  "kl_reference",
  "kl_step",
  "clip_share",
)
"""The metrics of every row loss."""


def make_action_loss(
  logits_fn: Callable[..., Any],
  *,
  clip: float,
  entropy_weight: float,
  kl_weight: float,
) -> RowLoss:
  """Loss of rows that choose one of A actions.

  Args:
    logits_fn: `logits(params, level, state) -> [A]` for one row.
    clip: of the probability ratio.
    entropy_weight: of the bonus for the policy's entropy.
    kl_weight: of the k3 estimate of KL(policy || reference); with 0 the
      reference is not evaluated.
  """

  def loss(params, reference, levels, rows, share):
    def log_probs(params):
      return jax.nn.log_softmax(
        jax.vmap(lambda level, state: logits_fn(params, level, state))(
          levels, rows["state"]
        )
      )

    def of_action(log_p):
      return jnp.take_along_axis(log_p, rows["action"][:, None], -1)[:, 0]

    every = log_probs(params)
    taken = of_action(every)
    policy, clipped = losses.clipped_surrogate(
      taken,
      rows["log_prob"],
      rows["advantage"],
      share,
      clip=clip,
      clip_low_extra=rows.get("clip_low_extra"),
    )
    ent = losses.entropy(every, share)
    kl = jnp.zeros(())
    if kl_weight > 0:
      kl = losses.kl_k3(taken, of_action(log_probs(reference)), share)
    moved = losses.kl_k3(taken, rows["log_prob"], share)
    return _summed(policy, ent, kl, moved, clipped, entropy_weight, kl_weight)

  return loss


def make_token_loss(
  logits_fn: Callable[..., Any],
  *,
  clip: float,
  entropy_weight: float,
  kl_weight: float,
  ratio: str = "token",
) -> RowLoss:
  """Loss of rows whose action is a response of several tokens.

    token  mean over the tokens of a step of the clipped surrogate of
           rho_j = p(y_j) / p_old(y_j), then the mean over steps (CRBC, arXiv
           2609.35082; GRPO with a mean over tokens first)
    step   one ratio a step, the geometric mean of its tokens' (GRPO-C, GRAFT)

  The advantage of a step goes to its own sampled tokens and to no other.
  `rows["state"]` are `TokenRows` of one step each, `rows["advantage"]` [R].

  Args:
    logits_fn: `logits(params, tokens [R, L], at [R, S]) -> [R, S, V]`.
    clip: of the ratio.
    entropy_weight: of the entropy of the next token, over sampled tokens.
    kl_weight: of the k3 estimate of KL(policy || reference) per token.
    ratio: one of `RATIOS`.
  """
  check_choice("ratio", ratio, RATIOS)

  def loss(params, reference, levels, rows, share):
    del levels  # the prompt holds all there is
    state: TokenRows = rows["state"]
    mask = state.mask
    chosen = jnp.take_along_axis(state.tokens, state.at, 1)

    def log_probs(params):
      logits = logits_fn(params, state.tokens, state.at - 1)
      return jax.nn.log_softmax(logits)

    def of_chosen(log_p):
      return jnp.take_along_axis(log_p, chosen[..., None], -1)[..., 0]

    every = log_probs(params)
    taken = of_chosen(every)
    count = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1)
    weight = jnp.where(mask, share[:, None] / count, 0.0)
    each = weight.reshape(-1)
    if ratio == "token":
      advantage = jnp.broadcast_to(rows["advantage"][:, None], mask.shape)
      policy, clipped = losses.clipped_surrogate(
        taken.reshape(-1),
        state.log_prob.reshape(-1),
        advantage.reshape(-1),
        each,
        clip=clip,
      )
    else:
      policy, clipped = losses.clipped_surrogate(
        _step_mean(taken, mask),
        _step_mean(state.log_prob, mask),
        rows["advantage"],
        share,
        clip=clip,
      )
    ent = losses.entropy(every.reshape(-1, every.shape[-1]), each)
    kl = jnp.zeros(())
    if kl_weight > 0:
      kept = of_chosen(log_probs(reference))
      kl = losses.kl_k3(taken.reshape(-1), kept.reshape(-1), each)
    moved = losses.kl_k3(taken.reshape(-1), state.log_prob.reshape(-1), each)
    return _summed(policy, ent, kl, moved, clipped, entropy_weight, kl_weight)

  return loss


def _step_mean(log_prob: chex.Array, mask: chex.Array) -> chex.Array:
  """Mean over the sampled tokens of each row [R, S] -> [R]."""
  count = jnp.maximum(jnp.sum(mask, axis=-1), 1)
  return jnp.sum(jnp.where(mask, log_prob, 0.0), axis=-1) / count


def _summed(policy, ent, kl, moved, clipped, entropy_weight, kl_weight):
  total = policy - entropy_weight * ent + kl_weight * kl
  found = (total, policy, ent, kl, moved, clipped)
  return total, dict(zip(MEANS, found, strict=True))
