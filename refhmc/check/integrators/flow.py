"""The true flow of a Hamiltonian given as a function, and the expansion of a curve at its start.

    dz/dt = (dH/dp, -dH/dq),    z = (q, p)

is computed interval by interval as a Chebyshev polynomial in t, by Picard's iteration z(t) = z + int_0^t f(z(s)) ds, to about
1e-15 (Clenshaw and Norton 1963). The gradients are those given, or those of H by complex step, or by Ridders' differences if H
does not accept complex numbers. The last coefficients estimate the error; if they are not small the interval is halved.

The coefficients of a curve c(t) = c_1 t + c_2 t^2 + ... known at points of (0, T] are found by least squares. The fit of one
degree less, and the noise of the values (the residual of the fit), estimate their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebfit, chebint, chebval

from refhmc.check import own
from refhmc.check.own import differences
from refhmc.check.subject.foreign import Foreign, Inconclusive, SubjectError

MOST_INTERVALS = 200


class Energy:
    """H as a function of z (2d,), with its gradient (2d,).

    ``H`` is a function of (q, p), or has the method ``energy`` (and optionally ``grad_q``, ``grad_p``). A half of the gradient
    that is not given is computed by differences; ``given`` has the other halves.
    """

    def __init__(self, H: Any, dim: int, *, grad_q: Any = None, grad_p: Any = None, like: Any = None) -> None:
        energy = getattr(H, "energy", H)
        self.dim = dim
        self.foreign = Foreign(energy, "H", like)
        slopes = {"grad_q": grad_q or getattr(H, "grad_q", None), "grad_p": grad_p or getattr(H, "grad_p", None)}
        self.given = {name: Foreign(f, name, like) for name, f in slopes.items() if callable(f)}
        both = own.evaluation(H)
        self._both = (
            None if both is None or grad_q or grad_p else Foreign(both, "H")
        )  # one call for all, in much less time
        self.error = 1e-14  # of the gradient, relative
        self._complex: bool | None = None
        self.refusal: SubjectError | None = None
        self.refusals = 0

    def __call__(self, z: np.ndarray) -> float:
        """Return H(z)."""
        return float(np.real(self._value(z)[0]))

    def _value(self, z: np.ndarray) -> np.ndarray:
        """Return H(z), (1,), complex if z is."""
        d = self.dim
        return self.foreign.vector((), z[:d], z[d:]).reshape(1)

    def finite(self, z: np.ndarray) -> bool:
        """Return whether H and its gradient are finite; an exception of one of them is kept as ``refusal``."""
        try:
            return bool(np.isfinite(self(z)) and np.isfinite(self.gradient(z)).all())
        except SubjectError as wrong:
            self.refusal, self.refusals = self.refusal or wrong, self.refusals + 1
            return False

    def gradient(self, z: np.ndarray) -> np.ndarray:
        """Return (dH/dq, dH/dp)."""
        d = self.dim
        if self._both is not None:
            _, along_p, along_q = self._both.raw(z[:d], z[d:])
            return np.concatenate([along_q, along_p])
        if not self.given:
            return self.differences(z, range(2 * d))
        halves = []
        for name, part in (("grad_q", slice(0, d)), ("grad_p", slice(d, 2 * d))):
            if name in self.given:
                halves.append(self.given[name].vector((d,), z[:d], z[d:]))
            else:
                halves.append(self.differences(z, range(2 * d)[part]))
        return np.concatenate(halves)

    def differences(self, z: np.ndarray, coordinates: Any) -> np.ndarray:
        """Return those components of the gradient, from H alone."""
        if self._complex is None:
            direction = np.cos(1.0 + np.arange(len(z)))
            self._complex = differences.along(self._value, z, direction).route == "complex step"
        units = np.eye(len(z))
        if self._complex:
            here = np.array([self(z)])
            found = [differences.complex_step(self._value, z, units[k], here) for k in coordinates]
            exact = [x for x in found if x is not None]
            if len(exact) == len(found):
                return np.concatenate(exact)
        width = 0.2 * min(1.0, max(np.abs(z).max(), 1e-3))

        def along(u: np.ndarray) -> differences.Derivative:
            return differences.ridders(lambda t: np.array([self(z + t * u)]), width)

        columns = [along(u) for u in units[list(coordinates)]]
        value = np.array([column.value.ravel()[0] for column in columns])
        error = max(column.error for column in columns) / max(np.abs(value).max(initial=0.0), 1e-300)
        self.error = max(self.error, min(error, 1e-2))
        return value

    def field(self, z: np.ndarray) -> np.ndarray:
        """Return dz/dt."""
        slope = self.gradient(z)
        return np.concatenate([slope[self.dim :], -slope[: self.dim]])


NODES = 14  # of the polynomial in each interval


def true_flow(energy: Energy, z: np.ndarray, times: Sequence[float], scale: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the flow from z at each of the ascending ``times``, (k, 2d), and an estimate of the error.

    The error is in units of ``scale``, (2d,). Raises Inconclusive if the flow cannot be computed.
    """
    energy.field(z)  # determines the accuracy of the gradient
    start, end, length = 0.0, float(times[-1]), float(times[-1])
    found, error, tried = [], 0.0, 0
    while start < end * (1 - 1e-14):
        tried += 1
        if tried > MOST_INTERVALS:
            raise Inconclusive(f"the flow of H could not be computed up to time {end:.3g}")
        length = min(length, end - start)
        solved = _interval(energy, z, length, scale)
        if solved is None:
            length *= 0.5
            continue
        coefficients, left = solved
        error += left
        last = start + length >= end * (1 - 1e-14)
        here = [t for t in times if start < t and (t <= start + length or last)]
        found += [chebval(2 * (t - start) / length - 1, coefficients) for t in here]
        z, start, length = chebval(1.0, coefficients), start + length, 2 * length
    return np.array(found), error


def _interval(energy: Energy, z: np.ndarray, length: float, scale: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Return Chebyshev coefficients of the flow in (0, length) and their error; None if the interval is too long."""
    exact = max(1e-15, 3 * energy.error)
    nodes = -np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
    values, change = np.tile(z, (NODES, 1)), np.inf
    for _ in range(40):
        slopes = np.array([energy.field(x) for x in values])
        if not np.isfinite(slopes).all():
            return None
        coefficients = chebint(chebfit(nodes, slopes, NODES - 1), lbnd=-1) * (0.5 * length)
        coefficients[0] += z
        new = chebval(nodes, coefficients).T
        before, change = change, float(np.abs((new - values) / scale).max())
        values = new
        if change <= exact or (change <= 1e3 * exact and change > 0.5 * before):
            break
        if change > before:
            return None
    tail = float(np.abs(coefficients[-3:] / scale).max())
    if change > 1e3 * exact or tail > 3 * exact:
        return None
    return coefficients, change + tail


class Term(NamedTuple):
    """The term c_k T^k of a curve, (m,), and an estimate of its ``error``."""

    value: np.ndarray
    error: float


def leading_term(x: np.ndarray, values: np.ndarray, first: int, floor: float, extra: Sequence[int] = (5, 7, 9)) -> Term:
    """Return the lowest term, of power ``first``, of a curve with ``values`` (n, m) at times x T, 0 < x <= 1.

    ``floor`` is a smooth error of the values.
    The result is the fit with the least error among those with ``extra`` more powers.
    """
    best = Term(np.full(values.shape[1], np.nan), np.inf)
    for more in extra:
        powers = x[:, None] ** np.arange(first, first + more + 1)
        inverse, rougher = (np.linalg.pinv(powers[:, :k], rcond=1e-15) for k in (more + 1, more))
        fit = inverse @ values
        noise = np.sqrt(((values - powers @ fit) ** 2).sum(axis=0).max() / max(len(x) - more - 1, 1))
        apart = np.abs(fit[0] - rougher[0] @ values).max()
        error = float(apart + 3 * np.linalg.norm(inverse[0]) * noise + floor)
        if error < best.error:
            best = Term(fit[0], error)
    return best
