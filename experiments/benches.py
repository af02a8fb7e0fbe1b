"""The experiments behind the tables of the README, for `crbc bench`.

An experiment takes `--quick` and `--results FOLDER`, and writes JSON. Minutes
are those of two free cores. This file is loaded alone: import nothing of
`experiments`.
"""

from crbc_jax.commands.bench_runs import Bench, Data

ALFWORLD = "alfworld/alfworld_games_474.jsonl.gz"
WEBSHOP = "webshop/webshop_1000.json.gz"
GAME24 = "game24/gpt-4_0.7_naive_cot_sample_100_start900_end1000.json"
BOXOBAN = "boxoban/unfiltered"

_TEXT_VALUES = (
  "rows/*/area",
  "rows/*/end",
  "rows/*/greedy",
  "rows/*/score",
  "keys/*/live_share",
)

BENCHES: dict[str, Bench] = {
  "train_sokoban": Bench(
    "experiments.train_sokoban",
    readme="Two commands",
    files=("train_sokoban.json",),
    values=("samples:final/*/*", "samples:credit_share/*"),
    trains=True,
    minutes=(3, 0.7),
  ),
  "sweep": Bench(
    "experiments.sweep",
    readme="Learning",
    files=("sweep.json",),
    values=("all/*/area",),
    trains=True,
    minutes=(60, 1),
  ),
  "compare": Bench(
    "experiments.compare",
    readme="Learning",
    files=("compare.json", "compare.md"),
    values=(
      "settings/*/rows/*/area",
      "settings/*/rows/*/last3",
      "settings/*/rows/*/lead",
      "aggregate/*/iqm",
    ),
    trains=True,
    minutes=(150, 2),
  ),
  "ablations": Bench(
    "experiments.ablations",
    readme="Learning",
    files=("ablations.json", "ablations.md"),
    values=("factors/*/rows/*/area", "factors/*/directions/*/lead"),
    trains=True,
    minutes=(20, 3.5),
  ),
  "depth_ablation": Bench(
    "experiments.depth_ablation",
    readme="Credit",
    files=("depth_ablation.json", "depth_ablation.md"),
    values=(
      "parts/*/training/*/area/*",
      "aggregate/*/iqm/*",
      "aggregate/*/ahead/*",
    ),
    trains=True,
    data=(
      Data(ALFWORLD, "--alfworld", required=False),
      Data(WEBSHOP, "--webshop", required=False),
    ),
    minutes=(45, 4),
  ),
  "hidden_state": Bench(
    "experiments.hidden_state",
    readme="Does the key hide state?",
    files=("hidden_state.json", "hidden_state.md"),
    values=("rows/*/p_05", "rows/*/p_01", "rows/*/alarm"),
    full=("--repetitions", "200"),
    data=(Data(ALFWORLD, "--data", required=False),),
    minutes=(15, 1),
  ),
  "guards": Bench(
    "experiments.guards",
    readme="Does the key hide state?",
    files=("guards.json", "guards.md"),
    values=("gradients/*/*/*",),
    minutes=(2, 0.5),
  ),
  "credit_calibration": Bench(
    "experiments.credit_calibration",
    readme="Beyond the papers",
    files=("credit_calibration.json", "credit_calibration.md"),
    values=("cells/*/*",),
    minutes=(2, 1),
  ),
  "leave_one_out": Bench(
    "experiments.leave_one_out",
    readme="Beyond the papers",
    files=("leave_one_out.json", "leave_one_out.md"),
    values=("cells/*/slope", "cells/*/noise", "cells/*/single"),
    minutes=(2, 0.7),
  ),
  "careful_training": Bench(
    "experiments.careful_training",
    readme="Beyond the papers",
    files=("careful_training.json", "careful_training.md"),
    values=("rows/*/area", "rows/*/end", "rows/*/lead"),
    trains=True,
    minutes=(4, 0.7),
  ),
  "credit_accuracy": Bench(
    "experiments.credit_accuracy",
    readme="Credit",
    files=("credit_accuracy.json",),
    values=("cells/*/estimators/*/*/*/corr", "cells/*/estimators/*/*/*/sign"),
    minutes=(2, 1),
  ),
  "game24_credit": Bench(
    "experiments.game24_credit",
    readme="Does step credit find the right step?",
    files=("game24_credit.json", "game24_credit.md"),
    values=("areas/*/*/*", "lead/*/*/*"),
    data=(Data(GAME24, "--log"),),
    minutes=(2, 1),
  ),
  "alfworld": Bench(
    "experiments.text_games",
    readme="ALFWorld",
    files=("alfworld.json", "alfworld.md"),
    values=_TEXT_VALUES,
    arguments=("--task", "alfworld"),
    full=("--rates", "1e-3"),
    trains=True,
    data=(Data(ALFWORLD, "--data"),),
    minutes=(25, 1.5),
  ),
  "webshop": Bench(
    "experiments.text_games",
    readme="WebShop",
    files=("webshop.json", "webshop.md"),
    values=_TEXT_VALUES,
    arguments=("--task", "webshop"),
    full=("--env_steps", "36000", "--rates", "1e-3"),
    trains=True,
    data=(Data(WEBSHOP, "--data"),),
    minutes=(20, 1.5),
  ),
  "sokoban_bytes": Bench(
    "experiments.text_games",
    readme="Language models that write their commands",
    files=("sokoban_bytes.json", "sokoban_bytes.md"),
    values=_TEXT_VALUES,
    arguments=("--task", "sokoban_bytes"),
    full=("--rates", "3e-4", "1e-3", "1e-4"),
    trains=True,
    minutes=(40, 1.5),
  ),
  "alfworld_bytes": Bench(
    "experiments.text_games",
    readme="Language models that write their commands",
    files=("alfworld_bytes.json", "alfworld_bytes.md"),
    values=_TEXT_VALUES,
    arguments=("--task", "alfworld_bytes"),
    full=("--rates", "3e-4", "1e-4"),
    trains=True,
    minutes=(60, 2),
  ),
  "overhead": Bench(
    "experiments.bench_overhead",
    readme="Language models that write their commands",
    files=("overhead.json", "overhead.md"),
    values=(),
    minutes=(1, 0.5),
  ),
  "level_files": Bench(
    "experiments.level_files",
    readme="Levels from files",
    files=("level_files.json", "level_files.md"),
    values=("rows/*/sampled", "rows/*/greedy"),
    trains=True,
    data=(Data(BOXOBAN, "--boxoban", required=False),),
    minutes=(6, 0.5),
  ),
  "alfworld_keys": Bench(
    "experiments.alfworld_keys",
    readme="ALFWorld and WebShop, keys",
    files=("alfworld_keys.json", "alfworld_keys.md"),
    values=("keys/*/recurrence*", "keys/*/latent_states_mean"),
    data=(Data(ALFWORLD),),
    minutes=(0.5, 0.2),
  ),
  "log_keys": Bench(
    "experiments.log_keys",
    readme="Credit any log, keys",
    files=("log_keys.json", "log_keys.md"),
    values=("rows/*/recurring", "rows/*/choice", "rows/*/states_per_step"),
    data=(
      Data("tau_bench"),
      Data("intercode_bash"),
      Data(GAME24),
    ),
    minutes=(0.5, 0.5),
  ),
  "bench_credit": Bench(
    "experiments.bench_credit",
    readme="Speed",
    files=("bench_credit.json", "bench_credit.md"),
    values=("lines/*/seconds", "lines/*/times_ours"),
    minutes=(4, 0.5),
  ),
  "cost": Bench(
    "experiments.cost",
    readme="Speed",
    files=("cost.json", "cost.md"),
    values=(
      "training/*/shares/credit",
      "training/*/seconds/*",
      "rollout/*/*",
      "workload/lines/*/*",
    ),
    data=(
      Data(ALFWORLD, "--alfworld", required=False),
      Data(WEBSHOP, "--webshop", required=False),
    ),
    minutes=(8, 2),
  ),
  "bench_sokoban": Bench(
    "experiments.bench_sokoban",
    readme="Speed",
    files=("bench_sokoban.json", "bench_sokoban.md"),
    values=("rows/*/plain", "rows/*/with_keys"),
    minutes=(0.5, 0.3),
  ),
  "bench_alfworld": Bench(
    "experiments.bench_alfworld",
    readme="ALFWorld and WebShop",
    files=("bench_alfworld.json",),
    values=("ours/*", "build_ms"),
    minutes=(1, 0.2),
  ),
  "bench_webshop": Bench(
    "experiments.bench_webshop",
    readme="ALFWorld and WebShop",
    files=("bench_webshop.json", "bench_webshop.md"),
    values=("passes/*/steps_per_second", "passes/*/mean_reward"),
    data=(Data(WEBSHOP, "--shop"),),
    minutes=(1, 0.3),
  ),
}
"""Name of a bench -> what it is, in the order in which `all` runs."""
