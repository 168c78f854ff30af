"""The Jolly-Seber model of capture and recapture, with the sizes of the unmarked population as integers to be sampled.

Animals are caught on T occasions. On occasion i, n_i animals are caught: m_i carry a mark, and u_i = n_i - m_i do not. R_i
are marked and released, and r_i of these are seen again later. z_i animals were marked before i, not seen on i, and seen
after it. Three quantities are unknown: the probability p_i of capture, the probability phi_i of surviving and staying from i
to i + 1 (both uniform a priori), and the number U_i of unmarked animals just before occasion i::

    U_1 has prior 1/U_1;     U_{i+1} given U_i has weight N(U_{i+1}; phi_i V_i, v_i),     V_i = U_i - u_i,
                             v_i = sigma_B^2 + phi_i (1 - phi_i) V_i,     on u_i <= U_i <= U_max (not normalised there)
    first captures           prod_i  U_i! / (U_i - u_i)!  p_i^u_i (1 - p_i)^(U_i - u_i)
    recaptures               prod_{i<T} chi_i^(R_i - r_i)  prod_{i>1} phi_{i-1}^(z_i + m_i) (1 - p_i)^z_i p_i^m_i
    never seen after i       chi_i = (1 - phi_i) + phi_i (1 - p_{i+1}) chi_{i+1},     chi_T = 1

(Seber 1982. The prior of U and the black-kneed capsid counts are those of Nishimura, Dunson and Lu 2017, on which the
Gram-Hansen notes are based.) Only the product of p_T and phi_{T-1} is identified.

There are d = 3 T - 1 coordinates: logit p_1..p_T and logit phi_1..phi_{T-1}, which are smooth, and x_1..x_T with U_i = k if
log k < x_i <= log(k + 1). This is the embedding a_k = log k of eq. 15 of the notes, whose factor is 1 / log(1 + 1/k). With
the Jacobians of the logits, p_i has the exponent n_i + 1, and phi_i the exponent z_{i+1} + m_{i+1} + 1.

**Gradient** in the smooth coordinates. Let w_i = phi_i (1 - p_{i+1}) chi_{i+1} / chi_i, the share of survivors among the
animals not seen after i. The dependence of earlier chi on later ones accumulates in A_i = d log density / d log chi_i::

    A_1 = R_1 - r_1,     A_{i+1} = R_{i+1} - r_{i+1} + w_i A_i
    logit p_i:   (n_i + 1) (1 - p_i) - (U_i - u_i + z_i + 1) p_i - p_i w_{i-1} A_{i-1}
    logit phi_i: (z_{i+1} + m_{i+1} + 1) (1 - phi_i) - phi_i - A_i phi_i (1 - phi_i) (1 - (1 - p_{i+1}) chi_{i+1}) / chi_i
                 + phi_i (1 - phi_i) V_i [e/v + (e^2/v - 1) (1 - 2 phi_i) / 2v],     e = U_{i+1} - phi_i V_i, v = v_i

**Hessian and third derivative** in the smooth coordinates, with f_i for logit phi_i and q_i for logit p_i. In ::

    log chi_i = softplus(y_i) - softplus(f_i),     y_i = f_i - softplus(q_{i+1}) + log chi_{i+1}

only y_i is not a function of one coordinate, and w_i = expit(y_i). Its gradient Y_i and Hessian Q_i follow from those of
i + 1::

    Y_i = e(f_i) - p_{i+1} e(q_{i+1}) + w_{i+1} Y_{i+1} - phi_{i+1} e(f_{i+1}),     the last two not for i = T - 1
    Q_i = -p'_{i+1} E(q_{i+1}) + w'_{i+1} Y_{i+1} Y_{i+1}' + w_{i+1} Q_{i+1} - phi'_{i+1} E(f_{i+1})

Here e is a unit vector, E = e e', p' = p (1 - p) and p'' = p' (1 - 2 p), and similarly for phi and w. The derivatives of
sum_i (R_i - r_i) log chi_i are ::

    hessian  sum_i A_i [w'_i Y_i Y_i' - phi'_i E(f_i) - w_i p'_{i+1} E(q_{i+1})]
    third    sum_i A_i [w''_i Y_i Y_i Y_i + w'_i (Y_i Q_i)_sym - phi''_i e(f_i)^3 - w_i p''_{i+1} e(q_{i+1})^3]

with (Y Q)_sym = Y_a Q_bc + Y_b Q_ac + Y_c Q_ab. All other terms are diagonal. The derivatives of the weight use k = e/v, the
derivatives in phi e_1 = -V, v_1 = V (1 - 2 phi), v_2 = -2 V, and the slope l_1 = k V + (k^2 - 1/v) v_1 / 2 as above::

    k_1 = (e_1 - k v_1) / v              l_2 = k_1 V + (k k_1 + v_1/2v^2) v_1 + (k^2 - 1/v) v_2 / 2
    k_2 = -(2 k_1 v_1 + k v_2) / v       l_3 = k_2 V + (k_1^2 + k k_2 + v_2/2v^2 - v_1^2/v^3) v_1 + 2 (k k_1 + v_1/2v^2) v_2

A change of one U_i affects its own factors and at most two of the weights. It costs O(1), and the whole density O(T).

**The observations**, one after another (Burnham, Anderson, White, Brownie and Pollock 1987, American Fisheries Society
Monograph 5; the product is the likelihood above), with the probability lambda_i = 1 - chi_i of being seen again after i::

    u_i ~ Bin(U_i, p_i)      r_i ~ Bin(R_i, lambda_i)      m_i ~ Bin(z_{i-1} + r_{i-1}, p_i / (p_i + (1 - p_i) lambda_i))

for i = 1..T, 1..T - 1 and 2..T - 1. m_T follows from the others, and z_i = z_{i-1} + r_{i-1} - m_i.

The rows of the data, over the occasions, are u; n + 1; z - u + 1; R - r (0 at T); z_{i+1} + m_{i+1} + 1 (0 at T);
sigma_B^2, U_max.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating
from refhmc.core.arguments import positive
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.datasets import jolly_seber_reference, load_json
from refhmc.models.densities import log_binomial
from refhmc.models.embedding import Embedding, log_integer, log_log_width
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import counts, given_together, in_rows
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.numerics.transforms import expit, interval_forward, interval_inverse, softplus

EMBEDDING = Embedding((1, None), a="log n")


@jit
def size(x: float) -> int:
    """Return the U of a coordinate."""
    return log_integer(x.real, 0)


@jit
def inside(U: int, i: int, data: np.ndarray) -> bool:
    return data[0, i] <= U <= data[5, 1]


@jit
def own_factor(U: int, u: float) -> float:
    """Return the log of U!/(U-u)! and of the factor 1 / log(1 + 1/U) of the embedding."""
    return math.lgamma(U + 1) - math.lgamma(U - u + 1) - log_log_width(U, 0)


@jit
def weight(U_next: int, U: int, i: int, phi: float, data: np.ndarray) -> tuple[float, float]:
    """Return log N(U_{i+1}; phi V, v) and its derivative in phi."""
    V = U - data[0, i]
    v = data[5, 0] + phi * (1 - phi) * V
    e = U_next - phi * V
    return -0.5 * (e * e / v + np.log(v)), V * (e / v + (e * e / v - 1) * (1 - 2 * phi) / (2 * v))


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    T = data.shape[1]
    chi = 1.0 + 0.0 * q[0]
    U_next = 0
    L = 0.0 * q[0]
    for i in range(T - 1, -1, -1):
        U = size(q[2 * T - 1 + i])
        if not inside(U, i, data):
            return -np.inf + 0.0 * q[0]
        L += own_factor(U, data[0, i]) - data[1, i] * softplus(-q[i]) - (U + data[2, i]) * softplus(q[i])
        if i < T - 1:
            u_phi = q[T + i]
            phi = expit(u_phi)
            chi = expit(-u_phi) + phi * expit(-q[i + 1]) * chi
            L += data[3, i] * np.log(chi) - data[4, i] * softplus(-u_phi) - softplus(u_phi)
            L += weight(U_next, U, i, phi, data)[0]
        U_next = U
    return L - math.log(U_next)


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    T = data.shape[1]
    out[:] = 0.0
    L = log_density(q, data)
    if not L.real > -np.inf:
        return L
    chi = 1.0 + 0.0 * q[0]
    # The chi are stored in the entries of the slopes in phi, which are written after their use.
    for i in range(T - 2, -1, -1):
        chi = expit(-q[T + i]) + expit(q[T + i]) * expit(-q[i + 1]) * chi
        out[T + i] = chi
    owed = 0.0 * q[0]  # w_{i-1} A_{i-1}
    for i in range(T):
        p, not_p = expit(q[i]), expit(-q[i])
        U = size(q[2 * T - 1 + i])
        out[i] = data[1, i] * not_p - (U + data[2, i] + owed) * p
        if i < T - 1:
            phi, not_phi, chi = expit(q[T + i]), expit(-q[T + i]), out[T + i]
            unseen_next = expit(-q[i + 1])  # not caught at i + 1, nor after it
            if i < T - 2:
                unseen_next *= out[T + i + 1]
            A = data[3, i] + owed
            out[T + i] = data[4, i] * not_phi - phi - A * phi * not_phi * (1 - unseen_next) / chi
            out[T + i] += phi * not_phi * weight(size(q[2 * T + i]), U, i, phi, data)[1]
            owed = A * phi * unseen_next / chi
    return L


# ------------------------------------------------------------------------------------- second and third derivatives


@jit
def logistic_slopes(u: float) -> tuple[float, float, float]:
    """Return expit(u) and its first two derivatives."""
    slope = 0.25 / np.cosh(0.5 * u) ** 2
    return expit(u), slope, -slope * np.tanh(0.5 * u)


@jit
def weight_curvatures(U_next: int, U: int, i: int, phi: float, data: np.ndarray) -> tuple[float, float]:
    """Return the second and third derivative of :func:`weight` in phi."""
    V = U - data[0, i]
    v, v1, v2 = data[5, 0] + phi * (1 - phi) * V, V * (1 - 2 * phi), -2 * V
    k = (U_next - phi * V) / v
    k1 = -(V + k * v1) / v
    k2 = -(2 * k1 * v1 + k * v2) / v
    half, half1 = 0.5 * (k * k - 1 / v), k * k1 + v1 / (2 * v * v)
    half2 = k1 * k1 + k * k2 + v2 / (2 * v * v) - v1 * v1 / (v * v * v)
    return k1 * V + half1 * v1 + half * v2, k2 * V + half2 * v1 + 2 * half1 * v2


@jit
def diagonal_terms(q: np.ndarray, i: int, data: np.ndarray) -> tuple[float, float, float, float]:
    """Return the second and third derivatives in logit p_i and in logit phi_i of all terms except the chi: four numbers."""
    T = data.shape[1]
    U = size(q[2 * T - 1 + i])
    _, slope, curved = logistic_slopes(q[i])
    factor = -(data[1, i] + U + data[2, i])
    if i == T - 1:
        return factor * slope, factor * curved, 0.0 * q[0], 0.0 * q[0]
    phi, phi1, phi2 = logistic_slopes(q[T + i])
    phi3 = phi1 * (1 - 6 * phi1)
    U_next, exponent = size(q[2 * T + i]), -(data[4, i] + 1)
    l1 = weight(U_next, U, i, phi, data)[1]
    l2, l3 = weight_curvatures(U_next, U, i, phi, data)
    second = exponent * phi1 + l2 * phi1 * phi1 + l1 * phi2
    third = exponent * phi2 + l3 * phi1 * phi1 * phi1 + 3 * l2 * phi1 * phi2 + l1 * phi3
    return factor * slope, factor * curved, second, third


@jit
def all_inside(q: np.ndarray, data: np.ndarray) -> bool:
    T = data.shape[1]
    outside = 0
    for i in range(T):
        outside += not inside(size(q[2 * T - 1 + i]), i, data)
    return outside == 0


@jit_allocating
def shares(q: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return y_i and A_i, of shape (T - 1,) each."""
    T = data.shape[1]
    y, A = np.zeros(T - 1, q.dtype), np.zeros(T - 1, q.dtype)
    s = -softplus(q[T - 1])  # log((1 - p_{i+1}) chi_{i+1})
    for i in range(T - 2, -1, -1):
        y[i] = q[T + i] + s
        s = softplus(y[i]) - softplus(q[T + i]) - softplus(q[i])
    owed = 0.0 * q[0]
    for i in range(T - 1):
        A[i] = data[3, i] + owed
        owed = A[i] * expit(y[i])
    return y, A


@jit
def one_earlier(q: np.ndarray, y: np.ndarray, i: int, Y: np.ndarray, Q: np.ndarray) -> None:
    """Replace Y_{i+1} and Q_{i+1} by Y_i and Q_i; i = T - 2 needs zeros."""
    T, m = y.shape[0] + 1, Y.shape[0]
    if i < T - 2:
        w, w1, _ = logistic_slopes(y[i + 1])
        phi, phi1, _ = logistic_slopes(q[T + i + 1])
        for a in range(m):
            for b in range(m):
                Q[a, b] = w * Q[a, b] + w1 * (Y[a] * Y[b])
        for a in range(m):
            Y[a] *= w
        Q[T + i + 1, T + i + 1] -= phi1
        Y[T + i + 1] -= phi
    p, p1, _ = logistic_slopes(q[i + 1])
    Y[T + i] += 1
    Y[i + 1] -= p
    Q[i + 1, i + 1] -= p1


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    T = data.shape[1]
    m = 2 * T - 1
    out[:] = 0.0
    if not all_inside(q, data):
        return
    y, A = shares(q, data)
    Y, Q = np.zeros(m, q.dtype), np.zeros((m, m), q.dtype)
    for i in range(T - 1, -1, -1):
        second_p, _, second_phi, _ = diagonal_terms(q, i, data)
        out[i, i] += second_p
        if i == T - 1:
            continue
        one_earlier(q, y, i, Y, Q)
        w, w1, _ = logistic_slopes(y[i])
        for a in range(m):
            for b in range(m):
                out[a, b] += A[i] * w1 * (Y[a] * Y[b])
        out[T + i, T + i] += second_phi - A[i] * logistic_slopes(q[T + i])[1]
        out[i + 1, i + 1] -= A[i] * w * logistic_slopes(q[i + 1])[1]


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    """Contract each term by itself, which costs O(T^3); the tensor costs O(T^4)."""
    T = data.shape[1]
    m = 2 * T - 1
    out[:] = 0.0
    if not all_inside(q, data):
        return
    y, A = shares(q, data)
    Y, Q, MY = np.zeros(m, q.dtype), np.zeros((m, m), q.dtype), np.zeros(m, q.dtype)
    for i in range(T - 1, -1, -1):
        _, third_p, _, third_phi = diagonal_terms(q, i, data)
        out[i] += M[i, i] * third_p
        if i == T - 1:
            continue
        one_earlier(q, y, i, Y, Q)
        w, w1, w2 = logistic_slopes(y[i])
        square = straight = 0.0 * q[0]  # Y'M Y and sum_ab M_ab Q_ab
        for a in range(m):
            MY[a] = 0.0
            for b in range(m):
                MY[a] += (M[a, b] + M[b, a]) * Y[b]
                straight += M[a, b] * Q[a, b]
            square += 0.5 * Y[a] * MY[a]
        for c in range(m):
            crossed = straight * Y[c]
            for a in range(m):
                crossed += Q[c, a] * MY[a]
            out[c] += A[i] * (w2 * square * Y[c] + w1 * crossed)
        out[T + i] += M[T + i, T + i] * (third_phi - A[i] * logistic_slopes(q[T + i])[2])
        out[i + 1] -= M[i + 1, i + 1] * A[i] * w * logistic_slopes(q[i + 1])[2]


@jit
def log_density_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
    T = data.shape[1]
    i = j - (2 * T - 1)
    old, new = size(q[j]), size(new_value)
    if new == old:
        return 0.0
    if not inside(new, i, data):
        return -np.inf
    change = own_factor(new, data[0, i]) - own_factor(old, data[0, i]) - (new - old) * softplus(q[i])
    if i == 0:
        change -= math.log(new / old)
    else:
        before, phi = size(q[j - 1]), expit(q[T + i - 1])
        change += weight(new, before, i - 1, phi, data)[0] - weight(old, before, i - 1, phi, data)[0]
    if i < T - 1:
        after, phi = size(q[j + 1]), expit(q[T + i])
        change += weight(after, new, i, phi, data)[0] - weight(after, old, i, phi, data)[0]
    return change


def constrain(q: np.ndarray) -> dict:
    T = (q.shape[-1] + 1) // 3
    U = EMBEDDING.integers(q[..., 2 * T - 1 :])
    return {"p": interval_forward(q[..., :T]), "phi": interval_forward(q[..., T : 2 * T - 1]), "U": U}


def chances(values: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return lambda_i for i = 1..T - 1, and the capture probability at i = 2..T - 1 of a marked animal seen at or after i."""
    p, phi = values["p"], values["phi"]
    T = p.shape[-1]
    again = np.zeros(p.shape)  # lambda_T = 0
    for i in range(T - 2, -1, -1):
        again[..., i] = phi[..., i] * (p[..., i + 1] + (1 - p[..., i + 1]) * again[..., i + 1])
    inner = p[..., 1:-1]
    return again[..., :-1], inner / (inner + (1 - inner) * again[..., 1:-1])


def log_likelihood(
    values: dict, u: np.ndarray, r: np.ndarray, m: np.ndarray, R: np.ndarray, marked: np.ndarray
) -> dict:
    """Return the log likelihood of each observation; ``marked`` is z_{i-1} + r_{i-1} = z_i + m_i."""
    again, now = chances(values)
    return {
        "u": log_binomial(u, values["U"], values["p"]),
        "r": log_binomial(r, R, again),
        "m": log_binomial(m, marked, now),
    }


def posterior_predictive(values: dict, rng: np.random.Generator, R: np.ndarray) -> dict:
    """Return a new experiment with the same number of released animals."""
    again, now = chances(values)
    u = rng.binomial(values["U"].astype(int), values["p"])
    r = rng.binomial(R.astype(int), again)
    m, z = np.zeros(now.shape, dtype=int), np.zeros(now.shape[:-1], dtype=int)
    for i in range(now.shape[-1]):
        m[..., i] = rng.binomial(z + r[..., i], now[..., i])
        z = z + r[..., i] - m[..., i]
    return {"u": u, "r": r, "m": m}


@recreatable
def JollySeber(
    n: ArrayLike | None = None,
    R: ArrayLike | None = None,
    r: ArrayLike | None = None,
    m: ArrayLike | None = None,
    sigma_B: float = 500.0,
    U_max: int = 5000,
) -> Model:
    """Return the Jolly-Seber model of capture and recapture.

    Animals are caught on T occasions, marked and released. The unknowns are the probabilities p_i of capture and phi_i of
    survival, both uniform a priori, and the number U_i of unmarked animals::

        u_i ~ Bin(U_i, p_i)      r_i ~ Bin(R_i, lambda_i)      m_i ~ Bin(z_{i-1} + r_{i-1}, p_i / (p_i + (1 - p_i) lambda_i))
        U_1 ~ 1/U_1      U_{i+1} | U_i ~ N(phi_i V_i, sigma_B^2 + phi_i (1 - phi_i) V_i),   V_i = U_i - u_i,   U_i <= U_max

    with u = n - m, the probability lambda_i of being seen again after i, and a variance as second argument. The number z_i of
    marked animals seen before and after i but not on i follows from the counts. The variables are ``p`` of shape (T,), ``phi``
    of shape (T - 1,) and the integers ``U`` of shape (T,). The last T coordinates are discontinuous. The module has the
    derivatives.

    Parameters
    ----------
    n : array_like of shape (T,), optional
        Numbers of animals caught. Defaults to the black-kneed capsid counts with T = 13.
    R : array_like of shape (T - 1,), optional
        Numbers of animals released with a mark.
    r : array_like of shape (T - 1,), optional
        Numbers of released animals that are seen again.
    m : array_like of shape (T,), optional
        Numbers of animals caught with a mark, with ``m[0] = 0``.
    sigma_B : float, default 500.0
        Standard deviation of births and immigration.
    U_max : int, default 5000
        Upper limit of U.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has moments with Monte Carlo errors.

    Raises
    ------
    ValueError
        If the counts are not those of one experiment, or only some of them are given.
    refhmc.errors.ShapeError
        If the shapes do not fit.

    Notes
    -----
    The posterior of U_1 is very skewed. Compare log U_1 with the reference instead of U_1.

    References
    ----------
    G. A. F. Seber (1982), The estimation of animal abundance.
    A. Nishimura, D. B. Dunson and J. Lu (2017), Discontinuous Hamiltonian Monte Carlo for sampling discrete parameters.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.JollySeber()
    >>> model.dim, len(model.discontinuous)
    (38, 13)
    """
    given, known = given_together(n=n, R=R, r=r, m=m), load_json("black_kneed_capsid")
    if not given:
        n, R, r, m = known["n"], known["R"], known["r"], [0, *known["m_from_2"]]
    n = counts("n", n)
    T = len(n)
    if T < 2:
        raise ShapeError(f"n must have at least two occasions; got {T}.")
    R, r, m = counts("R", R, T - 1), counts("r", r, T - 1), counts("m", m, T)
    u = n - m
    z = np.concatenate([[0.0], np.cumsum(r - m[1:])])  # z_{i+1} = z_i + r_i - m_{i+1}
    if m[0] != 0 or np.any(u < 1) or np.any(r > R) or np.any(n[:-1] < R) or np.any(z < 0) or z[-1] != 0:
        raise ValueError(
            "n, R, r and m must be counts of one experiment: 0 = m_1, m_i < n_i, r_i <= R_i <= n_i, 0 <= z_i and z_T = 0."
        )
    sigma_B = positive("sigma_B", sigma_B)
    if not np.max(u) <= U_max < np.inf:
        raise ValueError(f"U_max must be at least {np.max(u):g}, the largest n_i - m_i; got {U_max}.")
    likely = np.minimum(np.round(u / 0.3), U_max)
    start = [np.full(T, interval_inverse(0.3)), np.full(T - 1, interval_inverse(0.8)), EMBEDDING.embed(likely)]
    names = [f"logit_p[{i}]" for i in range(T)] + [f"logit_phi[{i}]" for i in range(T - 1)]
    published = not given and sigma_B == known["sigma_B"] and U_max == known["U_max"]
    return Model(
        3 * T - 1,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        data=in_rows(u, n + 1, z - u + 1, R - r, z[1:] + m[1:] + 1, [sigma_B**2, U_max]),
        names=[*names, *(f"log_U[{i}]" for i in range(T))],
        constrain=constrain,
        discontinuous=["log_U"],
        log_density_change=log_density_change,
        name="jolly-seber",
        recommended=Recommended("dhmc", "", "its default of 20 steps per draw moves too little", (("n_steps", 40),)),
        reference=jolly_seber_reference() if published else None,
        initial=np.concatenate(start),
        dims={
            "p": "occasion",
            "U": "occasion",
            "u": "occasion",
            "phi": "release",
            "r": "release",
            "R": "release",
            "m": "recapture",
        },
        coords={"occasion": range(1, T + 1), "release": range(1, T), "recapture": range(2, T)},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, u=u, r=r, m=m[1:-1], R=R, marked=(z + m)[1:-1]),
            posterior_predictive=functools.partial(posterior_predictive, R=R),
            observed_data={"u": u, "r": r, "m": m[1:-1]},
            constant_data={"R": R},
        ),
    )
