"""Hierarchical models of the benchmarks, each with centred and non-centred coordinates and a gradient written by hand.

**Hierarchical logistic regression** on simulated data, with an intercept and a slope for each of J groups::

    y_i ~ Bernoulli(expit(a_j(i) + b_j(i) x_i)),   a_j ~ N(mu_1, tau_1),   b_j ~ N(mu_2, tau_2)
    mu_k ~ N(0, 2),   tau_k ~ C+(0, 2),      q = (a, b, mu_1, mu_2, log tau_1, log tau_2)

**Two-parameter item response model** on simulated data, as posteriordb's ``irt_2pl``::

    y_ij ~ Bernoulli(expit(e^{alpha_j} (theta_i - b_j))),   theta_i ~ N(0, s_1),   alpha_j ~ N(0, s_2),   b_j ~ N(mu, s_3)
    mu ~ N(0, 5),   s_k ~ C+(0, 2),          q = (theta, alpha, b, mu, log s_1, log s_2, log s_3)

**Stochastic volatility** with the innovations eta of the path in place of the path::

    x_1 = sigma (1 - phi^2)^{-1/2} eta_1,   x_t = phi x_{t-1} + sigma eta_t,   q = (eta, log beta, log sigma, atanh phi)

With r_t the derivative of the log likelihood in x_t, the gradient follows from lambda_t = r_t + phi lambda_{t+1}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import refhmc
from refhmc.compile.compiled import jit, jit_allocating
from refhmc.models.stochastic_volatility import NU, SCALE
from refhmc.numerics.transforms import expit, softplus

GROUPS, ROWS = 40, 8  # groups, and rows per group
PERSONS, ITEMS = 100, 20
LOG_FOUR = np.log(4.0)

# ------------------------------------------------------------------------------------------------------- shared parts


@jit
def half_cauchy(q: np.ndarray, scale: int, out: np.ndarray) -> float:
    """Return the log density of u = log s for s ~ C+(0, 2), and add its slope; u is the coordinate `scale`."""
    out[scale] += 1 - 2 * expit(2 * q[scale] - LOG_FOUR)
    return q[scale] - softplus(2 * q[scale] - LOG_FOUR)


@jit
def normal(q: np.ndarray, begin: int, end: int, location: int, scale: int, out: np.ndarray) -> float:
    """Return the log density of effects q_i ~ N(m, e^u), and add its gradient; without a `location`, -1, m is 0."""
    m = q[location] if location >= 0 else 0.0
    precision = np.exp(-2 * q[scale])
    sum_c = sum_cc = 0.0
    for i in range(begin, end):
        c = q[i] - m
        sum_c += c
        sum_cc += c * c
        out[i] -= precision * c
    if location >= 0:
        out[location] += precision * sum_c
    out[scale] += precision * sum_cc - (end - begin)
    return -0.5 * precision * sum_cc - (end - begin) * q[scale]


def non_centred(value_and_gradient: Callable, location: Sequence[int], scale: Sequence[int]) -> Callable:
    """Return the density of z, where q_i = m + e^u z_i for effects and q_i = z_i for the others.

    With g the gradient in q, the derivative is e^u g_i in z_i, and each effect adds g_i to that in m, and e^u z_i g_i + 1 to
    that in u. `location` and `scale` have the indices of m and u of each coordinate, -1 for none.
    """
    at, by = np.array(location), np.array(scale)

    @jit_allocating
    def of_z(z, data, out):
        q = z.copy()
        log_jacobian = 0.0
        for i in range(z.shape[0]):
            if by[i] >= 0:
                q[i] = np.exp(z[by[i]]) * z[i] + (z[at[i]] if at[i] >= 0 else 0.0)
                log_jacobian += z[by[i]]
        value = value_and_gradient(q, data, out)
        for i in range(z.shape[0]):
            if by[i] >= 0:
                if at[i] >= 0:
                    out[at[i]] += out[i]
                out[i] *= np.exp(z[by[i]])
                out[by[i]] += z[i] * out[i] + 1
        return value + log_jacobian

    return of_z


def model_of(
    name: str, value_and_gradient: Callable, data: np.ndarray, sizes: dict[str, int], parents: dict[str, list[str]]
) -> refhmc.Model:
    """Return the model of a density that is computed with its gradient, with variables of the given sizes."""
    names = [f"{variable}[{i}]" if n > 1 else variable for variable, n in sizes.items() for i in range(n)]

    @jit_allocating
    def log_density(q, data):
        return value_and_gradient(q, data, np.empty_like(q))

    options = {"value_and_gradient": value_and_gradient, "names": names, "parents": parents, "data": data, "name": name}
    return refhmc.Model(len(names), log_density, **options)


def repeated(*counted: tuple[int, int]) -> list[int]:
    """Return each index as often as given."""
    return [index for index, n in counted for _ in range(n)]


# ---------------------------------------------------------------------------------- hierarchical logistic regression


@jit_allocating
def logistic_value_and_gradient(q, data, out):
    J = (q.shape[0] - 4) // 2
    out[:] = 0.0
    value = half_cauchy(q, 2 * J + 2, out) + half_cauchy(q, 2 * J + 3, out)
    for k in range(2):
        value += normal(q, k * J, (k + 1) * J, 2 * J + k, 2 * J + 2 + k, out) - q[2 * J + k] ** 2 / 8
        out[2 * J + k] -= q[2 * J + k] / 4
    for i in range(data.shape[1]):
        x, y, j = data[0, i], data[1, i], int(data[2, i])
        eta = q[j] + q[J + j] * x
        value += y * eta - softplus(eta)
        residual = y - expit(eta)
        out[j] += residual
        out[J + j] += residual * x
    return value


def logistic_data() -> np.ndarray:
    """Return the rows x, y and group of simulated data; the slopes vary less than the data can tell."""
    rng = np.random.default_rng(1)
    a, b, x = rng.normal(-0.5, 1.0, GROUPS), rng.normal(0.8, 0.25, GROUPS), rng.normal(size=(GROUPS, ROWS))
    y = rng.random(x.shape) < 1 / (1 + np.exp(-(a[:, None] + b[:, None] * x)))
    return np.array([x.ravel(), y.ravel(), np.repeat(np.arange(GROUPS), ROWS)], dtype=float)


def hierarchical_logistic(centred: bool = True) -> refhmc.Model:
    """Return the hierarchical logistic regression."""
    J, of = GROUPS, logistic_value_and_gradient
    if not centred:
        of = non_centred(
            of,
            repeated((2 * J, J), (2 * J + 1, J), (-1, 4)),
            repeated((2 * J + 2, J), (2 * J + 3, J), (-1, 4)),
        )
    sizes = {"a": J, "b": J, "mu_1": 1, "mu_2": 1, "log_tau_1": 1, "log_tau_2": 1}
    parents = {"a": ["mu_1", "log_tau_1"], "b": ["mu_2", "log_tau_2"]} if centred else {}
    return model_of("hierarchical logistic regression", of, logistic_data(), sizes, parents)


def hierarchical_logistic_density() -> Callable:
    """Return the centred log density in jax.numpy."""
    import jax
    import jax.numpy as jnp

    x, y, group = logistic_data()
    J, at = GROUPS, group.astype(int)

    def log_density(q):
        a, b, mu, u = q[:J], q[J : 2 * J], q[2 * J : 2 * J + 2], q[2 * J + 2 :]
        eta = a[at] + b[at] * x
        c = jnp.stack([a - mu[0], b - mu[1]]) * jnp.exp(-u)[:, None]
        scales = jnp.sum((1 - J) * u - jax.nn.softplus(2 * u - LOG_FOUR))
        return jnp.sum(y * eta - jax.nn.softplus(eta)) - 0.5 * jnp.sum(c * c) - jnp.dot(mu, mu) / 8 + scales

    return log_density


# ----------------------------------------------------------------------------------------------- item response model


@jit_allocating
def response_value_and_gradient(q, data, out):
    N, J = data.shape
    first = N + 2 * J  # mu; the three log scales follow
    mu = q[first]
    out[:] = 0.0
    out[first] = -mu / 25
    value = -mu * mu / 50 + normal(q, 0, N, -1, first + 1, out)
    value += normal(q, N, N + J, -1, first + 2, out) + normal(q, N + J, N + 2 * J, first, first + 3, out)
    for k in range(1, 4):
        value += half_cauchy(q, first + k, out)
    for j in range(J):
        slope, b = np.exp(q[N + j]), q[N + J + j]
        for i in range(N):
            eta = slope * (q[i] - b)
            value += data[i, j] * eta - softplus(eta)
            residual = data[i, j] - expit(eta)
            out[i] += slope * residual
            out[N + j] += eta * residual
            out[N + J + j] -= slope * residual
    return value


def response_data() -> np.ndarray:
    """Return simulated answers of persons (rows) to items (columns)."""
    rng = np.random.default_rng(2)
    theta, slope = rng.normal(0.0, 1.0, PERSONS), np.exp(rng.normal(0.0, 0.3, ITEMS))
    b = rng.normal(0.3, 0.8, ITEMS)
    return (rng.random((PERSONS, ITEMS)) < 1 / (1 + np.exp(-slope * (theta[:, None] - b)))).astype(float)


def item_response(centred: bool = True) -> refhmc.Model:
    """Return the two-parameter item response model."""
    N, J, of = PERSONS, ITEMS, response_value_and_gradient
    first = N + 2 * J
    if not centred:
        of = non_centred(
            of,
            repeated((-1, N + J), (first, J), (-1, 4)),
            repeated((first + 1, N), (first + 2, J), (first + 3, J), (-1, 4)),
        )
    sizes = {"theta": N, "alpha": J, "b": J, "mu": 1, "log_s_1": 1, "log_s_2": 1, "log_s_3": 1}
    parents = {"theta": ["log_s_1"], "alpha": ["log_s_2"], "b": ["mu", "log_s_3"]} if centred else {}
    return model_of("item response model", of, response_data(), sizes, parents)


def item_response_density() -> Callable:
    """Return the centred log density in jax.numpy."""
    import jax
    import jax.numpy as jnp

    y, N, J = jnp.asarray(response_data()), PERSONS, ITEMS

    def log_density(q):
        theta, alpha, b, mu, u = q[:N], q[N : N + J], q[N + J : N + 2 * J], q[N + 2 * J], q[N + 2 * J + 1 :]
        eta = jnp.exp(alpha) * (theta[:, None] - b)
        effects = jnp.concatenate([theta, alpha, b - mu])
        scales = u[np.repeat(np.arange(3), [N, J, J])]
        prior = -0.5 * jnp.sum((effects * jnp.exp(-scales)) ** 2) - jnp.sum(scales) - mu * mu / 50
        return jnp.sum(y * eta - jax.nn.softplus(eta)) + prior + jnp.sum(u - jax.nn.softplus(2 * u - LOG_FOUR))

    return log_density


# ---------------------------------------------------------------------------------------------- stochastic volatility


@jit_allocating
def innovations_value_and_gradient(q, data, out):
    T = q.shape[0] - 3
    u, g, a = q[T], q[T + 1], q[T + 2]
    phi, s, sigma, precision = np.tanh(a), 4 * expit(2 * a) * expit(-2 * a), np.exp(g), np.exp(-2 * u)
    first = sigma / np.sqrt(s)
    e = NU * SCALE * np.exp(-2 * g)
    value = -T * u - NU * g - 0.5 * e - 20 * softplus(-2 * a) - 1.5 * softplus(2 * a)
    x = np.empty(T)
    for t in range(T):
        x[t] = phi * x[t - 1] + sigma * q[t] if t > 0 else first * q[0]
        w = data[0, t] * precision * np.exp(-x[t])
        value -= 0.5 * (x[t] + w + q[t] * q[t])
        out[t] = 0.5 * (w - 1)
    out[T] = 0.0
    out[T + 1], out[T + 2] = e - NU, 40 * expit(-2 * a) - 3 * expit(2 * a)
    after = 0.0  # lambda_{t+1}
    for t in range(T - 1, -1, -1):
        out[T] += 2 * out[t]
        after = out[t] + phi * after
        out[T + 1] += after * (x[t] - phi * x[t - 1] if t > 0 else x[0])
        out[T + 2] += after * (s * x[t - 1] if t > 0 else phi * x[0])
        out[t] = (sigma if t > 0 else first) * after - q[t]
    return value


def volatility_of_innovations(T: int) -> refhmc.Model:
    """Return stochastic volatility with non-centred coordinates, on the data of the built-in model."""
    data = refhmc.models.StochasticVolatility(T=T).data
    sizes = {"eta": T, "log_beta": 1, "log_sigma": 1, "atanh_phi": 1}
    return model_of("stochastic volatility, non-centred", innovations_value_and_gradient, data, sizes, {})
