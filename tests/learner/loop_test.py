import collections
import json
import logging
import re
import warnings

import jax
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from crbc_jax.credit import diagnostics, registry
from crbc_jax.credit.catalogue import Entry
from crbc_jax.credit.hidden_state import Dependence, HiddenState
from crbc_jax.envs import sokoban_generator, sokoban_levels
from crbc_jax.learner import config as config_lib
from crbc_jax.learner import loop, records, task, training_step
from crbc_jax.types import StepCredit
from tests import groups, tiny_runs
from tests.tiny_runs import compiled_programs  # noqa: F401

pytestmark = pytest.mark.training

TRAIN_NAMES = {
  "success",
  "length",
  "entropy",
  "live_share",
  "all_fail_share",
  "all_success_share",
  *(f"group_size_{n}" for n in (1, 2, 4, 8, 16)),
  "singleton_share",
  "no_op_share",
  "residual",
  "residual_warnings",
  "hidden_state_z",
  "hidden_state_p",
  "seconds_rollout",
  "seconds_credit",
  "seconds_update",
  "loss",
  "policy_loss",
  "grad_norm",
  "kl_reference",
  "kl_step",
  "clip_share",
}
SHARES = {n for n in TRAIN_NAMES if n.endswith("_share")} | {"success"}
EVAL_NAMES = {
  f"{what}_{how}"
  for what in ("success", "length")
  for how in ("greedy", "sampled")
}
HEAD = {"kind", "update", "env_steps"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """(config, folder, result, log of compilations, reports) of a tiny run."""
  folder = tmp_path_factory.mktemp("run")
  config = tiny_runs.make_config(folder, tensorboard=True)
  messages, reports = [], []
  handler = logging.Handler()
  handler.emit = lambda record: messages.append(record.getMessage())
  logger = logging.getLogger("jax")
  logger.addHandler(handler)
  try:
    with jax.log_compiles():
      result = loop.start_run(
        config, folder / "a", report=lambda *x: reports.append(x)
      )
  finally:
    logger.removeHandler(handler)
  return config, folder / "a", result, messages, reports


def test_records_have_fixed_names_and_finite_values(run):
  config, folder, result, _, reports = run
  train = records.read_metrics(folder, "train")
  evals = records.read_metrics(folder, "eval")
  assert len(train) + len(evals) == len(records.read_metrics(folder))
  for record in train:
    assert set(record) == HEAD | TRAIN_NAMES
    assert all(np.isfinite(record[n]) for n in TRAIN_NAMES)
    assert all(0 <= record[n] <= 1 for n in SHARES)
    sizes = [record[f"group_size_{n}"] for n in (1, 2, 4, 8, 16)]
    np.testing.assert_allclose(sum(sizes), 1)
    assert sizes[0] == record["singleton_share"]
    assert record["all_fail_share"] + record["all_success_share"] <= 1
  for record in evals:
    assert set(record) == HEAD | EVAL_NAMES
    assert all(np.isfinite(record[n]) for n in EVAL_NAMES)
  # Steps really played: the mean length of 16 rollouts each time.
  assert [r["update"] for r in train] == list(range(1, len(train) + 1))
  played = np.cumsum([16 * r["length"] for r in train])
  np.testing.assert_allclose([r["env_steps"] for r in train], played)
  assert train[-2]["env_steps"] < config.env_steps <= train[-1]["env_steps"]
  # Evaluations: before training, when a multiple is crossed, at the end.
  crossed = [0]
  for before, after in zip([0, *played[:-1]], played, strict=True):
    if before // 400 < after // 400 or after == played[-1]:
      crossed.append(after)
  assert [r["env_steps"] for r in evals] == crossed
  assert [steps for steps, _ in reports] == [r["env_steps"] for r in train]
  assert "success_greedy" in reports[-1][1]
  assert json.loads((folder / "result.json").read_text()) == result
  assert result["env_steps"] == train[-1]["env_steps"]
  assert result["update"] == len(train)
  assert result["level_cursor"] == 4 * len(train)
  assert result["final"] == {n: evals[-1][n] for n in EVAL_NAMES}
  assert result["seconds"]["rollout"] == sum(
    r["seconds_rollout"] for r in train
  )
  saved = config_lib.load_config(
    json.loads((folder / "config.json").read_text())
  )
  assert saved == config_lib.with_absolute_paths(config)


def test_the_panel_is_fixed_and_listed(run):
  config, folder, result, _, _ = run
  listed = json.loads((folder / "levels.json").read_text())
  current = task.make_task(config)
  assert listed["panel"] == {
    "count": 8,
    "sha256": current.panel.digest,
    "ids": [f"held_out.txt:{i}" for i in range(8)],
  }
  assert listed["train"] == {"count": 24, "sha256": current.train.digest}
  assert result["panel"] == {k: listed["panel"][k] for k in ("count", "sha256")}
  assert result["panel"]["sha256"] != listed["train"]["sha256"]


def test_each_function_compiles_once(run):
  """The credit function may compile once for each rung of anchors."""
  counts = collections.Counter()
  for message in run[3]:
    found = re.match(r"Compiling jit\((.+?)\) with global shapes", message)
    if found:
      counts[found[1]] += 1
  assert counts["collect"] == counts["update"] == 1
  assert counts["evaluate"] == 2  # greedy and sampled
  credit = [name for name in counts if "crbc" in name]
  # 16 anchors at most where 4 rollouts of 8 steps share the first: one rung.
  assert [counts[name] for name in credit] == [1], counts


def test_tensorboard_holds_the_records(run):
  _, folder, _, _, _ = run
  (path,) = (folder / "tensorboard").iterdir()
  data, at, found = path.read_bytes(), 0, collections.defaultdict(list)
  while at < len(data):
    size = int.from_bytes(data[at : at + 8], "little")
    event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
    at += 12 + size + 4
    for value in event.summary.value:
      found[value.tag].append((event.step, value.simple_value))
  for kind, names in (("train", TRAIN_NAMES), ("eval", EVAL_NAMES)):
    read = records.read_metrics(folder, kind)
    for name in names:
      steps, values = zip(*found[f"{kind}/{name}"], strict=True)
      assert list(steps) == [r["env_steps"] for r in read]
      np.testing.assert_allclose(values, [r[name] for r in read], rtol=1e-6)


def test_the_same_seed_gives_the_same_run_and_another_another(run, tmp_path):
  config, folder, _, _, _ = run
  config = config.copy_and_resolve_references()
  config.tensorboard = False
  loop.start_run(config, tmp_path / "same")
  assert tiny_runs.without_seconds(tmp_path / "same") == (
    tiny_runs.without_seconds(folder)
  )
  a, b = (tiny_runs.last_checkpoint(f) for f in (folder, tmp_path / "same"))
  assert a[1] == b[1]
  jax.tree.map(np.testing.assert_array_equal, a[0], b[0])
  config.seed = 1
  loop.start_run(config, tmp_path / "other")
  first, other = (
    records.read_metrics(f, "train") for f in (folder, tmp_path / "other")
  )
  assert first[1]["entropy"] != other[1]["entropy"]


def test_evaluations_share_one_key_whatever_the_seed_of_the_run(run):
  config = run[0].copy_and_resolve_references()
  current = task.make_task(config)
  found = []
  for seed, eval_seed in ((0, 0), (1, 0), (0, 1)):
    config.seed, config.eval.seed = seed, eval_seed
    found.append(current.panel_fn(config)(current.params))
  assert found[0] == found[1]
  assert found[0]["length_sampled"] != found[2]["length_sampled"]
  assert found[0]["length_greedy"] == found[2]["length_greedy"]


def test_an_existing_run_is_not_overwritten(run):
  config, folder, _, _, _ = run
  before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
  with pytest.raises(loop.RunError, match=r"holds a run already.*resume"):
    loop.start_run(config, folder)
  assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


def test_nothing_is_written_where_levels_cannot_be_read(tmp_path):
  config = tiny_runs.make_config(tmp_path, levels=str(tmp_path / "none.txt"))
  with pytest.raises(sokoban_levels.LevelError):
    loop.start_run(config, tmp_path / "a")
  assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("begins", [0, 3])
def test_an_estimator_that_gives_nan_is_named(tmp_path, monkeypatch, begins):
  calls = []

  def bad_credit_fn(name, **options):
    good = make_credit_fn(name, **options)

    def credit_fn(arrays):
      calls.append(1)
      credit = jax.device_get(good(arrays))
      if len(calls) > begins:
        advantage = credit.advantage.copy()
        advantage[2, 0] = np.nan
        credit = credit.replace(advantage=advantage)
      return credit

    return credit_fn

  make_credit_fn = registry.make_credit_fn
  monkeypatch.setattr(registry, "make_credit_fn", bad_credit_fn)
  config = tiny_runs.make_config(tmp_path, checkpoint__every=1)
  with pytest.raises(loop.NonFiniteError) as caught:
    loop.start_run(config, tmp_path / "a")
  message = str(caught.value)
  assert message.startswith(f"update {begins + 1}: estimator crbc gave 1 ")
  assert "in groups [2] of the batch" in message and "\n" not in message
  assert not (tmp_path / "a" / "result.json").exists()
  if not begins:
    assert "the last good checkpoint is none" in message
    return
  assert f"the last good checkpoint is update {begins}" in message
  state, progress = tiny_runs.last_checkpoint(tmp_path / "a")
  assert progress["update"] == begins
  assert all(np.isfinite(x).all() for x in state)
  train = records.read_metrics(tmp_path / "a", "train")
  assert [r["update"] for r in train] == [1, 2, 3]
  # With the estimator mended the run goes on.
  monkeypatch.undo()
  assert loop.resume_run(tmp_path / "a")["env_steps"] >= config.env_steps


def test_a_registered_estimator_that_gives_nan_is_named(tmp_path, monkeypatch):
  def broken(group, *, scale: float = 1.0):
    """Divides by zero."""
    nan = group.reward * 0 / 0
    return StepCredit(
      advantage=scale * nan, trajectory=nan, step=nan, q=nan, v=nan,
      live=group.mask, aux={},
    )  # fmt: skip

  entry = Entry(broken, "rewards", "a test")  # unchecked: it would be refused
  monkeypatch.setitem(registry.ESTIMATORS, "broken", entry)
  config = tiny_runs.make_config(tmp_path, estimator="broken(scale=2.0)")
  with pytest.raises(loop.NonFiniteError, match=r"broken\(scale=2\.0\) gave"):
    loop.start_run(config, tmp_path / "a")


def test_exploding_parameters_are_named(tmp_path):
  config = tiny_runs.make_config(
    tmp_path, learner__learning_rate=1e38, checkpoint__every=1
  )
  with pytest.raises(loop.NonFiniteError) as caught:
    loop.start_run(config, tmp_path / "a")
  assert re.match(
    r"update \d: .*(loss|grad_norm|parameters|log_prob)", str(caught.value)
  )


@pytest.mark.parametrize("estimator, times", [("crbc", 1), ("grpo", 0)])
def test_pooled_evidence_of_hidden_state_warns_once(
  tmp_path, monkeypatch, estimator, times
):
  # One update says little (z = 2); the third makes it 3.5, the fifth 4.5.
  part = Dependence(total=200.0, variance=1e4, third=1e5, parts=100)
  monkeypatch.setattr(
    training_step,
    "hidden_state",
    lambda arrays: HiddenState(successor=part),
  )
  config = tiny_runs.make_config(tmp_path, estimator=estimator)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loop.start_run(config, tmp_path / "run")
  told = [str(x.message) for x in caught if "hide state" in str(x.message)]
  assert len(told) == times
  assert all(re.match("update [3-7]: the state key", text) for text in told)
  rows = records.read_metrics(tmp_path / "run", "train")
  assert {row["hidden_state_z"] for row in rows} == {2.0}


def test_diagnostics_by_hand():
  # The golden group (methods.md, section 10) beside one that fails always.
  golden = groups.golden()
  failed = [groups.rollout("x a x a y b", "failure")] * 2
  batch = groups.make_batch(groups.table_of([golden, failed]))
  arrays = batch.arrays
  live = np.zeros(arrays.mask.shape, bool)
  live[0, :3] = live[0, -1] = True  # the last one is padding, if any
  zero = np.zeros(arrays.mask.shape, np.float32)
  credit = StepCredit(
    advantage=zero, trajectory=zero, step=zero, q=zero, v=zero, live=live,
    aux={"residual": np.array([1e-7, 3e-7], np.float32)},
  )  # fmt: skip
  got = diagnostics.batch_diagnostics(arrays, credit)

  every = [*golden, *failed]
  steps = [len(r.steps) for r in every]
  visits = collections.Counter(
    (id(group), step.state)
    for group in (golden, failed)
    for rollout in group
    for step in rollout.steps
  )
  size = [
    visits[id(group), step.state]
    for group in (golden, failed)
    for rollout in group
    for step in rollout.steps
  ]
  won = sum(r.end == "success" for r in every)
  assert 0 < won < len(golden)
  wanted = {
    "success": won / len(every),
    "length": np.mean(steps),
    "all_fail_share": 0.5,
    "all_success_share": 0.0,
    "live_share": (live & arrays.mask).sum() / len(size),
    "singleton_share": np.mean(np.array(size) == 1),
    "residual": np.float32(3e-7),
    "residual_warnings": 0,
    "group_size_1": np.mean(np.array(size) == 1),
    "group_size_2": np.mean([2 <= n < 4 for n in size]),
    "group_size_4": np.mean([4 <= n < 8 for n in size]),
    "group_size_8": np.mean([8 <= n < 16 for n in size]),
    "group_size_16": np.mean([n >= 16 for n in size]),
  }
  assert set(got) == set(wanted)
  for name, value in wanted.items():
    np.testing.assert_allclose(got[name], value, err_msg=name)


def test_every_update_draws_anew(tmp_path):
  # One level and a policy that stands still: only the draws can differ.
  path = tmp_path / "one.txt"
  path.write_text("#####\n#@  #\n# $ #\n#  .#\n#####\n")
  config = tiny_runs.make_config(
    tmp_path,
    levels=str(path),
    held_out=str(path),
    learner__learning_rate=1e-12,
  )
  loop.start_run(config, tmp_path / "a")
  train = records.read_metrics(tmp_path / "a", "train")
  assert len({(r["length"], r["no_op_share"]) for r in train}) > 3


def write_folder(folder, levels):
  """Levels as a user's folder of two files."""
  half = len(levels) // 2
  sokoban_levels.write_levels(folder / "a.txt", levels.take(range(half)))
  sokoban_levels.write_levels(
    folder / "sub" / "b.xsb", levels.take(range(half, len(levels)))
  )


def layout_keys(levels):
  symmetries = sokoban_generator.grid_symmetries(levels.height, levels.width)
  return {
    sokoban_generator.layout_key(code, symmetries)
    for code in levels.walls + 2 * levels.targets
  }


def test_own_levels_are_split_by_layout(tmp_path):
  levels, _ = tiny_runs.make_levels(layouts=21)
  # A mirrored copy of every level, the last first: it must stay on the side
  # of its original.
  grid = np.arange(25).reshape(5, 5)[:, ::-1].reshape(-1)
  mirrored = sokoban_levels.LevelSet(
    walls=levels.walls[:, grid],
    targets=levels.targets[:, grid],
    player=grid[levels.player].astype(np.int32),
    boxes=grid[levels.boxes].astype(np.int32),
    height=5,
    width=5,
    ids=levels.ids,
  ).take(range(len(levels) - 1, -1, -1))
  write_folder(tmp_path / "own", levels)
  sokoban_levels.write_levels(tmp_path / "own" / "c.txt", mirrored)
  config = tiny_runs.make_config(tmp_path, levels=str(tmp_path / "own"))
  current = task.make_task(config)
  assert len(current.train) + len(current.panel) == 2 * 21 * 4
  train, panel = layout_keys(current.train), layout_keys(current.panel)
  assert len(panel) == 2 and not train & panel
  assert {name.split(":")[0] for name in current.panel.ids} == {
    "a.txt", "sub/b.xsb", "c.txt",
  }  # fmt: skip
  config.panel = 5
  assert task.make_task(config).panel.ids == current.panel.ids[:5]


def test_own_held_out_levels_and_too_few_layouts(tmp_path):
  levels, held_out = tiny_runs.make_levels(layouts=9)
  own, other = tmp_path / "own.txt", tmp_path / "other.txt"
  sokoban_levels.write_levels(own, levels)
  sokoban_levels.write_levels(other, held_out)
  config = tiny_runs.make_config(tmp_path, levels=str(own))
  with pytest.raises(sokoban_levels.LevelError, match=r"config\.held_out"):
    task.make_task(config)
  config.held_out = str(other)
  current = task.make_task(config)
  assert current.train.digest == levels.digest
  assert current.panel.digest == held_out.digest


def test_levels_at_visits_every_level_once_a_pass():
  whole = task.levels_at(0, 30, num_levels=10, seed=3)
  for first in (0, 10, 20):
    assert sorted(whole[first : first + 10]) == list(range(10))
  assert (whole[:10] != whole[10:20]).any()
  # The cursor is all there is to remember, however the draws are cut.
  cut = [task.levels_at(i, 3, num_levels=10, seed=3) for i in range(0, 30, 3)]
  np.testing.assert_array_equal(np.concatenate(cut), whole)
  other = task.levels_at(0, 30, num_levels=10, seed=4)
  assert (other != whole).any()


def test_training_on_own_levels_learns(tmp_path):
  levels, _ = tiny_runs.make_levels(layouts=21)
  write_folder(tmp_path / "own", levels)
  config = tiny_runs.make_config(
    tmp_path,
    levels=str(tmp_path / "own"),
    env_steps=12_000,
    env__step_limit=12,
    policy__hidden=(64,),
    rollout__levels=8,
    rollout__group_size=8,
    learner__learning_rate=5e-3,
    learner__minibatch=128,
    eval__every=10**9,
    checkpoint__every=10**9,
  )
  result = loop.start_run(config, tmp_path / "a")
  train = records.read_metrics(tmp_path / "a", "train")
  first, *_, last = records.read_metrics(tmp_path / "a", "eval")
  early, late = (
    np.mean([r["success"] for r in part]) for part in (train[:3], train[-3:])
  )
  print(early, late, first, last)
  assert late > early + 0.25
  assert last["success_sampled"] > first["success_sampled"] + 0.2
  assert result["final"]["success_sampled"] == last["success_sampled"]
