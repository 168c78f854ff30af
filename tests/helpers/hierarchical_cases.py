"""Hierarchical metrics for the tests, and their Hamiltonian in many digits.

The definitions know none of the formulas of the code: every derivative is a difference quotient in multi-precision arithmetic.
"""

from __future__ import annotations

import mpmath
import numpy as np

import refhmc
from refhmc.metrics import Hierarchical

DIGITS, INCREMENT = 60, mpmath.mpf(10) ** -20

# Models whose Fisher metric is hierarchical.
_X, _Y = np.random.default_rng(1).standard_normal((5, 2)), np.array([0.3, -1.0, 2.0, 0.5, 0.1])
FISHER_MODELS = {
    "funnel": refhmc.models.Funnel(3),
    "schools": refhmc.models.EightSchools(centered=True),
    "intercepts": refhmc.models.VaryingIntercepts(True, y=_Y, group=[0, 1, 1, 2, 0], X=_X),
    "horseshoe": refhmc.models.Horseshoe(True, X=_X, y=_Y),
    "volatility": refhmc.models.StochasticVolatility(_Y),
}


def funnel_metric(n: int) -> Hierarchical:
    """The Fisher metric of the funnel: 1/9 + n/2 for v, and e^v for x."""
    constants, slopes = np.r_[np.log(1 / 9 + n / 2), np.zeros(n)], np.r_[0.0, np.ones(n)]
    return Hierarchical(constants[None], np.zeros((1, n + 1), int), slopes[None, None])


def schools_metric() -> Hierarchical:
    """Prior and likelihood precision of the centred eight schools, q = (theta, mu, log tau)."""
    sigma = refhmc.models.EightSchools().generated.constant_data["sigma"]
    J = len(sigma)
    a, c = np.full((2, J + 2), -np.inf), np.zeros((2, 1, J + 2))
    a[0, :J], a[1, :J], c[1, 0, :J] = -2 * np.log(sigma), 0.0, -2.0
    a[0, J], a[1, J], c[1, 0, J] = np.log(1 / 25), np.log(J), -2.0
    a[0, J + 1] = np.log(2 * J + 0.5)
    return Hierarchical(a, np.full((1, J + 2), J + 1), c)


def chain_metric(d: int) -> Hierarchical:
    """Two terms; each coordinate after the first depends on the first one and on the one before it."""
    before = np.maximum(np.arange(d) - 1, 0)
    c = np.full((2, 2, d), 0.2)
    c[1], c[:, :, 0] = -0.1, 0.0
    return Hierarchical(np.zeros((2, d)), np.array([np.zeros(d, int), before]), c)


def random_metric(rng: np.random.Generator, d: int, K: int, P: int) -> Hierarchical:
    """A metric whose parents are coordinates before i in a random order, with up to two directions within one level.

    Coordinate and term 0 always exist.
    """
    order = rng.permutation(d)
    rank = np.argsort(order)
    a, c, parents = rng.normal(size=(K, d)), rng.normal(size=(K, P, d)), np.zeros((P, d), int)
    a[1:][rng.random((K - 1, d)) < 0.3] = -np.inf
    for i in range(d):
        earlier = order[: rank[i]]
        if len(earlier):
            parents[:, i] = rng.choice(earlier, P)
        else:
            c[:, :, i] = 0.0
    level = Hierarchical(a, parents, c).levels()
    of = np.flatnonzero(level == rng.choice(level))
    U = np.zeros((min(len(of), int(rng.integers(3))), d))
    U[:, of] = np.linalg.qr(rng.normal(size=(len(of), len(of))))[0][: len(U)]
    return Hierarchical(a, parents, c, U, np.exp(rng.normal(size=len(U))))


class Definition:
    """H of a Gaussian or funnel model on a metric with masses sum_k exp(a + sum_p c q_parent), in many digits.

    M^-1 = D^-1/2 (I + U'(Lambda - I) U) D^-1/2, with the masses on the diagonal of D.
    """

    def __init__(self, metric: Hierarchical, log_density) -> None:
        self.a, self.parents, self.c = metric.exponents
        self.log_density, self.d = log_density, self.a.shape[1]
        self.levels = self.levels_by_paths()
        self.U, self.eigenvalues = metric.low_rank(self.d)

    def levels_by_paths(self) -> list[int]:
        """Length of the longest path of parents, by recursion."""
        edges = {
            i: {int(j) for p, j in enumerate(self.parents[:, i]) if np.any(self.c[:, p, i] != 0)} for i in range(self.d)
        }

        def depth(i):
            return max((1 + depth(j) for j in edges[i]), default=0)

        return [depth(i) for i in range(self.d)]

    def masses(self, q):
        return [
            mpmath.fsum(
                mpmath.exp(
                    mpmath.mpf(float(self.a[k, i]))
                    + mpmath.fsum(
                        mpmath.mpf(float(c)) * q[j] for c, j in zip(self.c[k, :, i], self.parents[:, i], strict=True)
                    )
                )
                for k in range(len(self.a))
                if np.isfinite(self.a[k, i])
            )
            for i in range(self.d)
        ]

    def phi(self, q):
        return -self.log_density(q) + mpmath.fsum(mpmath.log(m) for m in self.masses(q)) / 2

    def kinetic(self, q, p, level=None):
        chosen = range(self.d) if level is None else [i for i in range(self.d) if self.levels[i] == level]
        y = {i: p[i] / mpmath.sqrt(M) for i, M in enumerate(self.masses(q)) if i in chosen}
        squares = [each**2 for each in y.values()]
        for u, value in zip(self.U, self.eigenvalues, strict=True):
            along = mpmath.fsum(mpmath.mpf(float(u[i])) * y[i] for i in y)
            squares.append((mpmath.mpf(float(value)) - 1) * along**2)
        return mpmath.fsum(squares) / 2

    def slope(self, f, x):
        """The gradient of f by differences."""
        result = []
        for i in range(self.d):
            up, down = list(x), list(x)
            up[i] += INCREMENT
            down[i] -= INCREMENT
            result.append((f(up) - f(down)) / (2 * INCREMENT))
        return result

    def flow(self, q, p, t, level):
        velocity = self.slope(lambda x: self.kinetic(q, x, level), p)
        force = self.slope(lambda x: self.kinetic(x, p, level), q)
        return [x + t * v for x, v in zip(q, velocity, strict=True)], [x - t * f for x, f in zip(p, force, strict=True)]

    def kick(self, q, p, t):
        return [x - t * f for x, f in zip(p, self.slope(self.phi, q), strict=True)]

    def step(self, q, p, eps):
        """One step by the definition, as arrays."""
        with mpmath.workdps(DIGITS):
            q, p, eps = [mpmath.mpf(float(x)) for x in q], [mpmath.mpf(float(x)) for x in p], mpmath.mpf(eps)
            top = max(self.levels)
            p = self.kick(q, p, eps / 2)
            for level in [*range(top, 0, -1), 0, 0, *range(1, top + 1)]:
                q, p = self.flow(q, p, eps / 2, level)
            p = self.kick(q, p, eps / 2)
            return np.array([float(x) for x in q]), np.array([float(x) for x in p])
