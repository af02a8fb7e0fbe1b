"""Step credit inside other frameworks: import a module by its name.

Each may need an extra of its own.
"""

__all__: list[str] = []
