"""GARCH(1, 1) with a given first standard deviation (``garch11`` of posteriordb).

The model is ::

    y_t ~ N(mu, sqrt(h_t)),   h_1 = sigma1^2,   h_t = alpha0 + alpha1 (y_{t-1} - mu)^2 + beta1 h_{t-1}

with flat priors on mu, alpha0 > 0, alpha1 in (0, 1) and beta1 in (0, 1 - alpha1). The coordinates are ::

    q = (mu, log alpha0, logit alpha1, logit r),     r = beta1 / (1 - alpha1)
    log Jacobian = log alpha0 + log[alpha1 (1 - alpha1)] + log(1 - alpha1) + log[r (1 - r)]

All derivatives are taken in x = (mu, alpha0, alpha1, r) first, and then converted to q by the chain rule of
:mod:`refhmc.numerics.transforms` (x_i depends on q_i only). Write e = y_t - mu, s = 1 - alpha1, b = s r for the coefficient of
the previous h, B = grad b = (0, 0, -r, s), m = grad mu, and ' for the values at the previous time. Differentiation of the
recursion gives recursions for g = grad h, H = hess h and T, its third derivative::

    g    = (-2 alpha1 e', 1, e'^2 - r h', s h')_i + b g'_i
    H_ij = E_ij + b H'_ij + B_i g'_j + g'_i B_j            E: mu mu: 2 alpha1,  mu alpha1: -2 e',  alpha1 r: -h'
    T_ijk = F_ijk + b T'_ijk + [B_i H'_jk + B_j H'_ik + B_k H'_ij] + [C_ij g'_k + C_ik g'_j + C_jk g'_i]
                                                           F: mu mu alpha1: 2      C = hess b: alpha1 r: -1

All start at zero. The log density of one time is l(h, e) = -log(h)/2 - e^2/(2h). With z = e^2/h its derivatives are ::

    l_h = (z - 1)/2h    l_hh = (1/2 - z)/h^2    l_hhh = (3z - 1)/h^3
    l_e = -e/h    l_ee = -1/h    l_eh = e/h^2    l_ehh = -2e/h^3    l_eeh = 1/h^2

    grad l  = l_h g - l_e m
    hess l  = l_hh g g' + l_h H - l_eh (m g' + g m') + l_ee m m'
    third_ijk = l_hhh g_i g_j g_k + l_h T_ijk + l_eeh [m_i m_j g_k + 2 more] - l_ehh [m_i g_j g_k + 2 more]
                + [(l_hh g - l_eh m)_i H_jk + 2 more]

The expected information has no closed form (h_t is a function of the earlier y), so the model has no Fisher metric.

In the log likelihood and in predictive draws, each value is conditional on the observed values before it.

Row 0 of the data holds y, row 1 begins with sigma1. A part on some of the times needs all earlier y. It has two more rows:
one with 1 at these times, and one that begins with its share of the prior.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating
from refhmc.core.arguments import positive
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import given_together, in_rows, vector
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.split import with_share
from refhmc.numerics.transforms import (
    chain_contraction,
    chain_hessian,
    expit,
    half_line,
    half_line_forward,
    interval,
    interval_forward,
    interval_log_jacobian,
    softplus,
)

NAMES = ["mu", "log_alpha0", "logit_alpha1", "logit_r"]


@jit
def likelihood(q: np.ndarray, data: np.ndarray) -> tuple:
    """Return the log likelihood and write its gradient in x, in one pass with grad h in terms of beta1 instead of r."""
    y = data[0]
    mu, a0, a1, s, r = q[0], np.exp(q[1]), expit(q[2]), expit(-q[2]), expit(q[3])
    b = s * r
    zero = 0.0 * mu
    one = 1.0 + zero
    h = data[1, 0] ** 2
    h_mu = h_0 = h_1 = h_b = zero  # grad h, with the entry of mu divided by -2 alpha1
    L_e = L_mu = L_0 = L_1 = L_b = squares = logs = zero
    product = one
    for t in range(y.shape[0]):
        e = y[t] - mu
        ee = e * e
        i_h = 1 / h
        z = ee * i_h
        squares += z
        # The sum of log h is the log of the product while it is in range: one log costs as much as the rest of the loop.
        longer = product * h
        if 1e-200 < longer.real < 1e200:
            product = longer
        else:
            logs += np.log(product) + np.log(h)
            product = one
        twice_l_h = (z - 1) * i_h
        L_e += e * i_h
        L_mu += twice_l_h * h_mu
        L_0 += twice_l_h * h_0
        L_1 += twice_l_h * h_1
        L_b += twice_l_h * h_b
        h_mu = b * h_mu + e
        h_0 = b * h_0 + 1
        h_1 = b * h_1 + ee
        h_b = b * h_b + h
        h = b * h + (a0 + a1 * ee)
    value = -0.5 * (logs + np.log(product) + squares)
    return value, L_e - a1 * L_mu, 0.5 * L_0, 0.5 * (L_1 - r * L_b), 0.5 * s * L_b


@jit
def log_jacobian(q: np.ndarray) -> float:
    return q[1] + interval_log_jacobian(q[2])[0] - softplus(q[2]) + interval_log_jacobian(q[3])[0]


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    return likelihood(q, data)[0] + log_jacobian(q)


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    L, L_mu, L_0, L_1, L_r = likelihood(q, data)
    out[0] = L_mu
    out[1] = L_0 * np.exp(q[1]) + 1
    out[2] = L_1 * interval(q[2])[1] + interval_log_jacobian(q[2])[1] - expit(q[2])
    out[3] = L_r * interval(q[3])[1] + interval_log_jacobian(q[3])[1]
    return L + log_jacobian(q)


@jit
def map_derivatives(
    q: np.ndarray,
) -> tuple[tuple[float, float, float, float], tuple[float, float, float, float], tuple[float, float, float, float]]:
    """Return the first, second and third derivative of each x_i in q_i."""
    zero = 0.0 * q[0]
    a0 = half_line(q[1])
    a1 = interval(q[2])
    r = interval(q[3])
    return (1 + zero, a0[1], a1[1], r[1]), (zero, a0[2], a1[2], r[2]), (zero, a0[3], a1[3], r[3])


@jit_allocating
def coefficients(q: np.ndarray) -> tuple[float, float, float, np.ndarray]:
    """Return alpha0, alpha1, b and B as an array, which is faster in loops than a tuple."""
    s, r = expit(-q[2]), expit(q[3])
    B = np.zeros(4, q.dtype)
    B[2], B[3] = -r, s
    return np.exp(q[1]), expit(q[2]), s * r, B


@jit
def advance(x: tuple[float, float, float, np.ndarray], e: float, h: float, g: np.ndarray, H: np.ndarray) -> float:
    """Advance g and H to the next time, and return its h; x holds the coefficients."""
    a0, a1, b, B = x
    for i in range(4):
        for j in range(4):
            H[i, j] = b * H[i, j] + B[i] * g[j] + g[i] * B[j]
    H[0, 0] += 2 * a1
    H[0, 2] -= 2 * e
    H[2, 0] -= 2 * e
    H[2, 3] -= h
    H[3, 2] -= h
    for i in range(4):
        g[i] = b * g[i] + B[i] * h
    g[0] -= 2 * a1 * e
    g[1] += 1
    g[2] += e * e
    return a0 + a1 * e * e + b * h


@jit
def add_hessian(out: np.ndarray, e: float, h: float, g: np.ndarray, H: np.ndarray) -> None:
    """Add hess l to ``out``."""
    i_h = 1 / h
    z = e * e * i_h
    for i in range(4):
        for j in range(4):
            out[i, j] += (0.5 - z) * i_h * i_h * g[i] * g[j] + 0.5 * (z - 1) * i_h * H[i, j]
        out[0, i] -= e * i_h * i_h * g[i]
        out[i, 0] -= e * i_h * i_h * g[i]
    out[0, 0] -= i_h


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    g, H = np.zeros(4, q.dtype), np.zeros((4, 4), q.dtype)
    x = coefficients(q)
    h = data[1, 0] ** 2 + 0.0 * q[0]
    out[:] = 0.0
    for t in range(data.shape[1]):
        e = data[0, t] - q[0]
        add_hessian(out, e, h, g, H)
        h = advance(x, e, h, g, H)
    a, b, _ = map_derivatives(q)
    chain_hessian(out, likelihood(q, data)[1:], a, b)
    out[2, 2] += 1.5 * interval_log_jacobian(q[2])[2]  # J'' = -2 p m; log(1 - alpha1) adds -p m
    out[3, 3] += interval_log_jacobian(q[3])[2]


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    # The third derivatives of the module's docstring, contracted with the symmetric S before the loop over time.
    g, H, T = np.zeros(4, q.dtype), np.zeros((4, 4), q.dtype), np.zeros(4, q.dtype)
    hessian_x = np.zeros((4, 4), q.dtype)
    S, C, m = np.empty((4, 4), q.dtype), np.zeros((4, 4)), np.zeros(4)
    Sg, Sp, SB = np.empty(4, q.dtype), np.empty(4, q.dtype), np.empty(4, q.dtype)
    C[2, 3] = C[3, 2] = -1.0
    m[0] = 1.0
    a, b, c = map_derivatives(q)
    x = coefficients(q)
    _, _, coefficient, B = x
    for i in range(4):
        SB[i] = 0.0
        for j in range(4):
            S[i, j] = 0.5 * (M[i, j] + M[j, i]) * a[i] * a[j]
            SB[i] += S[i, j] * B[j]
    h = data[1, 0] ** 2 + 0.0 * q[0]
    out[:] = 0.0
    for t in range(data.shape[1]):
        e = data[0, t] - q[0]
        i_h = 1 / h
        z = e * e * i_h
        l_h, l_hh, l_hhh = 0.5 * (z - 1) * i_h, (0.5 - z) * i_h**2, (3 * z - 1) * i_h**3
        l_eh, l_ehh, l_eeh = e * i_h**2, -2 * e * i_h**3, i_h**2
        gSg = S_H = 0.0 * h
        for i in range(4):
            Sg[i] = 0.0
            for j in range(4):
                Sg[i] += S[i, j] * g[j]
                S_H += S[i, j] * H[i, j]
            Sp[i] = -l_eh * S[i, 0]
            Sp[i] += l_hh * Sg[i]
            gSg += g[i] * Sg[i]
        for k in range(4):
            pH = BH = Cg = 0.0 * h
            for i in range(4):
                pH += 2 * Sp[i] * H[i, k]
                BH += 2 * SB[i] * H[i, k]
                Cg += 2 * C[i, k] * Sg[i]
            mmg = S[0, 0] * g[k] + 2 * Sg[0] * m[k]
            mgg = 2 * Sg[0] * g[k] + gSg * m[k]
            out[k] += l_hhh * gSg * g[k] + l_h * T[k] + l_eeh * mmg - l_ehh * mgg
            out[k] += pH + (l_hh * g[k] - l_eh * m[k]) * S_H
            T[k] = coefficient * T[k] + BH + B[k] * S_H + Cg - 2 * S[2, 3] * g[k]
        T[0] += 4 * S[0, 2]
        T[2] += 2 * S[0, 0]
        add_hessian(hessian_x, e, h, g, H)
        h = advance(x, e, h, g, H)
    chain_contraction(out, M, hessian_x, likelihood(q, data)[1:], a, b, c)
    out[2] += 1.5 * M[2, 2] * interval_log_jacobian(q[2])[3]
    out[3] += M[3, 3] * interval_log_jacobian(q[3])[3]


def constrain(q: np.ndarray) -> dict:
    alpha1 = interval_forward(q[..., 2])
    beta1 = interval_forward(-q[..., 2]) * interval_forward(q[..., 3])
    return {"mu": q[..., 0], "alpha0": half_line_forward(q[..., 1]), "alpha1": alpha1, "beta1": beta1}


def standard_deviations(values: dict, y: np.ndarray, sigma1: float) -> np.ndarray:
    """Return sqrt(h_t), of shape (..., T)."""
    mu, alpha0, alpha1, beta1 = (values[name] for name in ("mu", "alpha0", "alpha1", "beta1"))
    h = np.empty((len(y), *mu.shape))
    h[0] = sigma1**2
    h[1:] = alpha0 + alpha1 * np.subtract.outer(y[:-1], mu) ** 2
    for t in range(1, len(y)):
        h[t] += beta1 * h[t - 1]
    return np.sqrt(np.moveaxis(h, 0, -1))


def log_likelihood(values: dict, y: np.ndarray, sigma1: float) -> dict:
    return {"y": log_normal(y, values["mu"][..., None], standard_deviations(values, y, sigma1))}


def posterior_predictive(values: dict, rng: np.random.Generator, y: np.ndarray, sigma1: float) -> dict:
    sd = standard_deviations(values, y, sigma1)
    return {"y": values["mu"][..., None] + sd * rng.standard_normal(sd.shape)}


@jit_allocating
def part_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    """Return l at some of the times and a share of the log Jacobian, by the recursion for g in the docstring of the module."""
    share, L, of_x = data[3, 0], 0.0 * q[0], np.zeros(4, q.dtype)
    g, (a0, a1, b, B) = np.zeros(4, q.dtype), coefficients(q)
    h = data[1, 0] ** 2 + 0.0 * q[0]
    for t in range(data.shape[1]):
        e = data[0, t] - q[0]
        if data[2, t] > 0:
            z = e * e / h
            L -= 0.5 * (np.log(h) + z)
            of_x[0] += e / h
            for i in range(4):
                of_x[i] += 0.5 * (z - 1) / h * g[i]
        for i in range(4):
            g[i] = b * g[i] + B[i] * h
        g[0] -= 2 * a1 * e
        g[1] += 1
        g[2] += e * e
        h = a0 + a1 * e * e + b * h
    slopes = map_derivatives(q)[0]
    for i in range(4):
        out[i] = slopes[i] * of_x[i]
    out[1] += share
    out[2] += share * (interval_log_jacobian(q[2])[1] - expit(q[2]))
    out[3] += share * interval_log_jacobian(q[3])[1]
    return L + share * log_jacobian(q)


@jit_allocating
def part_log_density(q: np.ndarray, data: np.ndarray) -> float:
    return part_value_and_gradient(q, data, np.empty_like(q))


def share_of(y: np.ndarray, sigma1: float, at: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the model of the times ``at``, each given those before it, with a ``share`` of the previous prior share."""
    at, share, last = at[rows], before * share, int(at[rows].max()) + 1
    data = np.zeros((3, last))
    data[0], data[1, 0], data[2, at] = y[:last], sigma1, 1.0
    return Model(
        4,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=with_share(data, share),
        names=NAMES,
        constrain=constrain,
        name="garch",
        n_rows=len(at),
        part=functools.partial(share_of, y, sigma1, at, share),
    )


@recreatable
def GARCH(y: ArrayLike | None = None, sigma1: float | None = None) -> Model:
    """Return a GARCH(1, 1) model.

    The model is ::

        y_t ~ N(mu, sqrt(h_t)),   h_1 = sigma1^2,   h_t = alpha0 + alpha1 (y_{t-1} - mu)^2 + beta1 h_{t-1}

    with standard deviations as second arguments, and flat priors on mu, alpha0 > 0, alpha1 in (0, 1) and beta1 in
    (0, 1 - alpha1). The variables are ``mu``, ``alpha0``, ``alpha1`` and ``beta1``. The model has no Fisher metric.

    Parameters
    ----------
    y : array_like of shape (T,), optional
        The series. Defaults to that of ``garch-garch11`` in posteriordb.
    sigma1 : float, optional
        First standard deviation, to be given together with `y`.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    ValueError
        If only one argument is given, `y` is not finite, or `sigma1` is not positive.
    refhmc.errors.ShapeError
        If `y` is not a vector.

    References
    ----------
    M. Magnusson et al., posteriordb, posterior garch-garch11.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.GARCH()
    >>> model.reference_names, model.has("fisher")
    (['mu', 'alpha0', 'alpha1', 'beta1'], False)
    """
    reference = None
    if not given_together(y=y, sigma1=sigma1):
        known = posteriordb("garch-garch11")["data"]
        y, sigma1 = known["y"], known["sigma1"]
        reference = posteriordb_reference("garch-garch11", ["mu", "alpha0", "alpha1", "beta1"])
    y, sigma1 = vector("y", y), positive("sigma1", sigma1)
    return Model(
        4,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        data=in_rows(y, [sigma1]),
        names=NAMES,
        constrain=constrain,
        name="garch",
        recommended=Recommended("nuts", "", "at 0.8 one draw in 30,000 diverges", (("target_accept", 0.9),)),
        reference=reference,
        n_rows=len(y),
        part=functools.partial(share_of, y, sigma1, np.arange(len(y)), 1.0),
        dims={"y": "time"},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y, sigma1=sigma1),
            posterior_predictive=functools.partial(posterior_predictive, y=y, sigma1=sigma1),
            observed_data={"y": y},
            constant_data={"sigma1": sigma1},
        ),
    )
