"""Commands of `crbc` that read logs, one module each."""
