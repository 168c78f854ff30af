"""Convergence diagnostics: whether chains agree, and their effective sample sizes.

Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718. Margossian, Hoffman, Sountsov,
Riou-Durand, Vehtari and Gelman (2024), Nested R-hat, Bayesian Analysis, arXiv:2110.13017.

Chains are cut into halves, m of n draws each, S = m n in total. Every value x is replaced by the normal quantile of its rank r
among the S, with mean ranks for ties,

    z = Phi^-1((r - 3/8) / (S + 1/4)).

**R-hat**, with B/n the variance of the m means and W the mean of the m variances,

    R = sqrt((n - 1)/n + B/(n W)),

is the larger of the value for z and the value for the z of |x - median|, which detects chains with different scales.

**Effective sample size** of z, with gamma_t the mean of the chains' autocovariances at lag t, each about its chain's own mean:

    rho_t = 1 - (W - gamma_t) / (W (n - 1)/n + B/n),     rho_0 = 1
    ESS = S / tau,     tau = -1 + 2 sum_{k < K} min(P_0, ..., P_k) + max(rho_2K, 0)

Here P_k = rho_2k + rho_{2k+1}, and K is the first k with P_k <= 0, at most (n - 3) / 2. This is Geyer's initial monotone
sequence, with one term of the next pair, as in Stan and ArviZ (rho_2K itself if the bound ends the sum and P_K >= 0). tau is at
least 1 / log10 S.

**Nested R-hat** is for many short chains, in K groups of M, the superchains, whose members began at the same point (Margossian
and others 2024). With B the variance of the K means of the superchains, B' the mean over superchains of the variance of their
chains' means, and W' the mean variance within a chain (0 for one draw),

    R = sqrt(1 + B / W),     W = B' + W'.

A chain that has forgotten its start differs from one of another superchain as much as from one of its own. Then E[B] = E[B'] /
M, and for normal means M B / B' has the F distribution with K - 1 and K (M - 1) degrees of freedom. R^2 - 1 is then near
B' / (M W) <= 1/M, and the excess (B - B'/M) / W is what remains of the starts.

R-hat and ESS are NaN for a column with a value that is not finite. For a constant column ESS is S and R-hat is NaN.

Columns are processed in blocks that fit in the processor's cache. (The result of a column does not depend on the others.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

FEWEST = 4  # draws per chain
BLOCK = 2**17  # numbers that are processed together


def rhat(x: np.ndarray) -> np.ndarray:
    """Return the rank-normalised split R-hat.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws.

    Returns
    -------
    ndarray, shape (k,)
        R-hat of each column; NaN if it is not defined, as for one chain.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718, doi:10.1214/20-BA1221.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).normal(size=(4, 500, 1))
    >>> bool(refhmc.diagnostics.rhat(x)[0] < 1.05)
    True
    """
    return of_columns(x, lambda halves: [ratio_of_halves(halves, normal_scores(halves))])[0]


def ess(x: np.ndarray) -> np.ndarray:
    """Return the bulk effective sample size.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws.

    Returns
    -------
    ndarray, shape (k,)
        Effective sample size of each column; NaN if it is not defined.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718, doi:10.1214/20-BA1221.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).normal(size=(4, 500, 1))
    >>> bool(1000 < refhmc.diagnostics.ess(x)[0] < 4000)
    True
    """
    return of_columns(x, lambda halves: [size_of_halves(halves, normal_scores(halves))])[0]


def tail_ess(x: np.ndarray) -> np.ndarray:
    """Return the tail effective sample size: the smaller one of the indicators of the 5 % and the 95 % quantile.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws.

    Returns
    -------
    ndarray, shape (k,)
        Effective sample size of each column; NaN if it is not defined.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718, sec. 4.3.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).normal(size=(4, 500, 1))
    >>> bool(1000 < refhmc.diagnostics.tail_ess(x)[0] < 4000)
    True
    """
    x = np.asarray(x, dtype=float)
    chains, draws, k = x.shape
    found = np.full(k, np.nan)
    if draws < FEWEST or not x.size:
        return found
    width = max(1, BLOCK // (chains * draws))
    for begin in range(0, k, width):
        part = x[:, :, begin : begin + width]
        with np.errstate(all="ignore"):  # in columns without a result
            limits = np.quantile(part, (0.05, 0.95), axis=(0, 1))
        sizes = [ess_of_mean(part <= limit) for limit in limits]
        found[begin : begin + width] = np.where(np.isfinite(part).all(axis=(0, 1)), np.minimum(*sizes), np.nan)
    return found


def ess_of_mean(x: np.ndarray) -> np.ndarray:
    """Return the effective sample size for the mean, that of the values and not of their ranks.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws.

    Returns
    -------
    ndarray, shape (k,)
        Effective sample size of each column, so that the standard error of its mean is its standard deviation divided by the
        root of this number; NaN if it is not defined.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718, sec. 3.2.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).normal(size=(4, 500, 1))
    >>> bool(1000 < refhmc.diagnostics.ess_of_mean(x)[0] < 4000)
    True
    """
    return of_columns(x, lambda halves: [effective_draws_unless_still(halves)])[0]


def rhat_and_ess(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R-hat and the bulk effective sample size, with the values ranked once.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws.

    Returns
    -------
    tuple of ndarray, each of shape (k,)
        R-hat and effective sample size.
    """

    def both(halves: np.ndarray) -> list[np.ndarray]:
        scores = normal_scores(halves)
        return [ratio_of_halves(halves, scores), size_of_halves(halves, scores)]

    found = of_columns(x, both, results=2)
    return found[0], found[1]


def nested_rhat(x: np.ndarray, superchains: ArrayLike) -> np.ndarray:
    """Return the nested R-hat of many short chains.

    Parameters
    ----------
    x : array_like, shape (chain, draw, k)
        Draws, at least one per chain.
    superchains : array_like of int, shape (chain,)
        The superchain of each chain. The chains of a superchain began at the same point, and all superchains have the same
        number of chains, M.

    Returns
    -------
    ndarray, shape (k,)
        Nested R-hat of each column; NaN if a value is not finite, or if all are equal. Chains that have forgotten their starts
        have values up to about sqrt(1 + 1/M), and not 1.

    Raises
    ------
    ValueError
        If there is one superchain only, or if their sizes differ.

    References
    ----------
    Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024), Nested R-hat: assessing the convergence of Markov
    chain Monte Carlo when running many short chains, Bayesian Analysis.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> x = np.random.default_rng(1).normal(size=(512, 1, 1))  # 16 superchains of 32 chains, one draw each
    >>> bool(refhmc.diagnostics.nested_rhat(x, np.repeat(np.arange(16), 32))[0] < 1.05)
    True
    """
    of = superchain_variances(x, superchains)
    with np.errstate(all="ignore"):
        return np.sqrt(1 + of.between / (of.of_chains + of.within))


class SuperchainVariances(NamedTuple):
    """B, B' and W', each (k,), of K superchains of M chains."""

    between: np.ndarray
    of_chains: np.ndarray
    within: np.ndarray
    K: int
    M: int


def superchain_variances(x: np.ndarray, superchains: ArrayLike) -> SuperchainVariances:
    """Return the variances of the means of superchains, of the means of their chains, and within chains.

    Raises ValueError if there is one superchain only, or if their sizes differ.
    """
    x, labels = np.asarray(x, dtype=float), np.asarray(superchains)
    sizes = np.unique(labels, return_counts=True)[1]
    if labels.shape != x.shape[:1] or len(sizes) < 2 or np.any(sizes != sizes[0]):
        raise ValueError(
            "superchains must have one integer per chain, with at least two different ones that occur equally often; got shape "
            f"{labels.shape} and the sizes {sizes.tolist()} for {x.shape[0]} chains."
        )
    K, M = len(sizes), int(sizes[0])
    none = np.zeros(x.shape[2])
    with np.errstate(all="ignore"):  # values that are not finite
        means = x.mean(axis=1)[np.argsort(labels, kind="stable")].reshape(K, M, -1)
        between = means.mean(axis=1).var(axis=0, ddof=1)
        of_chains = means.var(axis=1, ddof=1).mean(axis=0) if M > 1 else none
        within = x.var(axis=1, ddof=1).mean(axis=0) if x.shape[1] > 1 else none
    return SuperchainVariances(between, of_chains, within, K, M)


def of_columns(x: np.ndarray, function: Callable, results: int = 1) -> np.ndarray:
    """Return (results, k) by ``function`` of the halves (some of k, m, n); NaN if draws are too few, or not finite."""
    x = np.asarray(x, dtype=float)
    chains, draws, k = x.shape
    found = np.full((results, k), np.nan)
    if draws < FEWEST or not x.size:
        return found
    width = max(1, BLOCK // (chains * draws))
    for begin in range(0, k, width):
        halves = split(x[:, :, begin : begin + width])
        found[:, begin : begin + width] = np.where(np.isfinite(halves).all(axis=(1, 2)), function(halves), np.nan)
    return found


def split(x: np.ndarray) -> np.ndarray:
    """Return (k, 2 chains, n): the first and the last n = draws // 2 of each chain."""
    chains, draws, k = x.shape
    n = draws // 2
    halves = np.empty((k, 2 * chains, n))
    halves[:, :chains] = x[:, :n].transpose(2, 0, 1)
    halves[:, chains:] = x[:, -n:].transpose(2, 0, 1)
    return halves


class Scores(NamedTuple):
    """z (k, m, n), and the median of the values in each column, (k,)."""

    z: np.ndarray
    median: np.ndarray


def normal_scores(values: np.ndarray) -> Scores:
    """Return the normal scores of the values (k, m, n)."""
    from scipy.special import ndtri  # importing it takes 0.1 s

    k, m, n = values.shape
    size = m * n
    at = np.argsort(values.reshape(k, size), axis=1) + size * np.arange(k)[:, None]
    ordered = np.take(values, at)
    scores = np.tile(ndtri((np.arange(1, size + 1) - 0.375) / (size + 0.25)), (k, 1))
    tied, ranks = mean_ranks(ordered)
    scores[tied] = ndtri((ranks - 0.375) / (size + 0.25))
    z = np.empty(k * size)
    z[at] = scores
    with np.errstate(all="ignore"):  # inf - inf, in a column without a result
        return Scores(z.reshape(values.shape), 0.5 * (ordered[:, (size - 1) // 2] + ordered[:, size // 2]))


def mean_ranks(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the ordered values (k, size) have equals, (k, size), and the mean rank, from 1 on, of each of these."""
    k, size = ordered.shape
    as_before, tied = np.zeros((2, k, size), dtype=bool)
    as_before[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    tied[:, :-1], tied[:, -1] = as_before[:, :-1] | as_before[:, 1:], as_before[:, -1]
    where = np.flatnonzero(tied)
    first = np.flatnonzero(~as_before.ravel()[where])  # of each run of equal values
    after = np.append(first[1:], len(where))
    means = 0.5 * (where[first] % size + where[after - 1] % size) + 1 if len(where) else np.zeros(0)
    return tied, np.repeat(means, after - first if len(where) else 0)


def ratio_of_halves(halves: np.ndarray, scores: Scores) -> np.ndarray:
    """Return R-hat, (k,)."""
    if halves.shape[1] < 4:  # one chain
        return np.full(len(halves), np.nan)
    with np.errstate(all="ignore"):
        folded = np.abs(halves - scores.median[:, None, None])
    return np.fmax(ratio_of_scales(scores.z), ratio_of_scales(normal_scores(folded).z))


def ratio_of_scales(z: np.ndarray) -> np.ndarray:
    """Return R, (k,)."""
    n = z.shape[2]
    with np.errstate(all="ignore"):
        between = z.mean(axis=2).var(axis=1, ddof=1)
        return np.sqrt((n - 1) / n + between / z.var(axis=2, ddof=1).mean(axis=1))


def size_of_halves(halves: np.ndarray, scores: Scores) -> np.ndarray:
    """Return the effective sample size, (k,)."""
    return effective_draws_unless_still(halves, scores.z)


def effective_draws_unless_still(halves: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
    """Return S / tau of z, by default of the values themselves, and S for columns of equal values, (k,)."""
    _, m, n = halves.shape
    still = np.ptp(halves, axis=(1, 2)) < np.finfo(float).resolution
    return np.where(still, m * n, effective_draws(halves if z is None else z))


def effective_draws(z: np.ndarray) -> np.ndarray:
    """Return S / tau, (k,)."""
    _, m, n = z.shape
    means = z.mean(axis=2, keepdims=True)
    gamma = mean_of_products(z - means)
    W = gamma[:, :1] * n / (n - 1)
    total = gamma[:, :1] + (means[:, :, 0].var(axis=1, ddof=1)[:, None] if m > 1 else 0.0)
    with np.errstate(all="ignore"):
        rho = 1 - (W - gamma) / total
    rho[:, 0] = 1.0
    most = max((n - 3) // 2, 0)
    pairs = rho[:, 0 : 2 * most + 2 : 2] + rho[:, 1 : 2 * most + 2 : 2]
    ends = ~(pairs > 0)
    ends[:, most:] = True
    K = np.argmax(ends, axis=1)
    kept = np.where(np.arange(pairs.shape[1]) < K[:, None], np.minimum.accumulate(pairs, axis=1), 0.0)
    pair, last = (np.take_along_axis(of, at[:, None], axis=1)[:, 0] for of, at in ((pairs, K), (rho, 2 * K)))
    tau = -1 + 2 * kept.sum(axis=1) + np.where(pair >= 0, last, np.maximum(last, 0.0))
    return m * n / np.maximum(tau, 1 / np.log10(m * n))


def autocovariances(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances gamma_0, ..., gamma_{n-1}, about the mean of all chains together.

    For m chains of n draws::

        gamma_t = 1/(m n) sum_c sum_{i <= n - t} (x_{c,i} - mean) (x_{c,i+t} - mean)

    Parameters
    ----------
    x : array_like, shape (chain, draw, ...)
        Values.

    Returns
    -------
    ndarray, shape (draw, ...)
        The mean over chains of the autocovariance at each lag.
    """
    x = np.asarray(x, dtype=float)
    centred = np.moveaxis(x - x.mean(axis=(0, 1)), (0, 1), (-2, -1))
    return np.moveaxis(mean_of_products(centred), -1, 0)


def mean_of_products(x: np.ndarray) -> np.ndarray:
    """Return gamma (..., n) of centred x (..., m, n), by Fourier transforms with zeros after x."""
    n = x.shape[-1]
    size = 2 ** math.ceil(math.log2(2 * n))
    total = np.zeros(size // 2 + 1)
    for chain in range(x.shape[-2]):  # one at a time, since a spectrum takes four times its chain
        spectrum = np.fft.rfft(x[..., chain, :], size)
        total = total + (spectrum.real**2 + spectrum.imag**2)
    return np.fft.irfft(total / x.shape[-2], size)[..., :n] / n
