"""Symptoms of a chain in warm-up whose start was hopeless.

The default start is uniform on (-2, 2). If the parameters have units in which they are near 1e9 or 1e-9, it can lie so far out
that the chain never arrives. With L the log density of d coordinates, g its gradient, M^-1 the inverse mass matrix, eps the
step size and ulp(x) the spacing of floating-point numbers at x, a chain is

- **frozen** if eps s_i (1 + eps s_i |g_i|) < ulp(q_i) / 8 for a coordinate i, s_i^2 = M^-1_ii: a leapfrog step with a typical
  momentum does not move that coordinate;
- **running off** if |q_i| > 1e6 and |q_i g_i| < 1e-12 for a coordinate i, along which the log density is flat. Proper densities
  have such points, so that this counts only in a second attempt, after the first one was hopeless;
- **unresolved** if ulp(L) >= 1/2, so that no acceptance can be decided. A chain that still climbs may come out of that;
- **far** if g' M^-1 g > 1e3 d. For a normal and its covariance M^-1 this is the squared distance from the mode: 32 standard
  deviations in each coordinate. It is meaningless for a metric that is not learned in the scales of the draws.
- **risen** if L is higher by more than 1e6 than at the start. Metrics that were learned on such a way have scales far from
  those of the posterior, and can keep the chain from arriving.

A chain that runs off, or none of whose coordinates moves, ends at once: it cannot learn anything more. One that is frozen in
some coordinates ends if a far better point is known, and otherwise, as an unresolved one, after the last iteration of warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FROZEN, RUNAWAY, FLAT, UNRESOLVED, FAR, RISEN = 0.125, 1e6, 1e-12, 0.5, 1e3, 1e6
# Hopeless immediately; if a far better point is known; after the last iteration of warm-up; and only suspicious.
HOPELESS, IF_BETTER_IS_KNOWN, AT_THE_END, SUSPICIOUS = range(4)
FEWEST = 50  # iterations of the shortest warm-up after which chains are checked
WHAT_TO_DO = (
    "Give initvals near plausible values, or choose units in which the parameters and their standard deviations are "
    "near 1"
)


class Symptom(NamedTuple):
    """A description of the problem of a chain, and whether it is hopeless."""

    severity: int
    text: str

    def ends(self, done: int, tune: int, better: bool = False) -> bool:
        """Return whether the chain ends with it after ``done`` iterations; ``better``: a far better point is known."""
        at_once = IF_BETTER_IS_KNOWN if better else HOPELESS
        return self.severity <= (at_once if done < tune else AT_THE_END)


def are_unresolved(log_density: np.ndarray) -> np.ndarray:
    """Return which log densities have neighbours in floating point that are 1/2 or more away."""
    size = np.abs(log_density)
    return np.isfinite(size) & (np.spacing(size) >= UNRESOLVED)


def typical_step(variances: np.ndarray, step_size: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return how far a leapfrog step with a typical momentum moves each coordinate."""
    size = step_size * np.sqrt(variances)
    return size * (1 + size * np.abs(g))


def are_frozen(q: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return which coordinates a step that is so long does not move."""
    return step < FROZEN * np.spacing(np.abs(q))


def frozen(names: Sequence[str], q: np.ndarray, step: np.ndarray) -> Symptom | None:
    """Return the symptom, with the first such coordinate, or None."""
    there = np.flatnonzero(are_frozen(q, step))
    if not len(there):
        return None
    i, space = there[0], np.spacing(abs(q[there[0]]))
    return Symptom(
        HOPELESS if len(there) == len(q) else IF_BETTER_IS_KNOWN,  # while others move, the step may still grow
        f"a step moves {names[i]} = {q[i]:.10g} by {step[i]:.2g}, and floating-point numbers there are {space:.2g} apart",
    )


def running_off(names: Sequence[str], q: np.ndarray, g: np.ndarray) -> Symptom | None:
    """Return the symptom, with the first such coordinate, or None."""
    there = np.flatnonzero((np.abs(q) > RUNAWAY) & (np.abs(q * g) < FLAT))
    if not len(there):
        return None
    i = there[0]
    return Symptom(HOPELESS, f"{names[i]} has come to {q[i]:.3g}, where the log density does not change with it")


def unresolved(log_density: float) -> Symptom | None:
    """Return the symptom, or None."""
    if not are_unresolved(np.asarray(log_density)):
        return None
    space = np.spacing(abs(log_density))
    return Symptom(
        AT_THE_END,
        f"the log density is {log_density:.3g}, where floating-point numbers are {space:.2g} apart, so that no acceptance can "
        "be decided",
    )


def far(size: float, d: int) -> Symptom | None:
    """Return the symptom, given g' M^-1 g, or None."""
    if not size > FAR * d:
        return None
    distance = np.sqrt(size / d)
    return Symptom(SUSPICIOUS, f"the gradient is that of a normal {distance:.2g} standard deviations from its mode")


def risen(log_density: float, at_start: float) -> Symptom | None:
    """Return the symptom, or None."""
    rise = log_density - at_start
    if not rise > RISEN:
        return None
    return Symptom(SUSPICIOUS, f"the log density is higher by {rise:.2g} than at the start")
