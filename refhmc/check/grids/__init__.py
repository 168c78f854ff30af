"""Check of kernels on a small grid of states."""
