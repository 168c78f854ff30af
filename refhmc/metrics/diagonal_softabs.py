"""The diagonal SoftAbs metric: G = diag(f(H_ii)), f(x) = x coth(alpha x); Betancourt (2013), appendix A.1.

    v_i = p_i / f_i,      1/2 log det G = 1/2 sum_i log f_i,      p_i = f_i^1/2 z_i
    dphi/dq_k + dtau/dq_k = -dL/dq_k + sum_i m_i dH_ii/dq_k,      m_i = 1/2 f'(H_ii) (1/f_i - v_i^2)

The cost is O(d) in addition to the model's own if the model has functions for the diagonal of its Hessian and for its
derivative (``hessian_diagonal``, ``diagonal_contraction``). ``mats`` is empty then. Otherwise they are taken from the full
Hessian and from the contraction with a diagonal matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import positive
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import SHARED, ArrayModel, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.metrics.softabs_function import ALPHA, soft_all, soft_derivatives, softabs, softabs_derivative
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

# ``scales`` is f. The functions of the model's diagonals take a matrix of one row.
LAYOUT = Layout("diagonal[1] inverse slopes m[1]", after=SHARED)
views = LAYOUT.views


@dataclass(frozen=True)
class DiagonalSoftAbs(Riemannian):
    """SoftAbs of the diagonal of the Hessian, a diagonal metric.

    With the diagonal H_ii of the Hessian of L and ``f(x) = x coth(alpha x)``, the metric, the velocity, the momentum from
    standard normals z and the force are::

        G(q) = diag(f(H_ii)),    v_i = p_i / f_i,    p_i = f_i^(1/2) z_i,    1/2 log det G = 1/2 sum_i log f_i
        dphi/dq_k + dtau/dq_k = -dL/dq_k + sum_i m_i dH_ii/dq_k,    m_i = 1/2 f'(H_ii) (1/f_i - v_i^2)

    The model needs its Hessian and the contraction of its third derivative. If it has functions for their diagonals
    (``hessian_diagonal``, ``diagonal_contraction``), the metric adds O(d) to the model's own cost.

    Parameters
    ----------
    alpha : float, default 10.0
        Sharpness of the smoothed absolute value, as in :class:`SoftAbs`. No eigenvalue of the metric is below 1/alpha.

    Raises
    ------
    ValueError
        If `alpha` is not positive and finite.

    See Also
    --------
    SoftAbs : SoftAbs of the full Hessian.

    References
    ----------
    Betancourt (2013), A general metric for Riemannian manifold Hamiltonian Monte Carlo, appendix A.1.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.DiagonalSoftAbs())
    >>> H.mass([0.0, 0.0]).round(3)
    array([[1.   , 0.   ],
           [0.   , 0.253]])
    """

    name = "diagonal_softabs"
    alpha: float = ALPHA
    is_dense = False
    reads = ("hessian", "hessian_contraction")
    reads_diagonals = True  # of both, if the model has functions for them
    layout = LAYOUT

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def n_matrices(self, model: Model) -> int:
        return 0 if model.has_diagonals else 1

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
        return DiagonalSoftAbsOnArrays(model, self)


class DiagonalSoftAbsOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d), from the diagonal of the full Hessian."""

    def diagonal(self, q: Array) -> Array:
        """Return H_ii, (..., d)."""
        return batched.namespace(q).linalg.diagonal(self.model.hessian(q))

    def eigenvalues(self, q: Array) -> Array:
        """Return f_i, (..., d)."""
        return softabs(self.diagonal(q), self.metric.alpha)

    def scales(self, q: Array) -> Array:
        return self.eigenvalues(q)

    def mass(self, q: Array) -> Array:
        return batched.diagonal_matrix(self.eigenvalues(q))

    def inverse_product(self, q: Array, p: Array) -> Array:
        return p / self.eigenvalues(q)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.eigenvalues(q)), axis=-1)

    def potential_force(self, q: Array) -> Array:
        m = 0.5 * softabs_derivative(self.diagonal(q), self.metric.alpha) / self.eigenvalues(q)
        return self.model.gradient(q) - self.model.hessian_contraction(q, batched.diagonal_matrix(m))

    def kinetic_force(self, q: Array, p: Array) -> Array:
        v = self.inverse_product(q, p)
        m = -0.5 * softabs_derivative(self.diagonal(q), self.metric.alpha) * v**2
        return -self.model.hessian_contraction(q, batched.diagonal_matrix(m))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.eigenvalues(q) ** 0.5 * normals


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute the diagonal of H at the metric's position, and f; return False if it is not finite."""
    vecs, mats, options, cache, _, _ = as_work(work)
    f, w, d = as_model(model), views(work), vecs.shape[1]
    if mats.shape[0] == 0:
        f.metric(w.position, f.data, w.diagonal)
    else:
        f.metric(w.position, f.data, mats[0])
        for i in range(d):
            w.diagonal[0, i] = mats[0, i, i]
    soft_all(w.diagonal[0], options.alpha, w.scales)
    cache.log_det_weight = 0.5
    not_finite = 0
    for i in range(d):
        not_finite += not w.scales[i] < np.inf
        w.inverse[i] = 1 / w.scales[i]
    return not_finite == 0


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    inverse = views(work).inverse
    for i in range(p.shape[0]):
        out[i] = p[i] * inverse[i]


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction with a diagonal matrix."""
    vecs, mats, options, cache, counters, _ = as_work(work)
    f, w, d = as_model(model), views(work), p.shape[0]
    if cache.has_force == 0:
        soft_derivatives(w.diagonal[0], options.alpha, w.slopes)
        cache.has_force = 1
    for i in range(d):
        v[i] = p[i] * w.inverse[i]
        w.m[0, i] = 0.5 * w.slopes[i] * (phi * w.inverse[i] - tau * v[i] * v[i])
    if mats.shape[0] == 0:
        f.hessian_contraction(w.position, f.data, w.m, dH_dq)
    else:
        for i in range(d):
            for j in range(d):
                mats[0, i, j] = 0.0
            mats[0, i, i] = w.m[0, i]
        f.hessian_contraction(w.position, f.data, mats[0], dH_dq)
    counters.contractions += 1
    if phi != 0:
        log_density_at_metric(model, work)
        for i in range(d):
            dH_dq[i] -= phi * w.gradient[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    scales = views(work).scales
    for i in range(p.shape[0]):
        p[i] = scales[i] ** 0.5 * normals[i]
