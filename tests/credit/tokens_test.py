"""Credit per step -> per token."""

import numpy as np
import pytest

from crbc_jax.credit.tokens import spread_to_tokens


def spread(spans, values):
  start, end = np.array(spans).T
  return spread_to_tokens(start, end, np.array(values, np.float32))


def test_every_token_of_a_step_gets_its_value_and_the_others_none():
  tokens, mask = spread([(1, 3), (4, 5)], [0.5, -2])
  assert tokens.tolist() == [0, 0.5, 0.5, 0, -2]
  assert mask.tolist() == [False, True, True, False, True]
  assert tokens.dtype == np.float32


def test_steps_may_come_in_any_order_and_with_several_values():
  tokens, mask = spread([(2, 3), (0, 2)], [[1, 2], [3, 4]])
  assert tokens.tolist() == [[3, 4], [3, 4], [1, 2]]
  assert mask.all()


@pytest.mark.parametrize(
  "spans", [[(0, 2), (1, 3)], [(2, 2)], [(3, 1)], [(-1, 1)]]
)
def test_spans_that_are_none_are_refused(spans):
  with pytest.raises(ValueError, match="not overlap"):
    spread(spans, [1.0] * len(spans))
