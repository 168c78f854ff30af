"""The invariant distribution of a transition, from an energy H(q, p), a log density, or an object with one.

For an energy H = -L(q) + K(q, p) and a Gaussian momentum the log density of the position is

    log pi(q) = -H(q, 0) + 1/2 log det G(q),      G^-1 = d2H/dp2.

If K does not depend on q the last term is a constant, whatever the form of K. d2H/dp2 is exact from
differences of any width, since H is quadratic in p.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.foreign import Foreign, Inconclusive
from refhmc.check.subject.shapes import required

LOG_DENSITIES = ("log_density", "logp", "log_prob", "logpdf", "logdensity")


class TargetDensity(NamedTuple):
    """``log_pi(q)``, ``energy(q, p)`` or None, ``dim`` if the target defines it, and the author's functions in it."""

    log_pi: Callable[[np.ndarray], float]
    energy: Callable[[np.ndarray, np.ndarray], float] | None
    dim: int | None
    foreign: tuple[Foreign, ...]


def target_density(H: Any, log_density: Any = None, like: Any = None) -> TargetDensity:
    """Return the density of an energy H(q, p), a Hamiltonian of refhmc, a target with ``log_density``, or a log density."""
    energy_of = getattr(H, "energy", None) or getattr(H, "hamiltonian", None)
    model = getattr(H, "model", None)
    own = log_density or getattr(model, "log_density", None)
    own = own or next((f for name in LOG_DENSITIES if callable(f := getattr(H, name, None))), None)
    dim = next((int(d) for d in (getattr(H, "dim", None), getattr(model, "dim", None)) if isinstance(d, int)), None)
    function = energy_of if callable(energy_of) else H if callable(H) else None
    if own is None and function is not None and len(required(function)) == 1:
        own, function = function, None
    if own is not None and function is not None and len(required(function)) == 1:
        function = None
    if own is None and function is None:
        raise TypeError(f"H must be an energy H(q, p), a Hamiltonian or a target; got {type(H).__name__}.")
    energy = None if function is None else Foreign(function, "H", like)
    density = None if own is None else Foreign(own, "log_density", like)
    if density is not None:
        log_pi: Any = density.number
    else:
        assert energy is not None
        log_pi = position_log_density(energy.number)
    parts = tuple(f for f in (density, energy) if f is not None)
    return TargetDensity(log_pi, None if energy is None else energy.number, dim, parts)


def inverse_mass(energy: Callable, q: np.ndarray) -> np.ndarray:
    """Return d2H/dp2 at (q, 0), (d, d)."""
    d = len(q)
    unit = np.eye(d)
    here = energy(q, np.zeros(d))
    alone = [energy(q, e) for e in unit]
    found = np.zeros((d, d))
    for i, j in itertools.combinations_with_replacement(range(d), 2):
        found[i, j] = found[j, i] = energy(q, unit[i] + unit[j]) - alone[i] - alone[j] + here
    return found


def momentum_widths(energy: Callable, q: np.ndarray) -> np.ndarray:
    """Return widths 1 / sqrt(d2H/dp_i2) of exp(-H) along each momentum at q, (d,), or 1 if that is not defined."""
    here = energy(q, 0 * q)
    bend = np.array([energy(q, u) + energy(q, -u) - 2 * here for u in np.eye(len(q))])
    return np.where(np.isfinite(bend) & (bend > 0), 1 / np.sqrt(np.maximum(bend, 1e-300)), 1.0)


def momentum_root(energy: Callable | None, q: np.ndarray) -> np.ndarray:
    """Return L of the momentum's covariance L L' at q (1 if no energy is known); Inconclusive if there is none."""
    if energy is None:
        return np.eye(len(q))
    try:
        return np.linalg.cholesky(np.linalg.inv(inverse_mass(energy, q)))
    except np.linalg.LinAlgError:
        raise Inconclusive("the momentum distribution is not Gaussian, or has no covariance") from None


def position_log_density(energy: Callable) -> Callable[[np.ndarray], float]:
    """Return log pi(q), up to a constant, of an energy H(q, p); Inconclusive if K is neither Gaussian nor free of q."""
    found: dict[str, Any] = {}

    def form(d: int) -> str:
        """Return how the energy depends on p in ``d`` dimensions."""
        rng = np.random.default_rng(7)
        ps = rng.standard_normal((3, d))
        rows = []
        for q in 0.5 * rng.standard_normal((4, d)):
            here = energy(q, np.zeros(d))
            rows.append(([energy(q, p) - here for p in ps], [energy(q, 2 * p) - here for p in ps]))
        once, twice = np.array(rows).transpose(1, 0, 2)
        kept = np.isfinite(once).all(axis=1)
        if not kept.any():
            raise Inconclusive("H is not finite near the origin; pass log_density")
        once, twice = once[kept], twice[kept]
        if np.abs(once - once[0]).max() <= 1e-9 * (1 + np.abs(once).max()) and len(once) > 1:
            return "separable"
        if np.abs(twice - 4 * once).max() <= 1e-8 * (1 + np.abs(twice).max()):
            return "gaussian"
        raise Inconclusive("the momentum distribution depends on q and is not Gaussian; pass log_density")

    def log_pi(q: np.ndarray) -> float:
        q = np.asarray(q, dtype=float)
        if "form" not in found:
            found["form"] = form(len(q))
        value = -energy(q, np.zeros(len(q)))
        if found["form"] == "separable" or not math.isfinite(value):
            return value
        sign, log_det = np.linalg.slogdet(inverse_mass(energy, q))
        return value - 0.5 * log_det if sign > 0 else math.nan

    return log_pi


def typical_points(log_pi: Callable, dim: int, n: int, rng: np.random.Generator, thin: int = 25) -> np.ndarray:
    """Return (n, dim) points in the bulk of a density, by a random walk; Inconclusive if it is finite nowhere."""
    q, value = None, -math.inf
    for k in range(100):
        trial = rng.standard_normal(dim) * (0.5 if k < 50 else 2.0)
        value = log_pi(trial)
        if math.isfinite(value):
            q = trial
            break
    if q is None:
        raise Inconclusive("the log density was finite at none of 100 points; pass points")
    scale, points = 0.5, []
    for k in range(8 * thin + n * thin):
        trial = q + scale * rng.standard_normal(dim)
        new = log_pi(trial)
        accepted = math.isfinite(new) and math.log(1 - rng.random()) < new - value
        if accepted:
            q, value = trial, new
        if k < 8 * thin:
            scale *= math.exp(0.3 * (accepted - 0.4))
        elif (k + 1) % thin == 0:
            points.append(q.copy())
    return np.array(points[:n])
