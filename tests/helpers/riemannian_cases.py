"""What the tests of the Riemannian metrics share: models, metrics, integrators, and their Hamiltonian in many digits.

``Exact`` knows none of the core's formulas. With X the numbers that a metric is made of (Fisher: the matrix; SoftAbs: the
Hessian; the outer products: the gradient), it forms G(X) by its definition in multi-precision arithmetic and

    E(X, p) = 1/2 log det G + 1/2 p' G^-1 p,      dE/dq along u = lim (E(X + h dX(u)) - E(X - h dX(u))) / 2h,

h = 10^(-2/5 digits), so that the difference keeps a fifth of the digits at least. X and dX are the model's own,
which tests/models/test_derivatives.py ties to the log density. dH/dq along u is that less the gradient along u.
"""

from __future__ import annotations

import dataclasses
import functools

import mpmath
import numpy as np
import scipy.integrate

import refhmc
from refhmc.core.point import VELOCITY, P, Q
from refhmc.core.types import Work
from refhmc.dynamics.hamiltonian import run_energy
from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint, ProjectedTao, Suzuki, Yoshida
from refhmc.metrics import (
    Diagonal,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    OuterProductSoftAbs,
    SoftAbs,
)

RIEMANNIAN = {
    "fisher": Fisher(),
    "softabs": SoftAbs(1e6),
    "softabs-1": SoftAbs(alpha=1.0),
    "diagonal-softabs": DiagonalSoftAbs(1e6),
    "diagonal-softabs-1": DiagonalSoftAbs(alpha=1.0),
    "outer": OuterProductSoftAbs(),
    "outer-published": OuterProductSoftAbs(alpha=0.1, as_published=True),
    "diagonal-outer": DiagonalOuterProductSoftAbs(),
}


def small_logistic():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(12), rng.standard_normal((12, 2))])
    return refhmc.models.LogisticRegression(X, (rng.random(12) < 0.5).astype(float))


def small_intercepts(centered: bool):
    rng = np.random.default_rng(2)
    X, group = rng.standard_normal((8, 1)), np.arange(8) % 2
    return refhmc.models.VaryingIntercepts(centered, y=rng.standard_normal(8), group=group, X=X)


def small_horseshoe(centered: bool):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((8, 2))
    return refhmc.models.Horseshoe(centered, X=X, y=X[:, 0] + rng.standard_normal(8))


MODELS = {
    "funnel-3": lambda: refhmc.models.Funnel(3),
    "gaussian-3": lambda: refhmc.models.Gaussian(
        [1.0, -2.0, 0.5], [[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 0.5]]
    ),
    "logistic": small_logistic,
    **refhmc.models.by_name(),
    "stochastic-volatility": lambda: refhmc.models.StochasticVolatility(T=3),  # the usual T is 1,000
    # The usual data give 90 and 202 dimensions.
    "radon": lambda: small_intercepts(False),
    "radon-centered": lambda: small_intercepts(True),
    "horseshoe-noncentered": lambda: small_horseshoe(False),
    "horseshoe": lambda: small_horseshoe(True),
}


@functools.cache
def model_of(name: str):
    return MODELS[name]()


# ------------------------------------------------------------------------------------------- many digits


def matrix_of(x):
    return mpmath.matrix(np.asarray(x, dtype=float).tolist())


def soft(x, alpha):
    """x coth(alpha x)"""
    t = abs(alpha * x)
    if t == 0:
        return 1 / mpmath.mpf(alpha)
    return abs(x) if t > 1000 else abs(x) * mpmath.coth(t)


def soft_quotient(x, y, alpha):
    """(f(x) - f(y)) / (x - y), or the derivative where the two agree."""
    if abs(x - y) > mpmath.mpf(10) ** (-mpmath.mp.dps / 3) * (abs(x) + abs(y) + 1 / mpmath.mpf(alpha)):
        return (soft(x, alpha) - soft(y, alpha)) / (x - y)
    t = alpha * (x + y) / 2
    if abs(t) > 1000:
        return mpmath.sign(t)
    return mpmath.coth(t) - t / mpmath.sinh(t) ** 2 if t != 0 else mpmath.mpf(0)


class Exact:
    """A metric at (q, p) of a model, in ``digits`` digits."""

    def __init__(self, model, metric, q, p=None, digits: int = 60):
        self.model, self.metric, self.digits = model, metric, digits
        self.q = np.asarray(q, dtype=float)
        self.p = np.zeros(model.dim) if p is None else np.asarray(p, dtype=float)
        self.outer = isinstance(metric, OuterProductSoftAbs | DiagonalOuterProductSoftAbs)
        self.diagonal = isinstance(metric, DiagonalSoftAbs | DiagonalOuterProductSoftAbs)

    def inputs(self) -> np.ndarray:
        """X, as the model gives it."""
        return self.model._derivative("gradient" if self.outer else self.metric.reads[0], self.q)

    def inputs_along(self, u) -> np.ndarray:
        """dX(u) / dq"""
        if self.outer:
            return self.model.hessian(self.q) @ u
        if isinstance(self.metric, Fisher):
            return self.model.fisher_derivative(self.q) @ u
        return self.model.third_derivative(self.q) @ u

    def spectrum(self, X):
        """Eigenvalues of G and eigenvectors (columns); for a diagonal metric the coordinates'."""
        d = self.model.dim
        alpha = getattr(self.metric, "alpha", None)
        if isinstance(self.metric, Fisher):
            return mpmath.eigsy(X)
        if self.diagonal:
            values = [X[i] ** 2 for i in range(d)] if self.outer else [X[i, i] for i in range(d)]
            return [soft(x, alpha) for x in values], mpmath.eye(d)
        if self.outer and self.metric.as_published:
            t = alpha * mpmath.fsum(x * x for x in X)
            with mpmath.extradps(int(t)):  # the eigenvalues across g are e^-t of that along it
                s = mpmath.fsum(x * x for x in X)
                t = alpha * s
                return mpmath.eigsy(s / mpmath.sinh(t) * (mpmath.eye(d) + (mpmath.cosh(t) - 1) / s * (X * X.T)))
        values, vectors = mpmath.eigsy(X * X.T if self.outer else X)
        return [soft(x, alpha) for x in values], vectors

    def parts(self, X):
        """1/2 log det G, 1/2 p' G^-1 p, G^-1 p."""
        f, V = self.spectrum(X)
        a = V.T * matrix_of(self.p)
        scaled = mpmath.matrix([a[i] / f[i] for i in range(len(a))])
        half_log_det = mpmath.fsum(mpmath.log(x) for x in f) / 2
        return half_log_det, mpmath.fsum(a[i] * scaled[i] for i in range(len(a))) / 2, V * scaled

    def mass(self) -> np.ndarray:
        with mpmath.workdps(self.digits):
            f, V = self.spectrum(matrix_of(self.inputs()))
            return np.array((V * mpmath.diag(list(f)) * V.T).tolist(), dtype=float)

    def energy(self) -> tuple[float, float]:
        """H, and the sum of the sizes of its terms."""
        L = self.model.log_density(self.q)
        with mpmath.workdps(self.digits):
            half_log_det, tau, _ = self.parts(matrix_of(self.inputs()))
            return float(half_log_det + tau - L), float(abs(half_log_det) + tau + abs(L))

    def velocity(self) -> tuple[np.ndarray, np.ndarray]:
        """G^-1 p, and the sums of the sizes of its terms |G^-1| |p|."""
        with mpmath.workdps(self.digits):
            f, V = self.spectrum(matrix_of(self.inputs()))
            inverse = V * mpmath.diag([1 / x for x in f]) * V.T
            inverse = np.array(inverse.tolist(), dtype=float)
            _, _, v = self.parts(matrix_of(self.inputs()))
            return np.array(v.tolist(), dtype=float).ravel(), np.abs(inverse) @ np.abs(self.p)

    def slope_along(self, u, X=None, dX=None) -> tuple[float, float]:
        """u . dH/dq, and the sum of the sizes of its terms: the gradient's, that of the log det, that of p' G^-1 p."""
        X = self.inputs() if X is None else X
        dX = self.inputs_along(u) if dX is None else dX
        gradient = self.model.gradient(self.q)
        with mpmath.workdps(self.digits):
            X, dX = matrix_of(X), matrix_of(dX)
            h = mpmath.mpf(10) ** (-2 * self.digits // 5)
            ahead, behind = (self.parts(X + sign * h * dX)[:2] for sign in (1, -1))
            terms = [(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)]
            scale = np.abs(gradient) @ np.abs(u) + float(abs(terms[0]) + abs(terms[1]))
            return float(mpmath.fsum(terms)) - float(gradient @ u), scale


def funnel_exact(q, p, u, alpha, digits: int = 80):
    """(u . dH/dq, its scale, H, its scale) of SoftAbs on the funnel, from the text of the model in many digits.

    The Hessian acts in the span of the v axis, x, and what of p and u is across them; on the rest it is -e^v.
    """
    n = len(q) - 1
    with mpmath.workdps(digits):
        basis, rows = [], [[mpmath.mpf(float(t)) for t in row] for row in (q, p, u)]
        for row in rows:
            w = row[1:]
            for b in basis:
                w = [x - mpmath.fdot(row[1:], b) * y for x, y in zip(w, b, strict=True)]
            length = mpmath.sqrt(mpmath.fdot(w, w))
            if length > mpmath.mpf(10) ** (-digits // 2):
                basis.append([x / length for x in w])
        k = len(basis)
        Q, momentum, U = ([row[0], *(mpmath.fdot(row[1:], b) for b in basis)] for row in rows)

        def parts(h):
            z = [a + h * b for a, b in zip(Q, U, strict=True)]
            e = mpmath.exp(z[0])
            H = -e * mpmath.eye(k + 1)
            H[0, 0] = -mpmath.mpf(1) / 9 - e * mpmath.fdot(z[1:], z[1:]) / 2
            for i in range(1, k + 1):
                H[0, i] = H[i, 0] = -e * z[i]
            values, V = mpmath.eigsy(H)
            f, a = [soft(x, alpha) for x in values], V.T * mpmath.matrix(momentum)
            log_det = mpmath.fsum(mpmath.log(x) for x in f) + (n - k) * mpmath.log(soft(e, alpha))
            kinetic = mpmath.fsum(a[i] ** 2 / f[i] for i in range(k + 1)) / 2
            return log_det / 2, kinetic, -(z[0] ** 2) / 18, mpmath.mpf(n) / 2 * z[0], -e * mpmath.fdot(z[1:], z[1:]) / 2

        h = mpmath.mpf(10) ** (-2 * digits // 5)
        here, signs = parts(mpmath.mpf(0)), (1, 1, -1, -1, -1)
        slopes = [(a - b) / (2 * h) for a, b in zip(parts(h), parts(-h), strict=True)]
        answer = []
        for terms in (slopes, here):
            signed = [s * t for s, t in zip(signs, terms, strict=True)]
            answer += [float(mpmath.fsum(signed)), float(mpmath.fsum(abs(t) for t in signed))]
        return answer


# ------------------------------------------------------------------------------------------ integrators

TIGHT = 1e-12  # the tolerance of the solvers here
RAW = {"tolerance": TIGHT, "reversibility_check": False}
# The maps themselves: a step is used whether or not it can be taken back.
UNCHECKED = {
    "midpoint-endpoint": ImplicitMidpoint(**RAW),
    "midpoint-midpoint": ImplicitMidpoint(variant="midpoint", **RAW),
    "midpoint-anderson": ImplicitMidpoint(solver="anderson", **RAW),
    "leapfrog-cached": GeneralizedLeapfrog(**RAW),
    "leapfrog-naive": GeneralizedLeapfrog(variant="naive", **RAW),
    "leapfrog-anderson": GeneralizedLeapfrog(solver="anderson", **RAW),
    "tao-0": ProjectedTao(omega=0.0, **RAW),
    "tao-2": ProjectedTao(omega=2.0, **RAW),
    "tao-10": ProjectedTao(omega=10.0, **RAW),
    "yoshida-midpoint": Yoshida(ImplicitMidpoint(**RAW)),
    "yoshida-leapfrog": Yoshida(GeneralizedLeapfrog(**RAW)),
    "suzuki-midpoint": Suzuki(ImplicitMidpoint(**RAW)),
    "suzuki-tao": Suzuki(ProjectedTao(omega=2.0, **RAW)),
}


def checked(method):
    """The same method, taking every step back."""
    if isinstance(method, Yoshida | Suzuki):
        return type(method)(checked(method.base))
    return dataclasses.replace(method, reversibility_check=True)


# Metrics that are smooth on the scale of a step: alpha of order one.
SMOOTH = {
    "fisher": Fisher(),
    "softabs": SoftAbs(alpha=1.0),
    "diagonal-softabs": DiagonalSoftAbs(alpha=1.0),
    "outer": OuterProductSoftAbs(alpha=0.1),
    "diagonal-outer": DiagonalOuterProductSoftAbs(alpha=0.1),
    "diagonal": Diagonal(0.7),
}
MOVED_MODELS = ("banana", "funnel-3", "gaussian-3", "logistic")


def case(name: str, metric: str, seed: int):
    """Hamiltonian, position and momentum of the target's law or near it, and the fastest local time scale."""
    model, rng = model_of(name), np.random.default_rng(seed)
    H = refhmc.Hamiltonian(model, SMOOTH[metric])
    q = model.reference.draw(rng, 1)[0] if model.reference is not None else 0.5 * rng.standard_normal(model.dim)
    p = H.draw_momentum(q, rng)
    curvature = np.abs(np.linalg.eigvals(np.linalg.solve(H.mass(q), model.hessian(q)))).max()
    return H, q, p, 1 / np.sqrt(max(curvature, 1.0))


def end(H, integrator, q, p, step_size: float, n_steps: int) -> np.ndarray:
    """(q, p) after the steps, (2d,); NaN where a solve failed."""
    path = refhmc.integrate(H, integrator, q, p, step_size=step_size, n_steps=n_steps)
    return np.concatenate([path.q[-1], path.p[-1]])


def field(H):
    """The vector field z -> (dH/dp, -dH/dq) as one function, without the checks of each call."""
    model, metric, work = H._core()
    d = H.model.dim
    z, dH_dq = np.zeros((5, d)), np.zeros(d)

    def f(_, y):
        z[Q], z[P] = y[:d], y[d:]
        run_energy(model, metric, z, work, dH_dq)
        assert Work(*work).cache.factorised > 0
        return np.concatenate([z[VELOCITY], -dH_dq])

    return f


def true_flow(H, q, p, time: float) -> np.ndarray:
    start = np.concatenate([q, p])
    solved = scipy.integrate.solve_ivp(
        field(H), (0, time), start, "DOP853", rtol=3e-14, atol=1e-13, first_step=time / 50
    )
    return solved.y[:, -1]


def omega(d: int) -> np.ndarray:
    zero, one = np.zeros((d, d)), np.eye(d)
    return np.block([[zero, one], [-one, zero]])


def scaled(H, q, J) -> tuple[np.ndarray, np.ndarray]:
    """J in units of 1/sqrt(G_ii) for q_i and sqrt(G_ii) for p_i, which leave Omega as it is; and the units."""
    root = np.sqrt(np.diag(H.mass(q)))
    units = np.concatenate([1 / root, root])
    return J * units / units[:, None], units


# ------------------------------------------------------------------------------- transitions from many starts
