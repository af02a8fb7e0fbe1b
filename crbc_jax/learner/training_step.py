"""One update: collect -> credit -> learn, and the state it changes."""

import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from crbc_jax.credit import registry
from crbc_jax.credit.diagnostics import batch_diagnostics
from crbc_jax.credit.hidden_state import (
  POOLED_BELOW,
  HiddenState,
  hidden_state,
)
from crbc_jax.credit.table_credit import chains_states
from crbc_jax.learner import branching, task, update
from crbc_jax.learner import collect as collect_lib
from crbc_jax.learner import critic as critic_lib
from crbc_jax.learner.config import ConfigError
from crbc_jax.rollouts.batching import BatchShape
from crbc_jax.rollouts.from_arrays import ArrayBatch, batch_arrays
from crbc_jax.types import StepCredit

_TESTED = 16
"""Groups of a batch that are tested for hidden state: a millisecond or two.
Evidence of update after update adds up."""


def initial_state(
  config: ml_collections.ConfigDict, current: task.TaskLike
) -> update.LearnerState:
  """The learner state a run begins with."""
  params, critic_params = current.params, current.critic_params
  optimizer = _optimizer(config)
  return update.LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    reference=jax.tree.map(jnp.copy, params) if config.learner.kl > 0 else (),
    key=jax.random.key_data(jax.random.key(config.seed)),
    critic_params=critic_params,
    critic_opt_state=(
      _critic_optimizer(config).init(critic_params) if current.value_fn else ()
    ),
  )


def make_step(config, current: task.TaskLike):
  """Returns `step(state, drawn, update) -> (state, metrics, problem)`."""
  logits_fn, actions = current.logits_fn, current.num_actions
  name, options = registry.parse_estimator(config.estimator)
  if name in branching.BRANCHING:
    env = getattr(current, "env", None)
    if env is None:
      raise ConfigError(
        f"estimator {name!r} restores states on the device, which text games"
        " cannot"
      )
    branch = branching.make_branch_fn(name, env, logits_fn, **options)
  else:
    branch, credit_fn = None, registry.make_credit_fn(name, **options)
  collect = current.collect_fn(config)
  critic = None
  if current.value_fn:
    values_of = critic_lib.make_values_fn(current.value_fn)
    critic = critic_lib.Critic(
      current.value_fn, _critic_optimizer(config), config.learner.value_clip
    )
  row_loss = current.row_loss(
    clip=config.learner.clip,
    entropy_weight=config.learner.entropy,
    kl_weight=config.learner.kl,
  )
  learn = update.make_update_fn(
    row_loss,
    _optimizer(config),
    minibatch=config.learner.minibatch,
    epochs=config.learner.epochs,
    accumulation=config.learner.accumulation,
    aggregation=config.learner.aggregation,
    advantage_scale=config.learner.advantage_scale,
    critic=critic,
  )

  chains = chains_states(config.estimator) if branch is None else False
  evidence, warned = HiddenState(), False

  def step(state, drawn, number):
    nonlocal evidence, warned
    base = jax.random.wrap_key_data(state.key)
    rollout_key, update_key = jax.random.split(jax.random.fold_in(base, number))
    began = time.perf_counter()
    levels, rollouts = collect(state.params, drawn, rollout_key)
    collected = time.perf_counter()
    clip_low_extra = value = None
    extra: dict[str, float] = {}  # what branches cost
    if branch:
      # No split of the key above gives this one.
      branch_key = jax.random.fold_in(jax.random.fold_in(base, number), 2)
      found, cost = branch(state.params, levels, rollouts, branch_key)
      batch = batch_rollouts(rollouts, actions=actions)
      credit, extra = branching.for_records(found, cost, batch)
      advantage, arrays = np.asarray(found.advantage), batch.arrays
      clip_low_extra = found.clip_low_extra
    else:
      if critic:
        value = values_of(state.critic_params, levels, rollouts.state)
      advantage, arrays, credit = credit_rollouts(
        rollouts, credit_fn, actions=actions, value=value
      )
    credited = time.perf_counter()
    problem = _first_non_finite(rollouts, advantage, config.estimator)
    if problem:
      return state, {}, problem
    state, learned = learn(
      state,
      levels,
      rollouts,
      advantage,
      update_key,
      value=value,
      clip_low_extra=clip_low_extra,
    )
    learned = {k: float(v) for k, v in jax.device_get(learned).items()}
    updated = time.perf_counter()
    params_finite = learned.pop("params_finite")
    mask = np.asarray(rollouts.mask)
    told = hidden_state(jax.tree.map(lambda x: x[:_TESTED], arrays))
    metrics = {
      **batch_diagnostics(arrays, credit),
      "hidden_state_z": told.z,
      "hidden_state_p": told.p_value,
      **learned,
      **extra,
      "steps": int(mask.sum() + extra.get("extra_steps", 0)),
      "no_op_share": float(1 - np.asarray(rollouts.moved)[mask].mean()),
      "seconds_rollout": collected - began,
      "seconds_credit": credited - collected,
      "seconds_update": updated - credited,
    }
    if metrics["residual_warnings"]:
      warnings.warn(
        f"update {number + 1}: the values of "
        f"{metrics['residual_warnings']:.0f} groups miss their equation by up "
        f"to {metrics['residual']:.1e} of the rewards (residual_warnings in "
        "metrics.jsonl)",
        stacklevel=2,
      )
    evidence += told
    if chains and not warned and evidence.p_value < POOLED_BELOW:
      warned = True
      warnings.warn(
        f"update {number + 1}: {evidence.warning(below=POOLED_BELOW)}"
        " (hidden_state_p in metrics.jsonl)",
        stacklevel=2,
      )
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
      problem = f"not finite: {', '.join(bad)}"
    elif not params_finite:
      problem = "the parameters are not finite after the update"
    return state, metrics, problem

  return step


def credit_rollouts(
  rollouts: collect_lib.Rollouts,
  credit_fn: Callable[..., StepCredit],
  *,
  actions: int,
  value: jax.Array | None = None,
):
  """Rollouts on the device -> advantages; the whole of step credit.

  Args:
    rollouts: [P, G, T].
    credit_fn: from `registry.make_credit_fn`.
    actions: number of actions of the environment.
    value: [P, G, T], a critic's values, for an estimator that needs them.

  Returns:
    (advantage [P, G, T] float32 with 0 where masked, the padded GroupArrays,
    their StepCredit).
  """
  batch = batch_rollouts(rollouts, actions=actions, value=value)
  credit = credit_fn(batch.arrays)  # only the advantage need leave the device
  advantage = jax.device_get(credit.advantage)
  return batch.to_steps(advantage), batch.arrays, credit


def batch_rollouts(
  rollouts: collect_lib.Rollouts,
  *,
  actions: int,
  shape: BatchShape | None = None,
  value: jax.Array | None = None,
) -> ArrayBatch:
  """Brings to the host what credit needs, and pads it; as `batch_arrays`."""
  wanted = ("key", "final_key", "action", "reward", "boundary", "mask")
  found = {name: getattr(rollouts, name) for name in wanted}
  if rollouts.action_key is not None:
    found["action"] = rollouts.action_key
  host = jax.device_get(found)
  return batch_arrays(
    state_key=host.pop("key"),
    **host,
    value=jax.device_get(value),
    actions=actions,
    shape=shape,
  )


def _first_non_finite(rollouts, advantage, estimator: str) -> str | None:
  for name in ("log_prob", "reward"):
    values = np.asarray(getattr(rollouts, name))[np.asarray(rollouts.mask)]
    if not np.isfinite(values).all():
      return f"the {name} of a rollout is not finite"
  bad = ~np.isfinite(advantage)
  if bad.any():
    groups = sorted(set(np.nonzero(bad)[0].tolist()))
    return (
      f"estimator {estimator} gave {bad.sum()} advantages that are not "
      f"finite, in groups {groups[:8]} of the batch"
    )
  return None


def _optimizer(config):
  return update.make_optimizer(
    learning_rate=config.learner.learning_rate,
    max_grad_norm=config.learner.max_grad_norm,
  )


def _critic_optimizer(config):
  return update.make_optimizer(
    learning_rate=config.learner.critic_learning_rate,
    max_grad_norm=config.learner.max_grad_norm,
  )
