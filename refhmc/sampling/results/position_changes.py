"""Starts of transitions, and which of them change the position, without a copy of all draws."""

from __future__ import annotations

import numpy as np

BLOCK = 2**19  # numbers compared in one step


def starts_of(draws: np.ndarray, starts: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the starts (k, d) of the transitions selected by `which` (chain, draw).

    `draws` are the ends of all transitions, `starts` (chain, d) the starts of the first ones.
    """
    chain, i = np.nonzero(which)
    return np.where((i == 0)[:, None], starts[chain], draws[chain, i - 1])


def moved(draws: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return (chain, draw) whether each transition changed the position."""
    chains, n, d = draws.shape
    found = np.empty((chains, n), bool)
    found[:, :1] = np.any(draws[:, :1] != starts[:, None], axis=2)
    width = max(1, BLOCK // max(1, chains * d))
    for i in range(1, n, width):
        end = min(i + width, n)
        found[:, i:end] = np.any(draws[:, i:end] != draws[:, i - 1 : end - 1], axis=2)
    return found
