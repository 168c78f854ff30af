"""The banana (Brofos and Lederman 2021).

With standard deviations s_y and s_t, the model is ::

    y_i ~ N(t1 + t2^2, s_y), i = 1..n,      t1, t2 ~ N(0, s_t)

The posterior depends on the data only through n and the mean ybar. With a = n / s_y^2, b = 1 / s_t^2 and the residual
r = ybar - t1 - t2^2, ::

    L = -a r^2/2 - b (t1^2 + t2^2)/2
    dL/dt1 = a r - b t1          dL/dt2 = 2 a r t2 - b t2
    11: -a - b     12: -2 a t2     22: 2 a (r - 2 t2^2) - b
    111, 112: 0    122: -2 a       222: -12 a t2
    Fisher metric a (1, 2 t2)(1, 2 t2)' + b I

Exact moments: given t2, t1 ~ N(w (ybar - t2^2), v) with v = 1/(a + b) and w = v a. With V = 1/a + 1/b, t2 has the density ::

    exp(-(ybar - t2^2)^2 / (2 V) - b t2^2 / 2) = const exp(-(t2^2 - c)^2 / (2 V)),       c = ybar - b V / 2

Its moments are sums over an equidistant grid, which converge exponentially for such a function.

Exact draws: let u = t2^2 and s > max(c, 0). The convex (u - c)^2 lies above its tangent at u = s. The density therefore lies
below a multiple of that of N(0, V / (2 (s - c))). A draw from this normal is accepted with probability
exp(-(u - s)^2 / (2 V)). The acceptance rate is largest for s - c = (sqrt(c^2 + 2 V) - c) / 2.

The data are the row [a, ybar, b].
"""

from __future__ import annotations

import functools
import math
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import positive
from refhmc.models.base import Model
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import vector
from refhmc.models.on_arrays import ArrayImplementation, matrix, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.numerics.batched import Array, namespace


class BananaOnArrays(ArrayImplementation):
    """The array implementation for positions (t1, t2) of shape (..., 2). ``a``, ``ybar`` and ``b`` are numbers."""

    name, dim = "banana", 2

    def __init__(self, a: float, ybar: float, b: float, xp: ModuleType = np) -> None:
        self.a, self.ybar, self.b = a, ybar, b

    def read(self, q: Array) -> tuple:
        """Return a, b, t1, t2 and the residual r."""
        t1, t2 = q[..., 0], q[..., 1]
        return self.a, self.b, t1, t2, self.ybar - t1 - t2 * t2

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        a, b, t1, t2, r = self.read(q)
        L = -0.5 * (a * r * r + b * (t1 * t1 + t2 * t2))
        return L, namespace(q).stack([a * r - b * t1, (2 * a * r - b) * t2], axis=-1)

    def hessian(self, q: Array) -> Array:
        a, b, _, t2, r = self.read(q)
        return where_finite(q, matrix([[-a - b, -2 * a * t2], [-2 * a * t2, 2 * a * (r - 2 * t2 * t2) - b]]), 2)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        a, (M_12, M_22), t2 = self.a, second_column(M), q[..., 1]
        return where_finite(q, namespace(q).stack([-2 * a * M_22, -2 * a * (M_12 + 6 * t2 * M_22)], axis=-1), 1)

    def fisher(self, q: Array) -> Array:
        a, b, _, t2, _ = self.read(q)
        return where_finite(q, matrix([[a + b, 2 * a * t2], [2 * a * t2, 4 * a * t2 * t2 + b]]), 2)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        a, (M_12, M_22), t2 = self.a, second_column(M), q[..., 1]
        along_t2 = 2 * a * (M_12 + 4 * t2 * M_22)
        return where_finite(q, namespace(q).stack([0 * along_t2, along_t2], axis=-1), 1)


def second_column(M: Array) -> tuple[Array, Array]:
    """Return M_12 + M_21 and M_22."""
    return M[..., 0, 1] + M[..., 1, 0], M[..., 1, 1]


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    t1, t2 = q[0], q[1]
    a, ybar, b = data[0]
    r = ybar - t1 - t2 * t2
    out[0] = a * r - b * t1
    out[1] = (2 * a * r - b) * t2
    return -0.5 * (a * r * r + b * (t1 * t1 + t2 * t2))


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    t1, t2 = q[0], q[1]
    a, ybar, b = data[0]
    r = ybar - t1 - t2 * t2
    return -0.5 * (a * r * r + b * (t1 * t1 + t2 * t2))


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    t1, t2 = q[0], q[1]
    a, ybar, b = data[0]
    out[0, 0] = -a - b
    out[0, 1] = out[1, 0] = -2 * a * t2
    out[1, 1] = 2 * a * (ybar - t1 - 3 * t2 * t2) - b


@jit
def third_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    a = data[0, 0]
    out[:] = 0.0
    out[0, 1, 1] = out[1, 0, 1] = out[1, 1, 0] = -2 * a
    out[1, 1, 1] = -12 * a * q[1]


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    a = data[0, 0]
    out[0] = -2 * a * M[1, 1]
    out[1] = -2 * a * (M[0, 1] + M[1, 0]) - 12 * a * q[1] * M[1, 1]


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    a, b = data[0, 0], data[0, 2]
    out[0, 0] = a + b
    out[0, 1] = out[1, 0] = 2 * a * q[1]
    out[1, 1] = 4 * a * q[1] * q[1] + b


@jit
def fisher_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    a = data[0, 0]
    out[:] = 0.0
    out[0, 1, 1] = out[1, 0, 1] = 2 * a
    out[1, 1, 1] = 8 * a * q[1]


@jit
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    a = data[0, 0]
    out[0] = 0.0
    out[1] = 2 * a * (M[0, 1] + M[1, 0]) + 8 * a * q[1] * M[1, 1]


def moments(a: float, ybar: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and variances of t1 and t2."""
    V = 1 / a + 1 / b
    c = ybar - b * V / 2
    # The grid covers u >= 0 with (u - c)^2 within 100 V of its minimum. Outside, the density is below e^-50.
    reach = math.sqrt(min(c, 0.0) ** 2 + 100 * V)
    t2 = np.linspace(math.sqrt(max(c - reach, 0.0)), math.sqrt(c + reach), 4001)
    u = t2**2
    weights = np.exp(-((u - c) ** 2 - min(c, 0.0) ** 2) / (2 * V))
    weights[0] /= 2  # the density is even in t2: the grid covers one half, with half of a grid point at 0
    weights /= weights.sum()
    mean_u = weights @ u
    v, w = 1 / (a + b), a / (a + b)
    mean = np.array([w * (ybar - mean_u), 0.0])
    return mean, np.array([v + w**2 * (weights @ (u - mean_u) ** 2), mean_u])


def draw(rng: np.random.Generator, n_draws: int, a: float, ybar: float, b: float) -> np.ndarray:
    """Return (n_draws, 2) independent draws: t2 by rejection, then t1 given t2."""
    V = 1 / a + 1 / b
    c = ybar - b * V / 2
    slope = (math.hypot(c, math.sqrt(2 * V)) - c) / 2
    kept = [np.empty(0)]
    while sum(map(len, kept)) < n_draws:
        t2 = math.sqrt(V / (2 * slope)) * rng.standard_normal(2 * n_draws + 100)
        kept.append(t2[rng.random(t2.shape) < np.exp(-((t2**2 - c - slope) ** 2) / (2 * V))])
    t2 = np.concatenate(kept)[:n_draws]
    t1 = a / (a + b) * (ybar - t2**2) + rng.standard_normal(n_draws) / math.sqrt(a + b)
    return np.column_stack([t1, t2])


def share_of(y: np.ndarray, sigma_y: float, sigma_theta: float, rows: np.ndarray, share: float) -> Model:
    """Return the banana with some of the observations, and with a ``share`` of the log prior."""
    return Banana(y[rows], sigma_y, sigma_theta / math.sqrt(share))


def log_likelihood(values: dict, y: np.ndarray, sigma_y: float) -> dict:
    theta = values["theta"]
    return {"y": log_normal(y, theta[..., [0]] + theta[..., [1]] ** 2, sigma_y)}


def posterior_predictive(values: dict, rng: np.random.Generator, n: int, sigma_y: float) -> dict:
    mean = values["theta"][..., [0]] + values["theta"][..., [1]] ** 2
    return {"y": rng.normal(mean, sigma_y, (*mean.shape[:-1], n))}


def prior(rng: np.random.Generator, sigma_theta: float) -> dict:
    return {"theta": rng.normal(0.0, sigma_theta, 2)}


@recreatable
def Banana(y: ArrayLike | None = None, sigma_y: float = 2.0, sigma_theta: float = 2.0) -> Model:
    """Return the banana, a posterior with a curved ridge in two dimensions.

    The model is ::

        y_i ~ N(theta_1 + theta_2^2, sigma_y),      theta_1, theta_2 ~ N(0, sigma_theta)

    and both scales are standard deviations. The variable is ``theta``, of shape (2,). The model has all derivatives and the
    Fisher metric.

    Parameters
    ----------
    y : array_like of shape (n,), optional
        Observations. Defaults to 100 values of 1.0.
    sigma_y : float, default 2.0
        Standard deviation of the observations.
    sigma_theta : float, default 2.0
        Standard deviation of the prior.

    Returns
    -------
    Model
        The model, with moments by quadrature and exact draws in ``reference``.

    Raises
    ------
    ValueError
        If `y` is not a vector of finite numbers, or a standard deviation is not positive.

    References
    ----------
    J. A. Brofos and R. R. Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold Hamiltonian
    Monte Carlo.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Banana()
    >>> model.dim, round(float(model.reference.mean[1]), 3)
    (2, 0.0)
    """
    y = np.ones(100) if y is None else vector("y", y)
    sigma_y, sigma_theta = positive("sigma_y", sigma_y), positive("sigma_theta", sigma_theta)
    a, ybar, b = len(y) / sigma_y**2, float(y.mean()), 1 / sigma_theta**2
    mean, variance = moments(a, ybar, b)
    return Model(
        2,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        third_derivative=third_derivative,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_derivative=fisher_derivative,
        fisher_contraction=fisher_contraction,
        data=np.array([[a, ybar, b]]),
        names=["theta[0]", "theta[1]"],
        name="banana",
        recommended=Recommended("hmc", "fisher", "its ridge is curved, so that no constant metric fits it"),
        reference=Reference(
            source="quadrature of the marginal of theta[1]",
            mean=mean,
            variance=variance,
            draw=functools.partial(draw, a=a, ybar=ybar, b=b),
        ),
        n_rows=len(y),
        part=functools.partial(share_of, y, sigma_y, sigma_theta),
        on_arrays=functools.partial(BananaOnArrays, a, ybar, b),
        dims={"y": "observation"},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y, sigma_y=sigma_y),
            posterior_predictive=functools.partial(posterior_predictive, n=len(y), sigma_y=sigma_y),
            prior=functools.partial(prior, sigma_theta=sigma_theta),
            observed_data={"y": y},
        ),
    )
