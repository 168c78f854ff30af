"""A diagonal mass matrix whose entries depend on earlier coordinates: explicit Riemannian HMC.

Each coordinate i has a few earlier coordinates as *parents*. Its mass is a sum of exponentials that are log-linear in them:

    M_i(q) = sum_k e_ki,     e_ki = exp(a_ki + sum_p c_kpi q_j(p,i)),     j(p, i) the parents of i

    phi = -L(q) + 1/2 sum_i log M_i,     tau = 1/2 sum_i p_i^2 / M_i,     v_i = p_i / M_i,     p_i = M_i^1/2 z_i

The parents define an order: the *level* of a coordinate without parents is 0, and all others have a level above those of their
parents. With the slopes s_pi = d log M_i / dq_j(p,i) = sum_k c_kpi e_ki / M_i, each coordinate i adds to its parents

    d phi / dq_j(p,i) += 1/2 s_pi,           d tau / dq_j(p,i) -= 1/2 s_pi p_i v_i

The flow of the terms of tau of one level is known in closed form, so that :mod:`refhmc.integrators.block_leapfrog` is explicit.
Kailas, Vihola and Wallin (2026), arXiv 2604.09832.

The precision of a coordinate given its parents is often such a sum. In the funnel, x_i | v has the precision e^v. In the
centred eight schools, theta_i | log tau has 1/s_i^2 + exp(-2 log tau): one constant term from the likelihood and one from the
prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import array_of_numbers
from refhmc.core.protocols import Model
from refhmc.core.types import as_work
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import HIERARCHY, ArrayModel, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

views = HIERARCHY.views
# After the rows of a hierarchy: constants (K, d), parents (P, d), slopes (P, d), coefficients (K P, d).
FIRST = HIERARCHY.n_vectors


@dataclass(frozen=True, eq=False)
class Hierarchical(Riemannian):
    """Diagonal mass matrix whose entries depend on earlier coordinates, for explicit Riemannian HMC.

    With K terms and at most P parents per coordinate, the mass of coordinate i, the velocity, the momentum from standard
    normals z and the Hamiltonian are::

        M_i(q) = sum_k exp(a_ki + sum_p c_kpi q_j(p,i)),    j(p, i) the parents of i
        v_i = p_i / M_i,    p_i = M_i^(1/2) z_i
        H(q, p) = -L(q) + 1/2 sum_i log M_i(q) + 1/2 sum_i p_i^2 / M_i(q)

    The parents must not form a cycle. The default integrator is :class:`refhmc.integrators.BlockLeapfrog`, which is explicit,
    symplectic and reversible, and needs one gradient per step. The metric needs no derivative of the model except the
    gradient.

    Parameters
    ----------
    constants : array_like, shape (K, d)
        The constants a of the exponents. ``-inf`` leaves out a term.
    parents : array_like of int, shape (P, d), optional
        Indices of the parents of each coordinate. By default there are none, and the metric is constant. If a coordinate has
        fewer than P parents, the other indices have no meaning, and their coefficients are 0.
    coefficients : array_like, shape (K, P, d), optional
        The coefficients c of the exponents. Needed if `parents` is given.

    Raises
    ------
    refhmc.errors.ShapeError
        If the arrays do not fit each other, or the model when `refhmc.sample` is called.
    refhmc.errors.MetricError
        If a number is not finite (except ``-inf`` in `constants`), if a coordinate has no term, if an index is out of range,
        if only one of `parents` and `coefficients` is given, or if the parents form a cycle.

    See Also
    --------
    refhmc.integrators.BlockLeapfrog : The explicit integrator for this metric.
    Fisher : The Fisher metric of the model.

    References
    ----------
    Kailas, Vihola and Wallin (2026), arXiv 2604.09832.

    Examples
    --------
    The funnel, v ~ N(0, 9) and x_i | v ~ N(0, exp(-v)), has the masses 1/9 + n/2 for v and exp(v) for x:

    >>> import numpy as np
    >>> import refhmc
    >>> n = 10
    >>> constants = np.r_[np.log(1 / 9 + n / 2), np.zeros(n)]
    >>> parents, coefficients = np.zeros(n + 1, int), np.r_[0.0, np.ones(n)]
    >>> metric = refhmc.metrics.Hierarchical(constants[None], parents[None], coefficients[None, None])
    >>> metric.levels()
    array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(n), metric)
    >>> np.diag(H.mass(np.full(n + 1, -2.0)))[:2].round(4)
    array([5.1111, 0.1353])
    """

    name = "hierarchical"
    constants: ArrayLike
    parents: ArrayLike | None = None
    coefficients: ArrayLike | None = None
    reads = (None, None)
    layout = HIERARCHY
    is_dense = False

    def __post_init__(self) -> None:
        a = array_of_numbers("constants", self.constants, MetricError)
        if a.ndim != 2 or 0 in a.shape:
            raise ShapeError(f"constants must have shape (K, d); got {a.shape}.")
        if np.any(np.isnan(a) | (a == np.inf)):
            raise MetricError("constants must be finite, or -inf to leave out a term; got NaN or inf.")
        none = np.isneginf(a).all(axis=0)
        if none.any():
            raise MetricError(
                f"constants must have a finite term for each coordinate; got none for {int(none.argmax())}."
            )
        if (self.parents is None) != (self.coefficients is None):
            raise MetricError(
                "parents and coefficients must both be given, or neither; got only one. Give the other, too."
            )
        if self.parents is not None:
            check_parents(self.parents, self.coefficients, *a.shape)
        self.levels()

    @property
    def exponents(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The constants a (K, d), the parents j (P, d) and the coefficients c (K, P, d)."""
        a = np.asarray(self.constants, dtype=float)
        K, d = a.shape
        if self.parents is None:
            return a, np.zeros((0, d), int), np.zeros((K, 0, d))
        return a, np.asarray(self.parents), np.asarray(self.coefficients, dtype=float)

    def levels(self, model: Model | None = None) -> np.ndarray:
        """Return the level of each coordinate in the hierarchy.

        Parameters
        ----------
        model : Model, optional
            The model. The levels of this metric do not depend on it.

        Returns
        -------
        ndarray of int, shape (d,)
            0 for a coordinate with a constant mass, and otherwise one more than the largest level of its parents.

        Raises
        ------
        refhmc.errors.MetricError
            If the parents form a cycle.
        """
        a, parents, c = self.exponents
        matters, level = np.any(c != 0, axis=0), np.zeros(a.shape[1], int)
        for _ in range(len(level) + 1):
            above = np.max(np.where(matters, level[parents] + 1, 0), axis=0, initial=0)
            if np.array_equal(above, level):
                return level
            level = above
        raise MetricError(
            f"parents must not form a cycle; got one through coordinate {int(level.argmax())}. A mass may depend on "
            "earlier coordinates only."
        )

    def hyperparameters(self, model: Model | None = None) -> np.ndarray:
        """Return which coordinates are parents of others.

        Parameters
        ----------
        model : Model, optional
            The model. The parents of this metric do not depend on it.

        Returns
        -------
        ndarray of bool, shape (d,)
            True for a coordinate on which another mass depends.
        """
        a, parents, c = self.exponents
        return np.isin(np.arange(a.shape[1]), parents[np.any(c != 0, axis=0)])

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        (a, parents, c), d = self.exponents, model.dim
        if a.shape[1] != d:
            raise ShapeError(f"constants must have one column per coordinate of the model, {d}; got {a.shape[1]}.")
        rows = [np.zeros((FIRST, d)), a, parents, np.zeros(parents.shape), c.reshape(-1, d)]
        return np.concatenate(rows), np.zeros((0, d, d))

    def options(self) -> dict[str, float]:
        K, P, _ = self.exponents[2].shape
        return {"n_terms": K, "n_parents": P}

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
        return HierarchicalOnArrays(model, self)


def check_parents(parents: ArrayLike, coefficients: ArrayLike | None, K: int, d: int) -> None:
    """Raise ShapeError or MetricError for invalid parents or coefficients of K terms and d coordinates."""
    j, c = np.asarray(parents), array_of_numbers("coefficients", coefficients, MetricError)
    if j.ndim != 2 or j.shape[1] != d:
        raise ShapeError(f"parents must have shape (P, {d}); got {j.shape}.")
    if j.dtype.kind not in "iu" or np.any(j < 0) or np.any(j >= d):
        raise MetricError(f"parents must be indices from 0 to {d - 1}; got {j.tolist()}.")
    if c.shape != (K, *j.shape):
        raise ShapeError(f"coefficients must have shape {(K, *j.shape)}; got {c.shape}.")
    if not np.isfinite(c).all():
        raise MetricError("coefficients must be finite; got entries that are not finite.")


class HierarchicalOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d); a matrix of zeros and ones gathers the parents of all coordinates."""

    @batched.kept
    def constants(self, q: Array) -> tuple[Array, Array, Array]:
        """Return a (K, d), c (K, P, d) and J (d, P d), with q J = (q_j(1,1), ..., q_j(1,d), q_j(2,1), ...)."""
        xp, d = batched.namespace(q), q.shape[-1]
        a, parents, c = self.metric.exponents
        a, c, J = (xp.asarray(each, dtype=q.dtype) for each in (a, c, np.eye(d)[:, parents.ravel()]))
        return a, c, J

    @batched.once
    def masses_and_slopes(self, q: Array) -> tuple[Array, Array]:
        """Return M (..., d) and its slopes s (..., P, d)."""
        xp, (a, c, J) = batched.namespace(q), self.constants(q)
        at = xp.reshape(q @ J, (*q.shape[:-1], *c.shape[1:]))
        e = xp.exp(a + xp.sum(c * at[..., None, :, :], axis=-2))  # (..., K, d)
        M = xp.sum(e, axis=-2)
        return M, xp.sum(c * e[..., :, None, :], axis=-3) / M[..., None, :]

    def to_parents(self, q: Array, x: Array) -> Array:
        """Return sum_pi x_i s_pi for each parent j(p, i), (..., d)."""
        xp, J = batched.namespace(q), self.constants(q)[2]
        weighted = x[..., None, :] * self.masses_and_slopes(q)[1]
        return xp.reshape(weighted, (*q.shape[:-1], J.shape[1])) @ batched.transpose(J)

    def mass(self, q: Array) -> Array:
        return batched.diagonal_matrix(self.scales(q))

    def scales(self, q: Array) -> Array:
        return self.masses_and_slopes(q)[0]

    def inverse_product(self, q: Array, p: Array) -> Array:
        return p / self.scales(q)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.scales(q)), axis=-1)

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q) - 0.5 * self.to_parents(q, 0.0 * q + 1.0)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return 0.5 * self.to_parents(q, p * self.inverse_product(q, p))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.scales(q) ** 0.5 * normals


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute the masses and their slopes at the metric's position; return False if a mass is not positive and finite."""
    vecs, mats, options, cache, _, _ = as_work(work)
    w, K, P = views(work), options.n_terms, options.n_parents
    parents, slopes, coefficients = FIRST + K, FIRST + K + P, FIRST + K + 2 * P
    cache.log_det_weight = 0.5
    for i in range(w.scales.shape[0]):
        mass = 0.0
        for p in range(P):
            vecs[slopes + p, i] = 0.0
        for k in range(K):
            exponent = vecs[FIRST + k, i]
            for p in range(P):
                exponent += vecs[coefficients + k * P + p, i] * w.position[int(vecs[parents + p, i])]
            e = math.exp(exponent)
            mass += e
            for p in range(P):
                vecs[slopes + p, i] += vecs[coefficients + k * P + p, i] * e
        if not 0 < mass < math.inf:
            return False
        w.scales[i] = mass
        for p in range(P):
            vecs[slopes + p, i] /= mass
    return True


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = M^-1 p."""
    w = views(work)
    for i in range(p.shape[0]):
        out[i] = p[i] / w.scales[i]


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = M^-1 p, and phi dphi/dq + tau dtau/dq."""
    vecs, mats, options, _, _, _ = as_work(work)
    w, K, P = views(work), options.n_terms, options.n_parents
    inverse_product(p, work, v)
    if phi != 0:
        log_density_at_metric(model, work)
    for i in range(p.shape[0]):
        dH_dq[i] = -phi * w.gradient[i] if phi != 0 else 0.0
    for k in range(P):
        parents, slopes = vecs[FIRST + K + k], vecs[FIRST + K + P + k]
        for i in range(p.shape[0]):
            dH_dq[int(parents[i])] += 0.5 * slopes[i] * (phi - tau * p[i] * v[i])


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, M) from standard normals."""
    w = views(work)
    for i in range(p.shape[0]):
        p[i] = math.sqrt(w.scales[i]) * normals[i]
