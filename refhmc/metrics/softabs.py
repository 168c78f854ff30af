"""The SoftAbs metric: the Hessian with its eigenvalues made positive, smoothly (Betancourt 2013).

    H = Q diag(lambda) Q',     G = Q diag(f(lambda)) Q',     f(x) = x coth(alpha x)

f is even, so that the Hessian of the log density and that of the potential give the same G. The derivative of a function
of a matrix (Daleckii and Krein) is dG = Q (J o (Q' dH Q)) Q' with the divided differences J_ij of f, and with a = Q'p / f

    dphi/dq_k = -dL/dq_k + tr(M dH/dq_k),      M = 1/2 Q diag(J_ii / f_i) Q'
    dtau/dq_k =            tr(M dH/dq_k),      M = -1/2 Q (a_i J_ij a_j) Q'

This is Betancourt's Algorithm 2 with its errata: two products of matrices and one contraction with the third derivative of the
log density, O(d^3) in addition to the model's own cost. log det G = sum_i log f_i. The momentum is that of the symmetric root,
p = Q diag(f^1/2) Q' z. It does not depend on the signs of the eigenvectors, nor on their choice if some eigenvalues are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit, jit_part, jit_part_sum
from refhmc.core.arguments import positive
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import SHARED, ArrayModel, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.metrics.softabs_function import (
    ALPHA,
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

# ``scales`` is f(lambda); ``Q`` has one eigenvector per row; the eigensolver uses ``scratch``.
LAYOUT = Layout("eigenvalues a scratch[3]", "hessian Q J M product", after=SHARED)
views = LAYOUT.views


@dataclass(frozen=True)
class SoftAbs(Riemannian):
    """The Hessian with its eigenvalues replaced by smoothed absolute values.

    With the eigenvalues lambda and eigenvectors Q of the Hessian H of L, and ``f(x) = x coth(alpha x)``, the metric and the
    momentum from standard normals z are::

        H = Q diag(lambda) Q',    G(q) = Q diag(f(lambda)) Q',    p = Q diag(f^(1/2)) Q' z

    With the divided differences J_ij of f and a = Q'p / f, the two parts of the force are::

        dphi/dq_k = -dL/dq_k + tr(M dH/dq_k),    M = 1/2 Q diag(J_ii / f_i) Q'
        dtau/dq_k =            tr(M dH/dq_k),    M = -1/2 Q (a_i J_ij a_j) Q'

    G is positive definite everywhere. The model needs its Hessian and the contraction of its third derivative. The cost is
    O(d^3) in addition to the model's own.

    Parameters
    ----------
    alpha : float, default 10.0
        Sharpness of the smoothed absolute value: eigenvalues are smoothed over a width 1/alpha, which also bounds the
        eigenvalues of the metric from below. The default is smaller than that of Betancourt (2013), 1e6 (see Notes).

    Raises
    ------
    ValueError
        If `alpha` is not positive and finite.

    See Also
    --------
    DiagonalSoftAbs : SoftAbs of the diagonal of the Hessian.
    OuterProductSoftAbs : SoftAbs of the outer product of the gradient with itself.
    Fisher : Fisher information, if the model defines it.

    Notes
    -----
    If an eigenvalue passes 0 with alpha = 1e6, the metric changes within 1e-6, which no step resolves. The energy then jumps,
    so that warm-up reduces the step size again and again: NUTS makes about 1,000 steps per draw on the eight schools and on
    GARCH. With the default it makes 50 and 185 (one run of each). A smaller `alpha` ignores curvature below 1/alpha. That costs
    effective draws if some standard deviations are above 1, as in the funnel (about half as many per step as with 1e6) and in
    kidscore (a twentieth). With alpha = 1, GARCH needs 14 steps per draw.

    References
    ----------
    Betancourt (2013), A general metric for Riemannian manifold Hamiltonian Monte Carlo, Algorithm 2. Errata: D has the elements
    (Q'p)_i / (lambda_i coth(alpha lambda_i)), and J is the derivative of f for equal eigenvalues also if i and j differ.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.SoftAbs())
    >>> H.mass([0.0, 0.0]).round(3)
    array([[1.   , 0.   ],
           [0.   , 0.253]])
    """

    name = "softabs"
    alpha: float = ALPHA
    reads = ("hessian", "hessian_contraction")
    layout = LAYOUT

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def on_arrays(self, model: ArrayModel) -> HamiltonianOnArrays:
        """Return the Hamiltonian of a model on arrays (..., d).

        Parameters
        ----------
        model : object
            The functions of a model on arrays, as ``refhmc.array_api.ModelOnArrays`` has them.

        Returns
        -------
        HamiltonianOnArrays
            The Hamiltonian, its derivatives and the momentum draw.
        """
        return SoftAbsOnArrays(model, self)


class SoftAbsOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d): lambda and Q of the Hessian from ``eigh``, and J for equal eigenvalues too."""

    @batched.once
    def spectrum(self, q: Array) -> tuple[Array, Array, Array]:
        """Return lambda (..., d), Q (..., d, d) with the eigenvectors as columns, and f(lambda)."""
        values, Q = batched.eigh(self.model.hessian(q))
        return values, Q, softabs(values, self.metric.alpha)

    def scales(self, q: Array) -> Array:
        return self.spectrum(q)[2]

    def mass(self, q: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return (Q * f[..., None, :]) @ batched.transpose(Q)

    def inverse_product(self, q: Array, p: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return batched.times(Q, batched.times(batched.transpose(Q), p) / f)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.spectrum(q)[2]), axis=-1)

    def potential_force(self, q: Array) -> Array:
        values, Q, f = self.spectrum(q)
        M = 0.5 * (Q * (softabs_derivative(values, self.metric.alpha) / f)[..., None, :]) @ batched.transpose(Q)
        return self.model.gradient(q) - self.model.hessian_contraction(q, M)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        values, Q, f = self.spectrum(q)
        a, J = batched.times(batched.transpose(Q), p) / f, divided_differences(values, self.metric.alpha)
        return self.model.hessian_contraction(q, 0.5 * Q @ (batched.outer(a, a) * J) @ batched.transpose(Q))

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        values, Q, f = self.spectrum(q)
        a, J = batched.times(batched.transpose(Q), p) / f, divided_differences(values, self.metric.alpha)
        M = 0.5 * Q @ (batched.diagonal_matrix(1 / f) * J - batched.outer(a, a) * J) @ batched.transpose(Q)
        return batched.times(Q, a), self.model.gradient(q) - self.model.hessian_contraction(q, M)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        _, Q, f = self.spectrum(q)
        return batched.times(Q, f**0.5 * batched.times(batched.transpose(Q), normals))


# These parts are always inlined: fused code is then optimised for the known width and is 25 % faster on the funnel.
# By pointer it makes no difference.


@jit_part
def factorise(model: tuple, work: tuple) -> bool:
    """Compute H at the metric's position, its eigenvalues and vectors, and f; return False if H is not finite."""
    vecs, mats, options, cache, _, _ = as_work(work)
    f, w = as_model(model), views(work)
    f.metric(w.position, f.data, w.hessian)
    if not eigen_with(w.hessian, w.eigenvalues, w.Q, w.J, w.product, w.scratch):
        return False
    soft_all(w.eigenvalues, options.alpha, w.scales)
    cache.log_det_weight = 0.5
    return True


@jit_part_sum
def rotate(Q: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Set out = Q' x, the coordinates in the eigenbasis."""
    for i in range(x.shape[0]):
        out[i] = dot(Q[i], x)


@jit_part_sum
def rotate_back(Q: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Set out = Q x."""
    out[:] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            out[j] += x[i] * Q[i, j]


@jit_part
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    w = views(work)
    rotate(w.Q, p, w.a)
    for i in range(p.shape[0]):
        w.a[i] /= w.scales[i]
    rotate_back(w.Q, w.a, out)


@jit_part_sum
def conjugate(Q: np.ndarray, inner: np.ndarray, product: np.ndarray, out: np.ndarray) -> None:
    """Set out = Q inner Q' for a symmetric ``inner``; the rows of the argument ``Q`` are the columns of Q."""
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


@jit_part
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction."""
    vecs, mats, options, cache, counters, _ = as_work(work)
    of_model, w, d = as_model(model), views(work), p.shape[0]
    f, a, J = w.scales, w.a, w.J
    inverse_product(p, work, v)
    if cache.has_force == 0:
        for i in range(d):
            for j in range(i + 1):
                J[i, j] = divided_difference_of(w.eigenvalues[i], w.eigenvalues[j], f[i], f[j], options.alpha)
        cache.has_force = 1
    inner = w.hessian  # the Hessian itself is no longer needed
    for i in range(d):
        for j in range(i + 1):
            inner[i, j] = inner[j, i] = -0.5 * tau * a[i] * J[i, j] * a[j]
        inner[i, i] += 0.5 * phi * J[i, i] / f[i]
    conjugate(w.Q, inner, w.product, w.M)
    of_model.hessian_contraction(w.position, of_model.data, w.M, dH_dq)
    counters.contractions += 1
    if phi != 0:
        log_density_at_metric(model, work)
        for i in range(d):
            dH_dq[i] -= phi * w.gradient[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    w = views(work)
    rotate(w.Q, normals, w.a)
    for i in range(p.shape[0]):
        w.a[i] *= w.scales[i] ** 0.5
    rotate_back(w.Q, w.a, p)
