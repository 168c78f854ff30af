"""SoftAbs of the outer product g g', g = dL/dq: first derivatives instead of second ones (Betancourt 2013, appendix A.2).

g g' has the eigenvalue s = g.g along g and 0 across it, so that with f(x) = x coth(alpha x)

    G = across I + (along - across) g g' / s        along(s) = f(s) = s coth(alpha s)
    SoftAbs(g g'):           across = f(0) = 1/alpha
    as printed in the paper: across(s) = s / sinh(alpha s)      (it cancels a singular matrix: errata, S4-1)

With gamma = g.p / s the momentum is gamma g along g and r = p - gamma g across it, and

    v = G^-1 p = r / across + gamma g / along
    phi = -L + 1/2 (d - 1) log across + 1/2 log along,         tau = 1/2 (r.r / across + gamma^2 s / along)

With ds/dq = 2 Hg (H the Hessian of L), ' meaning d/ds, and b = (1/along - 1/across) / s,

    dphi/dq = -g + ((d - 1) across'/across + along'/along) Hg
    dtau/dq = ((1/across)' r.r - along'/along gamma^2 s / along) Hg + b (g.p) Hr

The cost is O(d^2), without a third derivative. (In p itself instead of r, p.p / across and b (g.p)^2 would cancel if s is
large.) Momentum: p = across^1/2 z + (along^1/2 - across^1/2) g (g.z) / s.

In the variable t = alpha s nothing cancels: alpha along = t coth t, (1/along - 1/across) / s = alpha^2 (tanh t - t) / t^2,
(along - across) / s = coth t - 1/t, with their series below t = 0.06. The printed formula overflows at t = 710.

The Hessian is read in the force only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import positive
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import SHARED, HamiltonianOnArrays, Riemannian, log_density_at_metric
from refhmc.metrics.softabs_function import divided_difference_on_arrays, softabs, softabs_derivative
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot, symmetric_times

# ``scales``: along, then across for each other direction.
LAYOUT = Layout("Hg r Hr", "hessian", after=SHARED)
views = LAYOUT.views
SMALL = 0.06


@dataclass(frozen=True)
class OuterProductSoftAbs(Riemannian):
    """SoftAbs of the outer product of the gradient with itself.

    With g = dL/dq, s = g.g and ``f(x) = x coth(alpha x)``, the metric is::

        G(q) = across I + (along - across) g g' / s,    along = f(s) = s coth(alpha s),    across = f(0) = 1/alpha

    With gamma = g.p / s, r = p - gamma g, the Hessian H of L, ' for d/ds and b = (1/along - 1/across) / s, the velocity and the
    two parts of the force are::

        v = r / across + gamma g / along
        dphi/dq = -g + ((d - 1) across'/across + along'/along) Hg
        dtau/dq = ((1/across)' r.r - along'/along gamma^2 s / along) Hg + b (g.p) Hr

    The model needs its Hessian, which is read in the force only, and no third derivative. The cost is O(d^2) per evaluation.

    Parameters
    ----------
    alpha : float, default 1.0
        Sharpness of the smoothed absolute value. No eigenvalue of the metric is below 1/alpha, except with `as_published`.
    as_published : bool, default False
        Use the formula printed in the paper, ``across(s) = s / sinh(alpha s)``. It is not SoftAbs of the outer product, and it
        overflows at ``alpha * s = 710``.

    Raises
    ------
    ValueError
        If `alpha` is not positive and finite.

    See Also
    --------
    DiagonalOuterProductSoftAbs : SoftAbs of the squared components of the gradient.
    SoftAbs : SoftAbs of the Hessian.

    References
    ----------
    Betancourt (2013), A general metric for Riemannian manifold Hamiltonian Monte Carlo, appendix A.2. Erratum: the printed
    formula cancels a singular matrix, so that its eigenvalue across g is s / sinh(alpha s) instead of 1/alpha.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.OuterProductSoftAbs())
    >>> H.mass([2.0, 0.0]).round(3)
    array([[4.003, 0.   ],
           [0.   , 1.   ]])
    """

    name = "outer_product_softabs"
    alpha: float = 1.0
    as_published: bool = False
    reads = ("hessian", None)
    layout = LAYOUT

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)

    def options(self) -> dict[str, float]:
        return {"alpha": self.alpha, "as_published": self.as_published}

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
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
        return OuterProductSoftAbsOnArrays(model, self)


class OuterProductSoftAbsOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d).

    With J(s, 0) = (f(s) - f(0)) / s and ' = d/ds, across'/across is 0, or -alpha J(s, 0) as printed.
    """

    def spectrum(self, g: Array) -> tuple[Array, Array, Array, Array]:
        """Return across, along, (along - across)/s and across'/across at s = g.g; all (..., 1)."""
        xp, alpha = batched.namespace(g), self.metric.alpha
        s = batched.dot(g, g)[..., None]
        along, J = softabs(s, alpha), divided_difference_on_arrays(s, 0.0 * s, alpha)
        if not self.metric.as_published:
            return 0.0 * s + 1 / alpha, along, J, 0.0 * s
        t = xp.where(s > 0, alpha * s, 1.0)
        return xp.where(s > 0, t / xp.sinh(t), 1.0) / alpha, along, xp.tanh(0.5 * alpha * s), -alpha * J

    def parts(self, g: Array, p: Array) -> tuple[Array, Array]:
        """Return gamma (..., 1) and r of p = gamma g + r; computed twice, so that g.r is zero to the rounding of r."""
        s = batched.dot(g, g)[..., None]
        s = batched.namespace(g).where(s > 0, s, 1.0)
        gamma = batched.dot(g, p)[..., None] / s
        rest = batched.dot(g, p - gamma * g)[..., None] / s
        return gamma + rest, p - gamma * g - rest * g

    def scales(self, q: Array) -> Array:
        across, along, _, _ = self.spectrum(self.model.gradient(q))
        return batched.namespace(q).concat([along, across] if q.shape[-1] > 1 else [along], axis=-1)

    def mass(self, q: Array) -> Array:
        g = self.model.gradient(q)
        across, _, excess, _ = self.spectrum(g)
        return batched.diagonal_matrix(across + 0.0 * g) + excess[..., None] * batched.outer(g, g)

    def inverse_product(self, q: Array, p: Array) -> Array:
        g = self.model.gradient(q)
        across, along, _, _ = self.spectrum(g)
        gamma, r = self.parts(g, p)
        return r / across + gamma * g / along

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        across, along, _, _ = self.spectrum(self.model.gradient(q))
        return 0.5 * ((q.shape[-1] - 1) * xp.log(across) + xp.log(along))[..., 0]

    def potential_force(self, q: Array) -> Array:
        g = self.model.gradient(q)
        _, along, _, log_across = self.spectrum(g)
        log_along = softabs_derivative(batched.dot(g, g)[..., None], self.metric.alpha) / along
        return g - ((q.shape[-1] - 1) * log_across + log_along) * batched.times(self.model.hessian(q), g)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        g, H = self.model.gradient(q), self.model.hessian(q)
        across, along, excess, log_across = self.spectrum(g)
        gamma, r = self.parts(g, p)
        s, r_r, g_p = (batched.dot(x, y)[..., None] for x, y in ((g, g), (r, r), (g, p)))
        log_along = softabs_derivative(s, self.metric.alpha) / along
        b = -excess / (along * across)
        weight = log_across / across * r_r + log_along * gamma**2 * s / along
        return weight * batched.times(H, g) - b * g_p * batched.times(H, r)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        g = self.model.gradient(q)
        across, along, excess, _ = self.spectrum(g)
        return across**0.5 * normals + excess / (along**0.5 + across**0.5) * batched.dot(g, normals)[..., None] * g


@jit
def langevin(t: float) -> float:
    """Return coth t - 1/t."""
    if t < SMALL:
        x = t * t
        return t * (1 / 3 - x * (1 / 45 - x * (2 / 945 - x * (1 / 4725 - x * 2 / 93555))))
    return 1 / np.tanh(t) - 1 / t


@jit
def eigenvalues(s: float, options: np.record) -> tuple[float, float, float, float]:
    """Return (across, along, b, (along - across)/s) at s = g.g."""
    alpha = options.alpha
    t = alpha * s
    along = (t / np.tanh(t) if t > SMALL else 1 + t * langevin(t)) / alpha
    if options.as_published != 0:
        across = t / np.sinh(t) / alpha if t > 0 else 1 / alpha
        b = -np.tanh(t) * 2 * (np.sinh(0.5 * t) / t) ** 2 if t > 0 else 0.0
        return across, along, alpha * alpha * b, np.tanh(0.5 * t)
    if t > SMALL:
        b = (np.tanh(t) - t) / (t * t)
    else:
        x = t * t
        b = -t * (1 / 3 - x * (2 / 15 - x * (17 / 315 - x * (62 / 2835 - x * (1382 / 155925 - x * 21844 / 6081075)))))
    return 1 / alpha, along, alpha * alpha * b, langevin(t)


@jit
def slopes(s: float, options: np.record) -> tuple[float, float, float]:
    """Return d/ds of (log across, log along, 1/across)."""
    alpha = options.alpha
    t = alpha * s
    x = t * t
    if t > SMALL:
        log_along = 1 / t - 2 / np.sinh(2 * t)
    else:
        log_along = t * (2 / 3 - x * (14 / 45 - x * (124 / 945 - x * (254 / 4725 - x * 292 / 13365))))
    if options.as_published == 0:
        return 0.0, alpha * log_along, 0.0
    if t > SMALL:
        inverse_across = (t * np.cosh(t) - np.sinh(t)) / x
    else:
        inverse_across = t * (1 / 3 + x * (1 / 30 + x * (1 / 840 + x / 45360)))
    return -alpha * langevin(t), alpha * log_along, alpha * alpha * inverse_across


@jit
def part_across(g: np.ndarray, p: np.ndarray, r: np.ndarray) -> float:
    """Return gamma = g.p / s, and write the part of p across g to ``r``.

    This is computed twice, so that g.r is zero to the rounding of r.
    """
    s = dot(g, g)
    gamma = dot(g, p) / s if s > 0 else 0.0
    for i in range(p.shape[0]):
        r[i] = p[i] - gamma * g[i]
    rest = dot(g, r) / s if s > 0 else 0.0
    for i in range(p.shape[0]):
        r[i] -= rest * g[i]
    return gamma + rest


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute g at the metric's position; return False if G is not finite and positive."""
    vecs, mats, options, cache, _, _ = as_work(work)
    w = views(work)
    log_density_at_metric(model, work)
    across, along, _, _ = eigenvalues(dot(w.gradient, w.gradient), options)
    w.scales[0] = along
    for i in range(1, w.gradient.shape[0]):
        w.scales[i] = across
    cache.log_det_weight = 0.5
    return across > 0 and np.isfinite(along)


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    vecs, mats, options, _, _, _ = as_work(work)
    w = views(work)
    g, r = w.gradient, w.r
    across, along, _, _ = eigenvalues(dot(g, g), options)
    gamma = part_across(g, p, r)
    for i in range(p.shape[0]):
        out[i] = r[i] / across + gamma * g[i] / along


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq from two products with the Hessian."""
    vecs, mats, options, cache, _, _ = as_work(work)
    f, w, d = as_model(model), views(work), p.shape[0]
    g, r = w.gradient, w.r
    if cache.has_force == 0:
        f.metric(w.position, f.data, w.hessian)
        symmetric_times(w.hessian, g, w.Hg)
        cache.has_force = 1
    s = dot(g, g)
    across, along, b, _ = eigenvalues(s, options)
    log_across, log_along, inverse_across = slopes(s, options)
    gamma = part_across(g, p, r)
    symmetric_times(w.hessian, r, w.Hr)
    along_hg = phi * ((d - 1) * log_across + log_along)
    along_hg += tau * (inverse_across * dot(r, r) - log_along * gamma * gamma * s / along)
    along_hr = tau * b * dot(g, p)
    for i in range(d):
        v[i] = r[i] / across + gamma * g[i] / along
        dH_dq[i] = -phi * g[i] + along_hg * w.Hg[i] + along_hr * w.Hr[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    vecs, mats, options, _, _, _ = as_work(work)
    g = views(work).gradient
    across, along, _, excess = eigenvalues(dot(g, g), options)
    scaled = excess / (along**0.5 + across**0.5) * dot(g, normals)
    for i in range(p.shape[0]):
        p[i] = across**0.5 * normals[i] + scaled * g[i]
