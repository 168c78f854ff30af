"""The posteriors of the comparison of warm-ups, each as a model of refhmc and as a log density in jax.numpy.

Six of posteriordb, normals of 100 and 1,000 dimensions, logistic and linear regressions, a straight line on years that are
not centred, 200 columns that five factors make, stochastic volatility with T = 1,000, and a Poisson regression on a
Gaussian process

    k_i ~ Poisson(e^{f_i}),   f = L eta,   L L' = K,   K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2)) + 1e-10 [i = j]
    eta ~ N(0, I),   rho ~ Gamma(25, rate 4),   alpha ~ N+(0, 2);      q = (eta, log rho, log alpha)

(posteriordb's ``gp_pois_regr``). Both forms have the same coordinates; :func:`check_same` holds one against the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc import models
from refhmc.compile.compiled import jit_allocating
from refhmc.models.datasets import posteriordb
from refhmc.numerics.linalg import cholesky, dot, solve_lower
from validation.benchmarks import problems

JITTER = 1e-10


class Posterior(NamedTuple):
    """Functions that make both forms."""

    model: Callable[[], refhmc.Model]
    log_density: Callable[[], Callable[[Any], Any]]


def check_same(posterior: Posterior, n: int = 5) -> None:
    """Raise AssertionError unless the gradients are the same, to 1e-7 of their length, at n points about the origin."""
    import jax

    model, gradient = posterior.model(), jax.jit(jax.grad(posterior.log_density()))
    for q in 0.5 * np.random.default_rng(1).normal(size=(n, model.dim)):
        ours, theirs = model.gradient(q), np.asarray(gradient(q))
        difference = np.linalg.norm(ours - theirs) / np.linalg.norm(ours)
        assert difference < 1e-7, f"gradients differ by {difference:.1e} at {q}"


def covariance(d: int, condition: float) -> np.ndarray:
    """Eigenvalues spread evenly in their logarithm, in directions at random."""
    if condition == 1.0:
        return np.eye(d)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    return (Q * np.geomspace(condition**-0.5, condition**0.5, d)) @ Q.T


def normal(d: int, condition: float) -> Posterior:
    def log_density():
        import jax.numpy as jnp

        if condition == 1.0:
            return lambda q: -0.5 * jnp.dot(q, q)
        precision = jnp.asarray(np.linalg.inv(covariance(d, condition)))
        return lambda q: -0.5 * jnp.dot(q, precision @ q)

    return Posterior(lambda: models.Gaussian(np.zeros(d), covariance(d, condition)), log_density)


def model_of(dim: int, value_and_gradient: Callable, data: np.ndarray) -> refhmc.Model:
    """As users have it who write the density and the gradient apart."""

    @jit_allocating
    def log_density(q, data):
        return value_and_gradient(q, data, np.empty(q.shape[0]))

    @jit_allocating
    def gradient(q, data, out):
        value_and_gradient(q, data, out)

    return refhmc.Model(dim, log_density, gradient, data=data)


@jit_allocating
def axes_value_and_gradient(q, data, out):
    value = 0.0
    for i in range(q.shape[0]):
        out[i] = -data[0, i] * q[i]
        value += 0.5 * out[i] * q[i]
    return value


def normal_along_axes(d: int, condition: float) -> Posterior:
    """Independent coordinates, as a user writes them: a gradient of d multiplications."""
    precisions = np.geomspace(condition**-0.5, condition**0.5, d)

    def log_density():
        import jax.numpy as jnp

        P = jnp.asarray(precisions)
        return lambda q: -0.5 * jnp.sum(P * q * q)

    return Posterior(lambda: model_of(d, axes_value_and_gradient, precisions[None]), log_density)


def logistic(make: Callable[[], refhmc.Model]) -> Posterior:
    def log_density():
        import jax
        import jax.numpy as jnp

        data = make().data  # rows: the columns of the signed x's, then 1/s^2
        Z, inverse = jnp.asarray(data[:-1].T.copy()), float(data[-1, 0])
        return lambda q: jnp.sum(jax.nn.log_sigmoid(Z @ q)) - 0.5 * inverse * jnp.dot(q, q)

    return Posterior(make, log_density)


def linear(
    X: np.ndarray, y: np.ndarray, make: Callable[[], refhmc.Model] | None = None, prior: float = 0.0
) -> Posterior:
    """``prior``: the precision of that of the coefficients."""

    def log_density():
        import jax.numpy as jnp

        XX, yy = jnp.asarray(X), jnp.asarray(y)

        def of(q):
            b, u = q[:-1], q[-1]
            r = yy - XX @ b
            scale = jnp.logaddexp(u - jnp.log(2.5), jnp.log(2.5) - u)
            return -len(y) * u - 0.5 * jnp.exp(-2 * u) * jnp.dot(r, r) - scale - 0.5 * prior * jnp.dot(b, b)

        return of

    return Posterior(make or (lambda: models.LinearRegression(X, y)), log_density)


def line_on_years() -> Posterior:
    """71 years from 1950 on, not centred."""
    t = 1950.0 + np.arange(71)
    y = 3 + 0.02 * (t - 1985) + 0.3 * np.random.default_rng(0).normal(size=71)
    return linear(np.stack([np.ones(71), t], axis=1), y)


def collinear(n: int, p: int, factors: int, own: float) -> Posterior:
    """n rows of p columns that a few factors make, and something of their own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) + own * rng.normal(size=(n, p))
    return linear(X, X @ rng.normal(size=p) * 0.1 + rng.normal(size=n))


def kidscore() -> Posterior:
    data = {k: np.asarray(v, dtype=float) for k, v in posteriordb("kidiq-kidscore_interaction")["data"].items()}
    columns = [np.ones(len(data["mom_hs"])), data["mom_hs"], data["mom_iq"], data["mom_hs"] * data["mom_iq"]]
    return linear(np.stack(columns, axis=1), data["kid_score"], models.LinearRegression)


def autoregression() -> Posterior:
    data = posteriordb("arK-arK")["data"]
    y, K = np.asarray(data["y"], dtype=float), int(data["K"])
    lagged = [y[K - k - 1 : len(y) - k - 1] for k in range(K)]
    return linear(np.stack([np.ones(len(y) - K), *lagged], axis=1), y[K:], models.AR, 0.01)


def garch() -> Posterior:
    def log_density():
        import jax
        import jax.numpy as jnp

        data = posteriordb("garch-garch11")["data"]
        y, first = jnp.asarray(np.asarray(data["y"], dtype=float)), float(data["sigma1"]) ** 2

        def of(q):
            mu, a0, a1, r = q[0], jnp.exp(q[1]), jax.nn.sigmoid(q[2]), jax.nn.sigmoid(q[3])
            b1 = r * (1 - a1)

            def step(h, before):
                h = a0 + a1 * (before - mu) ** 2 + b1 * h
                return h, h

            h = jnp.concatenate([jnp.array([first]), jax.lax.scan(step, first, y[:-1])[1]])
            jacobian = q[1] + jnp.log(a1) + 2 * jnp.log1p(-a1) + jnp.log(r) + jnp.log1p(-r)
            return -0.5 * jnp.sum(jnp.log(h) + (y - mu) ** 2 / h) + jacobian

        return of

    return Posterior(models.GARCH, log_density)


def gaussian_mixture() -> Posterior:
    def log_density():
        import jax
        import jax.numpy as jnp

        y = jnp.asarray(np.asarray(posteriordb("low_dim_gauss_mix-low_dim_gauss_mix")["data"]["y"], dtype=float))

        def of(q):
            mu = jnp.array([q[0], q[0] + jnp.exp(q[1])])
            log_theta, log_rest = jax.nn.log_sigmoid(q[4]), jax.nn.log_sigmoid(-q[4])
            A = log_theta - q[2] - 0.5 * ((y - mu[0]) * jnp.exp(-q[2])) ** 2
            B = log_rest - q[3] - 0.5 * ((y - mu[1]) * jnp.exp(-q[3])) ** 2
            prior = -0.125 * (jnp.sum(mu**2) + jnp.exp(2 * q[2]) + jnp.exp(2 * q[3])) + 5 * (log_theta + log_rest)
            return jnp.sum(jnp.logaddexp(A, B)) + prior + q[1] + q[2] + q[3]

        return of

    return Posterior(models.GaussianMixture, log_density)


def gaussian_process() -> Posterior:
    def log_density():
        import jax.numpy as jnp
        from jax.scipy.linalg import cho_solve

        data = posteriordb("gp_pois_regr-gp_regr")["data"]
        x, y = (jnp.asarray(np.asarray(data[k], dtype=float)) for k in "xy")
        square = (x[:, None] - x) ** 2

        def of(q):
            rho, alpha, sigma = jnp.exp(q[0]), jnp.exp(q[1]), jnp.exp(q[2])
            L = jnp.linalg.cholesky(alpha**2 * jnp.exp(-0.5 * square / rho**2) + sigma * jnp.eye(len(x)))
            fit = -0.5 * jnp.dot(y, cho_solve((L, True), y)) - jnp.sum(jnp.log(jnp.diagonal(L)))
            return fit + 25 * q[0] - 4 * rho + q[1] - alpha**2 / 8 + q[2] - sigma**2 / 2

        return of

    return Posterior(models.GaussianProcessRegression, log_density)


def stochastic_volatility(T: int) -> Posterior:
    def model():
        return models.StochasticVolatility(T=T)

    def log_density():
        import jax.numpy as jnp

        y_squared = jnp.asarray(model().data[0])

        def of(q):
            x, u, g, a = q[:T], q[T], q[T + 1], q[T + 2]
            phi = jnp.tanh(a)
            Q = (1 - phi**2) * x[0] ** 2 + jnp.sum((x[1:] - phi * x[:-1]) ** 2)
            fit = -T * u - 0.5 * jnp.sum(x) - 0.5 * jnp.sum(y_squared[:T] * jnp.exp(-x - 2 * u))
            prior = 20.5 * jnp.log1p(phi) + 2 * jnp.log1p(-phi)
            return fit - (T + 10) * g - 0.5 * jnp.exp(-2 * g) * (Q + 0.5) + prior

        return of

    return Posterior(model, log_density)


def poisson_process() -> Posterior:
    """The Poisson regression: with w_ij = (x_i - x_j)^2 / rho^2 and Phi the lower triangle, its diagonal halved,

    dL/d log alpha = L,     dL/d log rho = L Phi(L^-1 (K o w) L^-T)

    but for the 1e-10, which does not grow with alpha.
    """

    def data() -> np.ndarray:
        read = posteriordb("gp_pois_regr-gp_regr")["data"]
        return np.stack([np.asarray(read[name], dtype=float) for name in "xk"])

    def covariance_of(q, x, xp):
        square = (x[:, None] - x) ** 2
        C = xp.exp(2 * q[-1] - 0.5 * square * xp.exp(-2 * q[-2]))
        return C, square * xp.exp(-2 * q[-2])

    def log_density():
        import jax.numpy as jnp

        x, k = jnp.asarray(data())

        def of(q):
            C, _ = covariance_of(q, x, jnp)
            f = jnp.linalg.cholesky(C + JITTER * jnp.eye(len(x))) @ q[:-2]
            prior = 25 * q[-2] - 4 * jnp.exp(q[-2]) + q[-1] - jnp.exp(2 * q[-1]) / 8
            return jnp.dot(k, f) - jnp.sum(jnp.exp(f)) - 0.5 * jnp.dot(q[:-2], q[:-2]) + prior

        return of

    return Posterior(lambda: model_of(13, poisson_value_and_gradient, data()), log_density)


@jit_allocating
def poisson_value_and_gradient(q, data, out):
    x, k, n = data[0], data[1], data.shape[1]
    eta, log_rho, log_alpha = q[:n], q[n], q[n + 1]
    K, S, L, f, slopes = np.empty((n, n)), np.empty((n, n)), np.zeros((n, n)), np.zeros(n), np.zeros(n)
    for i in range(n):
        for j in range(n):
            w = ((x[i] - x[j]) * np.exp(-log_rho)) ** 2
            K[i, j] = np.exp(2 * log_alpha - 0.5 * w)
            S[i, j] = K[i, j] * w
        K[i, i] += JITTER
    out[:] = 0.0
    if not cholesky(K, L):
        return -np.inf
    value = 25 * log_rho - 4 * np.exp(log_rho) + log_alpha - np.exp(2 * log_alpha) / 8
    out[n], out[n + 1] = 25 - 4 * np.exp(log_rho), 1 - np.exp(2 * log_alpha) / 4
    for i in range(n):
        solve_lower(L, S[i])  # row by row: S L^-T
        f[i] = dot(L[i], eta)
        slopes[i] = k[i] - np.exp(f[i])
        value += k[i] * f[i] - np.exp(f[i]) - 0.5 * eta[i] ** 2
        out[n + 1] += slopes[i] * f[i]
    by_L = slopes @ L
    out[:n] = by_L - eta
    for i in range(n):
        column = S[:, i].copy()
        solve_lower(L, column)  # of L^-1 S L^-T
        column[i] *= 0.5
        out[n] += dot(by_L[i:], column[i:]) * eta[i]  # the row i of Phi' is the column i from its diagonal on
    return value


POSTERIORS: dict[str, Callable[[], Posterior]] = {
    "eight schools": lambda: Posterior(models.EightSchools, lambda: problems.log_density_jax("schools")),
    "arK": autoregression,
    "garch": garch,
    "gaussian mixture": gaussian_mixture,
    "gaussian process": gaussian_process,
    "kidscore": kidscore,
    "normal 100, condition 1": lambda: normal(100, 1.0),
    "normal 100, condition 1e6": lambda: normal(100, 1e6),
    "normal 1000, condition 1": lambda: normal_along_axes(1000, 1.0),
    "normal 1000, condition 1e6, along the axes": lambda: normal_along_axes(1000, 1e6),
    "normal 1000, condition 1e6": lambda: normal(1000, 1e6),
    "logistic 277 x 10": lambda: logistic(models.BreastCancer),
    "logistic 768 x 9": lambda: logistic(models.Diabetes),
    "200 collinear columns": lambda: collinear(400, 200, 5, 0.05),
    "24 collinear columns, N = 5000": lambda: collinear(5000, 24, 1, 0.02),
    "line on years": line_on_years,
    "stochastic volatility, T = 1000": lambda: stochastic_volatility(1000),
    "Poisson regression on a Gaussian process": poisson_process,
}
