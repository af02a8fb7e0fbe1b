"""Step credit: pure functions on one group, batched once."""
