"""Short mains that answer one question each."""
