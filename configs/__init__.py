"""One config per experiment; `get_config()` with claim, number and command."""
