"""Trains a language model in a text game with step credit, through tunix.

  python -m experiments.train_llm --config configs/alfworld_qwen.py --dry_run
    [--topology v5e-8] [--results results]
  python -m experiments.train_llm --config configs/alfworld_qwen.py
    --config.model.path=DIR --config.data=FILE

A dry run reads the model folder if there is one (sizes, names, no numbers),
prints the memory of each part per device on the named topology ("all": three
models on three topologies), and runs one update of a tiny random stand-in on
the devices that are there: environment, sampler, credit, loss, optimiser,
checkpoint. It takes about a minute on two CPU cores, with the extra [tunix];
without it the update is left out. Writes memory_plan.json with --results.

Without --dry_run: the training itself. The same command goes on from the last
checkpoint in config.checkpoint.folder. On several hosts every one runs this
command with --config.distributed.coordinator=HOST:PORT, .processes and
.process, or coordinator=auto on a TPU pod.

Claim: none; no model was trained with this here. What a dry run prints is
computed (see `crbc_jax.learner.memory_plan`).
"""

import importlib.util
import pathlib
import sys

import jax
import rich
from absl import app, flags
from ml_collections import config_flags
from rich.table import Table

import crbc_jax
from crbc_jax.learner import llm_config, memory_plan, model_folder
from crbc_jax.learner.config import ConfigError
from crbc_jax.learner.launch_state import ResumeError
from crbc_jax.learner.records import write_json
from crbc_jax.policies.decoder_shape import SHAPES
from experiments import commands

_LORA = 16
MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B")

_CONFIG = config_flags.DEFINE_config_file(
  "config", "configs/alfworld_qwen.py", "see crbc_jax/learner/llm_config.py"
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "plan, and one tiny update")
_TOPOLOGY = flags.DEFINE_enum(
  "topology", "all", [*memory_plan.TOPOLOGIES, "all"], "of the memory plan"
)
_RESULTS = flags.DEFINE_string("results", "", "where the plan is written")


def main(argv: list[str]) -> None:
  """Plans or trains; a wrong setting is one line."""
  if len(argv) > 1:
    sys.exit(f"unknown argument {argv[1]!r}")
  try:
    run(_CONFIG.value)
  except (ConfigError, ResumeError, model_folder.CheckpointError) as error:
    sys.exit(str(error))


def run(config) -> None:
  """Validates, then plans or trains."""
  llm_config.validate(config)
  installed = importlib.util.find_spec("tunix") is not None
  if not _DRY_RUN.value:
    if not installed:
      raise ConfigError("training needs pip install 'crbc_jax[tunix]'")
    from experiments import train_llm_run

    train_llm_run.train(config)
    return
  if config.model.path:
    shape = model_folder.check_folder(config.model.path)
    rich.print(
      f"{config.model.path}: {shape.kind}, {shape.parameters:,} parameters,"
      " all tensors there"
    )
  plans = plan(config, _TOPOLOGY.value)
  if _RESULTS.value:
    write_json(
      pathlib.Path(_RESULTS.value) / "memory_plan.json",
      {
        "command": commands.recorded("experiments.train_llm", None),
        "version": crbc_jax.__version__,
        "plans": plans,
      },
    )
  rich.print(f"devices here: {jax.device_count()} x {jax.devices()[0]}")
  if not installed:
    rich.print(
      r"no update of the stand-in: it needs pip install 'crbc_jax\[tunix]'"
    )
    return
  from experiments import train_llm_run

  found = train_llm_run.one_update(config)
  rich.print(f"one update of the stand-in: {found}")


def plan(config, topology: str) -> list[dict]:
  """Prints the memory plans; returns them as rows for JSON.

  One topology: every part of the configured model. "all": the peak and the
  largest micro-batch of three models (or the folder's) on all topologies, in
  both layouts.
  """
  if topology != "all":
    place = memory_plan.TOPOLOGIES[topology]
    work = llm_config.workload(config, place)
    found = memory_plan.make_plan(
      work,
      place,
      micro_batch=llm_config.sequences_per_device(config, work),
    )
    table = Table(
      "per device",
      "GiB",
      title=f"{_name(config)}, {place.note}, fsdp"
      f" {work.fsdp} x tp {work.tp}, {work.length:,} tokens",
    )
    for part, gib in memory_plan.plan_rows(found):
      table.add_row(part, f"{gib:.2f}")
    rich.print(table, found.verdict())
    return [_row(_name(config), topology, config.rollout.layout, work, found)]
  rows = []
  table = Table(
    "model, layout",
    "on",
    "all weights: mesh, GiB",
    "at once",
    f"LoRA {_LORA}: mesh, GiB",
    "at once",
    title="peak with one sequence per part of fsdp; sequences at once",
  )
  models = {_name(config): llm_config.model_shape(config)}
  if not config.model.path:
    models = {name: SHAPES[name] for name in MODELS}
  for layout in llm_config.LAYOUTS:
    for name, shape in models.items():
      for where, place in memory_plan.TOPOLOGIES.items():
        cells = [f"{name}, {layout}", where]
        for rank in (0, _LORA):
          copy = config.copy_and_resolve_references()
          copy.rollout.layout, copy.lora.rank = layout, rank
          copy.mesh.fsdp, copy.mesh.tp = -1, 1
          work = llm_config.with_shape(llm_config.workload(copy, place), shape)
          work = memory_plan.best_mesh(work, place)
          found = memory_plan.make_plan(work, place)
          rows.append(_row(name, where, layout, work, found))
          peak, have = found.peak, found.budget
          cells += [
            f"{work.fsdp} x {work.tp}, {peak / memory_plan.GIB:.1f} of"
            f" {have / memory_plan.GIB:.0f}",
            str(found.largest_micro_batch * work.fsdp) if found.fits else "no",
          ]
        table.add_row(*cells)
  rich.print(table)
  return rows


def _name(config) -> str:
  return config.model.path or config.model.name


def _row(name, topology, layout, work, found) -> dict:
  return {
    "model": name,
    "topology": topology,
    "layout": layout,
    "tokens": work.length,
    "fsdp": work.fsdp,
    "tp": work.tp,
    "lora_rank": work.lora_rank,
    "micro_batch": found.micro_batch,
    "largest_micro_batch": found.largest_micro_batch,
    "fits": found.fits,
    "gib": dict(memory_plan.plan_rows(found)),
  }


if __name__ == "__main__":
  app.run(main)
