"""Step credit inside other frameworks; each module needs its own extra."""
