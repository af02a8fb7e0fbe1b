"""Collect, credit, update: training with exact resume."""
