"""Trajectories as readers give them, written short."""

from crbc_jax.rollouts.log import Place, Row
from crbc_jax.types import Boundary


def trajectory(
  states, actions, *, end=Boundary.SUCCESS, group="g", traj="t"
) -> list[Row]:
  """T rows from T + 1 states and T actions."""
  last = len(actions) - 1
  return [
    Row(
      place=Place("log", t + 1),
      group_id=group,
      traj_id=traj,
      step_idx=t,
      state=states[t],
      action=action,
      boundary=end if t == last else Boundary.NONE,
      next_state=states[t + 1],
    )
    for t, action in enumerate(actions)
  ]
