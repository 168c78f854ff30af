"""The kinetic energy of discontinuous HMC: Gaussian momentum for the smooth coordinates I, Laplace for the others, J.

    K(p) = 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j             eq. 26 of Gram-Hansen's notes, M_I diagonal
    v_i = p_i / M_i,    v_j = sign(p_j) / m_j                  eq. 20
    p_i ~ N(0, M_i),    |p_j| / m_j ~ Exponential(1) with a fair sign

The speed of a discontinuous coordinate does not depend on the size of its momentum. This allows the integrator to cross any
number of jumps for the cost of one density. Both momenta are made from standard normals z, the second by

    p_j = m_j sign(z) (-log P(|Z| > |z|)),     P(|Z| > |z|) = erfc(|z| / sqrt 2)

The masses imitate the scales s of the coordinates: M_i = s_i^-2 and, since the steps are eps / m_j, m_j = 1 / (r s_j) with one
factor r for all of J (the notes' m = var^{1/2} has the sign of the exponent wrong: ERRATA of its sec. 2.6).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.metrics.base import EUCLIDEAN, ConstantMetric
from refhmc.metrics.euclidean import factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class LaplaceOnArrays(NamedTuple):
    """The Hamiltonian of discontinuous HMC on arrays of positions and momenta (..., d).

    With smooth coordinates I, discontinuous coordinates J and the scales s of the metric, the Hamiltonian is::

        H(q, p) = -L(q) + 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j,      M_i = s_i^-2,      m_j = 1 / (r s_j)

    Parameters
    ----------
    model : object
        The functions of a model on arrays, as :class:`refhmc.array_api.ModelOnArrays` has them.
    metric : Identity or Diagonal
        The metric, whose variances are s^2.
    factor : float or array, shape (..., 1), default 1.0
        The common factor r of the masses of the discontinuous coordinates.

    See Also
    --------
    refhmc.array_api.discontinuous_hamiltonian : Returns this for a model and a metric.

    References
    ----------
    Gram-Hansen, notes on HMC and discontinuous HMC, equations 20 and 26. Erratum of section 2.6: the masses are proportional to
    var^(-1/2).

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> H = refhmc.array_api.discontinuous_hamiltonian(refhmc.models.ChangePoint(), refhmc.metrics.Identity())
    >>> q = np.zeros((5, H.model.dim))
    >>> H.inverse_product(q, np.full_like(q, -2.0))[0, H.model.discontinuous]
    array([-1.])
    """

    model: Any
    metric: ConstantMetric
    factor: Array = 1.0

    @batched.kept
    def jumps(self, q: Array) -> Array:
        """Return which coordinates are discontinuous.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array of bool, shape (d,)
            Whether each coordinate is discontinuous.
        """
        return batched.namespace(q).asarray(np.isin(np.arange(q.shape[-1]), self.model.discontinuous))

    @batched.kept
    def variances(self, q: Array) -> Array:
        """Return the variances of the metric.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (d,)
            The variances s^2.
        """
        return batched.namespace(q).asarray(self.metric.inverse_mass(q.shape[-1]), dtype=q.dtype)

    def inverse_mass(self, q: Array) -> Array:
        """Return the inverse masses.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (d,) or (..., d)
            M_i^-1 of the smooth and 1/m_j of the discontinuous coordinates. It has the axes of the chains if each chain has its
            own factor.
        """
        variances = self.variances(q)
        return batched.namespace(q).where(self.jumps(q), self.factor * variances**0.5, variances)

    def inverse_product(self, q: Array, p: Array) -> Array:
        """Return the velocities, dK/dp.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        array, shape (..., d)
            Velocities p_i / M_i of the smooth and sign(p_j) / m_j of the discontinuous coordinates.
        """
        W = self.inverse_mass(q)
        return batched.namespace(q).where(self.jumps(q), batched.namespace(q).copysign(W, p), W * p)

    def energy(self, q: Array, p: Array) -> Array:
        """Return the energies.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        array, shape (...)
            H(q, p).
        """
        K = batched.namespace(q).where(self.jumps(q), p, 0.5 * p) * self.inverse_product(q, p)
        return batched.namespace(q).sum(K, axis=-1) - self.model.log_density(q)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        """Draw momenta from standard normals.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        normals : array, shape (..., d)
            Standard normal random numbers z. The momentum of a discontinuous coordinate is
            ``m_j sign(z) (-log P(|Z| > |z|))``.

        Returns
        -------
        array, shape (..., d)
            Momenta.
        """
        from scipy import special  # this import takes longer than that of refhmc

        xp, W = batched.namespace(q), self.inverse_mass(q)
        on_host = normals.get() if hasattr(normals, "get") else np.asarray(normals)  # the array API has no erfc
        x = np.abs(on_host) / 2**0.5
        sizes = np.where(x < 0.5, -np.log1p(-special.erf(x)), -np.log(special.erfc(x)))
        laplace = xp.copysign(xp.asarray(sizes, dtype=q.dtype), normals) / W
        return xp.where(self.jumps(q), laplace, normals / W**0.5)


# ``inverse_mass``: M_i^-1 and 1/m_j; ``root``: M_i^{1/2} and m_j; ``scale``: s; ``jumps``: 1 if the coordinate is
# discontinuous; ``order``: the order in which the discontinuous ones are moved, one entry for each of them.
LAYOUT = Layout("scale jumps order", after=EUCLIDEAN)
views = LAYOUT.views


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = dK/dp."""
    w = views(work)
    for i in range(p.shape[0]):
        out[i] = w.inverse_mass[i] * p[i] if w.jumps[i] == 0 else math.copysign(w.inverse_mass[i], p[i])


@jit
def energy(z: np.ndarray, work: tuple) -> float:
    """Return H = -L + K of the point ``z``, and set its velocity from its momentum."""
    point, jumps = as_point(z), views(work).jumps
    inverse_product(point.p, work, point.velocity)
    kinetic = 0.0
    for i in range(z.shape[1]):
        kinetic += (0.5 if jumps[i] == 0 else 1.0) * point.p[i] * point.velocity[i]
    return kinetic - point.log_density[0]


@jit
def exponential(z: float) -> float:
    """Return -log P(|Z| > |z|) for a standard normal Z; it is exponential if z is standard normal."""
    x = abs(z) / math.sqrt(2.0)
    return -math.log1p(-math.erf(x)) if x < 0.5 else -math.log(math.erfc(x))


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw the momentum from standard normals."""
    w = views(work)
    for i in range(p.shape[0]):
        size = normals[i] if w.jumps[i] == 0 else math.copysign(exponential(normals[i]), normals[i])
        p[i] = size * w.root[i]


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """Make a momentum from standard normals for the point ``z``, if ``draws`` is True, set its velocity and return H."""
    if draws:
        draw(normals, work, as_point(z).p)
    return energy(z, work)


@jit
def scale_jumps(work: tuple, factor: float) -> None:
    """Set m_j = 1 / (factor s_j)."""
    w = views(work)
    for j in range(w.jumps.shape[0]):
        if w.jumps[j] != 0:
            w.inverse_mass[j] = factor * w.scale[j]
            w.root[j] = 1.0 / w.inverse_mass[j]


@jit
def take_scales(work: np.ndarray) -> None:
    """Set s_j to the root of the estimated variances in ``inverse_mass``, after a new diagonal metric was written there."""
    w = views(work)
    for j in range(w.scale.shape[0]):
        w.scale[j] = math.sqrt(w.inverse_mass[j])


# The step does not use these: this metric only provides the distribution of the momentum.
geometry = (factorise, inverse_product, velocity_and_force, draw)
