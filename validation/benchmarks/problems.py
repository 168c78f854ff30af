"""The problems of the comparison with peers, each in the form a library takes.

=========  ===  ================================================================================================
normal     100  independent standard normals
schools     10  eight schools, not centred, as in posteriordb: theta_j = mu + tau eta_j, eta ~ N(0, 1),
                y_j ~ N(theta_j, sigma_j), mu ~ N(0, 5), tau ~ half-Cauchy(0, 5); coordinates eta, mu, log tau
logistic    31  logistic regression on the breast cancer data of scikit-learn (569 rows): 30 standardised columns and
                an intercept, N(0, 1) on every coefficient
=========  ===  ================================================================================================

refhmc's models come from ``refhmc.models``; nutpie takes a C function ``(dim, q, gradient, logp, user) -> status``
compiled by Numba from derivatives written by hand; NumPyro and BlackJAX take the log density in jax.numpy.
"""

from __future__ import annotations

import math

DIMENSIONS = {"normal": 100, "schools": 10, "logistic": 31}
TITLES = {"normal": "100-d normal", "schools": "eight schools", "logistic": "logistic regression 569 x 31"}
Y = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
SIGMA = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)


def breast_cancer():
    """(X, y): 569 rows, an intercept and 30 standardised columns."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return np.hstack([np.ones((len(X), 1)), X]), data.target.astype(float)


def refhmc_model(problem: str):
    """The problem as a model of refhmc."""
    import numpy as np

    if problem == "normal":
        from refhmc.models.gaussian import Gaussian

        return Gaussian(np.zeros(100), np.eye(100))
    if problem == "schools":
        from refhmc.models.eight_schools import EightSchools

        return EightSchools()
    from refhmc.models.logistic_regression import LogisticRegression

    X, y = breast_cancer()
    return LogisticRegression(X, y)


def log_density_jax(problem: str):
    """The log density of one vector, in jax.numpy."""
    import jax
    import jax.numpy as jnp

    if problem == "normal":
        return lambda q: -0.5 * jnp.sum(q * q)
    if problem == "schools":
        y, sigma = jnp.array(Y), jnp.array(SIGMA)

        def schools(q):
            eta, mu, tau = q[:8], q[8], jnp.exp(q[9])
            residuals = (y - mu - tau * eta) / sigma
            prior = -0.5 * jnp.sum(eta * eta) - 0.5 * (mu / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + q[9]
            return prior - 0.5 * jnp.sum(residuals * residuals)

        return schools
    X, y = map(jnp.asarray, breast_cancer())
    Z = (2 * y - 1)[:, None] * X
    return lambda q: jnp.sum(jax.nn.log_sigmoid(Z @ q)) - 0.5 * jnp.sum(q * q)


def gradient_numba(problem: str):
    """``f(q, data, out) -> log density``, compiled by Numba, gradient into ``out``; and its data."""
    import numba
    import numpy as np

    # the same liberty to reorder sums that refhmc's models take
    jit = numba.njit(error_model="numpy", fastmath={"reassoc", "nsz"})
    if problem == "normal":

        @jit
        def normal(q, data, out):
            total = 0.0
            for i in range(q.shape[0]):
                out[i] = -q[i]
                total -= 0.5 * q[i] * q[i]
            return total

        return normal, np.zeros((1, 1))
    if problem == "schools":

        @jit
        def schools(q, data, out):
            mu, tau = q[8], math.exp(q[9])
            shrunk = tau * tau / 25
            total = -0.5 * mu * mu / 25 - math.log1p(shrunk) + q[9]
            to_mu, to_tau = -mu / 25, 0.0
            for j in range(8):
                pull = (data[0, j] - mu - tau * q[j]) * data[1, j]
                total -= 0.5 * (q[j] * q[j] + (data[0, j] - mu - tau * q[j]) * pull)
                out[j] = tau * pull - q[j]
                to_mu += pull
                to_tau += q[j] * pull
            out[8] = to_mu
            out[9] = tau * to_tau - 2 * shrunk / (1 + shrunk) + 1
            return total

        return schools, np.array([Y, 1 / np.square(SIGMA)])
    # the fastest text at hand: refhmc's own
    model = refhmc_model("logistic")
    return model.core.tuple[1], model.core.data
