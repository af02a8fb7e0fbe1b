"""Branching estimators against exact values, a solver and sums by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crbc_jax import credit_table, specs
from crbc_jax.credit import registry
from crbc_jax.envs import sokoban_levels, sokoban_solver
from crbc_jax.envs.sokoban import DOWN, LEFT, RIGHT, UP
from crbc_jax.learner import (
  branching,
  collect,
  config,
  continuations,
  loop,
  losses,
  records,
  training_step,
  truth,
  update,
)
from crbc_jax.report import tables
from crbc_jax.types import Boundary
from tests import groups, tiny_runs
from tests.learner.updates import make_action_update
from tests.tiny_runs import compiled_programs  # noqa: F401

BETA = 0.9
ROOM = "#####\n#@  #\n# $ #\n# . #\n#####\n"
PASSAGE = "######\n#@ $.#\n# ####\n######\n"
CORRIDOR = "#######\n#@ $ .#\n#######\n"  # solved by three steps to the right
CORNER = "######\n#  . #\n# $  #\n#@   #\n######\n"
SURE = 30.0  # logit of an action that is taken for certain


def logits_fn(params, level, state):
  """A table by clock, player and first box: [T, C, C + 1, 4]."""
  del level
  return params[state.step, state.player, state.boxes[0]]


def read(text, times=1):
  return sokoban_levels.parse_levels(text, "test").take([0] * times)


def cells(env):
  return env.height * env.width


def random_policy(env):
  table = np.random.default_rng(0).normal(size=(cells(env), cells(env) + 1, 4))
  return np.broadcast_to(
    table.astype(np.float32), (env.step_limit, *table.shape)
  )


def scripted(env, actions):
  """Plays these actions, then goes on with the last one."""
  table = np.zeros((env.step_limit, cells(env), cells(env) + 1, 4), np.float32)
  for t in range(env.step_limit):
    table[t, :, :, actions[min(t, len(actions) - 1)]] = SURE
  return table


def distances(graph):
  """Steps to success of each state of a `StateGraph`; inf = hopeless."""
  distance = np.where(graph.solved, 0.0, np.inf)
  while True:
    nearer = np.minimum(distance, 1 + distance[graph.next_state].min(axis=1))
    if (nearer == distance).all():
      return distance
    distance = nearer


def optimal(env, levels):
  """Always a shortest way on."""
  graph = sokoban_solver.enumerate_states(levels, 0)
  best = distances(graph)[graph.next_state].argmin(axis=1)
  table = np.zeros((cells(env), cells(env) + 1, 4), np.float32)
  table[graph.player, graph.boxes[:, 0], best] = SURE
  return np.broadcast_to(table, (env.step_limit, *table.shape))


@functools.cache
def collect_fn(env, group_size):
  return collect.make_collect_fn(env, logits_fn, group_size=group_size)


def play(env, levels, params, *, group_size=1, key=0):
  found = collect_fn(env, group_size)(
    params, levels.as_levels(), jax.random.key(key)
  )
  return jax.device_get(found)


def side_by_side(*rollouts):
  """One group of several."""
  return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rollouts)


@functools.cache
def branch_fn(function, env, lanes, **options):
  del lanes  # what was compiled depends on it
  return function(env, logits_fn, **options)


def run(function, env, params, levels, rollouts, *, key=1, **options):
  branch = branch_fn(function, env, continuations.LANES, **options)
  return jax.device_get(
    branch(params, levels.as_levels(), rollouts, jax.random.key(key))
  )


def vineppo(*arguments, **options):
  return run(branching.make_vineppo_fn, *arguments, **options)


def elpo(*arguments, **options):
  return run(branching.make_elpo_fn, *arguments, **options)


class TestVinePPO:
  @pytest.mark.parametrize("slip", [0.0, 0.3])
  @pytest.mark.parametrize("share", branching.SHARES)
  def test_values_are_the_true_ones(self, slip, share):
    levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
    env = tiny_runs.make_env(levels, step_limit=5, slip=slip)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=5)
    samples = 4_000
    got, _ = vineppo(
      env, params, levels, rollouts, samples=samples, beta=BETA, share=share
    )
    true = truth.make_true_values_fn(env, logits_fn, beta=BETA)(
      params, levels, rollouts
    )
    # A variable in [0, 1] with mean v varies by at most v (1 - v).
    width = 4.5 * np.sqrt(true.v * (1 - true.v) / samples) + 1e-6
    assert (np.abs(got.v - true.v) <= width).all()
    inside = (true.v > 0.01) & (true.v < 0.9)
    assert inside.sum() > 10 and len(set(true.v[inside].round(6).tolist())) > 5
    # And the intervals are narrow enough to tell the clock: a step later the
    # same state is worth less.
    assert (width[inside] < 0.04).all()
    np.testing.assert_allclose(got.advantage, got.q - got.v, atol=1e-6)
    np.testing.assert_array_equal(got.step, got.advantage)
    assert not got.trajectory.any() and got.clip_low_extra is None
    for value in (got.advantage, got.q, got.v, got.live):
      assert not value[~rollouts.mask].any()

  def test_ends_are_known_exactly(self):
    levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
    env = tiny_runs.make_env(levels, step_limit=5)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=40)
    got, _ = vineppo(env, params, levels, rollouts, samples=1, beta=BETA)
    won = rollouts.boundary == Boundary.SUCCESS
    late = rollouts.boundary == Boundary.TRUNCATED
    assert won.any() and late.any()
    np.testing.assert_allclose(got.q[won], BETA)
    assert not got.q[late].any()
    # Elsewhere q is beta times the value of the next row.
    inner = rollouts.mask[..., 1:]
    np.testing.assert_allclose(
      got.q[..., :-1][inner], BETA * got.v[..., 1:][inner]
    )

  @pytest.mark.parametrize("lanes", [2, 1_024])
  def test_a_policy_without_chance_has_exact_values(self, lanes, monkeypatch):
    monkeypatch.setattr(continuations, "LANES", lanes)
    levels = read(CORRIDOR)
    env = tiny_runs.make_env(levels, step_limit=6)
    wander = np.zeros((6, cells(env), cells(env) + 1, 4), np.float32)
    rollouts = play(env, levels, wander, group_size=12)
    right = scripted(env, [RIGHT])
    got, extra = vineppo(
      env, right, levels, rollouts, samples=3, beta=BETA, share="none"
    )
    mask, step = rollouts.mask, np.arange(6)
    # By hand: from cell 7 + x the policy needs 4 - x steps.
    need = 4 - (rollouts.state.player - 7)
    in_time = need <= 6 - step
    wanted = np.where(mask & in_time, BETA**need, 0.0)
    np.testing.assert_allclose(got.v, wanted, rtol=1e-6)
    assert (mask & ~in_time).any() and len(set(need[mask].tolist())) == 3
    # What the policy itself does is worth exactly nothing more or less.
    own = mask & (rollouts.action == RIGHT) & in_time
    assert own.sum() > 5 and not got.advantage[own].any()
    # A step on the spot costs one beta, or everything when time runs out.
    idle = mask & ~rollouts.moved & in_time
    left = idle & (need <= 5 - step)
    assert left.any() and (idle & ~left).any()
    np.testing.assert_allclose(
      got.advantage[left], (BETA**need * (BETA - 1))[left], rtol=1e-5
    )
    np.testing.assert_allclose(
      got.advantage[idle & ~left], -(BETA**need)[idle & ~left], rtol=1e-6
    )
    assert extra == 3 * np.minimum(need, 6 - step)[mask].sum()

  @pytest.mark.parametrize(
    "step_limit, share, rollouts_each, steps_each",
    [
      (8, "state", 3, 3 + 2 + 1),  # both rollouts are the same three rows
      (8, "none", 6, 2 * (3 + 2 + 1)),
      (2, "state", 2, 2 + 1),  # cut off by the step limit
      (2, "none", 4, 2 * (2 + 1)),
    ],
  )
  def test_extra_steps_by_hand(
    self, step_limit, share, rollouts_each, steps_each
  ):
    levels = read(CORRIDOR, 2)  # two groups on equal levels share nothing
    env = tiny_runs.make_env(levels, step_limit=step_limit)
    right = scripted(env, [RIGHT])
    rollouts = play(env, levels, right, group_size=2)
    got, extra = vineppo(env, right, levels, rollouts, samples=5, share=share)
    assert extra == 2 * 5 * steps_each
    assert got.aux["extra_rollouts"] == 2 * 5 * rollouts_each
    # All succeed as well as the policy can, or all fail: nothing to credit.
    assert not got.advantage.any()
    assert got.v.any() == (step_limit == 8)

  def test_only_equal_states_at_equal_clocks_share(self):
    levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
    env = tiny_runs.make_env(levels, step_limit=6)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=8)
    mask = rollouts.mask
    p, _, t = np.nonzero(mask)
    names = list(zip(p, t, rollouts.key[mask][:, 0], strict=True))
    shared, _ = vineppo(env, params, levels, rollouts, samples=512)
    alone, _ = vineppo(env, params, levels, rollouts, samples=512, share="none")
    by_name = {}
    for name, value in zip(names, shared.v[mask].tolist(), strict=True):
      by_name.setdefault(name, set()).add(value)
    assert all(len(values) == 1 for values in by_name.values())
    assert shared.aux["extra_rollouts"] == 512 * len(by_name)
    assert alone.aux["extra_rollouts"] == 512 * len(names)
    assert len(by_name) < len(names)
    # Fresh draws where nothing is shared: the first state of a group.
    assert len(set(alone.v[0, :, 0].tolist())) > 4
    assert len(set(shared.v[0, :, 0].tolist())) == 1

  def test_what_is_masked_does_not_matter(self):
    levels = read(ROOM)
    env = tiny_runs.make_env(levels, step_limit=6)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=40)
    dead = ~rollouts.mask
    # What is masked looks like a state that is not, later in the group.
    last = np.flatnonzero(~dead[0].any(axis=1)).max()
    assert dead[0, :last].any()
    garbage = dataclasses.replace(
      rollouts,
      key=np.where(
        dead[..., None], rollouts.key[:, last : last + 1], rollouts.key
      ),
      boundary=np.where(dead, Boundary.SUCCESS, rollouts.boundary),
      log_prob=np.where(dead, np.nan, rollouts.log_prob),
    )
    for function in (vineppo, elpo):
      one, steps = function(env, params, levels, rollouts)
      two, same = function(env, params, levels, garbage)
      jax.tree.map(np.testing.assert_array_equal, one, two)
      assert steps == same > 0

  def test_the_key_alone_decides(self):
    levels = read(ROOM)
    env = tiny_runs.make_env(levels, step_limit=6, slip=0.2)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=4)
    for function in (vineppo, elpo):
      one, same, other = (
        function(env, params, levels, rollouts, key=key)[0] for key in (1, 1, 2)
      )
      jax.tree.map(np.testing.assert_array_equal, one, same)
      assert (one.q != other.q).any()


def corner_case(step_limit=12):
  """(env, levels, a success, a failure, a policy that knows the way).

  The failure pushes the box along the wall into the corner with step 4.
  """
  levels = read(CORNER)
  env = tiny_runs.make_env(levels, step_limit=step_limit)
  solved = play(env, levels, scripted(env, [UP, RIGHT, DOWN, RIGHT, UP]))
  failed = play(env, levels, scripted(env, [RIGHT, UP, RIGHT, UP, LEFT]))
  assert solved.boundary[0, 0, 4] == Boundary.SUCCESS
  assert failed.boundary[0, 0, step_limit - 1] == Boundary.TRUNCATED
  assert failed.state.boxes[0, 0, 4:6, 0].tolist() == [8, 7]
  return env, levels, solved, failed, optimal(env, levels)


class TestELPO:
  def test_the_corner_by_hand(self):
    env, levels, solved, failed, policy = corner_case()
    rollouts = side_by_side(solved, failed)
    got, extra = elpo(env, policy, levels, rollouts, budget=8)
    # Four prefixes, two branches each: 6 hopeless, 3 and 4 not, 5 hopeless.
    assert np.flatnonzero(got.aux["branched"][0, 1]).tolist() == [3, 4, 5, 6]
    assert got.aux["critical"].tolist() == [[-1, 4]]
    # Hopeless branches play to the end, the others need 4 and 5 steps.
    assert extra == 2 * (6 + 4 + 5 + 7)
    assert got.aux["extra_rollouts"] == 8
    # Returns: 0 after step 4, so {1, 1, 0} before it, {1, 1, 2/3} before 3.
    child = [8 / 9] * 3 + [2 / 3] + [0] * 8
    mean = [17 / 18] * 3 + [8 / 9, 2 / 3] + [0] * 7
    np.testing.assert_allclose(got.q[0, 1], child, rtol=1e-6)
    np.testing.assert_allclose(got.v[0, 1], mean, rtol=1e-6)
    branch = [-1 / 18] * 3 + [-2 / 9, -2 / 3] + [0] * 7
    np.testing.assert_allclose(got.step[0, 1], branch, rtol=1e-5)
    np.testing.assert_allclose(got.step[0, 0, :5], 1 / 18, rtol=1e-5)
    played = rollouts.mask[0]
    np.testing.assert_allclose(
      got.trajectory[0][played], np.repeat([0.5**0.5, -(0.5**0.5)], [5, 12]),
      rtol=1e-5,
    )  # fmt: skip
    np.testing.assert_allclose(
      got.advantage, (got.step + got.trajectory) / 2, rtol=1e-5
    )
    # The critical suffix, and nothing of the success.
    np.testing.assert_allclose(
      got.clip_low_extra[0],
      [[0] * 12, [0] * 4 + [0.115] * 8],
      rtol=1e-6,
    )
    for value in (got.advantage, got.step, got.trajectory, got.q, got.v):
      assert not value[~rollouts.mask].any()

  def test_options_of_the_corner(self):
    env, levels, solved, failed, policy = corner_case()
    rollouts = side_by_side(solved, failed)
    got, _ = elpo(
      env, policy, levels, rollouts,
      budget=8, lam=0.25, relax=0.0, norm="mean_std",
    )  # fmt: skip
    # Two of three equal: the third is 2/sqrt(3) deviations away.
    want = [-(0.5**0.5)] * 3 + [-2 / 3**0.5] * 2 + [0] * 7
    np.testing.assert_allclose(got.step[0, 1], want, rtol=1e-4)
    np.testing.assert_allclose(
      got.advantage, 0.25 * got.step + 0.75 * got.trajectory, rtol=1e-5
    )
    assert not got.clip_low_extra.any()

  @pytest.mark.parametrize(
    "budget, branched, critical",
    [
      (1, [6], 0),  # known only: not later than step 5
      (2, [3, 6], 3),
      (3, [3, 4, 6], 4),
      (7, [3, 4, 5, 6], 4),
      (20, [3, 4, 5, 6], 4),
    ],
  )
  def test_the_budget_is_never_exceeded(self, budget, branched, critical):
    env, levels, _, failed, policy = corner_case()
    rollouts = side_by_side(failed, failed, failed)
    got, _ = elpo(env, policy, levels, rollouts, budget=budget)
    for g in range(3):
      assert np.flatnonzero(got.aux["branched"][0, g]).tolist() == branched
    assert got.aux["critical"].tolist() == [[critical] * 3]
    each = max(1, budget // 4) * len(branched)
    assert each <= budget
    assert got.aux["extra_rollouts"] == 3 * each

  def test_a_group_of_successes_costs_and_gets_nothing(self):
    env, levels, solved, _, policy = corner_case()
    got, extra = elpo(env, policy, levels, side_by_side(solved, solved))
    assert extra == got.aux["extra_rollouts"] == 0
    assert not got.advantage.any() and not got.clip_low_extra.any()
    assert got.aux["critical"].tolist() == [[-1, -1]]
    np.testing.assert_array_equal(got.q[0, :, :5], 1)

  def test_a_group_of_failures(self):
    env, levels, _, failed, policy = corner_case()
    rollouts = side_by_side(failed, failed)
    got, _ = elpo(env, policy, levels, rollouts, budget=8)
    assert not got.trajectory.any()
    want = [0] * 3 + [-1 / 9, -1 / 3] + [0] * 7  # half of A_branch
    np.testing.assert_allclose(
      got.advantage[0], [want, want], rtol=1e-5, atol=1e-7
    )
    # With a policy that never gets there, nothing is told from anything.
    lost = scripted(env, [LEFT])
    got, extra = elpo(env, lost, levels, rollouts, budget=8)
    assert not got.advantage.any() and not got.q.any()
    assert got.aux["critical"].tolist() == [[0, 0]]
    # Asked: 6, 3, 1 of 12, then nothing is left between 0 and 1.
    assert extra == 2 * 2 * (6 + 9 + 11)

  @pytest.mark.parametrize("text, step_limit", [(ROOM, 9), (CORNER, 13)])
  def test_irrecoverable_steps_are_those_of_a_solver(self, text, step_limit):
    levels = read(text)
    env = tiny_runs.make_env(levels, step_limit=step_limit)
    wander = np.zeros((step_limit, cells(env), cells(env) + 1, 4), np.float32)
    rollouts = play(env, levels, wander, group_size=60)
    got, _ = elpo(env, optimal(env, levels), levels, rollouts)
    graph = sokoban_solver.enumerate_states(levels, 0)
    far = dict(
      zip(
        zip(graph.player.tolist(), graph.boxes[:, 0].tolist(), strict=True),
        distances(graph).tolist(),
        strict=True,
      )
    )
    reasons = set()
    for g in range(60):
      if (rollouts.boundary[0, g] == Boundary.SUCCESS).any():
        assert got.aux["critical"][0, g] == -1
        continue
      need = [
        far[int(a), int(b)]
        for a, b in zip(
          rollouts.state.player[0, g],
          rollouts.state.boxes[0, g, :, 0],
          strict=True,
        )
      ]
      last = max(t for t in range(step_limit) if need[t] <= step_limit - t)
      assert got.aux["critical"][0, g] == last
      if last + 1 < step_limit:
        reasons.add((last, np.isinf(need[last + 1])))
    # Boxes that are stuck and clocks that run out, at several steps.
    assert {stuck for _, stuck in reasons} == {True, False}
    assert len(reasons) > 4

  def test_a_single_step_leaves_nothing_to_search(self):
    levels = read(ROOM)
    env = tiny_runs.make_env(levels, step_limit=1)
    params = random_policy(env)
    rollouts = play(env, levels, params, group_size=3)
    got, extra = elpo(env, params, levels, rollouts)
    assert extra == 0 and not got.advantage.any()
    assert got.aux["critical"].tolist() == [[0, 0, 0]]


class TestLowerClip:
  def test_by_hand(self):
    def of(log_prob, **options):
      return losses.clipped_surrogate(
        log_prob,
        jnp.full(3, -1.0),
        jnp.array([-2.0, -2.0, 2.0]),
        jnp.ones(3),
        clip=0.2,
        **options,
      )

    log_prob = -1 + jnp.log(jnp.array([0.75, 0.75, 1.5]))
    extra = jnp.array([0.0, 0.115, 0.115])
    (loss, share), gradient = jax.value_and_grad(of, has_aux=True)(
      log_prob, clip_low_extra=extra
    )
    # Clipped at .8; free down to .685; the upper clip is as it was.
    np.testing.assert_allclose(loss, 1.6 + 1.5 - 2.4, rtol=1e-5)
    np.testing.assert_allclose(gradient, [0, 1.5, 0], rtol=1e-5)
    assert share == 2
    none, zero = of(log_prob), of(log_prob, clip_low_extra=jnp.zeros(3))
    np.testing.assert_array_equal(none, zero)
    assert none[0] == pytest.approx(1.6 + 1.6 - 2.4)

  def test_each_step_has_its_own_in_an_update(self):
    _, levels, solved, failed, policy = corner_case()
    rollouts = side_by_side(solved, failed)
    rng = np.random.default_rng(0)
    # Every ratio is .75 or so: between the two lower clips.
    params = np.zeros_like(policy) + rng.normal(size=policy.shape[1:]) * 0.01
    params = jnp.asarray(params, jnp.float32)
    off = -np.log(4) - np.log(0.75)
    rollouts = dataclasses.replace(
      rollouts, log_prob=np.full_like(rollouts.log_prob, off)
    )
    advantage = -np.ones(rollouts.mask.shape, np.float32)
    optimizer = optax.sgd(1.0)
    learn = make_action_update(
      logits_fn, optimizer, minibatch=24, epochs=1, clip=0.2,
      entropy_weight=0.0, kl_weight=0.0, aggregation="step",
      advantage_scale="none",
    )  # fmt: skip

    def moved(extra):
      state = update.LearnerState(
        params=params + 0,
        opt_state=optimizer.init(params),
        reference=(),
        key=jax.random.key_data(jax.random.key(0)),
      )
      state, metrics = learn(
        state,
        levels.as_levels(),
        rollouts,
        advantage,
        jax.random.key(0),
        clip_low_extra=extra,
      )
      change = np.abs(np.asarray(state.params - params)).max(axis=(1, 2, 3))
      return change > 0, float(metrics["clip_share"])

    changed, share = moved(None)
    assert not changed.any() and share == pytest.approx(1)
    extra = np.zeros_like(advantage)
    extra[0, 1, 6:8] = 0.115
    changed, share = moved(extra)
    assert np.flatnonzero(changed).tolist() == [6, 7]
    assert share == pytest.approx(15 / 17)


class TestNames:
  def test_are_the_ones_the_registry_refuses(self):
    assert set(registry.NEED_RESTORING) == set(branching.BRANCHING)
    assert not set(registry.ESTIMATORS) & set(branching.BRANCHING)
    for function in (e.function for e in branching.BRANCHING.values()):
      assert specs.options_of(function)

  @pytest.mark.parametrize("name", branching.BRANCHING)
  def test_a_logged_table_is_refused(self, name):
    table = groups.table_of([groups.golden()])
    with pytest.raises(ValueError, match="restored to a state, as in `crbc"):
      credit_table(table, name)
    with pytest.raises(ValueError, match="can't credit a logged table"):
      registry.make_credit_fn(name)

  @pytest.mark.parametrize(
    "text",
    ["vineppo", "vineppo(samples=9, beta=1.0, share='none')", "elpo()"],
  )
  def test_a_config_may_name_them(self, text):
    made = config.get_config()
    made.estimator = text
    config.validate(made)

  @pytest.mark.parametrize(
    "text, words",
    [
      ("vinepo", "did you mean 'vineppo'?"),
      ("vineppo(sample=4)", "no option 'sample' (did you mean 'samples'?)"),
      ("vineppo(samples=0)", "samples must be a whole number >= 1, got 0"),
      ("vineppo(samples=2.5)", "samples must be a whole number >= 1"),
      ("vineppo(samples=inf)", "samples must be a whole number >= 1"),
      ("vineppo(samples='4')", "samples must be a number"),
      ("vineppo(beta=1.5)", "beta must be in (0, 1]"),
      ("vineppo(share='all')", "share must be one of state, none"),
      ("elpo(budget=0)", "budget must be a whole number"),
      ("elpo(lam=1.5)", "lam must be in [0, 1]"),
      ("elpo(relax=-0.1)", "relax must be >= 0"),
      ("elpo(norm='std')", "norm must be one of mean_std, mean"),
      ("elpo(branches=3)", "it has: budget, lam, relax, norm, eps"),
    ],
  )
  def test_a_config_with_a_wrong_option_is_refused(self, text, words):
    made = config.get_config()
    made.estimator = text
    with pytest.raises(config.ConfigError) as caught:
      config.validate(made)
    assert str(caught.value).startswith("config.estimator: ")
    assert words in str(caught.value)

  def test_are_listed(self):
    names = list(tables.estimators().renderables[0].columns[0].cells)
    assert set(branching.BRANCHING) < set(names)


def test_steps_and_padded_rows_correspond():
  levels = sokoban_levels.parse_levels(f"{ROOM}\n{PASSAGE}", "test")
  env = tiny_runs.make_env(levels, step_limit=6)
  rollouts = play(env, levels, random_policy(env), group_size=4)
  batch = training_step.batch_rollouts(rollouts, actions=4)
  values = np.random.default_rng(0).normal(size=rollouts.mask.shape)
  rows = batch.from_steps(values)
  assert rows.shape == batch.arrays.mask.shape
  assert not rows[~batch.arrays.mask].any()
  np.testing.assert_array_equal(
    batch.to_steps(rows), np.where(rollouts.mask, values, 0)
  )
  np.testing.assert_array_equal(
    batch.from_steps(rollouts.boundary), batch.arrays.boundary
  )


class StoppedError(Exception):
  pass


@pytest.mark.training
@pytest.mark.parametrize("text", ["vineppo(samples=2)", "elpo(budget=6)"])
def test_runs_count_what_they_play_and_resume_exactly(tmp_path, text):
  made = tiny_runs.make_config(
    tmp_path, estimator=text, env_steps=4_000, env__slip=0.1,
    eval__every=2_000, checkpoint__every=1_000,
  )  # fmt: skip
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  loop.start_run(made, whole)
  calls = []

  def report(env_steps, metrics):
    calls.append(env_steps)
    if len(calls) == 4:
      raise StoppedError

  with pytest.raises(StoppedError):
    loop.start_run(made, cut, report=report)
  assert tiny_runs.last_checkpoint(cut)[1]["update"] >= 1
  loop.resume_run(cut)
  assert tiny_runs.without_seconds(whole) == tiny_runs.without_seconds(cut)
  a, b = (tiny_runs.last_checkpoint(x) for x in (whole, cut))
  assert a[1] == b[1]
  for x, y in zip(a[0], b[0], strict=True):
    assert x.tobytes() == y.tobytes()

  lines = records.read_metrics(whole, "train")
  assert len(lines) > 4 and len(lines) > len(calls)
  total = 0
  for line in lines:
    own = round(line["length"] * 16)  # 4 levels x 4 rollouts
    assert line["extra_steps"] > 0 and line["extra_rollouts"] > 0
    total += own + line["extra_steps"]
    assert line["env_steps"] == total
    assert line["live_share"] == 1
