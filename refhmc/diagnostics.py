"""Diagnostics of draws and of integrators.

Draws: R-hat, nested R-hat, effective sample size (:mod:`refhmc.numerics.convergence`), that of Geyer, and E-BFMI.
Integrators: the violations of reversibility and of volume preservation.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.core.sample_stats import OUTCOMES as OUTCOMES
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.dynamics.trajectory import integrate
from refhmc.integrators.base import Integrator
from refhmc.numerics.convergence import autocovariances as autocovariances
from refhmc.numerics.convergence import ess as ess
from refhmc.numerics.convergence import ess_of_mean as ess_of_mean
from refhmc.numerics.convergence import nested_rhat as nested_rhat
from refhmc.numerics.convergence import rhat as rhat
from refhmc.numerics.convergence import rhat_and_ess as rhat_and_ess
from refhmc.numerics.convergence import tail_ess as tail_ess
from refhmc.numerics.differences import ridders

__all__ = [
    "OUTCOMES",
    "autocovariances",
    "e_bfmi",
    "ess",
    "ess_of_mean",
    "geyer_ess",
    "jacobian",
    "nested_rhat",
    "reversibility_violation",
    "rhat",
    "rhat_and_ess",
    "tail_ess",
    "volume_violation",
]


def geyer_ess(x: np.ndarray) -> np.ndarray:
    """Return the effective sample size by Geyer's initial monotone sequence.

    With the :func:`autocovariances` gamma of m chains of n draws, the variance of the overall mean is sigma^2 / (m n), where
    ::

        sigma^2 = gamma_0 + 2 sum_{t >= 1} gamma_t = -gamma_0 + 2 sum_{k < K} min(Gamma_0, ..., Gamma_k)
        Gamma_k = gamma_{2k} + gamma_{2k+1},     K the first k with Gamma_k <= 0,     ESS = m n gamma_0 / sigma^2

    For a reversible chain, the true Gamma_k are positive and decreasing. The truncated sums of running minima keep the
    estimates so. The estimate uses the values, not their ranks as ArviZ's bulk ESS does, and is the one that Betancourt
    (2013) reports. Geyer considers one chain. For several chains that disagree, the autocovariances do not decrease, and the
    ESS is of order m.

    The ESS has no bound if successive draws are nearly opposite; here it is at most m n log10(m n), as in ArviZ. It is 1 if
    all draws are equal, and NaN if a value is not finite.

    Parameters
    ----------
    x : array_like of shape (chain, draw) or (chain, draw, k)
        Draws of one quantity, or of k quantities.

    Returns
    -------
    float or ndarray of shape (k,)
        Effective sample size of each quantity.

    Raises
    ------
    ValueError
        If `x` has another number of axes, or fewer than two draws.

    References
    ----------
    Geyer (1992), Practical Markov chain Monte Carlo, Statistical Science 7, 473-483, sec. 3.3.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).standard_normal((4, 1000))
    >>> bool(3000 < refhmc.diagnostics.geyer_ess(x) < 5000)
    True
    """
    x = np.asarray(x, dtype=float)
    if x.ndim not in (2, 3) or x.shape[1] < 2:
        raise ValueError(
            f"x must have the shape (chain, draw) or (chain, draw, k) with at least two draws; got {x.shape}."
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
    """Return the energy Bayesian fraction of missing information of each chain.

    It is the mean squared change of the energy between draws divided by the variance of the energy.

    Parameters
    ----------
    energy : array_like of shape (chain, draw)
        Energies of the draws.

    Returns
    -------
    ndarray of shape (chain,)
        E-BFMI, NaN for a constant energy. Values below 0.3 indicate slow exploration of the tails.

    References
    ----------
    Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo, arXiv:1604.00695.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> energy = np.random.default_rng(1).standard_normal((2, 1000))
    >>> bool(np.all(np.abs(refhmc.diagnostics.e_bfmi(energy) - 2) < 0.3))  # independent energies
    True
    """
    # One chain at a time, to save memory.
    changes = np.array([np.mean(np.diff(of) ** 2) for of in energy])
    variance = np.array([np.var(of) for of in energy])
    return np.divide(changes, variance, out=np.full(len(energy), np.nan), where=variance > 0)


# --------------------------------------------------------------------------- reversibility and volume


def _end(
    H: Hamiltonian, integrator: Integrator, q: np.ndarray, p: np.ndarray, step_size: float, n_steps: int
) -> np.ndarray:
    path = integrate(H, integrator, q, p, step_size=step_size, n_steps=n_steps)
    return np.concatenate([path.q[-1], path.p[-1]])


def reversibility_violation(
    H: Hamiltonian, integrator: Integrator, q: np.ndarray, p: np.ndarray, *, step_size: float, n_steps: int
) -> float:
    """Return the distance from the start after forward steps and steps back.

    The map runs `n_steps` steps, reverses the momentum, runs `n_steps` steps, and reverses the momentum again. The distance is
    ``|(q, p) - (q'', p'')|``.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    integrator : Integrator
        The integrator.
    q : ndarray of shape (d,)
        Position at the start.
    p : ndarray of shape (d,)
        Momentum at the start.
    step_size : float
        Step size, in units of time.
    n_steps : int
        Number of steps.

    Returns
    -------
    float
        Violation of reversibility, NaN if a solve fails.

    References
    ----------
    Brofos and Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian Hamiltonian
    Monte Carlo, eq. 48 with its erratum.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> H, leapfrog = refhmc.Hamiltonian(refhmc.models.Funnel(1)), refhmc.integrators.Leapfrog()
    >>> q, p = np.array([0.5, 0.1]), np.array([1.0, -0.5])
    >>> refhmc.diagnostics.reversibility_violation(H, leapfrog, q, p, step_size=0.1, n_steps=10) < 1e-12
    True
    """
    d = H.model.dim
    there = _end(H, integrator, q, p, step_size, n_steps)
    if not np.isfinite(there).all():
        return float("nan")
    back = _end(H, integrator, there[:d], -there[d:], step_size, n_steps)
    back[d:] *= -1
    return float(np.linalg.norm(np.concatenate([q, p]) - back))


def jacobian(
    H: Hamiltonian,
    integrator: Integrator,
    q: np.ndarray,
    p: np.ndarray,
    *,
    step_size: float,
    n_steps: int,
    increment: float | None = None,
) -> tuple[np.ndarray, float]:
    """Return the Jacobian of the map (q, p) -> (q', p') of several steps, and an error estimate.

    Without `increment`, each column is extrapolated from central differences with widths 0.2, 0.1, ..., 1e-5 in units of the
    local scale. The result is the extrapolate that differs least from its neighbours. Check the error estimate: it is large
    if a long trajectory is chaotic, or if the solver's tolerance is loose.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    integrator : Integrator
        The integrator.
    q : ndarray of shape (d,)
        Position at the start.
    p : ndarray of shape (d,)
        Momentum at the start.
    step_size : float
        Step size, in units of time.
    n_steps : int
        Number of steps.
    increment : float, optional
        Width of central differences. The paper uses 1e-5 (eq. 49). Defaults to Ridders' extrapolation to width zero, in
        units of the local scale, 1/sqrt(G_ii) for q_i and sqrt(G_ii) for p_i.

    Returns
    -------
    J : ndarray of shape (2 d, 2 d)
        The Jacobian.
    error : float
        Estimate of the largest error of an entry, NaN with `increment`.

    References
    ----------
    Brofos and Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian Hamiltonian Monte Carlo, eq. 49.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> H, leapfrog = refhmc.Hamiltonian(refhmc.models.Funnel(1)), refhmc.integrators.Leapfrog()
    >>> q, p = np.array([0.5, 0.1]), np.array([1.0, -0.5])
    >>> J, error = refhmc.diagnostics.jacobian(H, leapfrog, q, p, step_size=0.1, n_steps=10)
    >>> J.shape, error < 1e-6
    ((4, 4), True)
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

        def moved(t: float, step: np.ndarray = step) -> np.ndarray:
            return _end(H, integrator, (z + t * step)[:d], (z + t * step)[d:], step_size, n_steps)

        columns.append(ridders(moved, scale=scale))
    J = np.stack([np.broadcast_to(c.value, 2 * d) / scale[k] for k, c in enumerate(columns)], axis=1)
    return J, max(c.error for c in columns)


def volume_violation(
    H: Hamiltonian,
    integrator: Integrator,
    q: np.ndarray,
    p: np.ndarray,
    *,
    step_size: float,
    n_steps: int,
    increment: float | None = None,
) -> float:
    """Return the violation ``|det J - 1|`` of volume preservation, with J from :func:`jacobian`.

    Without `increment`, its accuracy is limited by the error estimate of :func:`jacobian`. ``increment=1e-5`` gives the
    measure of the paper.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    integrator : Integrator
        The integrator.
    q : ndarray of shape (d,)
        Position at the start.
    p : ndarray of shape (d,)
        Momentum at the start.
    step_size : float
        Step size, in units of time.
    n_steps : int
        Number of steps.
    increment : float, optional
        Width of central differences. The paper uses 1e-5 (eq. 49). Defaults to Ridders' extrapolation to width zero, in
        units of the local scale, 1/sqrt(G_ii) for q_i and sqrt(G_ii) for p_i.

    Returns
    -------
    float
        Violation of volume preservation, NaN if a solve fails.

    References
    ----------
    Brofos and Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian Hamiltonian Monte Carlo, eq. 50.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> H, leapfrog = refhmc.Hamiltonian(refhmc.models.Funnel(1)), refhmc.integrators.Leapfrog()
    >>> q, p = np.array([0.5, 0.1]), np.array([1.0, -0.5])
    >>> refhmc.diagnostics.volume_violation(H, leapfrog, q, p, step_size=0.1, n_steps=10) < 1e-6
    True
    """
    J, _ = jacobian(H, integrator, q, p, step_size=step_size, n_steps=n_steps, increment=increment)
    return float(abs(np.linalg.det(J) - 1)) if np.isfinite(J).all() else float("nan")
