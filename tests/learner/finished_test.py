import jax
import numpy as np
import pytest

from crbc_jax.envs import sokoban_levels
from crbc_jax.learner import (
  checkpoint,
  evaluate,
  finished,
  loop,
  task,
  training_step,
)
from crbc_jax.types import Boundary
from tests import tiny_runs
from tests.tiny_runs import compiled_programs  # noqa: F401


def logits_of_cell(params, level, state):
  """A policy of the player's cell and the first box."""
  del level
  return params[state.player] + 0.5 * params[state.boxes[0]]


def play_by_hand(env, level, choose, key_of=lambda t: None):
  """(outcome, actions, states) of one episode; `choose(state, t)`."""
  state, actions, states = env.reset(level), [], []
  step = jax.jit(env.step)
  while True:
    states.append(state)
    actions.append(int(choose(state, len(actions))))
    after = step(level, state, np.int32(actions[-1]), key_of(len(actions) - 1))
    state = after.state
    if after.boundary != Boundary.NONE:
      return Boundary(int(after.boundary)), actions, [*states, state]


def one(levels, i):
  return jax.tree.map(lambda x: x[i], levels.as_levels())


@pytest.fixture(scope="module")
def levels():
  return tiny_runs.make_levels()[0].take(range(0, 48, 3))


@pytest.fixture(scope="module")
def params():
  rng = np.random.default_rng(5)
  return jax.numpy.asarray(rng.normal(size=(25, 4)).astype(np.float32))


def test_greedy_evaluation_equals_episodes_by_hand(levels, params):
  env = tiny_runs.make_env(levels)
  found = evaluate.make_evaluate_fn(env, logits_of_cell, greedy=True)(
    params, levels.as_levels(), jax.random.key(0)
  )
  for i in range(len(levels)):
    level = one(levels, i)
    outcome, actions, _ = play_by_hand(
      env,
      level,
      lambda state, t, level=level: np.argmax(
        logits_of_cell(params, level, state)
      ),
    )
    assert found.success[i] == (outcome == Boundary.SUCCESS)
    assert found.length[i] == len(actions)
  assert len(set(found.success.tolist())) == 2


def test_sampled_evaluation_follows_policy_and_slips(levels, params):
  # The first step of many copies of a level one push from its end.
  one_push = sokoban_levels.parse_levels("#####\n#@$.#\n#####", "x")
  many = one_push.take([0] * 2_000)
  env = tiny_runs.make_env(many, step_limit=1, slip=0.5)
  found = evaluate.make_evaluate_fn(env, logits_of_cell, greedy=False)(
    params, many.as_levels(), jax.random.key(0)
  )
  logits = logits_of_cell(params, None, env.reset(one(one_push, 0)))
  wanted = 0.5 * jax.nn.softmax(logits)[3] + 0.5 / 4
  assert abs(found.success.mean() - wanted) < 0.045  # four deviations
  assert (found.length == 1).all()


def test_evaluation_depends_on_its_key_alone(levels, params):
  env = tiny_runs.make_env(levels)
  function = evaluate.make_evaluate_fn(env, logits_of_cell, greedy=False)
  first, same, other = (
    function(params, levels.as_levels(), jax.random.key(seed))
    for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(first.length, same.length)
  assert (first.length != other.length).any()
  assert function._cache_size() == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """(folder, result) of a tiny run with several checkpoints."""
  folder = tmp_path_factory.mktemp("run")
  config = tiny_runs.make_config(
    folder, rollout__levels=8, learner__learning_rate=5e-3
  )
  return folder / "run", loop.start_run(config, folder / "run")


@pytest.mark.training
def test_evaluate_run_repeats_the_final_evaluation(run):
  run_dir, result = run
  found = finished.evaluate_run(run_dir)
  assert {k: found[k] for k in result["final"]} == result["final"]
  assert found["update"] == result["update"]
  assert found["count"] == result["panel"]["count"]
  assert found["sha256"] == result["panel"]["sha256"]


@pytest.mark.training
def test_evaluate_run_at_another_checkpoint(run):
  run_dir, result = run
  numbers = sorted(int(p.name) for p in (run_dir / "checkpoints").iterdir())
  assert len(numbers) == 3 and numbers[-1] == result["update"]
  early = finished.evaluate_run(run_dir, update=numbers[0])
  assert early["update"] == numbers[0]
  with pytest.raises(checkpoint.CheckpointError, match="no checkpoint 999"):
    finished.evaluate_run(run_dir, update=999)


@pytest.mark.training
def test_evaluate_run_on_other_levels(run, tmp_path):
  run_dir, _ = run
  path = tmp_path / "own.txt"
  path.write_text("#####\n#@$.#\n#####\n\n####\n#@ #\n#$ #\n#. #\n####\n")
  found = finished.evaluate_run(run_dir, levels=str(path))
  own = sokoban_levels.read_levels(path)
  padded = sokoban_levels.match_sizes(
    own, task.make_task(loop.read_config(run_dir)).panel
  )[0]
  assert found["count"] == 2 and found["sha256"] == padded.digest
  for name in ("success_greedy", "success_sampled"):
    assert found[name] in (0, 0.5, 1)
  with pytest.raises(sokoban_levels.LevelError, match="no such file"):
    finished.evaluate_run(run_dir, levels=str(tmp_path / "none"))


@pytest.mark.training
@pytest.mark.parametrize(
  "text, words",
  [
    ("######\n#@$. #\n######\n", "5x6 levels with up to 1 boxes"),
    ("#####\n#@$.#\n# $.#\n#####\n", "with up to 2 boxes"),
  ],
)
def test_levels_of_another_size_are_refused(run, tmp_path, text, words):
  path = tmp_path / "own.txt"
  path.write_text(text)
  with pytest.raises(loop.RunError) as caught:
    finished.evaluate_run(run[0], levels=str(path))
  message = str(caught.value)
  assert words in message and "do not fit the run's 5x5 with 1" in message
  assert "\n" not in message


@pytest.mark.training
@pytest.mark.parametrize("sampled", [False, True])
def test_play_episode(run, sampled):
  run_dir, _ = run
  config = loop.read_config(run_dir)
  current = task.make_task(config)
  state = training_step.initial_state(config, current)
  with checkpoint.Checkpoints(
    run_dir / "checkpoints", read_only=True
  ) as checkpoints:
    params = checkpoints.restore(state)[0].params
  logits_of = jax.jit(current.logits_fn)
  lengths = set()
  for i in (0, 3, 7):
    episode = finished.play_episode(run_dir, i, sampled=sampled, seed=4)
    level = one(current.panel, i)

    def choose(now, t, level=level):
      logits = logits_of(params, level, now)
      if not sampled:
        return np.argmax(logits)
      key = jax.random.fold_in(jax.random.key(4), t)
      return jax.random.categorical(jax.random.split(key)[0], logits)

    outcome, actions, states = play_by_hand(current.env, level, choose)
    assert episode.name == current.panel.ids[i]
    assert episode.outcome == outcome.name.lower()
    assert episode.actions.tolist() == actions
    np.testing.assert_array_equal(
      episode.states.player, [s.player for s in states]
    )
    np.testing.assert_array_equal(episode.states.step, range(len(states)))
    assert episode.width == 5
    lengths.add(len(actions))
  if sampled:
    other = finished.play_episode(run_dir, 7, sampled=True, seed=5)
    assert other.actions.tolist() != actions


@pytest.mark.training
@pytest.mark.parametrize("index", [-1, 8])
def test_play_episode_of_no_level(run, index):
  with pytest.raises(sokoban_levels.LevelError, match="there are 8, from 0"):
    finished.play_episode(run[0], index)


def test_one_level(tmp_path):
  path = tmp_path / "own.txt"
  path.write_text("#####\n#@$.#\n#####\n\n#######\n#@ $ .#\n#######\n")
  level, width, name = finished.one_level(str(path), 1)
  assert (width, name) == (7, "own.txt:1")
  assert level.player == 8 and level.boxes.tolist() == [10]
  with pytest.raises(sokoban_levels.LevelError, match="there are 2, from 0"):
    finished.one_level(str(path), 2)


@pytest.mark.training
def test_a_run_without_a_checkpoint_is_refused(run, tmp_path):
  (tmp_path / "config.json").write_bytes((run[0] / "config.json").read_bytes())
  with pytest.raises(checkpoint.CheckpointError, match="saved no checkpoint"):
    finished.evaluate_run(tmp_path)
