"""GiGPO: groups of steps at the same anchor, compared by discounted return.

Source: arXiv 2505.10978 and the conventions of its code (verl-agent); where
paper and code differ the choice is an option and the code is the default.
"""

from crbc_jax.checks import check_discount
from crbc_jax.credit.episode import (
  episode_term,
  penalised_reward,
  scores_at_anchors,
)
from crbc_jax.credit.process import check_group, discounted_returns
from crbc_jax.types import GroupArrays, StepCredit


def gigpo(
  group: GroupArrays,
  *,
  gamma: float = 0.95,
  norm: str = "mean_std",
  statistics: str = "row",
  step_weight: float = 1.0,
  success_reward: float = 10.0,
  invalid_penalty: float = 0.1,
  signal: str = "outcome",
  singleton: str = "raw",
  trajectory: str = "episode",
  eps: float = 1e-6,
) -> StepCredit:
  """A^E + w A^S, both centred scores of rewards.

  A^S compares the discounted return of a step with the other steps taken at
  its anchor; a step alone at its anchor gets 0. A^E compares the episode
  reward (less the penalty of an invalid row) inside the group.

  Args:
    group: one unbatched group.
    gamma: discount of step returns in (0, 1].
    norm: "mean_std" divides by std (ddof 1) + eps; "mean" does not.
    statistics: A^E statistics over every "row" (the code's default, so long
      episodes weigh more) or once per "trajectory".
    step_weight: weight of A^S.
    success_reward: reward of success under signal "outcome".
    invalid_penalty: taken off the reward of a step whose action was invalid.
    signal: "outcome" or "observed" rewards.
    singleton: A^E where the statistics have one entry: "raw" (the code: the
      score itself) or "zero".
    trajectory: "episode" (A^E) or another trajectory term in its place; see
      `combine.trajectory_term`.
    eps: added to standard deviations.

  Returns:
    StepCredit; q is the return of the row and v its anchor's mean return. A
    row is live when its anchor was visited at least twice.
  """
  check_group(group)
  check_discount("gamma", gamma)
  reward = penalised_reward(
    group,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
  )
  returns = discounted_returns(reward, group.traj, group.mask, discount=gamma)
  step, mean, live = scores_at_anchors(group, returns, norm=norm, eps=eps)
  episode = episode_term(
    group,
    kind=trajectory,
    norm=norm,
    statistics=statistics,
    success_reward=success_reward,
    invalid_penalty=invalid_penalty,
    signal=signal,
    singleton=singleton,
    eps=eps,
  )
  return StepCredit(
    advantage=episode + step_weight * step,
    trajectory=episode,
    step=step,
    q=returns,
    v=mean,
    live=live,
    aux={},
  )
