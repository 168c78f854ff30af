"""Diagnostics of draws, R-hat and effective sample size (:mod:`refhmc.numerics.convergence`), Geyer's effective sample size,
and E-BFMI; and of integrators: how far a map is from reversible, and from keeping volume."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refhmc.core.sample_stats import OUTCOMES as OUTCOMES
from refhmc.dynamics.trajectory import integrate
from refhmc.numerics.convergence import autocovariances as autocovariances
from refhmc.numerics.convergence import ess as ess
from refhmc.numerics.convergence import rhat as rhat
from refhmc.numerics.convergence import rhat_and_ess as rhat_and_ess
from refhmc.numerics.differences import ridders


def geyer_ess(x: np.ndarray) -> np.ndarray:
    """Effective sample size by Geyer's initial monotone sequence: (chain, draw, k) draws give (k,), (chain, draw) a number.

    With the :func:`autocovariances` gamma of m chains of n draws, the variance of the mean of all is sigma^2 / (m n) with

        sigma^2 = gamma_0 + 2 sum_{t >= 1} gamma_t = -gamma_0 + 2 sum_{k < K} min(Gamma_0, ..., Gamma_k)
        Gamma_k = gamma_{2k} + gamma_{2k+1},     K the first k with Gamma_k <= 0,     ESS = m n gamma_0 / sigma^2

    For a reversible chain the true Gamma_k are positive and decreasing, and the sums keep the estimates so (Geyer 1992,
    Statistical Science 7, 473-483, sec. 3.3). It looks at the values, not at their ranks as ArviZ's bulk ESS does, and is
    what Betancourt (2013) reports.
    Geyer has one chain. Here chains that disagree have autocovariances that do not fall, and an ESS of the order of m.

    The ESS has no bound where successive draws are nearly opposite; it is at most m n log10(m n), as ArviZ's. It is 1 where
    nothing ever moved, NaN where a value is not finite. Raises ValueError for fewer than two draws, or other dimensions.
    """
    x = np.asarray(x, dtype=float)
    if x.ndim not in (2, 3) or x.shape[1] < 2:
        raise ValueError(
            f"x must be (chain, draw) or (chain, draw, k) with at least two draws, got the shape {x.shape}"
        )
    m, n = x.shape[:2]
    columns = x.reshape(m, n, -1)
    sizes = np.full(columns.shape[2], np.nan)
    for j in np.flatnonzero(np.isfinite(columns).all(axis=(0, 1))):
        sizes[j] = 1.0 if np.ptp(columns[:, :, j]) == 0 else _initial_monotone(autocovariances(columns[:, :, j]), m * n)
    return sizes[0] if x.ndim == 2 else sizes


def _initial_monotone(gamma: np.ndarray, total: int) -> float:
    pairs = gamma[: len(gamma) // 2 * 2].reshape(-1, 2).sum(axis=1)
    below = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: below[0]] if len(below) else pairs)
    return total / max(2 * float(kept.sum()) / gamma[0] - 1, 1 / math.log10(total))


def e_bfmi(energy: np.ndarray) -> np.ndarray:
    """Energy's Bayesian fraction of missing information of each chain: mean squared change over variance."""
    # A chain at a time, for what they take in between.
    changes = np.array([np.mean(np.diff(of) ** 2) for of in energy])
    variance = np.array([np.var(of) for of in energy])
    return np.divide(changes, variance, out=np.full(len(energy), np.nan), where=variance > 0)


# --------------------------------------------------------------------------- how well a map keeps what it should keep


def _end(H: Any, integrator: Any, q: np.ndarray, p: np.ndarray, step_size: float, n_steps: int) -> np.ndarray:
    path = integrate(H, integrator, q, p, step_size=step_size, n_steps=n_steps)
    return np.concatenate([path.q[-1], path.p[-1]])


def reversibility_violation(
    H: Any, integrator: Any, q: np.ndarray, p: np.ndarray, *, step_size: float, n_steps: int
) -> float:
    """|(q, p) - (q'', p'')| after ``n_steps`` steps, the momentum's reversal, as many steps, and the reversal again.

    Brofos and Lederman (2021), eq. 48 with its erratum. NaN where a solve fails on the way.
    """
    d = H.model.dim
    there = _end(H, integrator, q, p, step_size, n_steps)
    if not np.isfinite(there).all():
        return float("nan")
    back = _end(H, integrator, there[:d], -there[d:], step_size, n_steps)
    back[d:] *= -1
    return float(np.linalg.norm(np.concatenate([q, p]) - back))


def jacobian(
    H: Any,
    integrator: Any,
    q: np.ndarray,
    p: np.ndarray,
    *,
    step_size: float,
    n_steps: int,
    increment: float | None = None,
) -> Any:
    """The Jacobian of the map (q, p) -> (q', p') of ``n_steps`` steps, (2d, 2d), and an estimate of its error.

    With ``increment``: central differences of that width, the paper's (eq. 49, 1e-5), whose error is not estimated (NaN).
    Without: Ridders' extrapolation of central differences to width zero, of each column from widths 0.2, 0.1, ..., 1e-5 in
    units of the local scale (1/sqrt(G_ii) for q_i, sqrt(G_ii) for p_i), at the width where the extrapolates differ least.
    Look at the error: where a long trajectory is chaotic, or the solver's tolerance is loose, it is large.
    """
    z = np.concatenate([np.asarray(q, dtype=float), np.asarray(p, dtype=float)])
    d = H.model.dim

    def difference(k: int, width: float) -> np.ndarray:
        step = np.zeros(2 * d)
        step[k] = 0.5 * width
        ahead, behind = z + step, z - step
        rise = _end(H, integrator, ahead[:d], ahead[d:], step_size, n_steps)
        return (rise - _end(H, integrator, behind[:d], behind[d:], step_size, n_steps)) / width

    if increment is not None:
        return np.stack([difference(k, increment) for k in range(2 * d)], axis=1), float("nan")
    scale = np.sqrt(np.diag(H.mass(q)))
    scale = np.concatenate([1 / scale, scale])
    columns = []
    for k in range(2 * d):
        step = np.eye(2 * d)[k] * scale[k]

        def moved(t: float, step: Any = step) -> np.ndarray:
            return _end(H, integrator, (z + t * step)[:d], (z + t * step)[d:], step_size, n_steps)

        columns.append(ridders(moved, scale=scale))
    J = np.stack([np.broadcast_to(c.value, 2 * d) / scale[k] for k, c in enumerate(columns)], axis=1)
    return J, max(c.error for c in columns)


def volume_violation(
    H: Any,
    integrator: Any,
    q: np.ndarray,
    p: np.ndarray,
    *,
    step_size: float,
    n_steps: int,
    increment: float | None = None,
) -> float:
    """|det J - 1| for :func:`jacobian`; ``increment=1e-5`` is the measure of Brofos and Lederman (2021), eq. 50.

    Without ``increment`` it is no better than the error that :func:`jacobian` gives beside J.
    """
    J, _ = jacobian(H, integrator, q, p, step_size=step_size, n_steps=n_steps, increment=increment)
    return float(abs(np.linalg.det(J) - 1)) if np.isfinite(J).all() else float("nan")
