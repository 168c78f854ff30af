"""Whether chains agree, and how many independent draws they are worth (Vehtari, Gelman, Simpson, Carpenter and Buerkner
2021, Bayesian Analysis 16, 667-718).

Chains are cut into halves, m of n draws each, S = m n in all, and every value x is replaced by the normal quantile of its
rank r among the S, ties by their mean rank,

    z = Phi^-1((r - 3/8) / (S + 1/4)).

**R-hat**, with B/n the variance of the m means and W the mean of the m variances,

    R = sqrt((n - 1)/n + B/(n W)),

is the larger of those of z and of the z of |x - median|, which sees chains of different spread.

**Effective sample size** of z, with gamma_t the mean of the chains' autocovariances at lag t, each about its chain's own mean:

    rho_t = 1 - (W - gamma_t) / (W (n - 1)/n + B/n),     rho_0 = 1
    ESS = S / tau,     tau = -1 + 2 sum_{k < K} min(P_0, ..., P_k) + max(rho_2K, 0)

Here P_k = rho_2k + rho_{2k+1}, and K is the first k with P_k <= 0, at most (n - 3) / 2: Geyer's initial monotone sequence,
with one term of the next pair, as Stan and ArviZ have it (rho_2K as it is where the bound ends the sum and P_K >= 0). tau is at
least 1 / log10 S.

A column with a value that is not finite has neither; of one that never moves ESS is S and R-hat is not known.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.numerics.normal_quantile import normal_quantile

FEWEST = 4  # draws of a chain


def rhat(x: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of (chain, draw, k) draws, (k,): NaN where it is not known, as for one chain."""
    x = np.asarray(x, dtype=float)
    if x.shape[0] < 2 or x.shape[1] < FEWEST or not x.size:
        return np.full(x.shape[2], np.nan)
    halves = split(x)
    folded = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
    found = np.fmax(ratio_of_scales(normal_scores(halves)), ratio_of_scales(normal_scores(folded)))
    return np.where(is_finite(halves), found, np.nan)


def ess(x: np.ndarray) -> np.ndarray:
    """Bulk effective sample size of (chain, draw, k) draws, (k,): NaN where it is not known."""
    x = np.asarray(x, dtype=float)
    if x.shape[1] < FEWEST or not x.size:
        return np.full(x.shape[2], np.nan)
    halves = split(x)
    still = np.ptp(halves, axis=(1, 2)) < np.finfo(float).resolution
    found = np.where(still, halves.shape[1] * halves.shape[2], effective_draws(normal_scores(halves)))
    return np.where(is_finite(halves), found, np.nan)


def split(x: np.ndarray) -> np.ndarray:
    """(k, 2 chains, n): the first and the last n = draws // 2 of each chain."""
    n = x.shape[1] // 2
    return np.ascontiguousarray(np.concatenate([x[:, :n], x[:, -n:]]).transpose(2, 0, 1))


def is_finite(halves: np.ndarray) -> np.ndarray:
    return np.isfinite(halves).all(axis=(1, 2))


def normal_scores(halves: np.ndarray) -> np.ndarray:
    """z, (k, m, n)"""
    size = halves.shape[1] * halves.shape[2]
    flat = halves.reshape(len(halves), size)
    order = np.argsort(flat, axis=1)
    scores = normal_quantile((np.arange(1, size + 1) - 0.375) / (size + 0.25))
    z = np.empty_like(flat)
    np.put_along_axis(z, order, np.broadcast_to(scores, flat.shape), axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    for j in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)):
        z[j] = normal_quantile((mean_ranks(ordered[j], order[j]) - 0.375) / (size + 0.25))
    return z.reshape(halves.shape)


def mean_ranks(ordered: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Ranks from 1 on, in the order before sorting, of equal values their mean."""
    new = np.append(True, ordered[1:] != ordered[:-1])
    ends = np.append(np.flatnonzero(new), len(ordered))
    ranks = np.empty(len(ordered))
    ranks[order] = (0.5 * (ends[1:] + ends[:-1] + 1))[np.cumsum(new) - 1]
    return ranks


def ratio_of_scales(z: np.ndarray) -> np.ndarray:
    """R, (k,)"""
    n = z.shape[2]
    with np.errstate(all="ignore"):
        between = z.mean(axis=2).var(axis=1, ddof=1)
        return np.sqrt((n - 1) / n + between / z.var(axis=2, ddof=1).mean(axis=1))


def effective_draws(z: np.ndarray) -> np.ndarray:
    """S / tau, (k,)"""
    _, m, n = z.shape
    gamma = autocovariances((z - z.mean(axis=2, keepdims=True)).transpose(1, 2, 0)).T
    W = gamma[:, :1] * n / (n - 1)
    total = gamma[:, :1] + (z.mean(axis=2).var(axis=1, ddof=1)[:, None] if m > 1 else 0.0)
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
    """gamma_0, ..., gamma_{n-1} of (chain, draw, ...) values, (draw, ...), about the mean of all chains together:

    gamma_t = 1/(m n) sum_c sum_{i <= n - t} (x_{c,i} - mean) (x_{c,i+t} - mean),     m chains of n draws
    """
    x = np.asarray(x, dtype=float)
    n = x.shape[1]
    size = 2 ** math.ceil(math.log2(2 * n))
    spectrum = np.fft.rfft(x - x.mean(axis=(0, 1)), size, axis=1)
    return np.fft.irfft(np.mean(np.abs(spectrum) ** 2, axis=0), size, axis=0)[:n] / n
