"""Test whether D is the derivative of F, along segments on which the log density bends.

Along the segment from a to b = a + u, of any length, the derivative D of a scalar F satisfies

    F(b) - F(a) = int_0^1 D(a + t u) . u dt                                                     (1)

A difference quotient needs a short step and divides the rounding of F by it: with a curvature of 1e9 along the step none of ten
digits is left. In (1) the segment is long, and the rounding is not divided.

**Segments.** Widths w_j = |H_jj|^-1/2 come from differences of the gradient, and so does H. In the directions

    u_k = W y_k / |mu_k|^1/2,    W H W = Y diag(mu) Y',    W = diag(w)

L bends by one, whatever the units of the coordinates and their correlation. With more than three axes, sums over the stiff, the
middle and the weak third are used; with more than 16 coordinates, w_j times random signs. The gradient may be wrong, so that L
itself corrects the length of each direction.

**Errors.** The integral is computed by Lobatto's rule with five nodes, of degree 7. Simpson's rule on three of them, of degree
3, differs from it by more than its error. Suppose the two sides differ by more than the allowance

    |Lobatto - Simpson| + rounding + 1e-6 (sum_j (D_j u_j)^2)^1/2

Then the segment is shortened about a point in it, by factors of four. The noise of F and of D . u is measured on it, by their
differences of orders 4 to 6 (``differences.noise_of``). D is wrong if the two sides differ on two segments, and agree on
no other that would show an error of that size. A kink or a jump of F near them is therefore not reported as a wrong derivative.

**Two budgets.** This check runs before sampling and takes few evaluations. It cannot find a derivative that is wrong at single
points only, such as a divided difference at equal eigenvalues, because (1) averages over a segment. The conformance kit
(``refhmc/check/derivatives``) therefore compares at points, with hundreds of times as many evaluations. Both use
:mod:`refhmc.numerics.differences`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refhmc.numerics.differences import noise_of

# Nodes and weights on (0, 1): Lobatto's of five nodes, and Simpson's weights on the first, third and fifth.
NODES = np.array([0.0, 0.5 - math.sqrt(3 / 28), 0.5, 0.5 + math.sqrt(3 / 28), 1.0])
LOBATTO = np.array([9.0, 49.0, 64.0, 49.0, 9.0]) / 180
SIMPSON = np.array([1.0, 0.0, 4.0, 0.0, 1.0]) / 6

AXES_UP_TO = 16  # coordinates; with more, no matrix of second derivatives is computed by differences
DIRECTIONS = 3
TOLERANCE = 1e-6  # of the derivative's size along the segment: smaller errors are not reported
ROUNDINGS = 16.0  # units in the last place of F that are allowed before its noise is measured
NOISE_MARGIN = 32.0  # standard deviations of the measured noise
SHORTENINGS = 9  # each by SHORTER, down to 1.5e-5 of the segment
SHORTER = 0.25
LEAST_BEND, MOST_BEND = 1e-2, 1e2  # of L over a direction's length, for which one is the aim
RESOLVED = 0.1  # a segment is informative if it loses a smaller part to the rounding of positions or to the allowance
INNER = 2**0.5 - 1  # the point to which a segment is shortened, which avoids jumps at round numbers
SHARP = 1e-4  # an allowance of this share of the size is small enough to rely on an agreement


class Claim(NamedTuple):
    """``derivative(q)``, (d,), is claimed to be that of ``value(q)``, which returns F and the sum of the sizes of its terms.

    ``name`` and ``of`` are the names of both; ``noise`` is the absolute error of F if it is known to be more than rounding.
    """

    name: str
    of: str
    value: Callable[[np.ndarray], tuple[float, float]]
    derivative: Callable[[np.ndarray], np.ndarray]
    noise: float = 0.0


class Segment(NamedTuple):
    """Both sides of (1), and their allowed difference, of which ``blur`` does not come from the number of nodes.

    ``size`` is that of the derivative, (sum_j (mean |D_j u_j|)^2)^1/2, or the change of F if that is larger.
    """

    length: float
    change: float
    integral: float
    size: float
    blur: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Whether both sides agree."""
        return abs(self.change - self.integral) <= self.allowed


class Disagreement(NamedTuple):
    """Evidence of a wrong derivative: the shortest segment that shows it, and its direction, which has the segment's length."""

    segment: Segment
    direction: np.ndarray


def widths_and_directions(
    log_density: Callable, gradient: Callable, q: np.ndarray, free: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return w (d,), and the directions (n, d), n at most ``DIRECTIONS``; both are zero except at the indices ``free``."""
    widths, directions = np.zeros(len(q)), np.zeros((min(DIRECTIONS, len(free)), len(q)))
    if len(free) <= AXES_UP_TO:
        widths[free], axes = _axes(gradient, q, free)
        for u, part in zip(directions, np.array_split(axes, max(len(directions), 1)), strict=False):
            weights = rng.choice([-1.0, 1.0], len(part)) * (rng.uniform(0.5, 1.0, len(part)) if len(part) > 1 else 1.0)
            u[free] = weights @ part / len(part) ** 0.5
    else:
        widths[free] = _probed_widths(gradient, q, free, rng)
        signs = rng.choice([-1.0, 1.0], directions.shape) * rng.uniform(0.5, 1.0, directions.shape)
        directions = signs * widths / len(free) ** 0.5
    for u in directions:
        u *= _length(log_density, q, u)
        u[np.abs(u) < 2.0**-44 * np.abs(q)] = 0.0  # too small relative to the rounding of q
    return widths, directions


def _length(log_density: Callable, q: np.ndarray, u: np.ndarray) -> float:
    """Return 1 if L bends by about one from q to q + u, or else a number of lengths of u over which it does.

    If L is large, it has to bend by much more than its rounding.
    """
    here, length = log_density(q), 1.0
    least, most = LEAST_BEND + 1e-9 * abs(here), MOST_BEND + 1e-6 * abs(here)
    longest = np.min(np.maximum(1.0, np.abs(q))[u != 0] / np.abs(u[u != 0]), initial=np.inf)
    for _ in range(12):
        bend = 4 * abs(log_density(q + length * u) - 2 * log_density(q + 0.5 * length * u) + here)
        if not np.isfinite(bend):
            length /= 8
        elif bend > most:
            length *= (most / bend) ** 0.5 / 8
        elif bend < least and length < longest:
            length = min(length * min(8 * (least / max(bend, 1e-300)) ** 0.5, 1e3), longest)
        else:
            break
    return length


def _axes(gradient: Callable, q: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return w_j and the rows u_k, from the stiffest to the weakest, over the coordinates ``free``."""
    here, most = gradient(q)[free], np.maximum(1.0, np.abs(q))
    widths, H = np.ones(len(free)), np.zeros((len(free), len(free)))
    for n, j in enumerate(free):
        h = 1e-2 * (abs(q[j]) or 1.0)
        for _ in range(6):
            moved = q.copy()
            moved[j] += h
            change = gradient(moved)[free] - here
            bend = abs(change[n]) * h  # of L over h
            if not np.isfinite(change).all():
                h /= 64
            elif bend > 1:  # too far: the curvature is that of another region
                h *= 0.03 / min(bend, 1e300) ** 0.5
            elif bend < 1e-12 and h < most[j]:
                h = min(1e3 * h, most[j])
            else:
                break
        if np.isfinite(change).all():
            H[n] = change / h
        widths[n] = h / bend**0.5 if 0 < bend < np.inf else most[j]
    C = np.nan_to_num(0.5 * (H + H.T) * np.outer(widths, widths))
    mu, Y = np.linalg.eigh(C)
    order = np.argsort(-np.abs(mu))
    return widths, (Y / np.sqrt(np.maximum(np.abs(mu), 1e-6))).T[order] * widths


def _probed_widths(gradient: Callable, q: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return approximate w_j of many coordinates, from a few differences along random signs.

    They are right up to a factor of about two, and include the effect of the other coordinates.
    """
    here, most = gradient(q)[free], np.maximum(1.0, np.abs(q[free]))
    widths, found = np.where(q[free] != 0, np.abs(q[free]), 1.0), []
    shrink = 1e-2
    for _ in range(4):
        h = shrink * widths * rng.choice([-1.0, 1.0], len(free))
        moved = q.copy()
        moved[free] += h
        change = np.abs(gradient(moved)[free] - here)
        if not np.isfinite(change).all():
            shrink /= 64
            continue
        with np.errstate(divide="ignore"):
            widths = np.minimum(np.sqrt(np.abs(h) / change), most)
        found.append(widths)
    return np.minimum.reduce(found[-2:]) if found else widths


def segment_along(claim: Claim, q: np.ndarray, u: np.ndarray, length: float, blur: float = 0.0) -> Segment | None:
    """Return (1) on the inner part, of this ``length``, of the segment from q to q + u.

    Return None if it is not finite, or too short for the rounding of positions. ``blur`` is allowed in addition to rounding.
    """
    begin = q + INNER * (1 - length) * u
    points = [begin + length * t * u for t in NODES]
    step = points[-1] - points[0]
    (F0, size0), (F1, size1) = claim.value(points[0]), claim.value(points[-1])
    if not (np.isfinite(F0) and np.isfinite(F1)):
        return None
    derivatives = np.array([claim.derivative(x) for x in points])
    terms, rounded = derivatives * step, LOBATTO @ np.abs(derivatives * (step - length * u))
    if not np.isfinite(terms).all() or rounded.sum() > RESOLVED * length * (LOBATTO @ np.abs(derivatives * u)).sum():
        return None
    slopes = terms.sum(axis=1)
    integral, change = float(LOBATTO @ slopes), F1 - F0
    size = max(float(np.sqrt(np.square(LOBATTO @ np.abs(terms)).sum())), abs(change))
    blur += ROUNDINGS * 2.0**-53 * (size0 + size1) + 2 * claim.noise
    return Segment(
        length, change, integral, size, blur, abs(float(SIMPSON @ slopes) - integral) + blur + TOLERANCE * size
    )


def disagreement(claim: Claim, q: np.ndarray, u: np.ndarray) -> tuple[Disagreement | None, float]:
    """Return the evidence from (1) against the claim along u from q, or None, and the noise of F relative to its terms.

    The noise is zero unless it had to be allowed for.
    """
    for _ in range(10):
        first = segment_along(claim, q, u, 1.0)
        if first is not None:
            break
        u = u / 8  # out of the support
    else:
        return None, 0.0
    if first.agrees and first.allowed <= max(SHARP * first.size, 2 * first.blur):
        return None, 0.0
    found: list[Segment] = []
    noises: list[float] = []
    for length in SHORTER ** np.arange(SHORTENINGS):
        s, noise = segment_along(claim, q, u, float(length)), 0.0
        if s is None:
            continue
        if not s.agrees:
            noise, of_slope = _noise(claim, q + INNER * u, length * u)
            blur = NOISE_MARGIN * (2 * noise + of_slope)
            s = s._replace(blur=s.blur + blur, allowed=s.allowed + blur)
        found.append(s)
        noises.append(noise)
        if s.agrees and s.allowed <= SHARP * max(x.size / x.length for x in found) * s.length:
            return None, noise / (claim.value(q)[1] or 1.0)
    wrong = [s for s in found if not s.agrees][-2:]
    if len(wrong) == 2:
        error = max(abs(s.change - s.integral) / s.length for s in wrong)  # of D . u, if D is wrong
        speak_against = [s for s in found if s.agrees and s.allowed < 0.5 * error * s.length]
        if not any(s.length < wrong[0].length or s.allowed <= RESOLVED * s.size for s in speak_against):
            return Disagreement(wrong[1], wrong[1].length * u), 0.0
    return None, sorted(noises)[len(noises) // 2] / (claim.value(q)[1] or 1.0)  # a kink is noise on a few segments only


def _noise(claim: Claim, x: np.ndarray, u: np.ndarray) -> tuple[float, float]:
    """Return the standard deviations of the errors of F and of D . u, 0 if not finite, from two grids about x.

    (On one grid, rounding to few digits may by chance be as regular as a straight line.)
    """
    largest = np.zeros(2)
    for spacing in (1 / 16, 1 / 23):
        grid = [x + k * spacing * u for k in range(-4, 5)]
        values = np.array([[claim.value(y)[0], float(claim.derivative(y) @ u)] for y in grid])
        largest = np.fmax(largest, noise_of(values, 4, 5, 6))
    return float(largest[0]), float(largest[1])
