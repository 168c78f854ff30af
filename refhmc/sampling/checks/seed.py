"""The integer that seeds a run, from the argument ``random_seed``."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from refhmc.sampling.storage.checkpoint import read_run


def entropy_of(random_seed: Any, checkpoint: Any = None) -> int:
    """Return the integer that seeds all chains; for None the checkpoint's, or one from the operating system."""
    if random_seed is None and checkpoint is not None:
        there = read_run(checkpoint)
        if there is not None:
            return int(there["entropy"])
    if random_seed is None:
        return secrets.randbits(128)
    if isinstance(random_seed, np.random.Generator):
        return int.from_bytes(random_seed.bytes(16), "little")
    if isinstance(random_seed, np.random.RandomState):
        raise TypeError("random_seed must be an integer or a numpy.random.Generator; got a RandomState.")
    if not isinstance(random_seed, np.random.SeedSequence):
        if isinstance(random_seed, float | bool | str):
            raise TypeError(f"random_seed must be an integer; got {random_seed!r}.")
        if isinstance(random_seed, int | np.integer):
            if random_seed < 0:
                raise ValueError(f"random_seed must not be negative; got {random_seed}.")
            return int(random_seed)
        try:
            random_seed = np.random.SeedSequence(random_seed)
        except (TypeError, ValueError) as error:
            raise type(error)(f"random_seed must be non-negative integers; got {random_seed!r}.") from None
    words = random_seed.generate_state(4, np.uint32)
    return int.from_bytes(words.astype("<u4").tobytes(), "little")
