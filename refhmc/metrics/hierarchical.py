"""A mass matrix whose scales depend on earlier coordinates: explicit Riemannian HMC.

Each coordinate i has a few earlier coordinates as *parents*. Its scale is a sum of exponentials that are log-linear in them:

    M_i(q) = sum_k e_ki,     e_ki = exp(a_ki + sum_p c_kpi q_j(p,i)),     j(p, i) the parents of i

and the mass matrix is M = D^1/2 C D^1/2 with D = diag(M_1, ..., M_d). C is constant, the identity or the inverse of
I + U'(Lambda - I) U with k orthonormal rows u_j, so that M^-1 has the correlations of a metric of low rank. With z standard
normal, ::

    phi = -L(q) + 1/2 sum_i log M_i,     tau = 1/2 p'v,     v = D^-1/2 C^-1 D^-1/2 p,     p = D^1/2 C^1/2 z

The parents define an order: the *level* of a coordinate without parents is 0, and all others have a level above those of their
parents. With the slopes s_pi = d log M_i / dq_j(p,i) = sum_k c_kpi e_ki / M_i, each coordinate i adds to its parents

    d phi / dq_j(p,i) += 1/2 s_pi,           d tau / dq_j(p,i) -= 1/2 s_pi p_i v_i

since v' dM v = 2 v' dD^1/2 C D^1/2 v = 2 sum_i v_i (1/2 d log M_i) p_i. Each u_j must be zero outside one level. Then M is
block diagonal, and the block of a level depends on lower levels only. The flow of the terms of tau of one level is known in
closed form, so that :mod:`refhmc.integrators.block_leapfrog` is explicit. Kailas, Vihola and Wallin (2026), arXiv 2604.09832.

The precision of a coordinate given its parents is often such a sum. In the funnel, x_i | v has the precision e^v. In the
centred eight schools, theta_i | log tau has 1/s_i^2 + exp(-2 log tau): one constant term from the likelihood and one from the
prior. :mod:`refhmc.adaptation.hierarchy` learns parents and numbers from draws and gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_inline
from refhmc.core.arguments import array_of_numbers
from refhmc.core.protocols import Model
from refhmc.core.types import as_work
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import (
    FROM_PAIRS,
    HIERARCHY,
    NOTHING,
    ArrayModel,
    HamiltonianOnArrays,
    Riemannian,
    log_density_at_metric,
)
from refhmc.metrics.low_rank import LowRank
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

views = HIERARCHY.views
# After the rows of a hierarchy: constants (K, d), parents (P, d), slopes (P, d), coefficients (K P, d); M^-1/2; lambda - 1,
# lambda^-1/2 - 1 and the number k of directions; then the directions.
FIRST = HIERARCHY.n_vectors
OTHERS = 4
TERMS, PARENTS = 2, 3  # rows of a metric that warm-up learns
WIDEST, MOST_OF_MANY = 200, 20  # the dimension above which it has at most so many directions


@dataclass(frozen=True, eq=False)
class Hierarchical(Riemannian):
    """Mass matrix whose scales depend on earlier coordinates, for explicit Riemannian HMC.

    With K terms and at most P parents per coordinate, the scales, the mass matrix, the momentum from standard normals z and the
    Hamiltonian are::

        M_i(q) = sum_k exp(a_ki + sum_p c_kpi q_j(p,i)),    j(p, i) the parents of i
        M = D^(1/2) C D^(1/2),    D = diag(M_1, ..., M_d),    C = (I + U'(Lambda - I) U)^-1
        p = D^(1/2) C^(1/2) z
        H(q, p) = -L(q) + 1/2 sum_i log M_i(q) + 1/2 p' M(q)^-1 p

    Without `directions` the mass matrix is diagonal. The parents must not form a cycle. The default integrator is
    :class:`refhmc.integrators.BlockLeapfrog`, which is explicit, symplectic and reversible, and needs one gradient per step.
    The metric needs no derivative of the model except the gradient.

    Without values, warm-up learns which coordinates scale which, and how, from draws and gradients. A chain starts with
    :class:`LowRank` and the leapfrog. It changes to the learned hierarchical metric and its integrator if squared gradients
    depend on other coordinates so much that these cannot move freely, and stays with the learned ``LowRank`` if they do not,
    or if that describes the gradients better.

    Parameters
    ----------
    constants : array_like, shape (K, d), optional
        The constants a of the exponents. ``-inf`` leaves out a term. By default the metric is learned in warm-up.
    parents : array_like of int, shape (P, d), optional
        Indices of the parents of each coordinate. By default there are none, and the metric is constant. If a coordinate has
        fewer than P parents, the other indices have no meaning, and their coefficients are 0.
    coefficients : array_like, shape (K, P, d), optional
        The coefficients c of the exponents. Needed if `parents` is given.
    directions : array_like, shape (k, d), optional
        Orthonormal rows of U. Each must be zero outside the coordinates of one level.
    eigenvalues : array_like, shape (k,), optional
        The diagonal of Lambda, positive. Needed if `directions` is given.
    blocks : sequence of sequences of str, optional
        Names of variables in the order of the hierarchy, for a metric that is learned: a mass may depend only on variables of
        earlier blocks. Variables that are not named belong to the last block. By default all orders are possible, but if
        the model has `parents`, a scale depends only on variables of the same or a lower depth. An unknown name is a ValueError
        when `refhmc.sample` is called.

    Raises
    ------
    refhmc.errors.ShapeError
        If the arrays do not fit each other, or the model when `refhmc.sample` is called.
    refhmc.errors.MetricError
        If a number is not finite (except ``-inf`` in `constants`), if a coordinate has no term, if an index is out of range,
        if only one of `parents` and `coefficients` is given, if the parents form a cycle, if the directions are not
        orthonormal or belong to several levels, if eigenvalues are not positive, or if `blocks` is given with values.

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
    constants: ArrayLike | None = None
    parents: ArrayLike | None = None
    coefficients: ArrayLike | None = None
    directions: ArrayLike | None = None
    eigenvalues: ArrayLike | None = None
    blocks: Sequence[Sequence[str]] | None = None
    reads = (None, None)
    layout = HIERARCHY
    is_dense = False
    learned_values = "constants", "parents", "coefficients", "directions", "eigenvalues"

    def __post_init__(self) -> None:
        if self.constants is None:
            if any(getattr(self, name) is not None for name in self.learned_values):
                raise MetricError("constants must be given with the other values; got None.")
            for block in self.blocks or ():
                if isinstance(block, str) or not all(isinstance(name, str) for name in block):
                    raise MetricError(
                        f"blocks must be lists of names, such as [['log_tau'], ['theta']]; got {block!r} among them."
                    )
            return
        if self.blocks is not None:
            raise MetricError("blocks is for a metric that is learned; got constants, too. Leave out one of them.")
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
        check_directions(self.low_rank(a.shape[1]), self.levels())

    @property
    def learns(self) -> int:  # type: ignore[override]
        """How warm-up learns the metric, as a code of `refhmc.metrics.base`."""
        return FROM_PAIRS if self.constants is None else NOTHING

    @property
    def exponents(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The constants a (K, d), the parents j (P, d) and the coefficients c (K, P, d)."""
        a = np.asarray(self.constants, dtype=float)
        K, d = a.shape
        if self.parents is None:
            return a, np.zeros((0, d), int), np.zeros((K, 0, d))
        return a, np.asarray(self.parents), np.asarray(self.coefficients, dtype=float)

    def low_rank(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the directions and their eigenvalues.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        rows : ndarray, shape (k, d)
            The orthonormal rows u_j.
        eigenvalues : ndarray, shape (k,)
            The eigenvalues lambda_j.

        Raises
        ------
        ValueError
            If only one of the two is given.
        refhmc.errors.ShapeError, refhmc.errors.MetricError
            If they do not fit the dimension, or are not orthonormal and positive.
        """
        return LowRank(1.0, self.directions, self.eigenvalues).low_rank(dim)

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
        _, parents, c = self.exponents
        return levels_of(parents, np.any(c != 0, axis=0))

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

    def masses(self, q: ArrayLike) -> np.ndarray:
        """Return the diagonal of the mass matrix.

        Parameters
        ----------
        q : array_like, shape (..., d)
            Positions.

        Returns
        -------
        ndarray, shape (..., d)
            The masses M_i.
        """
        a, parents, c = self.exponents
        at = np.asarray(q, dtype=float)[..., parents]  # (..., P, d)
        return np.sum(np.exp(a + np.sum(c * at[..., None, :, :], axis=-2)), axis=-2)

    def constant_masses(self) -> np.ndarray:
        """Return the masses of coordinates without parents.

        Returns
        -------
        ndarray, shape (d,)
            The masses M_i; 0 for coordinates with parents.
        """
        a, _, c = self.exponents
        return np.where(np.any(c != 0, axis=(0, 1)), 0.0, np.sum(np.exp(a), axis=0))

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        a, d = self.exponents[0], model.dim
        if a.shape[1] != d:
            raise ShapeError(f"constants must have one column per coordinate of the model, {d}; got {a.shape[1]}.")
        return np.concatenate([np.zeros((FIRST, d)), self.rows(d)]), np.zeros((0, d, d))

    def rows(self, dim: int) -> np.ndarray:
        """Return the rows of the compiled implementation that contain the values.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        ndarray, shape (k, d)
            The rows.
        """
        (a, parents, c), (U, eigenvalues) = self.exponents, self.low_rank(dim)
        others, k = np.zeros((OTHERS, dim)), len(U)
        others[1, :k], others[2, :k], others[3] = eigenvalues - 1, eigenvalues**-0.5 - 1, k
        return np.concatenate([a, parents, np.zeros(parents.shape), c.reshape(-1, dim), others, U])

    def from_rows(self, vectors: np.ndarray, matrices: np.ndarray) -> Self:
        """Return this metric with the values in its rows.

        Parameters
        ----------
        vectors : ndarray, shape (k, d)
            Rows of the metric.
        matrices : ndarray, shape (0, d, d)
            Nothing.

        Returns
        -------
        Hierarchical
            The metric with these values, which are copied.

        Raises
        ------
        refhmc.errors.MetricError
            If the values are invalid.
        """
        K, P, _ = self.exponents[2].shape
        a, parents, _, c, others, U = np.split(vectors[FIRST:], np.cumsum([K, P, P, K * P, OTHERS]))
        d, rank = vectors.shape[1], others[3, 0]
        if not 0 <= rank <= len(U):
            raise MetricError(f"The number of directions must be at most {len(U)}; got {rank}.")
        k = int(rank)
        return replace(
            self,
            constants=a.copy(),
            parents=parents.astype(int),
            coefficients=c.reshape(K, P, d).copy(),
            directions=U[:k].copy(),
            eigenvalues=1 + others[1, :k],
        )

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


def levels_of(parents: np.ndarray, matters: np.ndarray) -> np.ndarray:
    """Return the level of each coordinate, (d,), from its parents (P, d) and which of them there are.

    Raises MetricError if they form a cycle.
    """
    level = np.zeros(parents.shape[1], int)
    for _ in range(len(level) + 1):
        above = np.max(np.where(matters, level[parents] + 1, 0), axis=0, initial=0)
        if np.array_equal(above, level):
            return level
        level = above
    raise MetricError(
        f"parents must not form a cycle; got one through coordinate {int(level.argmax())}. A mass may depend on "
        "earlier coordinates only."
    )


def most_directions(d: int) -> int:
    """Return how many directions a metric that is learned may have."""
    return d if d <= WIDEST else MOST_OF_MANY


def identity(d: int) -> Hierarchical:
    """Return the identity with the terms and parents of a metric that is learned, and as many directions as it may have."""
    a, parents, most = np.stack([np.full(d, -np.inf), np.zeros(d)]), np.zeros((PARENTS, d), int), most_directions(d)
    return Hierarchical(a, parents, np.zeros((TERMS, PARENTS, d)), np.eye(most, d), np.ones(most))


def without_parents(metric: LowRank) -> Hierarchical:
    """Return a metric of low rank with the terms and parents of a metric that is learned."""
    U, eigenvalues, variances = metric.directions, metric.eigenvalues, np.asarray(metric.variances)
    a = np.stack([np.full(len(variances), -np.inf), -np.log(variances)])
    return replace(identity(len(variances)), constants=a, directions=U, eigenvalues=eigenvalues)


def check_directions(directions: tuple[np.ndarray, np.ndarray], levels: np.ndarray) -> None:
    """Raise MetricError if a direction has coordinates of several levels."""
    for j, u in enumerate(directions[0]):
        of = np.unique(levels[u != 0])
        if len(of) > 1:
            raise MetricError(f"directions must be zero outside one level; got levels {of.tolist()} in row {j}.")


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
        return batched.times(
            J, xp.reshape(weighted, (*q.shape[:-1], J.shape[1]))
        )  # chain by chain: the same in any batch

    @batched.kept
    def low_rank(self, q: Array) -> tuple[Array, Array]:
        """Return U' (d, k) and lambda (k,)."""
        xp, (U, eigenvalues) = batched.namespace(q), self.metric.low_rank(q.shape[-1])
        return xp.asarray(np.ascontiguousarray(U.T), dtype=q.dtype), xp.asarray(eigenvalues, dtype=q.dtype)

    def times(self, q: Array, x: Array, power: float) -> Array:
        """Return (I + U'(Lambda^power - I) U) x."""
        V, eigenvalues = self.low_rank(q)
        return x if V.shape[1] == 0 else x + ((x @ V) * (eigenvalues**power - 1)) @ batched.transpose(V)

    def mass(self, q: Array) -> Array:
        root = self.scales(q) ** 0.5
        C = self.times(q, batched.diagonal_matrix(0.0 * q + 1.0), -1.0)
        return root[..., :, None] * C * root[..., None, :]

    def scales(self, q: Array) -> Array:
        return self.masses_and_slopes(q)[0]

    def inverse_product(self, q: Array, p: Array) -> Array:
        root = self.scales(q) ** 0.5
        return self.times(q, p / root, 1.0) / root

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.scales(q)), axis=-1)

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q) - 0.5 * self.to_parents(q, 0.0 * q + 1.0)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return 0.5 * self.to_parents(q, p * self.inverse_product(q, p))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.scales(q) ** 0.5 * self.times(q, normals, -0.5)


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
            if exponent == -math.inf:
                continue
            for p in range(P):
                exponent += vecs[coefficients + k * P + p, i] * w.position[int(vecs[parents + p, i])]
            e = math.exp(exponent)
            mass += e
            for p in range(P):
                vecs[slopes + p, i] += vecs[coefficients + k * P + p, i] * e
        if not 0 < mass < math.inf:
            return False
        w.scales[i] = mass
        vecs[coefficients + K * P, i] = 1 / math.sqrt(mass)
        for p in range(P):
            vecs[slopes + p, i] /= mass
    return True


@jit_inline
def first_direction(work: tuple) -> int:
    """Return the row of the first direction; those before it are lambda - 1, lambda^-1/2 - 1, k, and one earlier M^-1/2."""
    options = as_work(work).options
    return FIRST + options.n_terms + 2 * options.n_parents + options.n_terms * options.n_parents + OTHERS


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = M^-1 p."""
    vecs, first = as_work(work).vecs, first_direction(work)
    root, spread = vecs[first - 4], vecs[first - 3]
    for i in range(p.shape[0]):
        out[i] = p[i] * root[i]
    for k in range(int(vecs[first - 1, 0])):  # one after another: u_j . out is not changed by the others
        u = vecs[first + k]
        along = spread[k] * dot(u, out)
        for i in range(p.shape[0]):
            out[i] += along * u[i]
    for i in range(p.shape[0]):
        out[i] *= root[i]


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
        parents, slopes, j, total = vecs[FIRST + K + k], vecs[FIRST + K + P + k], 0, 0.0
        for i in range(p.shape[0]):
            if slopes[i] != 0:
                if int(parents[i]) != j:  # most coordinates have the parent of the one before
                    dH_dq[j] += total
                    j, total = int(parents[i]), 0.0
                total += 0.5 * slopes[i] * (phi - tau * p[i] * v[i])
        dH_dq[j] += total


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, M) from standard normals."""
    vecs, first = as_work(work).vecs, first_direction(work)
    root, shrink = vecs[first - 4], vecs[first - 2]
    for i in range(p.shape[0]):
        p[i] = normals[i]
    for k in range(int(vecs[first - 1, 0])):
        u = vecs[first + k]
        along = shrink[k] * dot(u, p)
        for i in range(p.shape[0]):
            p[i] += along * u[i]
    for i in range(p.shape[0]):
        p[i] /= root[i]
