"""The Fisher metric: G(q) = E[-d^2 log p(y | q)] + prior precision, as the model defines it.

    G = L D L' (L unit lower),     v = L^-T D^-1 L^-1 p,     1/2 log det G = 1/2 sum_i log D_i,     p = L D^1/2 z ~ N(0, G)
    dphi/dq_k + dtau/dq_k = -dL/dq_k + tr(M dG/dq_k),     M = 1/2 (G^-1 - v v')

so that one contraction by the model, O(n d^2) for a regression, gives the whole force. Girolami and Calderhead (2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.point import copy_row
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.errors import MetricError
from refhmc.metrics import bordered
from refhmc.metrics.base import HIERARCHY, ArrayModel, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import factorise_ldl, invert_ldl, is_indefinite, solve_ldl

# ``scales`` is 1/D.
LAYOUT = Layout("", "G L inverse M", after=HIERARCHY)
views = LAYOUT.views


@dataclass(frozen=True)
class Fisher(Riemannian):
    """Fisher information plus prior precision, as the model defines it.

    With the factorisation ``G = L D L'``, the metric, the velocity, the momentum from standard normals z and the force are::

        G(q) = E[-d^2 log p(y | q)] + prior precision
        v = G^-1 p,    p = L D^(1/2) z,    1/2 log det G = 1/2 sum_i log D_i
        dphi/dq_k + dtau/dq_k = -dL/dq_k + tr(M dG/dq_k),    M = 1/2 (G^-1 - v v')

    The model needs ``fisher`` and ``fisher_contraction``. One contraction, O(n d^2) for a regression with n observations, gives
    the whole force. A position at which G is not positive definite is a divergence. A factorisation costs O(d^3), or O(d) for
    `StochasticVolatility`, whose metric is tridiagonal except for one row and column.

    See Also
    --------
    SoftAbs : A metric from the Hessian, which is positive definite everywhere.

    References
    ----------
    Girolami and Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Banana()
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.Fisher())
    >>> H.mass([0.5, 0.5]).shape
    (2, 2)
    """

    name = "fisher"
    reads = ("fisher", "fisher_contraction")
    layout = LAYOUT

    def levels(self, model: Model) -> np.ndarray:
        """Return the level of each coordinate in the hierarchy of the model's Fisher metric.

        Parameters
        ----------
        model : Model
            The model.

        Returns
        -------
        ndarray of int, shape (d,)
            Blocks of equal level depend only on coordinates of lower levels.

        Raises
        ------
        refhmc.errors.MetricError
            If the model does not declare `fisher_levels`.
        """
        if model.fisher_levels is None:
            raise MetricError(
                f"The Fisher metric of {model.name} is not declared to be hierarchical, which BlockLeapfrog needs. Give "
                "refhmc.Model(fisher_levels=...), or use ImplicitMidpoint."
            )
        return model.fisher_levels

    def hyperparameters(self, model: Model) -> np.ndarray:
        """Return which coordinates are below the top level of the hierarchy.

        Parameters
        ----------
        model : Model
            The model.

        Returns
        -------
        ndarray of bool, shape (d,)
            False everywhere if the model does not declare `fisher_levels`.
        """
        levels = np.zeros(model.dim, int) if model.fisher_levels is None else model.fisher_levels
        return levels < levels.max()

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def for_model(self, model: Model) -> Fisher:
        """Return the metric with compiled functions that use the pattern of the model's matrices.

        Parameters
        ----------
        model : Model
            The model.

        Returns
        -------
        Fisher
            The metric itself, unless the model declares `fisher_border`. A subclass keeps its own functions.
        """
        return self if model.fisher_border is None or type(self) is not Fisher else BorderedFisher()

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
        return FisherOnArrays(model, self)


class BorderedFisher(Fisher):
    """The same metric for a model in which it is tridiagonal except for one row and column (:mod:`refhmc.metrics.bordered`)."""

    reads = ("bordered_fisher", "bordered_contraction")
    layout = bordered.LAYOUT

    @property
    def geometry(self) -> tuple:
        return bordered.factorise, bordered.inverse_product, bordered.velocity_and_force, bordered.draw

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        vecs, mats = super().stacks(model, leapfrog)
        vecs[int(self.layout.vectors["border"])] = model.fisher_border
        return vecs, mats


class FisherOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d); C = L D^1/2 is the Cholesky factor of G."""

    def mass(self, q: Array) -> Array:
        return self.model.fisher(q)

    @batched.once
    def factor(self, q: Array) -> Array:
        """Return the Cholesky factor C of G."""
        return batched.cholesky(self.mass(q))

    def indefinite(self, q: Array) -> Array:
        """Return whether G is finite and has a negative eigenvalue that is more than rounding, (...)."""
        xp, values = batched.namespace(q), batched.eigh(self.mass(q))[0]
        return xp.min(values, axis=-1) < -q.shape[-1] * batched.LAST_BITS * xp.max(xp.abs(values), axis=-1)

    def scales(self, q: Array) -> Array:
        return batched.namespace(q).linalg.diagonal(self.factor(q)) ** 2

    def inverse_product(self, q: Array, p: Array) -> Array:
        C = self.factor(q)
        return batched.solve(batched.transpose(C), batched.solve(C, p))

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return xp.sum(xp.log(xp.linalg.diagonal(self.factor(q))), axis=-1)

    def potential_force(self, q: Array) -> Array:
        inverse_C = batched.namespace(q).linalg.inv(self.factor(q))
        return self.model.gradient(q) - self.model.fisher_contraction(q, 0.5 * batched.transpose(inverse_C) @ inverse_C)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        v = self.inverse_product(q, p)
        return self.model.fisher_contraction(q, 0.5 * batched.outer(v, v))

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        inverse_C = batched.namespace(q).linalg.inv(self.factor(q))
        v = batched.times(batched.transpose(inverse_C), batched.times(inverse_C, p))
        M = 0.5 * (batched.transpose(inverse_C) @ inverse_C - batched.outer(v, v))
        return v, self.model.gradient(q) - self.model.fisher_contraction(q, M)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return batched.times(self.factor(q), normals)


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute G at the metric's position and its factors; return False if it has none.

    DIVERGED is noted if G is indefinite.
    """
    vecs, mats, _, cache, _, status = as_work(work)
    f, w = as_model(model), views(work)
    f.metric(w.position, f.data, w.G)
    cache.log_det_weight = -0.5
    if factorise_ldl(w.G, w.L, w.scales):
        return True
    if is_indefinite(w.G, w.L, w.scales):
        status.failure = S.DIVERGED
    return False


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    w = views(work)
    copy_row(out, p)
    solve_ldl(w.L, w.scales, out)


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction."""
    vecs, mats, _, cache, counters, _ = as_work(work)
    f, w, d = as_model(model), views(work), p.shape[0]
    inverse_product(p, work, v)
    if phi != 0 and cache.has_force == 0:
        invert_ldl(w.L, w.scales, w.inverse)
        cache.has_force = 1
    for i in range(d):
        scaled = -0.5 * tau * v[i]
        for j in range(d):
            w.M[i, j] = scaled * v[j] + (0.5 * phi * w.inverse[i, j] if phi != 0 else 0.0)
    f.hessian_contraction(w.position, f.data, w.M, dH_dq)
    counters.contractions += 1
    if phi != 0:
        log_density_at_metric(model, work)
        for i in range(d):
            dH_dq[i] -= phi * w.gradient[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    w = views(work)
    for i in range(p.shape[0]):
        p[i] = normals[i] / w.scales[i] ** 0.5
    for i in range(p.shape[0] - 1, -1, -1):
        for j in range(i):
            p[i] += w.L[i, j] * p[j]
