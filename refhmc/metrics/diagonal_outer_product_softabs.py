"""SoftAbs of the squared gradient: G = diag(f(g_i^2)), g = dL/dq, f(x) = x coth(alpha x); Betancourt (2013), app. A.3.

    v_i = p_i / f_i,      1/2 log det G = 1/2 sum_i log f_i,      p_i = f_i^1/2 z_i
    dphi/dq + dtau/dq = -g + H m,      m_i = g_i f'(g_i^2) (1/f_i - v_i^2),      H the Hessian of L

The cost is O(d^2), without a third derivative. The Hessian is read in the force only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import positive
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import SHARED, ArrayModel, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.metrics.softabs_function import soft, soft_derivative, softabs, softabs_derivative
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import symmetric_times

# ``scales`` is f.
LAYOUT = Layout("m product", "hessian", after=SHARED)
views = LAYOUT.views


@dataclass(frozen=True)
class DiagonalOuterProductSoftAbs(Riemannian):
    """SoftAbs of the squared components of the gradient, a diagonal metric.

    With g = dL/dq and ``f(x) = x coth(alpha x)``, the metric, the velocity, the momentum from standard normals z and the force
    are::

        G(q) = diag(f(g_i^2)),    v_i = p_i / f_i,    p_i = f_i^(1/2) z_i,    1/2 log det G = 1/2 sum_i log f_i
        dphi/dq + dtau/dq = -g + H m,    m_i = g_i f'(g_i^2) (1/f_i - v_i^2),    H the Hessian of L

    The model needs its Hessian, which is read in the force only, and no third derivative. The cost is O(d^2) per evaluation.

    Parameters
    ----------
    alpha : float, default 1.0
        Sharpness of the smoothed absolute value. No eigenvalue of the metric is below 1/alpha.

    Raises
    ------
    ValueError
        If `alpha` is not positive and finite.

    See Also
    --------
    OuterProductSoftAbs : SoftAbs of the outer product of the gradient with itself.
    DiagonalSoftAbs : SoftAbs of the diagonal of the Hessian.

    References
    ----------
    Betancourt (2013), A general metric for Riemannian manifold Hamiltonian Monte Carlo, appendix A.3.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.DiagonalOuterProductSoftAbs())
    >>> H.mass([1.0, 4.0]).round(3)
    array([[1.313, 0.   ],
           [0.   , 1.313]])
    """

    name = "diagonal_outer_product_softabs"
    alpha: float = 1.0
    is_dense = False
    reads = ("hessian", None)
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
        return DiagonalOuterProductSoftAbsOnArrays(model, self)


class DiagonalOuterProductSoftAbsOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d)."""

    def eigenvalues(self, q: Array) -> Array:
        """Return f(g_i^2), (..., d)."""
        return softabs(self.model.gradient(q) ** 2, self.metric.alpha)

    def weighted(self, q: Array, w: Array) -> Array:
        """Return H m with m_i = g_i f'(g_i^2) w_i."""
        g = self.model.gradient(q)
        return batched.times(self.model.hessian(q), g * softabs_derivative(g**2, self.metric.alpha) * w)

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
        return self.model.gradient(q) - self.weighted(q, 1 / self.eigenvalues(q))

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return self.weighted(q, self.inverse_product(q, p) ** 2)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.eigenvalues(q) ** 0.5 * normals


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute g and f at the metric's position; return False if f is not finite."""
    vecs, mats, options, cache, _, _ = as_work(work)
    w = views(work)
    log_density_at_metric(model, work)
    finite = True
    for i in range(vecs.shape[1]):
        w.scales[i] = soft(w.gradient[i] ** 2, options.alpha)
        finite = finite and math.isfinite(w.scales[i])
    cache.log_det_weight = 0.5
    return finite


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    scales = views(work).scales
    for i in range(p.shape[0]):
        out[i] = p[i] / scales[i]


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq from a product with the Hessian."""
    vecs, mats, options, cache, _, _ = as_work(work)
    of_model, w = as_model(model), views(work)
    g, f, m = w.gradient, w.scales, w.m
    if cache.has_force == 0:
        of_model.metric(w.position, of_model.data, w.hessian)
        cache.has_force = 1
    for i in range(p.shape[0]):
        v[i] = p[i] / f[i]
        m[i] = g[i] * soft_derivative(g[i] ** 2, options.alpha) * (phi / f[i] - tau * v[i] * v[i])
    symmetric_times(w.hessian, m, w.product)
    for i in range(p.shape[0]):
        dH_dq[i] = w.product[i] - phi * g[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    scales = views(work).scales
    for i in range(p.shape[0]):
        p[i] = scales[i] ** 0.5 * normals[i]
