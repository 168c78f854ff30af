"""Comparison of the gradient with differences of the log density: at ordinary points, far out, and to its last digits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from refhmc.check.derivatives.claims import Claim, claim_at
from refhmc.check.derivatives.points import ascending, short
from refhmc.check.judging import failed, passed
from refhmc.check.models.examination import ModelExamination, noise_of_logp
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable

FINE_TIER = 2.0**-40  # the precision of a derivative is not examined below this
OVERFLOWING = 1e30  # for numbers of this size, squares and products overflow in correct code


def gradient_claim(s: ModelExamination, q: np.ndarray, directions: np.ndarray | None = None) -> Claim:
    """Compare the gradient at q with differences of logp along some directions; the result is cached."""
    key = (q.tobytes(), None if directions is None else directions.tobytes())
    if key not in s.seen:
        rng = np.random.default_rng([s.seed, 1])
        u = s.directions(rng) if directions is None else directions
        units: dict[str, Any] = {"epsilon": s.epsilon("logp"), "claim_epsilon": s.epsilon("grad")}
        # A log density is a sum of terms of order one.
        s.seen[key] = claim_at(s.at("logp"), s.at("grad"), q, u, s.frame.scales, least=1.0, **units)
    return s.seen[key]


def gradient_row(s: ModelExamination, name: str, test_points: Sequence[np.ndarray], said: str = "") -> Row:
    s.need("grad")
    row = s.claim_row(name, test_points, "grad", "logp", functools.partial(gradient_claim, s), said=said)
    if row.status == FAIL:
        s.failed.add("gradient")
    return row


def large_row(s: ModelExamination) -> Row:
    """Check the gradient at distances up to a thousand scales, where a clipped or saturated gradient shows."""
    s.need("grad")
    s.directions()
    rng, test_points = np.random.default_rng([s.seed, 2]), []
    rays = [rng.standard_normal(s.dim), ascending(s.dim, rng), np.eye(s.dim)[int(rng.integers(s.dim))]]
    for n, size in enumerate((5.0, 20.0, 60.0, 200.0, 600.0, 2000.0)):
        for ray in (rays[n % 3], -rays[n % 3]):
            q = short(s.frame.centre + s.frame.scales * size * ray)
            if s.good(q):
                test_points.append(q)
    # If the numbers themselves overflow, an overflow of the gradient is not an error.
    tame = [q for q in test_points if np.isfinite(s.at("grad")(q)).all() or _largest_number(s, q) < OVERFLOWING]
    if not tame:
        raise Inconclusive("logp and the gradient are finite at no large point")
    met = max(float(np.nan_to_num(np.abs(gradient_claim(s, q).truth)).max(initial=0.0)) for q in tame)
    lost = f"; overflows at {len(test_points) - len(tame)} others" if len(tame) < len(test_points) else ""
    return gradient_row(s, "gradient at large points", tame, said=f"|gradient| up to {met:.2g}{lost}")


def _largest_number(s: ModelExamination, q: np.ndarray) -> float:
    """Return the largest of log density and slopes at q."""
    truth = gradient_claim(s, q).truth
    slopes = float(np.abs(truth).max(initial=0.0)) if np.isfinite(truth).all() else np.inf
    return max(slopes, abs(float(np.real(s.at("logp")(q)))))


def precision_row(s: ModelExamination) -> Row:
    """Find a float64 gradient with only eight correct digits: a coordinate that is wrong at most points."""
    s.need("grad")
    s.directions()
    if "gradient" in s.failed:
        raise NotApplicable("the gradient itself is wrong")
    found = [c for key in ("gradient", "gradient at asymmetric points") for c in s.claims.get(key, ())]
    found = [c for c in found if not c.kinks.any()]
    if len(found) < 3:
        raise Inconclusive("fewer than three points to judge")
    excess = np.array([c.excess(FINE_TIER) for c in found])
    relative = np.array([np.abs(c.value - c.truth) / np.maximum(c.size, 1e-300) for c in found])
    allowed = np.array([c.own / np.maximum(c.size, 1e-300) + FINE_TIER for c in found])
    decided = np.array([c.decided for c in found])
    off = ((excess > 1) & decided).sum(axis=0)
    k = int(np.argmax(off / np.maximum(decided.sum(axis=0), 1)))
    basis = f"relative; median over {len(found)} points of the worst coordinate; error of the differences + noise"
    at = decided[:, k]
    if at.sum() < 3:
        raise Inconclusive("fewer than three points to judge")
    number, tolerance = float(np.median(relative[at, k])), float(np.median(allowed[at, k]))
    if off[k] > 0.5 * at.sum() and off[k] >= 3:
        claim = found[int(np.argmax(excess[:, k]))]
        case = f"{s.call('grad', claim.q)}  # component {k}: {claim.value[k]:.16g}; differences: {claim.truth[k]:.16g}"
        s.failed.add("precision")
        return failed(basis, case, number, min(tolerance, number))
    # A gradient that is rounded to float32 internally has noise of that size everywhere, unlike logp.
    noise = float(np.median([np.max(c.noise / np.maximum(c.size, 1e-300)) for c in found]))
    quiet = noise_of_logp(s) < 2.0**-44
    if noise > 2.0**-30 and quiet and s.epsilon("grad") <= 2.0**-52:
        s.failed.add("precision")
        why = "relative noise of the gradient; logp does not have noise of that size"
        return failed(why, s.call("grad", found[0].q), noise, 2.0**-30)
    return passed(basis, min(number, tolerance), tolerance)
