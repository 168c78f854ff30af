"""Benchmarks, each one command: ``python -m validation.benchmarks.peers``, ``.leapfrog``, ``.startup``."""
