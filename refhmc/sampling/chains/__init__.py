"""Chains of a run: their state, starts, compiled loop, threads and executors."""
