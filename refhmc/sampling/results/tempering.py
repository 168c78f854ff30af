"""Results of parallel tempering from its swaps: log Z with its error, the communication barrier, and round trips.

For neighbours b < b' with normalising constants Z, Z' and c = log(Z' / Z), the ratio of the normalised densities is
exp(u - c), u = (b' - b) V. Bennett's (1976) estimate solves, with means over the draws at b and at b'::

    mean_b  1 / (1 + exp(c - u))  =  mean_b'  1 / (1 + exp(u - c))

Both sides have the same expectation at the true c, whatever the densities are, and the variance is smallest among such
estimates if draws are independent. The reference is normalised, so that log Z = sum of c over the pairs.

Write f_t and g_t for the terms of both sides in iteration t. To first order, the error of c is the mean of
(f_t - g_t) / S, S = mean f (1 - f) + mean g (1 - g). Summed over the pairs, this is a series whose mean is the error of log Z.
The standard error comes from the effective sample size of this series, which allows for dependence in time, between pairs and
between chains.
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
    V, replica = stats["log_ratio"], stats["replica"]
    b = stats["inverse_temperature"][:, -1]
    rejection = rejections(b, V)
    log_z, error = log_normalizer(b, V)
    result.attributes.update(
        log_z=log_z,
        log_z_error=error,
        barrier=float(rejection.mean(axis=0).sum()),
        swap_rejection=rejection.mean(axis=0).tolist(),
        round_trips=[round_trips(each) for each in replica],
        ladder=b.tolist(),
    )


def rejections(b: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return the mean rejection probability of each pair, (chain, K), for V (chain, draw, K + 1) and b (chain, K + 1)."""
    with np.errstate(invalid="ignore"):
        change = np.diff(b, axis=1)[:, None] * (V[..., :-1] - V[..., 1:])
    return 1 - np.exp(np.minimum(np.nan_to_num(change, nan=-np.inf), 0)).mean(axis=1)


def log_normalizer(b: np.ndarray, V: np.ndarray) -> tuple[float, float]:
    """Return log Z, the mean over the chains, and its standard error, for V (chain, draw, K + 1) and b (chain, K + 1)."""
    found = [log_normalizer_of_chain(*each) for each in zip(b, V, strict=True)]
    estimate = float(np.mean([log_z for log_z, _ in found]))
    if not math.isfinite(estimate):
        return estimate, math.inf
    series = np.array([log_z + errors for log_z, errors in found])[:, :, None]
    spread = float(series.std(ddof=1)) if series.size > 1 else math.inf
    with np.errstate(all="ignore"):
        error = spread / math.sqrt(float(ess_of_mean(series)[0])) if spread > 0 else 0.0
    return estimate, error if math.isfinite(error) else math.inf


def log_normalizer_of_chain(b: np.ndarray, V: np.ndarray) -> tuple[float, np.ndarray]:
    """Return log Z of one chain, and the terms (draw,) whose mean is its error to first order."""
    total, errors = 0.0, np.zeros(len(V))
    for k, step in enumerate(np.diff(b)):
        u, next_u = step * V[:, k], step * V[:, k + 1]
        c = log_ratio_of_constants(u, next_u)
        f, g = expit(u - c), expit(c - next_u)
        total += c
        with np.errstate(all="ignore"):
            errors += (f - g) / (np.mean(f * (1 - f)) + np.mean(g * (1 - g)))
    return total, errors


def log_ratio_of_constants(u: np.ndarray, next_u: np.ndarray) -> float:
    """Return Bennett's c; -inf if no draw of the first density has a finite `u`."""
    if not np.isfinite(u).any():
        return -math.inf

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
    worst, rungs, found = max(rejection), len(rejection), []
    more = max(math.ceil(2 * barrier), rungs + 1)
    if worst > MOST_REJECTION:
        found.append(
            f"Swaps of neighbouring temperatures are rejected with probabilities of up to {worst:.2f} (barrier {barrier:.1f}, "
            f"{rungs} rungs). Replicas then seldom pass between the reference and the target, and log_z has a large error. Use "
            f"rungs={more} or more, or a reference that is nearer to the target. {_see('tempering')}"
        )
    few = [f"chain {k}: {n}" for k, n in enumerate(trips) if n < FEWEST_ROUND_TRIPS]
    if few:
        found.append(
            f"Fewer than {FEWEST_ROUND_TRIPS} round trips between the reference and the target were made in {len(few)} of "
            f"{len(trips)} chains ({', '.join(few[:8])}). Shares of modes and log_z come from few independent visits. Take "
            f"more draws, a longer warm-up, or more rungs. {_see('tempering')}"
        )
    return found
