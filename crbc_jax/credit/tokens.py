"""Credit per step -> per token of a rollout."""

import numpy as np


def spread_to_tokens(
  start: np.ndarray, end: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Every token of a step gets the step's value; the others get 0.

  Args:
    start, end: [T] token spans of the steps of one rollout, ends excluded.
    values: [T] or [T, K] float32.

  Returns:
    (values of the tokens [L] or [L, K], whether a step holds the token [L]);
    L is the end of the last span.

  Raises:
    ValueError: spans are empty, overlap or begin below 0.
  """
  order = np.argsort(start, kind="stable")
  start, end, values = start[order], end[order], values[order]
  if (start < 0).any() or (end <= start).any() or (start[1:] < end[:-1]).any():
    raise ValueError(
      "token spans must begin at 0 or later, hold a token and not overlap"
    )
  step = np.full(int(end[-1]), -1)
  for i, (first, last) in enumerate(zip(start, end, strict=True)):
    step[first:last] = i
  mask = step >= 0
  tokens = np.zeros((len(step), *values.shape[1:]), values.dtype)
  tokens[mask] = values[step[mask]]
  return tokens, mask
