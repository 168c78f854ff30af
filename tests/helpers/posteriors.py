"""z-scores of a sampled posterior against its reference."""

from __future__ import annotations

import numpy as np
import pytest


def z_scores(model, result) -> np.ndarray:
    """z of each mean and of each variance, in the order of the reference."""
    x = np.concatenate([v.reshape(*v.shape[:2], -1) for v in result.posterior.values()], axis=2)
    mean = x.mean(axis=(0, 1))
    squared = (x - mean) ** 2
    variance = squared.mean(axis=(0, 1))
    truth = model.reference
    z = []
    for ours, theirs, se, draws in (
        (mean, truth.mean, truth.mean_se, x),
        (variance, truth.variance, truth.variance_se, squared),
    ):
        own_se = draws.std(axis=(0, 1)) / np.sqrt(plain_ess(draws))
        z.append((ours - theirs) / np.sqrt(own_se**2 + np.square(se)))
    return np.concatenate(z)


def plain_ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the mean itself (not rank-normalised): ranks would hide the squares' heavy tails."""
    az = pytest.importorskip("arviz")
    return np.array([float(az.ess(draws[:, :, j], method="mean")) for j in range(draws.shape[2])])
