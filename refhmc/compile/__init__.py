"""Compilation with Numba: decorators, cache, fingerprints, pointers, functions of the user."""
