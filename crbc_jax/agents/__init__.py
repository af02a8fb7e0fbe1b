"""Language-model agents: a state in words, a response, a command."""
