"""Other seeds: with ``REFHMC_TEST_SEED_SHIFT=3`` every ``random_seed`` of a test gives the draws of another seed.

A test that passes on one processor may fail on another, because a rounding error changes the course of a long trajectory.
Other seeds find such a test on any machine. The numbers of ``SeedSequence(entropy)`` become those of ``entropy + SHIFT``, in
refhmc and in the tests. Not shifted are ``default_rng``, which makes the inputs of tests, and processes that a test starts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

VARIABLE = "REFHMC_TEST_SEED_SHIFT"
SHIFT = int(os.environ.get(VARIABLE) or 0)
NumpySeedSequence = np.random.SeedSequence


class ShiftedSeedSequence(NumpySeedSequence):
    """NumPy's SeedSequence whose numbers are those of a shifted entropy."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        other = self.entropy + SHIFT if isinstance(self.entropy, int) else [*self.entropy, SHIFT]
        return NumpySeedSequence(other, spawn_key=self.spawn_key).generate_state(n_words, dtype)


def patch() -> None:
    """Put the shifted streams in their places if there is a shift."""
    if SHIFT:
        from refhmc.batch import streams

        keys = streams.keys_of
        np.random.SeedSequence = ShiftedSeedSequence
        streams.keys_of = lambda entropy, chains: keys(entropy + SHIFT, chains)


@contextlib.contextmanager
def shifted(by: int) -> Iterator[None]:
    """Shift by another number meanwhile."""
    global SHIFT
    before, SHIFT = SHIFT, by
    try:
        yield
    finally:
        SHIFT = before
