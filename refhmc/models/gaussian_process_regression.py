"""Gaussian process regression, hyperparameters only (``gp_regr`` of posteriordb).

The model is ::

    y ~ N(0, K),   K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2)) + sigma [i = j]       (sigma, not its square)
    rho ~ Gamma(shape 25, rate 4),   alpha ~ N+(0, 2),   sigma ~ N+(0, 1)

with q = (log rho, log alpha, log sigma). Priors and Jacobians together are ::

    25 q_1 - 4 rho,    q_2 - alpha^2/8,    q_3 - sigma^2/2

The derivatives of K in q use w_ij = (x_i - x_j)^2 / rho^2, C = alpha^2 e^{-w/2} entry by entry, and S = sigma I. Each
derivative in log alpha multiplies C by 2. Derivatives in log rho multiply it by ::

    once: w     twice: w^2 - 2w     thrice: w^3 - 6w^2 + 4w

S is its own derivative in log sigma, and all mixed derivatives with it are zero. Write K_a, K_ab, K_abc for the derivatives,
P = K^-1, beta = P y, W = beta beta' - P. Since P_c = -P K_c P and L = -y'P y/2 - log|K|/2, ::

    L_a   = W:K_a / 2                                             (A:B = sum_ij A_ij B_ij)
    L_ab  = W:K_ab / 2 - beta'K_a P K_b beta + tr(P K_a P K_b)/2
    L_abc = W:K_abc / 2 + sum over ab|c, ac|b, bc|a of [tr(P K_ab P K_c)/2 - beta'K_ab P K_c beta]
            + sum over the middle one of (a, b, c) of beta'K_. P K_. P K_. beta - tr(P K_a P K_b P K_c)

The Fisher metric is F_ab = tr(P K_a P K_b)/2, plus the curvature of the priors diag(4 rho, alpha^2/2, 2 sigma^2)::

    F_ab,c = [tr(P K_ac P K_b) + tr(P K_bc P K_a)]/2 - tr(P K_a P K_b P K_c), and 4 rho, alpha^2, 4 sigma^2 of the priors

If K is not positive definite in floating point (sigma far below the rounding error of alpha^2), L is -inf and its
derivatives are zero. Near singularity they lose accuracy in proportion to the condition number of K, as any evaluation of L
must.

The pointwise log likelihood is that of each y_i given all others, as leave-one-out cross-validation requires (Sundararajan
and Keerthi 2001, Neural Computation 13, 1103-1118; Buerkner, Gabry and Vehtari 2021). With P = K^-1, ::

    y_i | y_-i ~ N(y_i - (P y)_i / P_ii, 1 / sqrt(P_ii))

The sum of these terms is not the log likelihood. A predictive draw is a whole new y ~ N(0, K).

Row 0 of the data holds x, row 1 holds y.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating
from refhmc.core.point import copy_row
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import given_together, vectors
from refhmc.models.recipe import recreatable
from refhmc.numerics.linalg import cholesky, dot, solve_lower, solve_lower_transposed

# Only the matrices K_rho, K_alpha, K_sigma, K_rho_rho and K_rho_rho_rho occur. The derivative of the m-th in q_c is
# FACTOR[m][c] times the NEXT[m][c]-th.
NEXT = ((3, 0, 0), (0, 1, 0), (0, 0, 2), (4, 3, 0))
FACTOR = ((1.0, 2.0, 0.0), (2.0, 2.0, 0.0), (0.0, 0.0, 1.0), (1.0, 2.0, 0.0))


@jit
def covariance(q: np.ndarray, x: np.ndarray, K: np.ndarray) -> None:
    """Write the lower triangle of K."""
    inverse, variance = np.exp(-q[0]), np.exp(2 * q[1])
    for i in range(x.shape[0]):
        for j in range(i):
            K[i, j] = variance * np.exp(-0.5 * ((x[i] - x[j]) * inverse) ** 2)
        K[i, i] = variance + np.exp(q[2])


@jit
def invert(L: np.ndarray, P: np.ndarray) -> None:
    """Compute L <- L^-1 and P <- (L L')^-1, both triangles."""
    n = L.shape[0]
    for i in range(n):
        L[i, i] = 1 / L[i, i]
        for j in range(i):
            total = L[i, j] * L[j, j]
            for k in range(j + 1, i):
                total += L[i, k] * L[k, j]
            P[i, j] = -total * L[i, i]
        for j in range(i):
            L[i, j] = P[i, j]
    for i in range(n):
        for j in range(i + 1):
            total = L[i, i] * L[i, j]
            for k in range(i + 1, n):
                total += L[k, i] * L[k, j]
            P[i, j] = P[j, i] = total


@jit
def log_prior_and_jacobian(q: np.ndarray) -> float:
    return 25 * q[0] - 4 * np.exp(q[0]) + q[1] - 0.125 * np.exp(2 * q[1]) + q[2] - 0.5 * np.exp(2 * q[2])


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    x, y = data[0], data[1]
    n = x.shape[0]
    K, z = np.empty((n, n), q.dtype), np.empty(n, q.dtype)
    covariance(q, x, K)
    if not cholesky(K, K):
        return -np.inf
    copy_row(z, y)
    solve_lower(K, z)
    L = -0.5 * dot(z, z) + log_prior_and_jacobian(q)
    for i in range(n):
        L -= np.log(K[i, i])
    return L


@jit_allocating
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    x, y = data[0], data[1]
    n = x.shape[0]
    K, L, P = np.empty((n, n), q.dtype), np.empty((n, n), q.dtype), np.empty((n, n), q.dtype)
    beta = np.zeros(n, q.dtype)
    out[:] = 0.0
    covariance(q, x, K)
    if not cholesky(K, L):
        return -np.inf
    invert(L, P)
    value = log_prior_and_jacobian(q)
    for i in range(n):
        z = 0.0 * q[0]
        for j in range(i + 1):
            z += L[i, j] * y[j]
        for j in range(i + 1):
            beta[j] += L[i, j] * z
        value += np.log(L[i, i]) - 0.5 * z * z
    below = weighted = diagonal = 0.0 * q[0]
    for i in range(n):
        for j in range(i):
            WC = (beta[i] * beta[j] - P[i, j]) * K[i, j]
            below += WC
            weighted += WC * (x[i] - x[j]) ** 2
        diagonal += beta[i] * beta[i] - P[i, i]
    rho, variance, sigma = np.exp(q[0]), np.exp(2 * q[1]), np.exp(q[2])
    out[0] = 25 - 4 * rho
    if weighted != 0:  # zero if rho is so small that the inverse of its square may overflow
        out[0] += weighted * np.exp(-2 * q[0])
    out[1] = 2 * below + variance * diagonal + 1 - 0.25 * variance
    out[2] = 0.5 * sigma * diagonal + 1 - sigma * sigma
    return value


@jit_allocating
def parts(q: np.ndarray, data: np.ndarray) -> tuple:
    """Return whether K is positive definite, and the matrices that the derivatives need.

    They are beta (n,), P (n, n), the five matrices of NEXT (5, n, n), and P times the first four of them (4, n, n).
    """
    x, y = data[0], data[1]
    n = x.shape[0]
    P, beta = np.zeros((n, n), q.dtype), np.empty(n, q.dtype)
    K, A = np.zeros((5, n, n), q.dtype), np.zeros((4, n, n), q.dtype)
    covariance(q, x, K[0])
    positive = cholesky(K[0], K[1])
    if not positive:
        return False, beta, P, K, A
    copy_row(beta, y)
    solve_lower(K[1], beta)
    solve_lower_transposed(K[1], beta)
    invert(K[1], P)
    inverse, variance, sigma = np.exp(-q[0]), np.exp(2 * q[1]), np.exp(q[2])
    for i in range(n):
        for j in range(n):
            w = ((x[i] - x[j]) * inverse) ** 2
            C = variance * np.exp(-0.5 * w)
            if C == 0:  # w may have overflowed
                w = C
            K[0, i, j] = w * C
            K[1, i, j] = 2 * C
            K[2, i, j] = sigma if i == j else 0.0
            K[3, i, j] = w * (w - 2) * C
            K[4, i, j] = w * (w * (w - 6) + 4) * C
    for m in range(4):
        times(P, K[m], A[m])
    return True, beta, P, K, A


@jit
def times(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """Write the product A B into ``out``."""
    n = A.shape[0]
    out[:] = 0.0
    for i in range(n):
        for k in range(n):
            for j in range(n):
                out[i, j] += A[i, k] * B[k, j]


@jit
def trace_of_product(A: np.ndarray, B: np.ndarray) -> float:
    total = 0.0 * A[0, 0]
    for i in range(A.shape[0]):
        for j in range(A.shape[0]):
            total += A[i, j] * B[j, i]
    return total


@jit
def form(x: np.ndarray, A: np.ndarray, y: np.ndarray) -> float:
    """Return x' A y."""
    total = 0.0 * A[0, 0]
    for i in range(A.shape[0]):
        for j in range(A.shape[0]):
            total += x[i] * A[i, j] * y[j]
    return total


@jit
def linear(beta: np.ndarray, P: np.ndarray, K: np.ndarray) -> float:
    """Return W:K / 2."""
    return 0.5 * (form(beta, K, beta) - trace_of_product(P, K))


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    positive, beta, P, K, A = parts(q, data)
    if not positive:
        return
    u = np.zeros((3, beta.shape[0]), q.dtype)  # P K_a beta
    for a in range(3):
        for i in range(beta.shape[0]):
            u[a, i] = dot(A[a, i], beta)
    for a in range(3):
        for b in range(a + 1):
            value = 0.5 * trace_of_product(A[a], A[b]) - form(beta, K[a], u[b])
            out[a, b] = out[b, a] = value + FACTOR[a][b] * linear(beta, P, K[NEXT[a][b]])
    out[0, 0] -= 4 * np.exp(q[0])
    out[1, 1] -= 0.5 * np.exp(2 * q[1])
    out[2, 2] -= 2 * np.exp(2 * q[2])


@jit
def set_symmetric(out: np.ndarray, a: int, b: int, c: int, value: float) -> None:
    out[a, b, c] = out[a, c, b] = out[b, a, c] = out[b, c, a] = out[c, a, b] = out[c, b, a] = value


@jit_allocating
def third_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    positive, beta, P, K, A = parts(q, data)
    if not positive:
        return
    n = beta.shape[0]
    u, AA, pair = np.zeros((3, n), q.dtype), np.empty((n, n), q.dtype), np.empty((4, 3), q.dtype)
    for a in range(3):
        for i in range(n):
            u[a, i] = dot(A[a, i], beta)
    for m in range(4):
        for c in range(3):
            pair[m, c] = 0.5 * trace_of_product(A[m], A[c]) - form(beta, K[m], u[c])
    for a in range(3):
        for b in range(a + 1):
            times(A[a], A[b], AA)
            ab, f_ab = NEXT[a][b], FACTOR[a][b]
            for c in range(b + 1):
                value = form(u[a], K[b], u[c]) + form(u[b], K[a], u[c]) + form(u[a], K[c], u[b])
                value -= trace_of_product(AA, A[c])
                value += f_ab * pair[ab, c] + FACTOR[a][c] * pair[NEXT[a][c], b] + FACTOR[b][c] * pair[NEXT[b][c], a]
                if f_ab != 0:
                    value += f_ab * FACTOR[ab][c] * linear(beta, P, K[NEXT[ab][c]])
                set_symmetric(out, a, b, c, value)
    out[0, 0, 0] -= 4 * np.exp(q[0])
    out[1, 1, 1] -= np.exp(2 * q[1])
    out[2, 2, 2] -= 4 * np.exp(2 * q[2])


@jit_allocating
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    positive, _, _, _, A = parts(q, data)
    if not positive:
        return
    for a in range(3):
        for b in range(3):
            out[a, b] = 0.5 * trace_of_product(A[a], A[b])
    out[0, 0] += 4 * np.exp(q[0])
    out[1, 1] += 0.5 * np.exp(2 * q[1])
    out[2, 2] += 2 * np.exp(2 * q[2])


@jit_allocating
def fisher_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    positive, beta, _, _, A = parts(q, data)
    if not positive:
        return
    n = beta.shape[0]
    AA = np.empty((n, n), q.dtype)
    for a in range(3):
        for b in range(3):
            times(A[a], A[b], AA)
            for c in range(3):
                out[a, b, c] = 0.5 * FACTOR[a][c] * trace_of_product(A[NEXT[a][c]], A[b])
                out[a, b, c] += 0.5 * FACTOR[b][c] * trace_of_product(A[NEXT[b][c]], A[a])
                out[a, b, c] -= trace_of_product(AA, A[c])
    out[0, 0, 0] += 4 * np.exp(q[0])
    out[1, 1, 1] += np.exp(2 * q[1])
    out[2, 2, 2] += 4 * np.exp(2 * q[2])


def constrain(q: np.ndarray) -> dict:
    return {"rho": np.exp(q[..., 0]), "alpha": np.exp(q[..., 1]), "sigma": np.exp(q[..., 2])}


def covariances(values: dict, x: np.ndarray) -> np.ndarray:
    """Return K, of shape (..., n, n)."""
    rho, alpha, sigma = (values[name][..., None, None] for name in ("rho", "alpha", "sigma"))
    return alpha**2 * np.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + sigma * np.eye(len(x))


def log_likelihood(values: dict, x: np.ndarray, y: np.ndarray) -> dict:
    P = np.linalg.inv(covariances(values, x))
    precision = np.diagonal(P, axis1=-2, axis2=-1)
    return {"y": log_normal(y, y - P @ y / precision, precision**-0.5)}


def posterior_predictive(values: dict, rng: np.random.Generator, x: np.ndarray) -> dict:
    z = rng.standard_normal((*values["rho"].shape, len(x), 1))
    return {"y": (np.linalg.cholesky(covariances(values, x)) @ z)[..., 0]}


def prior(rng: np.random.Generator) -> dict:
    return {"rho": rng.gamma(25.0, 1 / 4), "alpha": abs(rng.normal(0.0, 2.0)), "sigma": abs(rng.normal())}


@recreatable
def GaussianProcessRegression(x: ArrayLike | None = None, y: ArrayLike | None = None) -> Model:
    """Return the hyperparameters of a Gaussian process regression.

    The model is ::

        y ~ N(0, K),   K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2)) + sigma [i = j]       (sigma, not its square)
        rho ~ Gamma(shape 25, rate 4),   alpha ~ N+(0, 2),   sigma ~ N+(0, 1)

    The variables are ``rho``, ``alpha`` and ``sigma``. The model has all derivatives and the Fisher metric. The pointwise log
    likelihood of the result is that of each observation given all others.

    Parameters
    ----------
    x : array_like of shape (n,), optional
        Inputs. Defaults to those of ``gp_pois_regr-gp_regr`` in posteriordb.
    y : array_like of shape (n,), optional
        Observations, to be given together with `x`.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    ValueError
        If only one argument is given, or entries are not finite.
    refhmc.errors.ShapeError
        If `x` and `y` are not vectors of the same length.

    References
    ----------
    M. Magnusson et al., posteriordb, posterior gp_pois_regr-gp_regr.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.GaussianProcessRegression([0.0, 1.0, 2.0], [0.2, 0.7, 0.1]).reference_names
    ['rho', 'alpha', 'sigma']
    """
    reference = None
    if not given_together(x=x, y=y):
        known = posteriordb("gp_pois_regr-gp_regr")["data"]
        x, y = known["x"], known["y"]
        reference = posteriordb_reference("gp_pois_regr-gp_regr", ["rho", "alpha", "sigma"])
    x, y = vectors(x=x, y=y)
    return Model(
        3,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        third_derivative=third_derivative,
        fisher=fisher,
        fisher_derivative=fisher_derivative,
        data=np.array([x, y]),
        names=["log_rho", "log_alpha", "log_sigma"],
        constrain=constrain,
        name="gaussian_process_regression",
        reference=reference,
        dims={"x": "observation", "y": "observation"},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, x=x, y=y),
            posterior_predictive=functools.partial(posterior_predictive, x=x),
            prior=prior,
            observed_data={"y": y},
            constant_data={"x": x},
        ),
    )
