"""The objective over tokens against a loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crbc_jax.agents.turns import TokenRows
from crbc_jax.learner import row_losses, update

R, L, S, V = 5, 9, 4, 6


def logits_fn(params, tokens, at):
  """A table: the next token depends on the present one."""
  return params["w"][jnp.take_along_axis(tokens, at, 1)]


def make_rows(seed=0):
  rng = np.random.default_rng(seed)
  mask = np.arange(S) < rng.integers(1, S + 1, (R, 1))
  start = rng.integers(1, L - S, (R, 1))
  rows = {
    "state": TokenRows(
      tokens=rng.integers(V, size=(R, L)).astype(np.int32),
      at=np.where(mask, start + np.arange(S), 1).astype(np.int32),
      mask=mask,
      log_prob=np.where(mask, rng.normal(-2, 0.3, (R, S)), 0).astype(
        np.float32
      ),
      step=np.zeros((R, S), np.int32),
    ),
    "advantage": rng.normal(size=R).astype(np.float32),
  }
  params = {"w": rng.normal(size=(V, V)).astype(np.float32)}
  reference = {"w": rng.normal(size=(V, V)).astype(np.float32)}
  share = np.array([0.2, 0.2, 0.2, 0.2, 0.0], np.float32)
  return params, reference, rows, share


def by_hand(params, reference, rows, share, *, clip, ratio):
  state = rows["state"]
  policy = kl = entropy = 0.0
  for r in range(R):
    if share[r] == 0:
      continue
    terms, logs, olds = [], [], []
    for s in np.flatnonzero(state.mask[r]):
      at = state.at[r, s]
      before, token = state.tokens[r, at - 1], state.tokens[r, at]
      log_p = np.asarray(jax.nn.log_softmax(params["w"][before]))
      log_ref = np.asarray(jax.nn.log_softmax(reference["w"][before]))
      logs.append(log_p[token])
      olds.append(state.log_prob[r, s])
      d = log_ref[token] - log_p[token]
      terms.append((np.exp(d) - d - 1, -(np.exp(log_p) * log_p).sum()))
    gaps = np.array(logs) - np.array(olds)
    ratios = np.exp(gaps if ratio == "token" else [gaps.mean()])
    a = rows["advantage"][r]
    surrogate = np.minimum(a * ratios, a * np.clip(ratios, 1 - clip, 1 + clip))
    policy -= share[r] * surrogate.mean()
    kl += share[r] * np.mean([t[0] for t in terms])
    entropy += share[r] * np.mean([t[1] for t in terms])
  return policy, kl, entropy


@pytest.mark.parametrize("ratio", row_losses.RATIOS)
def test_equals_a_loop(ratio):
  for seed in range(3):
    params, reference, rows, share = make_rows(seed)
    loss = row_losses.make_token_loss(
      logits_fn, clip=0.2, entropy_weight=0.01, kl_weight=0.5, ratio=ratio
    )
    total, found = loss(params, reference, (), rows, share)
    policy, kl, entropy = by_hand(
      params, reference, rows, share, clip=0.2, ratio=ratio
    )
    np.testing.assert_allclose(found["policy_loss"], policy, rtol=2e-5)
    np.testing.assert_allclose(found["kl_reference"], kl, rtol=2e-5)
    np.testing.assert_allclose(found["entropy"], entropy, rtol=2e-5)
    np.testing.assert_allclose(
      total, policy - 0.01 * entropy + 0.5 * kl, rtol=2e-5
    )
    assert set(found) == set(row_losses.MEANS)


def test_ratios_agree_on_responses_of_one_token():
  params, reference, rows, share = make_rows()
  mask = np.arange(S)[None] < np.ones((R, 1))
  rows["state"] = rows["state"].replace(mask=mask)
  options = {"clip": 0.2, "entropy_weight": 0.0, "kl_weight": 0.0}
  one, other = (
    row_losses.make_token_loss(logits_fn, ratio=ratio, **options)(
      params, reference, (), rows, share
    )[0]
    for ratio in row_losses.RATIOS
  )
  np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("ratio", row_losses.RATIOS)
def test_tokens_that_were_shown_and_padding_have_no_gradient(ratio):
  _, _, rows, share = make_rows()
  loss = row_losses.make_token_loss(
    lambda logits, tokens, at: jnp.take_along_axis(
      logits, at[..., None], axis=1
    ),
    clip=10.0,
    entropy_weight=0.1,
    kl_weight=0.1,
    ratio=ratio,
  )
  rng = np.random.default_rng(1)
  logits = rng.normal(size=(R, L, V)).astype(np.float32)
  other = rng.normal(size=(R, L, V)).astype(np.float32)
  grad = jax.grad(lambda x: loss(x, other, (), rows, share)[0])(logits)
  state = rows["state"]
  touched = np.zeros((R, L), bool)
  for r in range(R):
    if share[r]:
      touched[r, state.at[r][state.mask[r]] - 1] = True
  assert (np.abs(grad).max(axis=-1)[touched] > 0).all()
  assert not np.abs(grad)[~touched].any()


def test_nothing_is_nan_where_padding_is():
  params, reference, rows, share = make_rows()
  state = rows["state"]
  rows["state"] = state.replace(
    log_prob=np.where(state.mask, state.log_prob, np.nan)
  )
  rows["advantage"] = np.where(share > 0, rows["advantage"], np.nan)
  for ratio in row_losses.RATIOS:
    loss = row_losses.make_token_loss(
      logits_fn, clip=0.2, entropy_weight=0.1, kl_weight=0.1, ratio=ratio
    )
    value, grad = jax.value_and_grad(
      lambda p: loss(p, reference, (), rows, share)[0]  # noqa: B023
    )(params)
    assert np.isfinite(value) and np.isfinite(grad["w"]).all()


def test_unknown_ratio():
  with pytest.raises(ValueError, match="ratio"):
    row_losses.make_token_loss(
      logits_fn, clip=0.2, entropy_weight=0.0, kl_weight=0.0, ratio="word"
    )


def test_a_minibatch_cannot_be_cut_unevenly():
  with pytest.raises(ValueError, match="equal parts"):
    update.make_update_fn(
      None, None, minibatch=10, epochs=1, accumulation=3, aggregation="step",
      advantage_scale="none",
    )  # fmt: skip
