"""The API page, and the check of what its docstrings refer to."""
