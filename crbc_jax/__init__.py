"""Step-level credit for agents trained with group-based RL, in JAX."""

__version__ = "0.1.0"
