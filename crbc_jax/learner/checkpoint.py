"""Orbax checkpoints of everything a run needs to go on exactly."""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import orbax.checkpoint as ocp

import crbc_jax
from crbc_jax.learner.update import LearnerState


class CheckpointError(RuntimeError):
  """A checkpoint that cannot be written or read."""


class Checkpoints:
  """Keeps the last `keep` checkpoints of a run; a context manager.

  A checkpoint is the `LearnerState` (parameters, optimiser, PRNG key) and a
  JSON-able `progress` dict (counters and the level cursor). Writing is atomic:
  a process killed while saving leaves the one before intact.
  """

  def __init__(
    self, folder: pathlib.Path, *, keep: int = 1, read_only: bool = False
  ):
    self.folder = pathlib.Path(folder).absolute()
    if read_only and not self.folder.is_dir():
      raise CheckpointError(
        f"{self.folder} does not exist: the run has saved no checkpoint yet"
      )
    self._manager = ocp.CheckpointManager(
      self.folder,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=None if read_only else keep,
        read_only=read_only,
        enable_async_checkpointing=False,
      ),
    )

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, *_) -> None:
    self._manager.close()

  @property
  def latest(self) -> int | None:
    """Update number of the last complete checkpoint, None without one."""
    return self._manager.latest_step()

  def save(
    self, update: int, state: LearnerState, progress: dict[str, Any]
  ) -> None:
    """Writes the checkpoint of `update` and drops the oldest beyond `keep`.

    Raises:
      CheckpointError: Orbax did not write it.
    """
    saved = self._manager.save(
      update,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(_plain(state)),
        progress=ocp.args.JsonSave(progress),
      ),
    )
    if not saved:
      raise CheckpointError(
        f"{self.folder}: checkpoint {update} was not written; it exists already"
      )

  def restore(
    self, like: LearnerState, update: int | None = None
  ) -> tuple[LearnerState, dict[str, Any]]:
    """Reads a checkpoint (the last by default).

    Args:
      like: a state of the same structure, shapes and types.
      update: which one.

    Raises:
      CheckpointError: there is none, or it belongs to another network.
    """
    update = self.latest if update is None else update
    if update is None:
      raise CheckpointError(f"{self.folder} holds no complete checkpoint")
    if update not in self._manager.all_steps():
      raise CheckpointError(
        f"{self.folder} has no checkpoint {update}; it has "
        f"{', '.join(map(str, sorted(self._manager.all_steps())))}"
      )
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, _plain(like))
    try:
      found = self._manager.restore(
        update,
        args=ocp.args.Composite(
          state=ocp.args.StandardRestore(abstract),
          progress=ocp.args.JsonRestore(),
        ),
      )
    except (ValueError, KeyError) as error:
      raise CheckpointError(
        f"{self.folder}/{update} does not fit this network or optimiser "
        f"(was the config changed?): {str(error).splitlines()[0]}"
      ) from error
    flat = jax.tree.structure(like)
    return jax.tree.unflatten(flat, jax.tree.leaves(found["state"])), found[
      "progress"
    ]


def _plain(state: LearnerState) -> dict[str, Any]:
  """A dict of leaves in flattening order: independent of container types."""
  return {f"{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}


def kept_params(
  folder: str | pathlib.Path,
  made_from: dict[str, Any],
  make: Callable[[], Any],
  *,
  like: Any,
) -> Any:
  """Parameters that were made before from the same, or `make()`, which is kept.

  Args:
    folder: holds one checkpoint for each `made_from`.
    made_from: all that decides what is made; JSON-able.
    make: makes them.
    like: parameters of the same shape.
  """
  text = json.dumps([crbc_jax.__version__, made_from], sort_keys=True)
  name = hashlib.sha256(text.encode()).hexdigest()[:12]
  path = pathlib.Path(folder).absolute() / name
  with ocp.StandardCheckpointer() as checkpointer:
    if path.exists():
      return checkpointer.restore(path, like)
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{name}.{os.getpid()}")
    checkpointer.save(unfinished, made)
    checkpointer.wait_until_finished()
    try:
      unfinished.rename(path)
    except OSError:  # another process was faster with the same
      shutil.rmtree(unfinished)
  return made
