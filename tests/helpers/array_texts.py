"""What the tests of the texts on arrays share: what rounding may make of a map."""

from __future__ import annotations

import numpy as np


def condition(move, z):
    """kappa_i = |z'_i| + sum_j |dz'_i / dz_j| |z_j| of z' = move(z), (..., n): by central differences, h = 1e-5 (1 + |z|)."""
    h = 1e-5 * (1 + np.abs(z))[..., None] * np.eye(z.shape[-1])
    ahead, behind = (move(z[..., None, :] + sign * h) for sign in (1, -1))
    J = (ahead - behind) / (2e-5 * (1 + np.abs(z)))[..., None]  # [..., j, i] = dz'_i / dz_j
    return np.abs(move(z)) + np.sum(np.abs(J) * np.abs(z)[..., None], axis=-2)
