import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crbc_jax.learner import update
from crbc_jax.learner.collect import Rollouts
from tests.learner.updates import make_action_update

P, G, T, A = 3, 2, 5, 4
LENGTHS = np.array([[5, 2], [1, 3], [4, 4]])  # 19 of 30 steps were played
LEARNER = {
  "minibatch": 30,
  "epochs": 1,
  "clip": 0.2,
  "entropy_weight": 0.0,
  "kl_weight": 0.0,
  "aggregation": "step",
  "advantage_scale": "none",
}


def logits_fn(params, level, state):
  return params["w"] @ state["x"] + level["bias"]


def mask_of(lengths):
  return np.arange(T) < lengths[..., None]


def make_batch(seed=0, lengths=LENGTHS):
  """(params, levels, rollouts, advantage); old log-probs are a bit off."""
  rng = np.random.default_rng(seed)
  params = {"w": rng.normal(size=(A, 3)).astype(np.float32)}
  levels = {"bias": rng.normal(size=(P, A)).astype(np.float32)}
  x = rng.normal(size=(P, G, T, 3)).astype(np.float32)
  action = rng.integers(A, size=(P, G, T)).astype(np.int32)
  logits = x @ params["w"].T + levels["bias"][:, None, None]
  log_prob = np.take_along_axis(
    np.asarray(jax.nn.log_softmax(logits)), action[..., None], -1
  )[..., 0]
  rollouts = Rollouts(
    state={"x": x},
    key=np.zeros((P, G, T, 1), np.int32),
    final_key=np.zeros((P, G, 1), np.int32),
    action=action,
    log_prob=log_prob + 0.1 * rng.normal(size=action.shape).astype(np.float32),
    reward=np.zeros((P, G, T), np.float32),
    boundary=np.zeros((P, G, T), np.int32),
    moved=np.ones((P, G, T), bool),
    mask=mask_of(lengths),
  )
  advantage = rng.normal(size=action.shape).astype(np.float32)
  return params, levels, rollouts, advantage


def make_update(optimizer, **options):
  return make_action_update(logits_fn, optimizer, **LEARNER | options)


def run(batch, optimizer, *, reference=(), key=0, function=None, **options):
  """Parameters, optimiser state and metrics after one update."""
  params, levels, rollouts, advantage = batch
  function = function or make_update(optimizer, **options)
  params = jax.tree.map(jnp.array, params)  # the update donates its state
  state = update.LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    reference=jax.tree.map(jnp.array, reference),
    key=jax.random.key_data(jax.random.key(7)),
  )
  state, metrics = function(
    state, levels, rollouts, advantage, jax.random.key(key)
  )
  return state.params, state.opt_state, metrics


def loss_by_hand(params, batch, *, entropy=0.0, kl=0.0, reference=None):
  """Mean loss over the played steps, one step at a time."""
  _, levels, rollouts, advantage = batch
  total, count = 0.0, 0
  for p, g in np.ndindex(P, G):
    for t in range(int(rollouts.mask[p, g].sum())):
      x, a = rollouts.state["x"][p, g, t], rollouts.action[p, g, t]
      log_p = jax.nn.log_softmax(params["w"] @ x + levels["bias"][p])
      ratio = jnp.exp(log_p[a] - rollouts.log_prob[p, g, t])
      gain = advantage[p, g, t]
      total -= jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
      total += entropy * jnp.sum(jnp.exp(log_p) * log_p)
      if kl:
        ref = jax.nn.log_softmax(reference["w"] @ x + levels["bias"][p])
        d = ref[a] - log_p[a]
        total += kl * (jnp.exp(d) - d - 1)
      count += 1
  return total / count


class TestScaleAdvantage:
  mask = np.array([[True, True, False], [True, True, False]])
  values = np.array([[3.0, 1.0, np.nan], [-1.0, 1.0, 1e9]], np.float32)

  def scaled(self, scale, values=None, mask=None):
    return np.asarray(
      update.scale_advantage(
        jnp.asarray(self.values if values is None else values),
        jnp.asarray(self.mask if mask is None else mask),
        scale=scale,
      )
    )

  def test_none(self):
    np.testing.assert_array_equal(self.scaled("none"), [[3, 1, 0], [-1, 1, 0]])

  def test_rms_divides_and_keeps_the_centre(self):
    np.testing.assert_allclose(
      self.scaled("rms"), np.array([[3, 1, 0], [-1, 1, 0]]) / 3**0.5, rtol=1e-6
    )

  def test_standardise(self):
    np.testing.assert_allclose(
      self.scaled("standardise"),
      np.array([[2, 0, 0], [-2, 0, 0]]) / 2**0.5,
      rtol=1e-6,
    )

  @pytest.mark.parametrize("scale", update.ADVANTAGE_SCALES)
  def test_zeros_stay_zero(self, scale):
    assert not self.scaled(scale, np.zeros((2, 3), np.float32)).any()
    nothing = np.zeros((2, 3), bool)
    assert not self.scaled(scale, mask=nothing).any()

  @pytest.mark.parametrize("value", [0.1, 0.3, -1 / 3, 7.7])
  @pytest.mark.parametrize("count", [3, 7, 13, 1_000])
  def test_equal_advantages_are_not_noise_blown_up(self, value, count):
    equal = np.full(count, value, np.float32)
    every = np.ones(count, bool)
    assert not self.scaled("standardise", equal, every).any()
    np.testing.assert_allclose(
      self.scaled("rms", equal, every), np.sign(equal), rtol=1e-4
    )

  def test_small_advantages_are_scaled_too(self):
    small = 1e-6 * np.array([[3, 1, 0], [-1, 1, 0]], np.float32)
    np.testing.assert_allclose(
      self.scaled("rms", small), self.scaled("rms"), rtol=1e-5
    )

  def test_unknown_name(self):
    with pytest.raises(ValueError, match=r"advantage_scale.*rms"):
      self.scaled("mean")


@pytest.mark.parametrize(
  "aggregation, wanted",  # shares of the loss, per step
  [
    ("step", [[1 / 6] * 4, [1 / 6, 1 / 6, 0, 0]]),
    ("trajectory", [[1 / 8] * 4, [1 / 4, 1 / 4, 0, 0]]),
    ("constant", [[1 / 8] * 4, [1 / 8, 1 / 8, 0, 0]]),
  ],
)
def test_row_weights_by_hand(aggregation, wanted):
  mask = jnp.array([[[True] * 4, [True, True, False, False]]])
  weights = update.row_weights(mask, aggregation=aggregation)
  np.testing.assert_allclose(weights[0] / 6, wanted, rtol=1e-6)


def test_row_weights_ignore_rollouts_of_no_step_and_unknown_names():
  mask = jnp.array([[[True, True], [True, False], [False, False]]])
  weights = update.row_weights(mask, aggregation="trajectory")
  np.testing.assert_allclose(
    weights[0] / 3, [[1 / 4, 1 / 4], [1 / 2, 0], [0, 0]], rtol=1e-6
  )
  with pytest.raises(ValueError, match="aggregation"):
    update.row_weights(mask, aggregation="token")


def test_a_minibatch_of_the_whole_batch_is_a_step_on_the_mean_loss():
  batch = make_batch()
  optimizer = update.make_optimizer(learning_rate=0.01, max_grad_norm=0.05)
  params, opt_state, metrics = run(
    batch, optimizer, minibatch=19, entropy_weight=0.1
  )
  loss, gradient = jax.value_and_grad(loss_by_hand)(
    batch[0], batch, entropy=0.1
  )
  changes, wanted_state = optimizer.update(
    gradient, optimizer.init(batch[0]), batch[0]
  )
  wanted = optax.apply_updates(batch[0], changes)
  np.testing.assert_allclose(params["w"], wanted["w"], rtol=1e-5, atol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7),
    opt_state,
    wanted_state,
  )
  np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)
  norm = optax.tree.norm(gradient)
  np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-4)
  assert norm > 0.05  # the clip of the gradient had something to do


@pytest.mark.parametrize("aggregation", update.AGGREGATIONS)
def test_every_step_keeps_its_weight_in_a_partly_filled_minibatch(aggregation):
  # Steps so small that only their sum matters: cutting changes nothing, also
  # where a last minibatch of one row is left (19 = 3 * 6 + 1).
  batch = make_batch()
  optimizer = optax.sgd(1e-3)
  moved = []
  for minibatch in (19, 6, 30):
    params, _, _ = run(
      batch, optimizer, minibatch=minibatch, aggregation=aggregation
    )
    moved.append((params["w"] - batch[0]["w"]) * minibatch)
  assert abs(moved[0]).max() > 1e-3
  for other in moved[1:]:
    np.testing.assert_allclose(other, moved[0], rtol=2e-2, atol=2e-4)


def test_aggregation_weighs_as_row_weights_say():
  batch = make_batch()
  params, levels, rollouts, advantage = batch
  optimizer = optax.sgd(1.0)
  by_step = make_update(optimizer, minibatch=19)
  for aggregation in update.AGGREGATIONS:
    weights = update.row_weights(rollouts.mask, aggregation=aggregation)
    got, _, _ = run(batch, optimizer, minibatch=19, aggregation=aggregation)
    # Weights on advantages are the same as weights on steps.
    weighted = (params, levels, rollouts, advantage * np.asarray(weights))
    wanted, _, _ = run(weighted, optimizer, function=by_step)
    np.testing.assert_allclose(got["w"], wanted["w"], rtol=1e-5, atol=1e-6)


def test_number_of_minibatches_follows_the_steps_with_one_compilation():
  traces = []

  def counted(params, level, state):
    traces.append(1)
    return logits_fn(params, level, state)

  optimizer = optax.adam(1e-3)
  function = make_action_update(
    counted, optimizer, **LEARNER | {"minibatch": 4, "epochs": 3}
  )
  first = None
  for lengths in (LENGTHS, np.ones((P, G), int), np.full((P, G), T)):
    batch = make_batch(lengths=lengths)
    _, opt_state, metrics = run(batch, optimizer, function=function)
    assert opt_state[0].count == 3 * -(-lengths.sum() // 4)
    assert metrics["params_finite"]
    first = first or len(traces)
  assert len(traces) == first
  assert function._cache_size() == 1


def test_accumulated_gradients_make_the_same_step():
  optimizer = optax.sgd(0.1)
  batch = make_batch()
  options = {"minibatch": 12, "epochs": 1}
  whole, _, wanted = run(batch, optimizer, **options)
  parts, _, metrics = run(batch, optimizer, accumulation=4, **options)
  np.testing.assert_allclose(parts["w"], whole["w"], rtol=1e-5, atol=1e-6)
  for name, value in wanted.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-6)


def test_zero_advantages_without_entropy_leave_the_parameters():
  params, levels, rollouts, advantage = make_batch()
  optimizer = update.make_optimizer(learning_rate=0.1, max_grad_norm=1.0)
  got, _, metrics = run(
    (params, levels, rollouts, 0 * advantage), optimizer, minibatch=4, epochs=3
  )
  np.testing.assert_array_equal(got["w"], params["w"])
  assert metrics["loss"] == metrics["grad_norm"] == 0


@pytest.mark.parametrize("scale", update.ADVANTAGE_SCALES)
def test_masked_rows_have_no_influence(scale):
  params, levels, rollouts, advantage = make_batch()
  gone = ~rollouts.mask
  filled = rollouts.replace(
    state={"x": np.where(gone[..., None], 1e3, rollouts.state["x"])},
    action=np.where(gone, 99, rollouts.action),
    log_prob=np.where(gone, np.nan, rollouts.log_prob),
    reward=np.where(gone, np.nan, rollouts.reward),
  )
  optimizer = optax.adam(1e-2)
  function = make_update(
    optimizer,
    minibatch=4,
    epochs=2,
    entropy_weight=0.1,
    kl_weight=0.1,
    advantage_scale=scale,
  )
  options = {"function": function, "reference": {"w": params["w"] + 0.1}}
  wanted = run((params, levels, rollouts, advantage), optimizer, **options)
  got = run(
    (params, levels, filled, np.where(gone, np.nan, advantage)),
    optimizer,
    **options,
  )
  jax.tree.map(np.testing.assert_array_equal, got, wanted)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))


def test_kl_reference():
  params, levels, rollouts, advantage = make_batch()
  batch = (params, levels, rollouts, 0 * advantage)
  reference = {"w": params["w"] + 0.3 * params["w"][::-1]}
  optimizer = optax.sgd(1.0)
  function = make_update(optimizer, minibatch=19, kl_weight=0.5)
  got, _, metrics = run(
    batch, optimizer, function=function, reference=reference
  )
  loss, gradient = jax.value_and_grad(loss_by_hand)(
    params, batch, kl=0.5, reference=reference
  )
  np.testing.assert_allclose(
    got["w"], params["w"] - gradient["w"], rtol=1e-4, atol=1e-6
  )
  np.testing.assert_allclose(metrics["kl_reference"], 2 * loss, rtol=1e-4)
  assert abs(gradient["w"]).max() > 1e-3
  # At the reference itself there is nothing to pull at.
  still, _, metrics = run(batch, optimizer, function=function, reference=params)
  np.testing.assert_allclose(still["w"], params["w"], atol=1e-7)
  assert metrics["kl_reference"] == 0


@pytest.mark.parametrize(
  "minibatch, lengths", [(4, LENGTHS), (64, LENGTHS), (4, np.full((P, G), T))]
)
def test_metrics_are_means_over_the_played_steps(minibatch, lengths):
  batch = make_batch(lengths=lengths)
  params, _, rollouts, _ = batch
  _, _, metrics = run(batch, optax.sgd(0.0), minibatch=minibatch, epochs=2)
  logits = rollouts.state["x"] @ params["w"].T + batch[1]["bias"][:, None, None]
  log_p = np.asarray(jax.nn.log_softmax(logits))
  entropy = -(np.exp(log_p) * log_p).sum(-1)[rollouts.mask].mean()
  taken = np.take_along_axis(log_p, rollouts.action[..., None], -1)[..., 0]
  d = (rollouts.log_prob - taken)[rollouts.mask]
  np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
  np.testing.assert_allclose(
    metrics["kl_step"], (np.exp(d) - d - 1).mean(), rtol=1e-3
  )
  np.testing.assert_allclose(
    metrics["clip_share"], (abs(np.exp(-d) - 1) > 0.2).mean(), rtol=1e-5
  )
  np.testing.assert_allclose(
    metrics["policy_loss"], loss_by_hand(params, batch), rtol=1e-4
  )


def test_shuffling_comes_from_the_key_alone():
  batch, optimizer = make_batch(), optax.adam(1e-2)
  function = make_update(optimizer, minibatch=4, epochs=2)
  one, same, other = (
    run(batch, optimizer, function=function, key=key)[0]["w"]
    for key in (1, 1, 2)
  )
  np.testing.assert_array_equal(one, same)
  assert (one != other).any()


def test_not_finite_parameters_are_reported():
  _, _, metrics = run(make_batch(), optax.sgd(float("inf")))
  assert not metrics["params_finite"]
