"""Results of parallel tempering from its swaps: log Z with its error, the communication barrier, and round trips.

For neighbours b < b' with normalising constants Z, Z' and c = log(Z' / Z), the ratio of the normalised densities is
exp(u - c), u = (b' - b) V. Bennett's (1976) estimate solves, with means over the draws at b and at b'::

    mean_b  1 / (1 + exp(c - u))  =  mean_b'  1 / (1 + exp(u - c))

Both sides have the same expectation at the true c, whatever the densities are, and the variance is smallest among such
estimates if draws are independent. References are normalised, so that log Z is the sum of c over the pairs from the first
reference to the target, and minus the sum from the target to the second one.

Write f_t and g_t for the terms of both sides in iteration t. To first order, the error of c is the mean of
(f_t - g_t) / S, S = mean f (1 - f) + mean g (1 - g). Summed over the pairs, this is a series whose mean is the error of log Z.
The standard error comes from the effective sample size of this series, which allows for dependence in time and between pairs.
Chains that met different modes differ by little compared with the noise of the series, so that the effective sample size can
miss it. Therefore the standard error of the means of the chains is taken if it is larger. The series of both legs are averaged
with the inverses of their squared standard errors as weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from refhmc.errors import _see
from refhmc.numerics.convergence import ess_of_mean
from refhmc.sampling.results.result import Result

FEWEST_ROUND_TRIPS = 10
MOST_REJECTION = 0.85


def put_tempering(result: Result) -> None:
    """Put log Z, the ladder, rejection probabilities and round trips of a tempered kernel into the attributes."""
    stats = result.groups.get("sample_stats", {})
    if "log_ratio" not in stats or not stats["log_ratio"].shape[1]:
        return
    V, next_V, b = stats["log_ratio"], stats["next_log_ratio"], stats["inverse_temperature"][:, -1]
    target = int(b[0].argmax())
    rejection = rejections(b, V, next_V).mean(axis=0)
    log_z, error = log_normalizer(b, V, next_V)
    result.attributes.update(
        log_z=log_z,
        log_z_error=error,
        barrier=float(rejection[:target].sum()),
        swap_rejection=rejection.tolist(),
        round_trips=[round_trips(each[:, : target + 1]) for each in stats["replica"]],
        ladder=b.tolist(),
    )


def rejections(b: np.ndarray, V: np.ndarray, next_V: np.ndarray) -> np.ndarray:
    """Return the mean rejection probability of each pair, (chain, K), for V (chain, draw, K) and b (chain, K + 1)."""
    with np.errstate(invalid="ignore"):
        change = np.diff(b, axis=1)[:, None] * (V - next_V)
    return 1 - np.exp(np.minimum(np.nan_to_num(change, nan=-np.inf), 0)).mean(axis=1)


def log_normalizer(b: np.ndarray, V: np.ndarray, next_V: np.ndarray) -> tuple[float, float]:
    """Return log Z and its standard error, for V of both replicas of the pairs (chain, draw, K) and b (chain, K + 1)."""
    target, K = int(b[0].argmax()), b.shape[1] - 1
    legs = [slice(0, target), slice(target, K)] if target < K else [slice(0, K)]
    series = [series_of_leg(b[:, leg.start : leg.stop + 1], V[..., leg], next_V[..., leg]) for leg in legs]
    known = [(each, error) for each in series if math.isfinite(error := error_of_mean(each))]
    if not known:
        return float(series[0].mean()), math.inf
    weights = np.array([1 / max(error**2, 1e-300) for _, error in known])
    both = np.tensordot(weights / weights.sum(), np.array([each for each, _ in known]), 1)
    return float(both.mean()), error_of_mean(both)


def error_of_mean(series: np.ndarray) -> float:
    """Return the standard error of the mean of a series (chain, draw); inf if it is not known."""
    if not np.isfinite(series).all() or series.size < 2:
        return math.inf
    chains, spread = len(series), float(series.std(ddof=1))
    if spread == 0:
        return 0.0
    with np.errstate(all="ignore"):
        error = spread / math.sqrt(float(ess_of_mean(series[:, :, None])[0]))
    of_chains = float(series.mean(axis=1).std(ddof=1)) / math.sqrt(chains) if chains > 1 else 0.0
    return max(error, of_chains) if math.isfinite(error) else math.inf


def series_of_leg(b: np.ndarray, V: np.ndarray, next_V: np.ndarray) -> np.ndarray:
    """Return log Z of each chain from the pairs of a leg, plus terms (chain, draw) whose mean is its error to first order."""
    chains, draws, n = V.shape
    series = np.zeros((chains, draws))
    for i in range(chains):
        for k in range(n):
            u, next_u = (b[i, k + 1] - b[i, k]) * V[i, :, k], (b[i, k + 1] - b[i, k]) * next_V[i, :, k]
            c = log_ratio_of_constants(u, next_u)
            series[i] += c
            if math.isfinite(c):
                f, g = expit(u - c), expit(c - next_u)
                with np.errstate(all="ignore"):
                    series[i] += (f - g) / (np.mean(f * (1 - f)) + np.mean(g * (1 - g)))
    return series if b[0, -1] > b[0, 0] else -series


def log_ratio_of_constants(u: np.ndarray, next_u: np.ndarray) -> float:
    """Return Bennett's c; -inf if no draw of the first density has a finite `u`, and inf if none of the second one has."""
    if not np.isfinite(u).any():
        return -math.inf
    if not np.isfinite(next_u).any():
        return math.inf

    def excess(c: float) -> float:
        return float(expit(u - c).mean() - expit(c - next_u).mean())

    both = np.concatenate([u, next_u])
    both = both[np.isfinite(both)]
    low, high, width = float(both.min()) - 1, float(both.max()) + 1, 1.0
    while excess(low) <= 0:
        low, width = low - width, 2 * width
    while excess(high) >= 0:
        high, width = high + width, 2 * width
    return float(brentq(excess, low, high, xtol=1e-12))


def round_trips(replica: np.ndarray) -> int:
    """Return how often a replica came to the target that had been at the reference since its last visit.

    `replica` (draw, K + 1) has the numbers of the replicas.
    """
    count = 0
    for r in range(replica.shape[1]):
        ends = np.where(replica[:, 0] == r, 1, np.where(replica[:, -1] == r, 2, 0))
        ends = ends[ends > 0]
        count += int(np.count_nonzero((ends[:-1] == 1) & (ends[1:] == 2)))
    return count


def warnings_of_tempering(attributes: dict[str, Any]) -> list[str]:
    """Return the warnings about few round trips and about swaps that are rejected too often."""
    if "round_trips" not in attributes:
        return []
    trips, barrier, rejection = (attributes[name] for name in ("round_trips", "barrier", "swap_rejection"))
    rungs = int(np.argmax(attributes["ladder"][0]))
    worst, found = max(rejection[:rungs]), []
    more = max(math.ceil(2 * barrier), rungs + 1)
    if worst > MOST_REJECTION:
        found.append(
            f"Swaps of neighbouring temperatures are rejected with probabilities of up to {worst:.2f} (barrier {barrier:.1f}, "
            f"{rungs} rungs). Replicas then seldom pass between the first reference and the target, and may miss modes. "
            f"Use rungs={more} or more, or a reference that is nearer to the target. {_see('tempering')}"
        )
    few = [f"chain {k}: {n}" for k, n in enumerate(trips) if n < FEWEST_ROUND_TRIPS]
    if few:
        found.append(
            f"Fewer than {FEWEST_ROUND_TRIPS} round trips between the reference and the target were made in {len(few)} of "
            f"{len(trips)} chains ({', '.join(few[:8])}). Shares of modes and log_z come from few independent visits. Take "
            f"more draws, a longer warm-up, or more rungs. {_see('tempering')}"
        )
    return found
