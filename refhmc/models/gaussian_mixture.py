"""A mixture of two Gaussians with ordered means (``low_dim_gauss_mix`` of posteriordb).

The model is ::

    y_n ~ theta N(mu1, sigma1) + (1 - theta) N(mu2, sigma2),   mu1 < mu2
    mu_k ~ N(0, 2),  sigma_k ~ N+(0, 2),  theta ~ Beta(5, 5)

The coordinates are q = (mu1, log(mu2 - mu1), log sigma1, log sigma2, logit theta). With z_k = (y - mu_k) / sigma_k, the log
density of one observation is log(e^A + e^B), up to a constant, where ::

    A = log theta - log sigma1 - z1^2/2        B = log(1 - theta) - log sigma2 - z2^2/2

Let r = expit(A - B), the probability of the first component. Its complement r' = expit(B - A) is not computed as 1 - r. Let
d = grad(A - B) and D = hess(A - B). Since dr = r r' d, ::

    grad = r grad A + r' grad B
    hess = r hess A + r' hess B + r r' d d^T
    third_ijk = r A_ijk + r' B_ijk + r r' [d_i D_jk + d_j D_ik + d_k D_ij] + r r' (r' - r) d_i d_j d_k

These are taken in x = (mu1, delta = mu2 - mu1, log sigma1, log sigma2, logit theta) and converted to q, in which only the
second coordinate differs, by the chain rule of :mod:`refhmc.numerics.transforms`. With tau_k = 1 / sigma_k, the numbers 0..4
of x as indices, and delta entering only through mu2 = mu1 + delta, ::

    A:  0: tau1 z1,  2: z1^2 - 1,  4: 1 - theta        B:  0 and 1: tau2 z2,  3: z2^2 - 1,  4: -theta
    A: 00: -tau1^2,  02: -2 tau1 z1,  22: -2 z1^2,  44: -theta (1 - theta)
    B: 00, 01 and 11: -tau2^2,  03 and 13: -2 tau2 z2,  33: -2 z2^2,  44: as A
    A: 002: 2 tau1^2,  022: 4 tau1 z1,  222: 4 z1^2,  444: -theta (1 - theta)(1 - 2 theta)      B similarly

Let w be the sums over n of (r, r z1, r z1^2, r', r' z2, r' z2^2). They give all terms except those in d. The first and
second derivatives of A and B are linear in such weights, and d and D are those of w = (1, z1, z1^2, -1, -z2, -z2^2). The
terms d_i D_jk therefore need only the sums of r r' d_i times 1, z1, z1^2, z2 and z2^2, and the Hessian those of r r' d_i d_j.
All of them are sums over n, which are vectorised.

The priors and Jacobians add -mu_k^2/8, -sigma_k^2/8 + log sigma_k, 5 log theta + 5 log(1 - theta) and log delta. The
expected information has no closed form, so the model has no Fisher metric.

Row 0 of the data holds y.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating, jit_sum
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import in_rows, vector
from refhmc.models.logistic_regression import exponentials, log_product
from refhmc.models.recipe import recreatable
from refhmc.models.split import functions_of_a_part, with_share
from refhmc.numerics.transforms import (
    chain_contraction,
    chain_hessian,
    expit,
    half_line,
    half_line_forward,
    interval_forward,
    interval_log_jacobian,
    ordered_forward,
    softplus,
)

NAMES = ["mu1", "log_gap", "log_sigma[0]", "log_sigma[1]", "logit_theta"]


@jit
def parameters(q: np.ndarray) -> tuple:
    """Return mu1, mu2, tau1, tau2, theta and 1 - theta."""
    return q[0], q[0] + np.exp(q[1]), np.exp(-q[2]), np.exp(-q[3]), expit(q[4]), expit(-q[4])


# -------------------------------------------------------------------------------------------- sums over observations


@jit_sum
def log_odds(q: np.ndarray, x: tuple, y: np.ndarray, odds: np.ndarray, exponent: np.ndarray) -> float:
    """Write odds = A - B of each observation and exponent = -|A - B|, at least -800, and return the sum of max(A, B)."""
    constant_A, constant_B = -softplus(-q[4]) - q[2], -softplus(q[4]) - q[3]
    total = 0.0 * q[0]
    for n in range(y.shape[0]):
        z1, z2 = (y[n] - x[0]) * x[2], (y[n] - x[1]) * x[3]
        A, B = constant_A - 0.5 * z1 * z1, constant_B - 0.5 * z2 * z2
        odds[n] = A - B
        total += A if odds[n].real >= 0 else B
        t = -odds[n] if odds[n].real >= 0 else odds[n]
        exponent[n] = -800.0 if t.real < -800.0 else t
    return total


@jit_sum
def first_sums(x: tuple, y: np.ndarray, r: np.ndarray, s: np.ndarray) -> tuple:
    """Return w."""
    r_1 = r_z = r_zz = s_1 = s_z = s_zz = 0.0 * x[0]
    for n in range(y.shape[0]):
        z1, z2 = (y[n] - x[0]) * x[2], (y[n] - x[1]) * x[3]
        r_1 += r[n]
        r_z += r[n] * z1
        r_zz += r[n] * z1 * z1
        s_1 += s[n]
        s_z += s[n] * z2
        s_zz += s[n] * z2 * z2
    return r_1, r_z, r_zz, s_1, s_z, s_zz


@jit_allocating
def likelihood(q: np.ndarray, y: np.ndarray, r: np.ndarray, s: np.ndarray) -> tuple[float, tuple]:
    """Return the log likelihood and w; write r and r' of each observation into r and s."""
    x = parameters(q)
    e, power = np.empty(y.shape[0], q.dtype), np.empty(y.shape[0])
    L = log_odds(q, x, y, r, e)
    exponentials(e, power, power.view(np.int64))
    for n in range(y.shape[0]):
        e[n] = power[n] * (1 + e[n])
        large = 1 / (1 + e[n])
        small = e[n] * large
        first = r[n].real >= 0
        r[n] = large if first else small
        s[n] = small if first else large
    return L + log_product(e), first_sums(x, y, r, s)


@jit
def rows(x: tuple, y: np.ndarray, z: np.ndarray, d: np.ndarray) -> None:
    """Write rows of z1, z1^2, z2, z2^2 into z (4, n), and d (5, n)."""
    for n in range(y.shape[0]):
        z1, z2 = (y[n] - x[0]) * x[2], (y[n] - x[1]) * x[3]
        z[0, n], z[1, n], z[2, n], z[3, n] = z1, z1 * z1, z2, z2 * z2
        d[0, n] = x[2] * z1 - x[3] * z2
        d[1, n] = -x[3] * z2
        d[2, n] = z1 * z1 - 1
        d[3, n] = 1 - z2 * z2
        d[4, n] = 1.0


@jit_sum
def products(A: np.ndarray, B: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """Write out_ij = sum_n weight_n A_in B_jn."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = 0.0 * weight[0]
            for n in range(weight.shape[0]):
                total += weight[n] * A[i, n] * B[j, n]
            out[i, j] = total


# ------------------------------------------------------------------ derivatives of A and B in x, as weighted by some w


@jit
def slopes(x: tuple, w: tuple) -> tuple:
    _, _, tau1, tau2, theta, rest = x
    second = tau2 * w[4]
    return tau1 * w[1] + second, second, w[2] - w[0], w[5] - w[3], rest * w[0] - theta * w[3]


@jit
def curvatures(x: tuple, w: tuple, out: np.ndarray) -> None:
    _, _, tau1, tau2, theta, rest = x
    out[:] = 0.0
    out[0, 1] = out[1, 0] = out[1, 1] = -tau2 * tau2 * w[3]
    out[0, 0] = out[1, 1] - tau1 * tau1 * w[0]
    out[0, 2] = out[2, 0] = -2 * tau1 * w[1]
    out[0, 3] = out[3, 0] = out[1, 3] = out[3, 1] = -2 * tau2 * w[4]
    out[2, 2] = -2 * w[2]
    out[3, 3] = -2 * w[5]
    out[4, 4] = -theta * rest * (w[0] + w[3])


@jit
def thirds(x: tuple, w: tuple, out: np.ndarray) -> None:
    _, _, tau1, tau2, theta, rest = x
    out[:] = 0.0
    out[0, 0, 2] = out[0, 2, 0] = out[2, 0, 0] = 2 * tau1 * tau1 * w[0]
    out[0, 2, 2] = out[2, 0, 2] = out[2, 2, 0] = 4 * tau1 * w[1]
    out[2, 2, 2] = 4 * w[2]
    for i in range(2):
        for j in range(2):
            out[i, j, 3] = out[i, 3, j] = out[3, i, j] = 2 * tau2 * tau2 * w[3]
        out[i, 3, 3] = out[3, i, 3] = out[3, 3, i] = 4 * tau2 * w[4]
    out[3, 3, 3] = 4 * w[5]
    out[4, 4, 4] = -theta * rest * (rest - theta) * (w[0] + w[3])


# ----------------------------------------------------------------------- derivatives in x, of all but log delta


@jit
def log_prior_and_jacobian(q: np.ndarray) -> float:
    total = q[1] + q[2] + q[3] + 5 * interval_log_jacobian(q[4])[0]
    return total - 0.125 * (q[0] ** 2 + (q[0] + np.exp(q[1])) ** 2 + np.exp(2 * q[2]) + np.exp(2 * q[3]))


@jit
def gradient_x(q: np.ndarray, w: tuple) -> tuple:
    x = parameters(q)
    g = slopes(x, w)
    return (
        g[0] - 0.25 * (x[0] + x[1]),
        g[1] - 0.25 * x[1],
        g[2] - 0.25 * np.exp(2 * q[2]) + 1,
        g[3] - 0.25 * np.exp(2 * q[3]) + 1,
        g[4] + 5 * interval_log_jacobian(q[4])[1],
    )


@jit_allocating
def hessian_x(q: np.ndarray, w: tuple, d: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    D = np.empty((5, 5), q.dtype)
    curvatures(parameters(q), w, D)
    products(d, d, weight, out)
    for i in range(5):
        for j in range(5):
            out[i, j] += D[i, j]
    for i in range(2):
        for j in range(2):
            out[i, j] -= 0.25
    out[0, 0] -= 0.25
    out[2, 2] -= 0.5 * np.exp(2 * q[2])
    out[3, 3] -= 0.5 * np.exp(2 * q[3])
    out[4, 4] += 5 * interval_log_jacobian(q[4])[2]


@jit_allocating
def third_derivative_x(
    q: np.ndarray, w: tuple, z: np.ndarray, d: np.ndarray, weight: np.ndarray, out: np.ndarray
) -> None:
    """Write the third derivative in x without the terms in d_i d_j d_k."""
    x = parameters(q)
    sums, ones, D = np.empty((4, 5), q.dtype), np.empty((1, 5), q.dtype), np.empty((5, 5), q.dtype)
    thirds(x, w, out)
    products(z, d, weight, sums)
    products(d[4:], d, weight, ones)
    for i in range(5):
        curvatures(x, (ones[0, i], sums[0, i], sums[1, i], -ones[0, i], -sums[2, i], -sums[3, i]), D)
        for j in range(5):
            for k in range(5):
                out[i, j, k] += D[j, k]
                out[j, i, k] += D[j, k]
                out[j, k, i] += D[j, k]
    out[2, 2, 2] -= np.exp(2 * q[2])
    out[3, 3, 3] -= np.exp(2 * q[3])
    out[4, 4, 4] += 5 * interval_log_jacobian(q[4])[3]


# ------------------------------------------------------------------------------------------------ derivatives in q


@jit
def map_derivatives(q: np.ndarray) -> tuple[tuple, tuple, tuple]:
    """Return the first, second and third derivative of each x_i in q_i."""
    zero = 0.0 * q[0]
    one = 1.0 + zero
    delta = half_line(q[1])
    return (one, delta[1], one, one, one), (zero, delta[2], zero, zero, zero), (zero, delta[3], zero, zero, zero)


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    r, s = np.empty(data.shape[1], q.dtype), np.empty(data.shape[1], q.dtype)
    return likelihood(q, data[0], r, s)[0] + log_prior_and_jacobian(q)


@jit_allocating
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    r, s = np.empty(data.shape[1], q.dtype), np.empty(data.shape[1], q.dtype)
    L, w = likelihood(q, data[0], r, s)
    out[0], out[1], out[2], out[3], out[4] = gradient_x(q, w)
    out[1] = half_line(q[1])[1] * out[1] + 1
    return L + log_prior_and_jacobian(q)


@jit_allocating
def second_order_sums(q: np.ndarray, y: np.ndarray) -> tuple:
    """Return w, the rows z and d, and r r' and r r' (r' - r) of each observation."""
    n = y.shape[0]
    z, d, r, s = np.empty((4, n), q.dtype), np.empty((5, n), q.dtype), np.empty(n, q.dtype), np.empty(n, q.dtype)
    _, w = likelihood(q, y, r, s)
    rows(parameters(q), y, z, d)
    for i in range(n):
        both = r[i] * s[i]
        s[i] = both * (s[i] - r[i])
        r[i] = both
    return w, z, d, r, s


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    w, _, d, weight, _ = second_order_sums(q, data[0])
    a, b, _ = map_derivatives(q)
    hessian_x(q, w, d, weight, out)
    chain_hessian(out, gradient_x(q, w), a, b)


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    w, z, d, weight, cubic = second_order_sums(q, data[0])
    a, b, c = map_derivatives(q)
    D, T = np.empty((5, 5), q.dtype), np.empty((5, 5, 5), q.dtype)
    form, total = np.zeros((1, data.shape[1]), q.dtype), np.empty((1, 5), q.dtype)  # sum_ij M_ij a_i a_j d_i d_j
    third_derivative_x(q, w, z, d, weight, T)
    for i in range(5):
        for j in range(5):
            M_x = M[i, j] * a[i] * a[j]
            for n in range(data.shape[1]):
                form[0, n] += M_x * d[i, n] * d[j, n]
    products(form, d, cubic, total)
    for k in range(5):
        out[k] = total[0, k]
        for i in range(5):
            for j in range(5):
                out[k] += M[i, j] * a[i] * a[j] * T[i, j, k]
    hessian_x(q, w, d, weight, D)
    chain_contraction(out, M, D, gradient_x(q, w), a, b, c)


@jit
def log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior in q, and write its gradient."""
    zero = 0.0 * q[0]
    out[0], out[1], out[2], out[3], out[4] = gradient_x(q, (zero, zero, zero, zero, zero, zero))
    out[1] = half_line(q[1])[1] * out[1] + 1
    return log_prior_and_jacobian(q)


part_log_density, part_value_and_gradient = functions_of_a_part(log_density, value_and_gradient, log_prior)


def share_of(y: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the mixture on some of the observations, with a ``share`` of the previous share of the log prior."""
    y, share = y[rows], before * share
    return Model(
        5,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=with_share(y.reshape(1, -1), share),
        names=NAMES,
        constrain=constrain,
        name="gaussian_mixture",
        n_rows=len(y),
        part=functools.partial(share_of, y, share),
    )


def constrain(q: np.ndarray) -> dict:
    return {
        "mu": ordered_forward(q[..., :2]),
        "sigma": half_line_forward(q[..., 2:4]),
        "theta": interval_forward(q[..., 4]),
    }


def log_likelihood(values: dict, y: np.ndarray) -> dict:
    theta = values["theta"][..., None]
    one, two = (log_normal(y, values["mu"][..., [k]], values["sigma"][..., [k]]) for k in (0, 1))
    return {"y": np.logaddexp(np.log(theta) + one, np.log1p(-theta) + two)}


def posterior_predictive(values: dict, rng: np.random.Generator, n: int) -> dict:
    lead = values["theta"].shape
    first = rng.random((*lead, n)) < values["theta"][..., None]
    mean, sd = (np.where(first, values[name][..., [0]], values[name][..., [1]]) for name in ("mu", "sigma"))
    return {"y": rng.normal(mean, sd)}


def prior(rng: np.random.Generator) -> dict:
    return {"mu": np.sort(rng.normal(0.0, 2.0, 2)), "sigma": abs(rng.normal(0.0, 2.0, 2)), "theta": rng.beta(5.0, 5.0)}


@recreatable
def GaussianMixture(y: ArrayLike | None = None) -> Model:
    """Return a mixture of two Gaussians with ordered means.

    The model is ::

        y_n ~ theta N(mu1, sigma1) + (1 - theta) N(mu2, sigma2),   mu1 < mu2
        mu_k ~ N(0, 2),  sigma_k ~ N+(0, 2),  theta ~ Beta(5, 5)

    with standard deviations as second arguments. The variables are ``mu`` and ``sigma``, of shape (2,), and ``theta``. The
    model has no Fisher metric.

    Parameters
    ----------
    y : array_like of shape (N,), optional
        Observations. Defaults to those of ``low_dim_gauss_mix`` in posteriordb.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    refhmc.errors.ShapeError
        If `y` is not a vector of at least one number.
    ValueError
        If `y` is not finite.

    References
    ----------
    M. Magnusson et al., posteriordb, posterior low_dim_gauss_mix-low_dim_gauss_mix.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.GaussianMixture([-1.0, -1.2, 2.0]).reference_names
    ['mu[0]', 'mu[1]', 'sigma[0]', 'sigma[1]', 'theta']
    """
    reference = None
    if y is None:
        y = posteriordb("low_dim_gauss_mix-low_dim_gauss_mix")["data"]["y"]
        variables = ["mu[1]", "mu[2]", "sigma[1]", "sigma[2]", "theta"]
        reference = posteriordb_reference("low_dim_gauss_mix-low_dim_gauss_mix", variables)
    y = vector("y", y)
    return Model(
        5,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        data=in_rows(y),
        names=NAMES,
        constrain=constrain,
        name="gaussian_mixture",
        reference=reference,
        n_rows=len(y),
        part=functools.partial(share_of, y, 1.0),
        dims={"mu": "component", "sigma": "component", "y": "observation"},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y),
            posterior_predictive=functools.partial(posterior_predictive, n=len(y)),
            prior=prior,
            observed_data={"y": y},
        ),
    )
