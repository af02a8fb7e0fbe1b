"""Four rollouts of one task: the smallest group on which estimators disagree.

  1: s0 -a-> s1 -c-> success
  2: s0 -a-> s1 -d-> s2 -e-> failure
  3: s0 -b-> s2 -f-> success
  4: s0 -b-> s2 -e-> s0 -b-> s2 -e-> failure

Rollout 2 ends badly, but rollout 3 shows that s2 can be rescued by f: evidence
about s1 that no visit to s1 holds.
"""

from collections.abc import Sequence

from crbc_jax.rollouts.table import StepTable

ROLLOUTS = (
  ("s0 a s1 c", "success"),
  ("s0 a s1 d s2 e", "failure"),
  ("s0 b s2 f", "success"),
  ("s0 b s2 e s0 b s2 e", "failure"),
)
"""States and actions in turn, and how the rollout ended."""


def four_rollouts() -> StepTable:
  """The example as a table; group "task", rollouts 1 to 4."""
  return table_of_paths(ROLLOUTS)


def table_of_paths(
  paths: Sequence[tuple[str, str]], *, group_id: str = "task"
) -> StepTable:
  """A group written down by hand.

  Args:
    paths: of each rollout "state action state action ..." and its end:
      "success", "failure" or "truncated".
    group_id: of the group.

  Returns:
    The table; rollouts are numbered from 1.

  Raises:
    ValueError: a path with a state and no action, or with nothing.
    RolloutError: an end that is none.
  """
  rows = []
  for number, (path, end) in enumerate(paths, start=1):
    words = path.split()
    if not words or len(words) % 2:
      raise ValueError(
        f"rollout {number}: {path!r} must be states and actions in turn"
      )
    for t in range(len(words) // 2):
      rows.append(
        {
          "group_id": group_id,
          "traj_id": number,
          "step_idx": t,
          "state_key": words[2 * t],
          "action_key": words[2 * t + 1],
          "boundary": end if 2 * t + 2 == len(words) else "none",
        }
      )
  return StepTable.from_rows(rows)
