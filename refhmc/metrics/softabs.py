"""The SoftAbs metric: the Hessian with its eigenvalues made positive, smoothly (Betancourt 2013).

    H = Q diag(lambda) Q',     G = Q diag(f(lambda)) Q',     f(x) = x coth(alpha x)

f is even, so that the Hessian of the log density and that of the potential give the same G. The derivative of a function
of a matrix (Daleckii and Krein) is dG = Q (J o (Q' dH Q)) Q' with the divided differences J_ij of f, and with a = Q'p / f

    dphi/dq_k = -dL/dq_k + tr(M dH/dq_k),      M = 1/2 Q diag(J_ii / f_i) Q'
    dtau/dq_k =            tr(M dH/dq_k),      M = -1/2 Q (a_i J_ij a_j) Q'

Betancourt's Algorithm 2 with its errata: two products of matrices and one contraction with the third derivative of the
log density, O(d^3) beside the model's own cost. log det G = sum_i log f_i. The momentum is the symmetric root's,
p = Q diag(f^1/2) Q' z, which does not depend on the signs of the eigenvectors, nor on their choice where some are equal.

``vecs``: f, lambda, a; work of the eigensolver. ``mats``: H, Q (an eigenvector a row), J, M, a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refhmc.core.compiled import jit, jit_sum
from refhmc.core.types import ALPHA, GRADIENT_HERE, HAS_MORE, HERE, LOG_DET_WEIGHT, METRIC_ROWS, N_TRACES, SCALES
from refhmc.metrics.base import HamiltonianOnArrays, Riemannian, check_alpha, value_here
from refhmc.metrics.softabs_function import (
    divided_difference_of,
    divided_differences,
    soft_all,
    softabs,
    softabs_derivative,
)
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.eigen import eigen_with
from refhmc.numerics.linalg import dot


@dataclass(frozen=True)
class SoftAbs(Riemannian):
    """The Hessian with its eigenvalues' absolute values smoothed over a width 1/alpha.

    Raises ValueError unless alpha is positive and finite.
    """

    alpha: float = 1e6
    reads = ("hessian", "trace")

    def __post_init__(self):
        check_alpha(self.alpha)

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return SoftAbsOnArrays(model, self)


class SoftAbsOnArrays(HamiltonianOnArrays):
    """On arrays (..., d): lambda and Q of the Hessian from ``eigh``, J for equal eigenvalues too."""

    def spectrum(self, q: Array) -> tuple[Array, Array, Array]:
        """lambda (..., d), Q (..., d, d) with the eigenvectors as columns, f(lambda)"""
        values, Q = batched.eigh(self.model.hessian(q))
        return values, Q, softabs(values, self.metric.alpha)

    def mass(self, q: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return (Q * f[..., None, :]) @ Q.mT

    def inverse_product(self, q: Array, p: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return batched.times(Q, batched.times(Q.mT, p) / f)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.spectrum(q)[2]), axis=-1)

    def potential_force(self, q: Array) -> Array:
        values, Q, f = self.spectrum(q)
        M = 0.5 * (Q * (softabs_derivative(values, self.metric.alpha) / f)[..., None, :]) @ Q.mT
        return self.model.gradient(q) - self.model.trace(q, M)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        values, Q, f = self.spectrum(q)
        a, J = batched.times(Q.mT, p) / f, divided_differences(values, self.metric.alpha)
        return self.model.trace(q, 0.5 * Q @ (batched.outer(a, a) * J) @ Q.mT)

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        values, Q, f = self.spectrum(q)
        a, J = batched.times(Q.mT, p) / f, divided_differences(values, self.metric.alpha)
        M = 0.5 * Q @ (batched.diagonal_matrix(1 / f) * J - batched.outer(a, a) * J) @ Q.mT
        return batched.times(Q, a), self.model.gradient(q) - self.model.trace(q, M)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return batched.times(Q, f**0.5 * batched.times(Q.mT, normals))


F = SCALES
LAMBDA, A = METRIC_ROWS, METRIC_ROWS + 1
WORK = METRIC_ROWS + 2
N_VECS = WORK + 3
H, EIGENVECTORS, J, M, PRODUCT = range(5)
N_MATS = 5


@jit
def settle(model, vecs, mats, notes):
    """H at ``vecs[HERE]``, its eigenvalues and vectors, f; False if it is not finite."""
    _, hessian, _, data = model
    hessian(vecs[HERE], data, mats[H])
    if not eigen_with(mats[H], vecs[LAMBDA], mats[EIGENVECTORS], mats[J], mats[PRODUCT], vecs[WORK : WORK + 3]):
        return False
    soft_all(vecs[LAMBDA], notes[ALPHA], vecs[F])
    notes[LOG_DET_WEIGHT] = 0.5
    return True


@jit_sum
def rotate(Q, x, out):
    """out = Q' x, coordinates in the eigenbasis."""
    for i in range(x.shape[0]):
        out[i] = dot(Q[i], x)


@jit_sum
def rotate_back(Q, x, out):
    """out = Q x"""
    out[:] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            out[j] += x[i] * Q[i, j]


@jit
def velocity(p, vecs, mats, notes, out):
    """out = G^-1 p"""
    rotate(mats[EIGENVECTORS], p, vecs[A])
    for i in range(p.shape[0]):
        vecs[A, i] /= vecs[F, i]
    rotate_back(mats[EIGENVECTORS], vecs[A], out)


@jit_sum
def conjugate(Q, inner, product, out):
    """out = Q inner Q' for a symmetric ``inner``; Q has its columns as rows."""
    d = Q.shape[0]
    product[:] = 0.0
    for i in range(d):
        for k in range(d):
            c = inner[i, k]
            for j in range(d):
                product[i, j] += c * Q[k, j]
    out[:] = 0.0
    for i in range(d):
        for j in range(d):
            c = Q[i, j]
            for k in range(j + 1):
                out[j, k] += c * product[i, k]
    for j in range(d):
        for k in range(j):
            out[k, j] = out[j, k]


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    """v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction."""
    _, _, trace, data = model
    d, alpha = p.shape[0], notes[ALPHA]
    values, f, a, Q = vecs[LAMBDA], vecs[F], vecs[A], mats[EIGENVECTORS]
    velocity(p, vecs, mats, notes, v)
    if notes[HAS_MORE] == 0:
        for i in range(d):
            for j in range(i + 1):
                mats[J, i, j] = divided_difference_of(values[i], values[j], f[i], f[j], alpha)
        notes[HAS_MORE] = 1
    inner = mats[H]  # the Hessian itself is used up
    for i in range(d):
        for j in range(i + 1):
            inner[i, j] = inner[j, i] = -0.5 * tau * a[i] * mats[J, i, j] * a[j]
        inner[i, i] += 0.5 * phi * mats[J, i, i] / f[i]
    conjugate(Q, inner, mats[PRODUCT], mats[M])
    trace(vecs[HERE], data, mats[M], slope)
    notes[N_TRACES] += 1
    if phi != 0:
        value_here(model, vecs, notes)
        for i in range(d):
            slope[i] -= phi * vecs[GRADIENT_HERE, i]


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, G) from standard normals."""
    rotate(mats[EIGENVECTORS], normals, vecs[A])
    for i in range(p.shape[0]):
        vecs[A, i] *= vecs[F, i] ** 0.5
    rotate_back(mats[EIGENVECTORS], vecs[A], p)


SoftAbs.geometry = (settle, velocity, field, draw)
SoftAbs.n_vecs, SoftAbs.n_mats = N_VECS, N_MATS
