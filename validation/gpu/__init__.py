"""Tests and benchmarks on a GPU: ``python -m validation.gpu``."""
