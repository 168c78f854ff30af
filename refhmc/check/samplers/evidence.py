"""Evidence of draws against a distribution: bets, and distances of empirical distributions.

**Bets.** X_i are independent exact draws of pi, Y_i = K^m(X_i). If K preserves pi, then for every function f and every bounded
score g of it

    D_i = g(f(Y_i)) - g(f(X_i))    in [-1, 1],    E D_i = 0,

and the wealth prod_i (1 + lambda D_i) of a gambler who stakes lambda on each D_i is a martingale that starts at 1. So is
the average of such wealths over a fixed set of f, g and lambda. By Ville's inequality

    P(the average ever reaches 1/alpha) <= alpha

for any stopping rule (Vovk and Wang 2021 call such an average an e-value). If D has mean delta and
variance s^2 the best stake is about delta / s^2, and the log wealth grows by delta^2 / (2 s^2) per pair.

Here f(X) and f(Y) are each assigned to one of ``BINS`` bins, whose edges are quantiles of f in draws made beforehand. g only
depends on the bin, so that the numbers N[a, b] of pairs from bin a to bin b are sufficient:

    log wealth = sum_ab N[a, b] log(1 + lambda (g(b) - g(a))).

**Bets on paths.** A kernel that mixes fast shows the same bias after each of the m transitions, with other noise. Therefore

    D_i = mean over k = 1 ... m of g(f(K^k X_i))  -  mean of g(f(X_i)) and of g(f(.)) at r fresh exact draws

also has E D_i = 0 and |D_i| <= 1, and a smaller variance if K^k X_i has forgotten X_i. These D do not depend on two bins only.
For |x| <= 1/2, log(1 + x) >= x - x^2/2 - 2|x|^3/3, so that for stakes |lambda| <= 1/2

    log wealth >= lambda S_1 - lambda^2 S_2 / 2 - 2 |lambda|^3 S_3 / 3,      S_k = sum_i |D_i|^k but S_1 = sum_i D_i.

This lower bound is the log of an e-value too, from three sums.

The scores g of the rank u in (0, 1): u (shifts), |2u - 1| (widths), and min(-log2 u, 10) / 10 of u and of 1 - u (tails).

**Distances.** With F the empirical distribution of n draws, F0 the exact one, or that of m exact draws (then n below is
nm / (n + m)):

    Kolmogorov and Smirnov   D  = sup |F - F0|                     P(D > t) is known exactly for each n
    Anderson and Darling     A2 = n int (F - F0)^2 / (F0 (1 - F0)) dF0  ->  sum_j Z_j^2 / (j (j + 1)),  Z_j normal

The tail of the second distribution is the alternating sum (Smirnov's formula, with a_j = j (j + 1) / 2)

    P(A2 > z) = (1/pi) sum_k (-1)^(k+1) int from a_(2k-1) to a_(2k) of exp(-z t) / (t sqrt|D(t)|) dt

with D(t) = prod_j (1 - t / a_j) = sin(pi r) / (2 pi t), r (r + 1) = 2t, accurate to a small *relative* error far out. With
ties both tests are conservative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special
import scipy.stats

_TAILS = 2.0 ** -np.arange(6.0, 11.0)
LEVELS = np.sort(np.concatenate([np.arange(1, 32) / 32, _TAILS, 1 - _TAILS]))  # quantiles at the edges of the bins
BINS = len(LEVELS) + 1
_MIDDLES = (np.concatenate([[0.0], LEVELS]) + np.concatenate([LEVELS, [1.0]])) / 2
SCORE_NAMES = ("location", "spread", "lower tail", "upper tail")
SCORES = np.array(
    [
        _MIDDLES,
        np.abs(2 * _MIDDLES - 1),
        np.minimum(-np.log2(_MIDDLES), 10) / 10,
        np.minimum(-np.log2(1 - _MIDDLES), 10) / 10,
    ]
)
_SIZES = 0.9 * 2.0 ** -np.arange(9.0)
STAKES = np.concatenate([_SIZES, -_SIZES])
GAINS = SCORES[:, None, :] - SCORES[:, :, None]  # (score, from, to)
_LOG_GROWTH = np.log1p(STAKES[None, :, None, None] * GAINS[:, None]).reshape(-1, BINS * BINS)


# ---------------------------------------------------------------------------------------------------------------- bets


def edges_of(values: np.ndarray) -> np.ndarray:
    """Return the edges (F, BINS - 1) of the bins, from draws ``values`` (n, F) made beforehand."""
    return np.quantile(values, LEVELS, axis=0, method="lower").T.copy()


def bins_of(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the bins (n, F) of ``values`` (n, F); NaN is in the last one."""
    return np.stack([np.searchsorted(e, v, side="right") for e, v in zip(edges, values.T, strict=True)], axis=-1)


def uniform_ranks(values: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return u = (r + a uniform number) / n, (F,), with the rank r of row ``k`` among the rows of ``values`` (n, F).

    Ties are broken at random. NaN is larger than all other values.
    """
    values = np.where(np.isnan(values), np.inf, values)
    one, others = values[k], np.delete(values, k, axis=0)
    below, equal = np.sum(others < one, axis=0), np.sum(others == one, axis=0)
    rank = below + rng.integers(0, equal + 1)
    return (rank + rng.random(len(rank))) / len(values)


def pair_counts(from_bins: np.ndarray, to_bins: np.ndarray) -> np.ndarray:
    """Return the numbers (F, BINS, BINS) of pairs from bin a to bin b, from bins (n, F)."""
    joint = from_bins * BINS + to_bins
    counts = [np.bincount(column, minlength=BINS * BINS) for column in joint.T]
    return np.array(counts).reshape(-1, BINS, BINS)


def log_wealths(counts: np.ndarray) -> np.ndarray:
    """Return the log wealths (F, score, stake) after the pairs counted in (F, BINS, BINS)."""
    flat = counts.reshape(len(counts), -1).astype(float)
    return (flat @ _LOG_GROWTH.T).reshape(len(counts), len(SCORES), len(STAKES))


def log_mean(log_values: np.ndarray) -> float:
    """Return the log of the mean of exp(log_values), which is the log e-value of an average of wealths."""
    log_values = np.ravel(log_values)
    return float(scipy.special.logsumexp(log_values) - math.log(len(log_values)))


def gain_moments(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of D for each f and g, both (F, score), from counts (F, BINS, BINS)."""
    n = np.maximum(counts.sum(axis=(1, 2)), 1)[:, None]
    mean = np.einsum("fab,sab->fs", counts, GAINS) / n
    square = np.einsum("fab,sab->fs", counts, GAINS**2) / n
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0))


def least_detectable(deviation: Any, n: int, log_threshold: float, gamblers: int, power: float = 0.99) -> np.ndarray:
    """Return the mean of D for which ``n`` pairs exceed the threshold with probability ``power``.

    The stake nearest to the best one is within a factor sqrt(2) of it, so that its growth is at least 0.83 of the best. It also
    has to make up for sharing the capital with ``gamblers`` - 1 others.
    """
    z = math.sqrt(2 * (log_threshold + math.log(gamblers)) / 0.83) + scipy.stats.norm.ppf(power)
    return z * np.asarray(deviation) / math.sqrt(max(n, 1))


PATH_STAKES = np.concatenate([0.5 ** np.arange(1.0, 11.0), -(0.5 ** np.arange(1.0, 11.0))])


def path_sums(gains: np.ndarray) -> np.ndarray:
    """Return the sums S_1, S_2, S_3 (3, ...) of D (n, ...)."""
    return np.stack([gains.sum(axis=0), (gains**2).sum(axis=0), (np.abs(gains) ** 3).sum(axis=0)])


def log_path_wealths(sums: np.ndarray) -> np.ndarray:
    """Return the log wealths (..., stake) of the bets on paths with the sums (3, ...)."""
    powers = np.stack([PATH_STAKES, -(PATH_STAKES**2) / 2, -2 * np.abs(PATH_STAKES) ** 3 / 3])
    return np.moveaxis(sums, 0, -1) @ powers


PAIR_STAKES = np.array([0.9, 0.6, 0.3])


def log_pair_wealths(products: np.ndarray) -> np.ndarray:
    """Return the log wealths (F, stake) of bets that ``products`` (pairs, F) of signs, -1, 0 or 1, are positive."""
    up, down = np.sum(products > 0, axis=0), np.sum(products < 0, axis=0)
    return up[:, None] * np.log1p(PAIR_STAKES) + down[:, None] * np.log1p(-PAIR_STAKES)


# ----------------------------------------------------------------------------------------------------------- distances


def kolmogorov_tail(distance: float, n: float) -> float:
    """Return P(D > distance) for the Kolmogorov-Smirnov distance of ``n`` draws."""
    return float(np.clip(scipy.stats.kstwo.sf(distance, max(round(n), 1)), 0.0, 1.0))


def _smirnov_nodes(intervals: int = 40, nodes: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return points t and signed weights of the tail's integrals by Gauss-Chebyshev quadrature, for the roots at both ends."""
    k = np.arange(1, 2 * intervals, 2)
    low, high = k * (k + 1) / 2, (k + 1) * (k + 2) / 2
    angle = math.pi * (np.arange(nodes) + 0.5) / nodes
    t = (low + high)[:, None] / 2 - np.cos(angle) * (high - low)[:, None] / 2
    r = (np.sqrt(1 + 8 * t) - 1) / 2
    product = np.abs(np.sin(math.pi * r)) / (2 * math.pi * t)
    sign = np.where(np.arange(intervals) % 2 == 0, 1.0, -1.0)[:, None]
    weight = sign * np.sin(angle) * (high - low)[:, None] / 2 * (math.pi / nodes) / (t * np.sqrt(product)) / math.pi
    return t.ravel(), weight.ravel()


_T, _WEIGHT = _smirnov_nodes()


def anderson_tail(statistic: float) -> float:
    """Return P(A2 > statistic) for the Anderson-Darling statistic of many draws."""
    if statistic < 0.02:  # then it is 1 to thirteen digits, and the sum is slow
        return 1.0
    return float(np.clip(np.exp(-statistic * _T) @ _WEIGHT, 0.0, 1.0))


def uniform_kolmogorov(u: np.ndarray) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test that ``u`` (n,) are independent and uniform on (0, 1)."""
    u, n = np.sort(u), len(u)
    return kolmogorov_tail(max((np.arange(1, n + 1) / n - u).max(), (u - np.arange(n) / n).max()), n)


def uniform_anderson(u: np.ndarray) -> float:
    """Return the p-value of the Anderson-Darling test of the same hypothesis."""
    u, n = np.clip(np.sort(u), 1e-300, 1 - 2.0**-53), len(u)
    odd = 2 * np.arange(n) + 1
    return anderson_tail(-n - float(np.sum(odd * (np.log(u) + np.log1p(-u[::-1])))) / n)


def two_sample(draws: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov and Anderson-Darling p-values for the hypothesis that (n,) and (m,) have one distribution.

    NaN counts as larger than all. A2 is the two-sample form, with a sum over the pooled sample instead of the integral.
    """
    n, m = len(draws), len(exact)
    pooled = np.concatenate([draws, exact])
    order = np.argsort(pooled, kind="stable")
    below = np.cumsum(order < n)  # number of draws among the first k of the pooled sample
    k = np.arange(1, n + m + 1)
    ordered = pooled[order]
    last = np.append(ordered[1:] != ordered[:-1], True)  # ties: only the last of equal values counts
    gap = (below / n - (k - below) / m) * last
    shares = np.diff(np.flatnonzero(last), prepend=-1)
    inner = np.flatnonzero(last)[:-1]
    i = k[inner].astype(float)
    statistic = float(np.sum(shares[:-1] * (below[inner] / n - i / (n + m)) ** 2 / (i * (n + m - i)))) * n * (n + m) / m
    return kolmogorov_tail(float(np.abs(gap).max()), n * m / (n + m)), anderson_tail(statistic * (n + m))
