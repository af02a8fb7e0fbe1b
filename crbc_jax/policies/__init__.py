"""Flax policies: what turns a state into action logits."""
