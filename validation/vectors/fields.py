"""Metrics and the Hamiltonian: H = -L + p'G^-1 p/2 + log det(G)/2 (the last one only where G depends on the position).

With f(x) = x coth(alpha x), f(0) = 1/alpha:

    softabs                        G = f(Hessian), a function of a matrix
    diagonal-softabs               G = diag f(H_ii)
    outer-product-softabs          G = f(g g'), g the gradient; as printed in the paper's appendix A.2 on request
    diagonal-outer-product-softabs G = diag f(g_i^2)
    fisher                         the target's own
    hierarchical                   G = diag sum_k exp(a_ki + sum_p c_kpi q_j(p,i)), j(p, i) the parents of i

dG/dq by the divided differences J_ij of f in the eigenbasis (Daleckii and Krein) for the first, by the chain rule or by
differences for the others. The records of forces are made otherwise, from differences of H itself; these formulas serve the
integrators, and each record of a force compares the two.
"""

from __future__ import annotations

from typing import NamedTuple

from mpmath import mp, mpf

from validation.vectors.arithmetic import (
    along,
    combine,
    dot,
    eigen,
    inverse,
    log_det,
    matmul,
    tensors,
    times,
    transpose,
    width,
)


class Metric(NamedTuple):
    """``inverse``: M^-1 of the constant metrics, its diagonal or a matrix, or None for the identity.

    ``terms``: constants [k][i], parents [p][i] and coefficients [k][p][i] of the hierarchical metric. ``levels``: the level of
    each coordinate; blocks of equal level depend on coordinates of lower levels only.
    """

    name: str
    alpha: float | None = None
    as_published: bool = False
    inverse: list | None = None
    terms: tuple | None = None
    levels: list | None = None

    @property
    def constant(self) -> bool:
        return self.name in ("identity", "diagonal", "dense")


class Geometry(NamedTuple):
    """At one position: L, its gradient, G and its inverse, [k] = dG/dq_k (None: not asked for, or zero), log det or 0."""

    L: mpf
    g: list
    G: list
    inverse: list
    dG: list | None
    log_det: mpf


def soft(x, alpha):
    """x coth(alpha x)"""
    t = alpha * abs(x)
    if t < mpf(10) ** -40:
        return (1 + t * t / 3) / alpha
    return abs(x) if t > 2 * mp.dps else abs(x) * (1 + 2 / mp.expm1(2 * t))


def soft_slope(x, alpha):
    """d/dx of x coth(alpha x)"""
    t = alpha * x
    if abs(t) < mpf(10) ** -40:
        return 2 * t / 3
    return mp.sign(t) if abs(t) > 2 * mp.dps else (mp.sinh(2 * t) - 2 * t) / (mp.cosh(2 * t) - 1)


def divided(x, y, alpha):
    """(f(x) - f(y)) / (x - y); the slope between them where the quotient would have lost too many digits."""
    if alpha * abs(x - y) < mpf(10) ** -36:
        return soft_slope((x + y) / 2, alpha)
    return (soft(x, alpha) - soft(y, alpha)) / (x - y)


def outer_product(g, alpha, as_published):
    """f(g g'), or the printed formula."""
    s, d = dot(g, g), len(g)
    if s == 0:
        return [[mpf(int(i == j)) / alpha for j in range(d)] for i in range(d)]
    if as_published:
        across = s / mp.sinh(alpha * s)
        weight = across * (mp.cosh(alpha * s) - 1) / s
    else:
        across = 1 / alpha
        weight = (soft(s, alpha) - across) / s
    return [[(across if i == j else 0) + weight * g[i] * g[j] for j in range(d)] for i in range(d)]


def diagonal(values):
    return [[x if i == j else mpf(0) for j in range(len(values))] for i, x in enumerate(values)]


def softabs(H, alpha, T, noise):
    """f(H) and its derivatives."""
    values, Q = eigen(H)
    G = matmul(transpose(Q), [[soft(x, alpha) * v for v in row] for x, row in zip(values, Q, strict=True)])
    if T is None:
        return G, None
    J = [[divided(x, y, alpha) for y in values] for x in values]
    dG = []
    for k in range(len(H)):
        inner = matmul(Q, matmul(noise.matrix([[row[k] for row in plane] for plane in T]), transpose(Q)))
        dG.append(matmul(transpose(Q), matmul(combine(lambda a, b: a * b, J, inner), Q)))
    return G, dG


def softabs_family(metric, derivatives, force, noise):
    """G and dG from L's derivatives."""
    alpha, g = mpf(metric.alpha), derivatives[1]
    if metric.name == "softabs":
        return softabs(derivatives[2], alpha, derivatives[3] if force else None, noise)
    axes = range(len(g))
    if metric.name == "diagonal-softabs":
        h = [derivatives[2][i][i] for i in axes]
        G = diagonal([soft(x, alpha) for x in h])
        if not force:
            return G, None
        slopes = [soft_slope(x, alpha) for x in h]
        return G, [diagonal([slopes[i] * noise(derivatives[3][i][i][k]) for i in axes]) for k in axes]
    if metric.name == "diagonal-outer-product-softabs":
        G = diagonal([soft(x * x, alpha) for x in g])
        if not force:
            return G, None
        slopes = [2 * x * soft_slope(x * x, alpha) for x in g]
        return G, [diagonal([slopes[i] * derivatives[2][i][k] for i in axes]) for k in axes]
    if not metric.name.startswith("outer-product"):
        raise ValueError(f"no metric {metric.name!r}")
    G = outer_product(g, alpha, metric.as_published)
    if not force:
        return G, None
    h = width()

    def moved(k, s):
        return outer_product([x + s * h * derivatives[2][i][k] for i, x in enumerate(g)], alpha, metric.as_published)

    return G, [combine(lambda a, b: (a - b) / (2 * h), moved(k, 1), moved(k, -1)) for k in axes]


def hierarchical(terms, q):
    """G from the definition."""
    constants, parents, coefficients = terms

    def mass(i):
        exponents = (
            a[i] + mp.fsum(c_p[i] * q[j[i]] for c_p, j in zip(c, parents, strict=True))
            for a, c in zip(constants, coefficients, strict=True)
        )
        return mp.fsum(mp.exp(x) for x in exponents)

    return diagonal([mass(i) for i in range(len(q))])


ORDERS = {"softabs": (2, 3), "diagonal-softabs": (2, 3), "fisher": (1, 1), "hierarchical": (1, 1)}


def derivatives_of(target, c, q, order, noise):
    """[L, g, Hessian, third derivative] as far as ``order``, every summand of L rounded by itself."""
    weights = [noise(mpf(1)) for _ in target.terms(q, c)]
    values = tensors(lambda x: mp.fdot(weights, target.terms(x, c)), q, order)
    values[0:2] = noise.each(values[0:2])
    if order >= 2:
        values[2] = noise.matrix(values[2])
    return values


def geometry(target, c, metric, q, noise, force=True):
    """Everything at ``q`` that does not depend on the momentum."""
    if metric.constant:
        L, g = derivatives_of(target, c, q, 1, noise)
        d = len(q)
        M = metric.inverse or [1.0] * d
        M = combine(mpf, M) if metric.name == "dense" else diagonal([mpf(x) for x in M])
        return Geometry(L, g, inverse(M), noise.matrix(M) if metric.name == "dense" else noise.each(M), None, mpf(0))
    derivatives = derivatives_of(target, c, q, ORDERS.get(metric.name, (1, 2))[force], noise)
    if metric.name in ("fisher", "hierarchical"):

        def mass(x):
            return target.information(x, c) if metric.name == "fisher" else hierarchical(metric.terms, x)

        G = mass(q)
        dG = [noise.matrix(along(mass, q, k)) for k in range(len(q))] if force else None
    else:
        G, dG = softabs_family(metric, derivatives, force, noise)
    is_diagonal = metric.name.startswith("diagonal") or metric.name == "hierarchical"
    G = noise.each(G) if is_diagonal else noise.matrix(G)
    return Geometry(derivatives[0], derivatives[1], G, inverse(G), dG, log_det(G))


def velocity(at, p, noise):
    """dH/dp = G^-1 p"""
    return noise.each(times(at.inverse, p))


def slope(at, p, noise):
    """dH/dq_k = -g_k + tr(G^-1 dG_k)/2 - v'dG_k v/2"""
    if at.dG is None:
        return [-x for x in at.g]
    v, result = times(at.inverse, p), []
    for g, dG in zip(at.g, at.dG, strict=True):
        trace = sum(dot(a, b) for a, b in zip(at.inverse, dG, strict=True))
        result.append(noise(-g) + noise(trace / 2) - noise(dot(v, times(dG, v)) / 2))
    return result


def energy(at, p, noise):
    """H"""
    return noise(-at.L) + noise(at.log_det / 2) + noise(dot(p, times(at.inverse, p)) / 2)


def energy_at(target, c, metric, q, p, noise):
    return energy(geometry(target, c, metric, q, noise, force=False), p, noise)


def field_by_differences(target, c, metric, q, p, noise):
    """(dH/dq, dH/dp) from differences of H alone."""
    dq = [along(lambda x: energy_at(target, c, metric, x, p, noise), q, k) for k in range(len(q))]
    at = geometry(target, c, metric, q, noise, force=False)
    return dq, [along(lambda x: energy(at, x, noise), p, k) for k in range(len(p))]
