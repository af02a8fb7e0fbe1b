"""`python -m crbc_jax` is the `crbc` command."""

import sys

from crbc_jax.cli import main

if __name__ == "__main__":
  sys.exit(main())
