"""A run: arguments, starts, chains, checkpoints, progress, the result and its review."""
