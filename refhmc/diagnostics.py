"""R-hat and effective sample size, by whichever ArviZ is installed, and E-BFMI."""

from __future__ import annotations

import numpy as np

from refhmc.results import import_arviz


def rhat(x: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of (chain, draw, k) draws, (k,)."""
    return _by_column("rhat", x)


def ess(x: np.ndarray) -> np.ndarray:
    """Bulk effective sample size of (chain, draw, k) draws, (k,)."""
    return _by_column("ess", x)


def _by_column(name: str, x: np.ndarray) -> np.ndarray:
    try:
        from arviz_stats.base import array_stats
    except ModuleNotFoundError:
        function = getattr(import_arviz(), name)
        return np.array([float(function(x[:, :, j])) for j in range(x.shape[2])])
    with np.errstate(all="ignore"):
        values = getattr(array_stats, name)(x, chain_axis=0, draw_axis=1)
    return np.asarray(values, dtype=float)


def e_bfmi(energy: np.ndarray) -> np.ndarray:
    """Energy's Bayesian fraction of missing information of each chain: mean squared change over variance."""
    changes = np.mean(np.diff(energy, axis=1) ** 2, axis=1)
    variance = np.var(energy, axis=1)
    return np.divide(changes, variance, out=np.full(len(energy), np.nan), where=variance > 0)
