"""The Jolly-Seber model of capture and recapture, with the unmarked population sizes as integers to be sampled.

Animals are caught at T occasions. Of the n_i caught at occasion i, m_i carry a mark and u_i = n_i - m_i do not; R_i are
marked and let go, r_i of them are seen again later; z_i were marked before i, not seen at i, and are seen after it.
Unknown are the chance p_i of being caught, the chance phi_i of surviving and staying from i to i + 1 (both uniform a
priori), and the number U_i of unmarked animals just before occasion i:

    U_1 has prior 1/U_1;     U_{i+1} given U_i has weight N(U_{i+1}; phi_i V_i, v_i),     V_i = U_i - u_i,
                             v_i = sigma_B^2 + phi_i (1 - phi_i) V_i,     on u_i <= U_i <= U_max (not normalised there)
    first captures           prod_i  U_i! / (U_i - u_i)!  p_i^u_i (1 - p_i)^(U_i - u_i)
    recaptures               prod_{i<T} chi_i^(R_i - r_i)  prod_{i>1} phi_{i-1}^(z_i + m_i) (1 - p_i)^z_i p_i^m_i
    never seen after i       chi_i = (1 - phi_i) + phi_i (1 - p_{i+1}) chi_{i+1},     chi_T = 1

(Seber 1982; the prior of U and the black-kneed capsid counts as in Nishimura, Dunson and Lu 2017, after whom the
Gram-Hansen notes are written.) p_T and phi_{T-1} are known only through their product.

Coordinates, d = 3 T - 1: logit p_1..p_T, logit phi_1..phi_{T-1}, which are smooth, and x_1..x_T with U_i = k where
log k < x_i <= log(k + 1): the embedding a_k = log k of the notes' eq. 15, whose factor is 1 / log(1 + 1/k). With the
Jacobians of the logits, p_i has the exponent n_i + 1, and phi_i the exponent z_{i+1} + m_{i+1} + 1.

**Gradient** in the smooth coordinates. With w_i = phi_i (1 - p_{i+1}) chi_{i+1} / chi_i, the share of those not seen
after i who lived on, what the later chi owe to the earlier ones adds up in

    A_1 = R_1 - r_1,     A_{i+1} = R_{i+1} - r_{i+1} + w_i A_i          (A_i = d log density / d log chi_i)
    logit p_i:   (n_i + 1) (1 - p_i) - (U_i - u_i + z_i + 1) p_i - p_i w_{i-1} A_{i-1}
    logit phi_i: (z_{i+1} + m_{i+1} + 1) (1 - phi_i) - phi_i - A_i phi_i (1 - phi_i) (1 - (1 - p_{i+1}) chi_{i+1}) / chi_i
                 + phi_i (1 - phi_i) V_i [e/v + (e^2/v - 1) (1 - 2 phi_i) / 2v],     e = U_{i+1} - phi_i V_i, v = v_i

A change of one U_i touches its own factors and at most two of the weights: O(1), where the whole density is O(T).

``data``, rows over the occasions: u; n + 1; z - u + 1; R - r (0 at T); z_{i+1} + m_{i+1} + 1 (0 at T); sigma_B^2, U_max.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compiled import jit
from refhmc.datasets import jolly_seber_reference, load_json
from refhmc.embedding import Embedding, log_integer, log_log_width
from refhmc.errors import ShapeError
from refhmc.model import Model
from refhmc.transforms import expit, interval_forward, interval_inverse, softplus

EMBEDDING = Embedding((1, None), a="log n")


@jit
def size(x):
    """U of its coordinate."""
    return log_integer(x.real, 0)


@jit
def inside(U, i, data):
    return data[0, i] <= U <= data[5, 1]


@jit
def own_factor(U, u):
    """log of U!/(U-u)! and of the embedding's 1 / log(1 + 1/U)"""
    return math.lgamma(U + 1) - math.lgamma(U - u + 1) - log_log_width(U, 0)


@jit
def weight(U_next, U, i, phi, data):
    """log N(U_{i+1}; phi V, v), and its derivative in phi."""
    V = U - data[0, i]
    v = data[5, 0] + phi * (1 - phi) * V
    e = U_next - phi * V
    return -0.5 * (e * e / v + np.log(v)), V * (e / v + (e * e / v - 1) * (1 - 2 * phi) / (2 * v))


@jit
def log_density(q, data):
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
def value_and_gradient(q, data, out):
    T = data.shape[1]
    out[:] = 0.0
    L = log_density(q, data)
    if not L.real > -np.inf:
        return L
    chi = 1.0 + 0.0 * q[0]
    for i in range(T - 2, -1, -1):  # the chi wait in the places of the slopes in phi, which are written after their use
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


@jit
def gradient(q, data, out):
    value_and_gradient(q, data, out)


@jit
def log_density_change(q, data, j, new_value):
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


def whole_numbers(values, name: str, length: int | None = None) -> np.ndarray:
    """A vector of whole numbers >= 0 as floats."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or (length is not None and len(x) != length):
        raise ShapeError(f"{name}: expected a vector{'' if length is None else f' ({length},)'}, got shape {x.shape}")
    if not np.all((x >= 0) & (x == np.floor(x)) & np.isfinite(x)):
        raise ValueError(f"{name} must be whole numbers of at least 0")
    return x


def JollySeber(n=None, R=None, r=None, m=None, sigma_B: float = 500.0, U_max: int = 5000) -> Model:
    """Capture and recapture; the black-kneed capsid counts (T = 13) if nothing is given.

    n (T,): caught. R, r (T - 1,): let go with a mark, and those of them seen again. m (T,): caught with a mark,
    m[0] = 0. z follows from these. Variables p (T,), phi (T - 1,), and the integers U (T,); discontinuous are the last T
    coordinates.

    The default's ``reference`` has Monte Carlo errors. The law of U_1 is very skewed: log U_1 is the better figure to
    compare. Raises ShapeError, ValueError.
    """
    given = [value is not None for value in (n, R, r, m)]
    if any(given) != all(given):
        raise ValueError("give all of n, R, r and m, or none")
    known = load_json("black_kneed_capsid")
    if not any(given):
        n, R, r, m = known["n"], known["R"], known["r"], [0, *known["m_from_2"]]
    n = whole_numbers(n, "n")
    T = len(n)
    if T < 2:
        raise ShapeError(f"n: at least two occasions are needed, got {T}")
    R, r, m = whole_numbers(R, "R", T - 1), whole_numbers(r, "r", T - 1), whole_numbers(m, "m", T)
    u = n - m
    z = np.concatenate([[0.0], np.cumsum(r - m[1:])])  # z_{i+1} = z_i + r_i - m_{i+1}
    if m[0] != 0 or np.any(u < 1) or np.any(r > R) or np.any(n[:-1] < R) or np.any(z < 0) or z[-1] != 0:
        raise ValueError(
            "these cannot be counts of one experiment: 0 = m_1, m_i < n_i, r_i <= R_i <= n_i, 0 <= z_i, z_T = 0"
        )
    if not (0 < sigma_B < np.inf and np.max(u) <= U_max < np.inf):
        raise ValueError("sigma_B must be positive, and U_max at least the largest n_i - m_i")
    data = np.zeros((6, T))
    data[:3] = u, n + 1, z - u + 1
    data[3, :-1], data[4, :-1] = R - r, z[1:] + m[1:] + 1
    data[5, :2] = sigma_B**2, U_max
    likely = np.minimum(np.round(u / 0.3), U_max)
    start = [np.full(T, interval_inverse(0.3)), np.full(T - 1, interval_inverse(0.8)), EMBEDDING.embed(likely)]
    names = [f"logit_p[{i}]" for i in range(T)] + [f"logit_phi[{i}]" for i in range(T - 1)]
    published = not any(given) and sigma_B == known["sigma_B"] and U_max == known["U_max"]
    return Model(
        3 * T - 1,
        log_density,
        gradient,
        data=data,
        names=[*names, *(f"log_U[{i}]" for i in range(T))],
        constrain=constrain,
        value_and_gradient=value_and_gradient,
        discontinuous=["log_U"],
        log_density_change=log_density_change,
        name="jolly-seber",
        reference=jolly_seber_reference() if published else None,
        initial=np.concatenate(start),
    )
