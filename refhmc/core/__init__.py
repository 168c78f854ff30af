"""Foundations of the compiled core: types, records, compilation, randomness, fingerprints."""
