"""Planted bugs of position-dependent metrics, each with its corrected counterpart, and unusual code that is right.

The target is a funnel of three coordinates; SoftAbs is written by hand, with its derivative through divided differences.
"""

from __future__ import annotations

import functools

import numpy as np

import refhmc.check as rc

from . import Pair
from .models import funnel_grad as grad
from .models import funnel_logp as logp

ALPHA = 2.0


def hess(q):
    v, x, d = q[0], q[1:], len(q)
    H = -np.exp(v) * np.eye(d)
    H[0, 0] = -1 / 9 - 0.5 * np.exp(v) * (x**2).sum()
    H[0, 1:] = H[1:, 0] = -np.exp(v) * x
    return H


def third(q):
    v, x, d = q[0], q[1:], len(q)
    T = np.zeros((d, d, d))
    T[0, 0, 0] = -0.5 * np.exp(v) * (x**2).sum()
    for i in range(1, d):
        T[0, 0, i] = T[0, i, 0] = T[i, 0, 0] = -np.exp(v) * q[i]
        T[0, i, i] = T[i, 0, i] = T[i, i, 0] = -np.exp(v)
    return T


# --------------------------------------------------------------------------------------------------------- SoftAbs


def soft(x, floor=True):
    """x coth(alpha x), 1/alpha at zero."""
    with np.errstate(all="ignore"):
        y = x / np.tanh(ALPHA * x)
    return np.where(x == 0, 1 / ALPHA if floor else 0.0, y)


def soft_slope(x):
    t = ALPHA * x
    small = np.abs(t) < 1e-3
    safe = np.where(small, 1.0, np.clip(t, -300, 300))
    return np.where(small, 2 * t / 3, 1 / np.tanh(safe) - safe / np.sinh(safe) ** 2)


def divided(x, limit=True, by_size=0.0):
    """Divided differences; ``by_size``: eigenvalues are treated as equal if their absolute values are close."""
    f, d = soft(x), len(x)
    J = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            if abs(abs(x[i]) - abs(x[j])) < by_size:
                J[i, j] = soft_slope(x[i])
            elif abs(x[i] - x[j]) > 1e-5:
                J[i, j] = (f[i] - f[j]) / (x[i] - x[j])
            elif i == j or limit:
                J[i, j] = soft_slope(0.5 * (x[i] + x[j]))
            else:
                J[i, j] = 0.0
    return J


def softabs(q, hessian=hess, floor=True):
    x, Q = np.linalg.eigh(hessian(q))
    return (Q * soft(x, floor)) @ Q.T


def softabs_derivative(q, hessian=hess, derivative=third, **options):
    x, Q = np.linalg.eigh(hessian(q))
    J = divided(x, **options)
    inner = np.einsum("ai,abk,bj->ijk", Q, derivative(q), Q)
    return np.einsum("ai,ijk,bj->abk", Q, J[:, :, None] * inner, Q)


def direction_first(q):
    return np.transpose(softabs_derivative(q), (2, 0, 1))


# a quartic well: its Hessian is zero at zero, with equal eigenvalues for equal coordinates


def well_hess(q):
    return -np.diag(3 * q**2) - 0.5 * (np.outer(q, q) - np.diag(q**2))


def well_third(q):
    d = len(q)
    T = np.zeros((d, d, d))
    for i in range(d):
        T[i, i, i] = -6 * q[i]
        for j in range(d):
            if i != j:
                T[i, j, i] -= 0.5 * q[j]
                T[i, j, j] -= 0.5 * q[i]
    return T


def well_softabs(q, **options):
    return softabs(q, well_hess, **options)


def well_softabs_nan(q):
    x, Q = np.linalg.eigh(well_hess(q))
    with np.errstate(all="ignore"):
        return (Q * (x / np.tanh(ALPHA * x))) @ Q.T


# a shell, exp(-(q' A q - 1)^2): inside it eigenvalues of both signs, opposite ones on surfaces

SHELL = np.diag([1.0, 1.5, 2.0])


def shell_hess(q):
    a = SHELL @ q
    return -4 * (q @ a - 1) * SHELL - 8 * np.outer(a, a)


def shell_third(q):
    T = np.einsum("ij,k->ijk", SHELL, SHELL @ q)
    return -8 * (T + np.transpose(T, (0, 2, 1)) + np.transpose(T, (2, 1, 0)))


# ---------------------------------------------------------------------------------------------- dense Fisher metric


def fisher(q):
    v, d = q[0], len(q)
    G = np.exp(v) * (np.eye(d) + 0.3 * np.eye(d, k=1) + 0.3 * np.eye(d, k=-1))
    G[0, 0] = 1 / 9 + (d - 1) / 2 + 0.5 * np.exp(v)
    return G


def fisher_derivative(q):
    D = np.zeros((len(q),) * 3)
    D[:, :, 0] = fisher(q)
    D[0, 0, 0] = 0.5 * np.exp(q[0])
    return D


def fisher_derivative_symmetrised(q):
    """Derivative symmetrized in all three indices, which is wrong for a Fisher metric."""
    D = fisher_derivative(q)
    return (D + np.transpose(D, (1, 2, 0)) + np.transpose(D, (2, 0, 1))) / 3


def fisher_one_sided(q):
    G = fisher(q)
    return np.triu(G) + 0.5 * np.tril(G, -1)


def energy(q, p, volume=0.5):
    G = fisher(q)
    return -logp(q) + 0.5 * p @ np.linalg.solve(G, p) + volume * np.linalg.slogdet(G)[1]


def slopes(q, p, volume=0.5, quadratic=-0.5, cross=1.0):
    G, dG = fisher(q), fisher_derivative(q)
    v, inverse = np.linalg.solve(G, p), np.linalg.inv(G)
    dq = -grad(q) + volume * np.einsum("ij,jik->k", inverse, dG) + quadratic * np.einsum("i,ijk,j->k", v, dG, v)
    return dq, cross * v


def log_det(q):
    return 2 * np.log(np.diag(np.linalg.cholesky(fisher(q)))).sum()


def log_det_wrong_triangle(q):
    """Draw with a lower factor whose double transpose is factored again."""
    L = np.linalg.cholesky(fisher(q))
    return 2 * np.log(np.diag(np.linalg.qr(np.triu(fisher(q)) @ L)[1]) ** 2).sum() / 2


# --------------------------------------------------------------------------------------------------------- momenta


def draw(rng, q):
    return np.linalg.cholesky(fisher(q)) @ rng.standard_normal(len(q))


def draw_by_inverse(rng, q):
    """Draw with a factor of the inverse: K K' = G^-1, p = K^-T w; correct."""
    return np.linalg.solve(np.linalg.cholesky(np.linalg.inv(fisher(q))).T, rng.standard_normal(len(q)))


def draw_by_inverse_transposed(rng, q):
    return np.linalg.solve(np.linalg.cholesky(np.linalg.inv(fisher(q))), rng.standard_normal(len(q)))


def draw_exchanged(rng, q):
    return np.linalg.cholesky(np.linalg.inv(fisher(q))) @ rng.normal(size=len(q))


def draw_symmetric_root(rng, q):
    x, Q = np.linalg.eigh(fisher(q))
    return Q @ (np.sqrt(x) * (Q.T @ rng.normal(size=len(q))))


def draw_from_data(rng, q):
    """G = L L' as a sum of two independent parts."""
    G = fisher(q)
    part = 0.25 * np.linalg.eigvalsh(G)[0]
    return np.sqrt(part) * rng.normal(0.0, 1.0, len(q)) + np.linalg.cholesky(
        G - part * np.eye(len(q))
    ) @ rng.standard_normal(len(q))


def unrecorded_normals(rng):
    """Draw a momentum from a length and an angle, which recorded normals cannot reproduce."""
    angle, length = 2 * np.pi * rng.random(2), np.sqrt(rng.chisquare(2, 2))
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:3]


def draw_unrecorded(rng, q):
    return np.linalg.cholesky(fisher(q)) @ unrecorded_normals(rng)


def draw_unrecorded_exchanged(rng, q):
    return np.linalg.solve(np.linalg.cholesky(fisher(q)).T, unrecorded_normals(rng))


class Chain:
    """Sampler that keeps the factor of its metric, and draws before or after updating it, or never updates it."""

    def __init__(self, move_first, updates=True):
        self.L, self.move_first, self.updates = np.eye(3), move_first, updates

    def draw(self, rng, q):
        if self.move_first and self.updates:
            self.L = np.linalg.cholesky(fisher(q))
        p = self.L @ rng.standard_normal(len(q))
        if self.updates:
            self.L = np.linalg.cholesky(fisher(q))
        return p


# ----------------------------------------------------------------------------------------------- unusual, correct


def single(q):
    return fisher(np.asarray(q, np.float32)).astype(np.float32)


def single_derivative(q):
    return fisher_derivative(np.asarray(q, np.float32)).astype(np.float32)


STRETCH = np.array([1e-4, 1.0, 1e4])


def _metric(*arguments, **options):
    return lambda seed: rc.metric(*arguments, seed=seed, **{"dim": 3, **options})


ODD = {
    "float32": _metric(single, single_derivative, draw),
    "a list of lists": _metric(lambda q: fisher(q).tolist(), fisher_derivative),
    "constant": _metric(
        lambda q: np.diag([1.0, 2.0, 3.0]), lambda q: np.zeros((3, 3, 3)), log_det=lambda q: np.log(6.0), dim=None
    ),
    "scales 1e-8 to 1e8": _metric(
        lambda q: fisher(q) * np.outer(STRETCH, STRETCH),
        lambda q: fisher_derivative(q) * np.outer(STRETCH, STRETCH)[:, :, None],
        lambda rng, q: STRETCH * draw(rng, q),
    ),
    "direction first, said so": _metric(softabs, direction_first, index_order="kij"),
    "symmetric root": _metric(fisher, fisher_derivative, draw_symmetric_root),
    "more normals than coordinates": _metric(fisher, None, draw_from_data),
    "constant in H and log det": _metric(
        fisher, H=lambda q, p: energy(q, p) + 7.0, logp=logp, log_det=lambda q: log_det(q) - 3.0
    ),
    "H alone": _metric(None, H=energy, logp=logp, dH=slopes, draw_p=draw),
    "one dimension": _metric(lambda q: np.array([[1 + q[0] ** 2]]), lambda q: np.array([[[2 * q[0]]]]), dim=1),
    "of a positive parameter": _metric(
        lambda q: np.array([[2 / q[0] ** 2]]), lambda q: np.array([[[-4 / q[0] ** 3]]]), support=(0.0, np.inf), dim=1
    ),
    "barely moving": _metric(
        lambda q: np.eye(2) * (1 + 0.01 * np.tanh(q[0])),
        lambda q: np.eye(2)[:, :, None] * np.array([0.01 / np.cosh(q[0]) ** 2, 0.0]),
        dim=2,
    ),
}


def _chain(move_first, updates=True):
    return lambda seed: _metric(fisher, draw_p=Chain(move_first, updates).draw)(seed)  # a new chain for each report


def _energy(**options):
    return _metric(fisher, H=functools.partial(energy, **options), dH=functools.partial(slopes, **options), logp=logp)


def _shell(by_size=0.0, **more):
    derivative = functools.partial(softabs_derivative, hessian=shell_hess, derivative=shell_third, by_size=by_size)
    return _metric(functools.partial(softabs, hessian=shell_hess), derivative, **more)


SOFTABS = _metric(softabs, softabs_derivative, hessian=hess)
FISHER = _metric(fisher, fisher_derivative, draw, log_det=log_det, solve=lambda q, v: np.linalg.solve(fisher(q), v))
WELL = _metric(well_softabs, functools.partial(softabs_derivative, hessian=well_hess, derivative=well_third))
ENERGY = _energy()
MOMENTUM = ("momentum distribution",)

PAIRS: list[Pair] = [
    Pair("P08", "log det without 1/2 in both force and energy", _energy(volume=1.0), ENERGY, ("energy",)),
    Pair(
        "P08-read-off",
        "the same, with the metric computed from H",
        _metric(None, H=functools.partial(energy, volume=1.0), dH=functools.partial(slopes, volume=1.0), logp=logp),
        ODD["H alone"],
        ("energy",),
    ),
    Pair(
        "P09",
        "divided difference 0 at equal eigenvalues",
        _metric(softabs, functools.partial(softabs_derivative, limit=False)),
        SOFTABS,
        ("derivative at degenerate points",),
    ),
    Pair(
        "P09-opposite",
        "divided difference f'(l) at eigenvalues l and -l",
        _shell(by_size=1e-8),
        _shell(),
        ("derivative at degenerate points",),
    ),
    Pair(
        "P09-opposite-hessian",
        "the same, with a given Hessian",
        _shell(by_size=1e-8, hessian=shell_hess),
        _shell(hessian=shell_hess),
        ("derivative at degenerate points",),
    ),
    Pair(
        "P10", "SoftAbs of 0 is 0", _metric(functools.partial(well_softabs, floor=False)), WELL, ("positive definite",)
    ),
    Pair("P10-nan", "SoftAbs of 0 is NaN", _metric(well_softabs_nan), WELL, ("positive definite",)),
    Pair(
        "P11",
        "direction first instead of last",
        _metric(softabs, direction_first),
        SOFTABS,
        ("derivative at asymmetric points",),
    ),
    Pair(
        "P11-swapped",
        "second and third index exchanged",
        _metric(fisher, lambda q: np.swapaxes(fisher_derivative(q), 1, 2)),
        FISHER,
        ("derivative at asymmetric points",),
    ),
    Pair(
        "P12",
        "sign of the quadratic term of the force",
        _metric(fisher, H=energy, dH=functools.partial(slopes, quadratic=0.5), logp=logp),
        ENERGY,
        ("force",),
    ),
    Pair(
        "P12-built",
        "the same, no H given",
        _metric(fisher, grad_q=lambda q, p: slopes(q, p, quadratic=0.5)[0], logp=logp),
        _metric(fisher, grad_q=lambda q, p: slopes(q, p)[0], logp=logp),
        ("force",),
    ),
    Pair("no-volume", "1/2 log det G missing in H and force", _energy(volume=0.0), ENERGY, ("energy",)),
    Pair("volume-sign", "1/2 log det G subtracted", _energy(volume=-0.5), ENERGY, ("energy",)),
    Pair(
        "kinetic",
        "kinetic energy p' G p",
        _metric(fisher, H=lambda q, p: energy(q, 0 * p) + 0.5 * p @ fisher(q) @ p, logp=logp),
        ENERGY,
        ("kinetic energy",),
    ),
    Pair(
        "velocity",
        "velocity G p",
        _metric(fisher, H=energy, grad_p=lambda q, p: fisher(q) @ p, logp=logp),
        ENERGY,
        ("velocity",),
    ),
    Pair(
        "M2",
        "root of the inverse not transposed",
        _metric(fisher, None, draw_by_inverse_transposed),
        _metric(fisher, None, draw_by_inverse),
        MOMENTUM,
    ),
    Pair(
        "M3",
        "metric and inverse exchanged in the draw",
        _metric(fisher, None, draw_exchanged),
        _metric(fisher, None, draw_symmetric_root),
        MOMENTUM,
    ),
    Pair("M29", "the momentum is drawn before the metric is updated", _chain(False), _chain(True), MOMENTUM),
    Pair(
        "AdvancedHMC#83",
        "the root of the metric is not updated with the metric",
        _chain(True, updates=False),
        _chain(True),
        MOMENTUM,
    ),
    Pair(
        "M3-unrecorded",
        "the same, normals not recordable",
        _metric(fisher, None, draw_unrecorded_exchanged),
        _metric(fisher, None, draw_unrecorded),
        MOMENTUM,
    ),
    Pair(
        "root-forgotten",
        "G w instead of its root times w",
        _metric(fisher, None, lambda rng, q: fisher(q) @ rng.normal(size=3)),
        FISHER,
        MOMENTUM,
    ),
    Pair(
        "diagonal-draw",
        "momentum from the diagonal only",
        _metric(fisher, None, lambda rng, q: np.sqrt(np.diag(fisher(q))) * rng.normal(size=3)),
        FISHER,
        MOMENTUM,
    ),
    Pair(
        "log-det-half",
        "the log determinant has the logs of a root's diagonal once, not twice",
        _metric(fisher, log_det=lambda q: 0.5 * log_det(q)),
        FISHER,
        ("log det",),
    ),
    Pair(
        "log-det-triangle",
        "log det from the wrong triangle",
        _metric(fisher, log_det=log_det_wrong_triangle),
        FISHER,
        ("log det",),
    ),
    Pair("solve", "multiplies by G", _metric(fisher, solve=lambda q, v: fisher(q) @ v), FISHER, ("inverse product",)),
    Pair("one-sided", "symmetrised wrongly", _metric(fisher_one_sided), FISHER, ("symmetric",)),
    Pair(
        "derivative-symmetrised",
        "derivative made symmetric in three indices",
        _metric(fisher, fisher_derivative_symmetrised),
        FISHER,
        ("derivative",),
    ),
    Pair("indefinite", "a Hessian without SoftAbs", _metric(lambda q: -hess(q)), SOFTABS, ("positive definite",)),
    Pair(
        "absolute",
        "|Hessian| without a lower bound on its eigenvalues",
        _metric(lambda q: np.diag(np.abs(1 - q**2))),
        _metric(lambda q: np.diag(soft(1 - q**2))),
        ("positive definite",),
    ),
]
