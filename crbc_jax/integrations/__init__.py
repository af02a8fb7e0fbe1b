"""Thin adapters to other libraries; each needs its own extra."""
