"""Counts whose rate changes at K unknown times.

Carlin, Gelfand and Smith (1992) use K = 1 for the coal-mining disasters. The model is ::

    y_t ~ Poisson(lambda_k) for tau_k < t <= tau_{k+1},     k = 0..K,     tau_0 = 0, tau_{K+1} = T
    lambda_k ~ Gamma(a, rate b),     0 < tau_1 < ... < tau_K < T with equal probabilities

There are d = 2 K + 1 coordinates: log lambda_0..log lambda_K, which are smooth, and x_1..x_K with tau_k = n if
n < x_k <= n + 1. This is the embedding a_n = n, whose factor is 1. With S_t = y_1 + ... + y_t,
s_k = S_{tau_{k+1}} - S_{tau_k} and l_k = tau_{k+1} - tau_k, ::

    L = sum_k (a + s_k) log lambda_k - (b + l_k) lambda_k,     dL/d log lambda_k = a + s_k - (b + l_k) lambda_k

The second and the third derivative in log lambda_k are both -(b + l_k) lambda_k, all others are zero. Moving tau_k from t to
t' adds (S_t' - S_t) log(lambda_{k-1} / lambda_k) - (t' - t) (lambda_{k-1} - lambda_k), which costs O(1).

Exact posterior: given the tau, lambda_k ~ Gamma(a + s_k, b + l_k). The rate of the counts from s + 1 to t integrates to ::

    W(s, t) = Gamma(a + S_t - S_s) / (b + t - s)^(a + S_t - S_s)

The distribution of the tau is therefore proportional to the product of W along 0, tau_1, ..., tau_K, T, a Markov chain. The
sums over all changes before or after a time come from recursions over K, exact in O(K T^2) (Fearnhead 2006). For K = 1 it is
one sum over the time.

Row 0 of the data holds S_0..S_T, row 1 begins with a and b.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from refhmc.compile.compiled import jit
from refhmc.core.arguments import positive, whole_number
from refhmc.models.base import Model
from refhmc.models.datasets import load_json
from refhmc.models.densities import log_poisson
from refhmc.models.embedding import Embedding, linear_integer
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.inputs import counts, in_rows
from refhmc.models.recipe import recreatable
from refhmc.models.reference import Reference

EMBEDDING = Embedding((1, None), a="n")


@jit
def change(q: np.ndarray, k: int, data: np.ndarray) -> int:
    """Return tau_k for k = 0..K + 1."""
    K = q.shape[0] // 2
    if k == 0:
        return 0
    if k == K + 1:
        return data.shape[1] - 1
    return linear_integer(q[K + k].real)


@jit
def inside(q: np.ndarray, data: np.ndarray) -> bool:
    """Return whether the changes are in the support: 0 < tau_1 < ... < tau_K < T."""
    outside = 0
    for k in range(q.shape[0] // 2 + 1):
        outside += not 0 <= change(q, k, data) < change(q, k + 1, data) < data.shape[1]
    return outside == 0


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    K = q.shape[0] // 2
    a, b = data[1, 0], data[1, 1]
    out[:] = 0.0
    L = 0.0 * q[0]
    if not inside(q, data):
        return -np.inf + 0.0 * q[0]
    for k in range(K + 1):
        start, stop = change(q, k, data), change(q, k + 1, data)
        shape, expected = a + (data[0, stop] - data[0, start]), (b + (stop - start)) * np.exp(q[k])
        L += shape * q[k] - expected
        out[k] = shape - expected
    return L


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    K = q.shape[0] // 2
    L = 0.0 * q[0]
    if not inside(q, data):
        return -np.inf + 0.0 * q[0]
    for k in range(K + 1):
        start, stop = change(q, k, data), change(q, k + 1, data)
        L += (data[1, 0] + data[0, stop] - data[0, start]) * q[k] - (data[1, 1] + stop - start) * np.exp(q[k])
    return L


@jit
def curvature(q: np.ndarray, k: int, data: np.ndarray) -> float:
    """Return (b + l_k) lambda_k."""
    return (data[1, 1] + change(q, k + 1, data) - change(q, k, data)) * np.exp(q[k])


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    if inside(q, data):
        for k in range(q.shape[0] // 2 + 1):
            out[k, k] = -curvature(q, k, data)


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    if inside(q, data):
        for k in range(q.shape[0] // 2 + 1):
            out[k] = -M[k, k] * curvature(q, k, data)


@jit
def log_density_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
    k = j - q.shape[0] // 2
    old, new = linear_integer(q[j]), linear_integer(new_value)
    if new == old:
        return 0.0
    if not change(q, k - 1, data) < new < change(q, k + 1, data):
        return -np.inf
    counts = data[0, new] - data[0, old]
    return counts * (q[k - 1] - q[k]) - (new - old) * (np.exp(q[k - 1]) - np.exp(q[k]))


class ChangeLaw:
    """The exact posterior of a :func:`ChangePoint`: its moments, the distribution of each change, and draws."""

    def __init__(self, y: np.ndarray, changes: int, a: float, b: float, first: int) -> None:
        total = np.concatenate([[0.0], np.cumsum(y)])
        T, self.changes, self.first = len(y), changes, first
        length = np.arange(T + 1) - np.arange(T + 1)[:, None]
        self.shape, self.rate = a + total - total[:, None], b + np.maximum(length, 0.0)
        with np.errstate(invalid="ignore"):
            W = np.where(length > 0, gammaln(self.shape) - self.shape * np.log(self.rate), -np.inf)
        self.log_weight = W
        start = np.full(T + 1, -np.inf)
        start[0] = 0.0
        self.before = [start]  # [k][t]: log of the sum over all tau_1 < ... < tau_k = t
        for _ in range(changes + 1):
            self.before.append(logsumexp(self.before[-1][:, None] + W, axis=0))
        after = np.full(T + 1, -np.inf)
        after[T] = 0.0
        self.after = [after]  # [k][t]: log of the sum over the changes after tau_{K+1-k} = t
        for _ in range(changes + 1):
            self.after.append(logsumexp(W + self.after[-1][None, :], axis=1))
        self.after.reverse()

    def pair(self, k: int) -> np.ndarray:
        """Return P(tau_k = s, tau_{k+1} = t), of shape (T + 1, T + 1), for k = 0..K."""
        joint = self.before[k][:, None] + self.log_weight + self.after[k + 1][None, :]
        return np.exp(joint - self.before[-1][-1])

    def marginal(self, k: int) -> np.ndarray:
        """Return P(tau_k = t), of shape (T + 1,), for k = 1..K."""
        return np.exp(self.before[k] + self.after[k] - self.before[-1][-1])

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of the K + 1 rates and the K years."""
        mean, square = [], []
        for k in range(self.changes + 1):
            P, expected = self.pair(k), self.shape / self.rate
            mean.append(np.sum(P * expected))
            square.append(np.sum(P * (expected**2 + self.shape / self.rate**2)))
        t = np.arange(len(self.before[0])) + float(self.first)
        for k in range(1, self.changes + 1):
            P = self.marginal(k)
            mean.append(P @ t)
            square.append(mean[-1] ** 2 + P @ (t - mean[-1]) ** 2)
        return np.array(mean), np.array(square) - np.array(mean) ** 2

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return (n, 2 K + 1) independent positions, uniform in their cells."""
        K, T = self.changes, len(self.before[0]) - 1
        tau = np.full((n, K + 2), T)
        tau[:, 0] = 0
        for k in range(K, 0, -1):
            law = self.before[k][:, None] + self.log_weight
            total = logsumexp(law, axis=0, keepdims=True)
            possible = np.where(total > -np.inf, total, 0.0)
            law = np.cumsum(np.exp(law - possible), axis=0)  # P(tau_k <= s | tau_{k+1})
            tau[:, k] = np.sum(rng.random(n)[None, :] >= law[:, tau[:, k + 1]], axis=0)
        rates = [rng.gamma(self.shape[s, t]) / self.rate[s, t] for s, t in zip(tau.T[:-1], tau.T[1:], strict=True)]
        cells = EMBEDDING.draw_position(rng, tau[:, 1:-1])
        return np.column_stack([*np.log(rates), cells])


def constrain(q: np.ndarray, first_year: int) -> dict:
    K = q.shape[-1] // 2
    return {"rate": np.exp(q[..., : K + 1]), "year": EMBEDDING.integers(q[..., K + 1 :]) + first_year}


def rates(values: dict, years: np.ndarray) -> np.ndarray:
    """Return the rate of each year, of shape (..., T)."""
    regime = np.sum(years >= values["year"][..., None], axis=-2)
    return np.take_along_axis(values["rate"], regime, axis=-1)


def log_likelihood(values: dict, y: np.ndarray, years: np.ndarray) -> dict:
    return {"y": log_poisson(y, rates(values, years))}


def posterior_predictive(values: dict, rng: np.random.Generator, years: np.ndarray) -> dict:
    return {"y": rng.poisson(rates(values, years))}


def prior(rng: np.random.Generator, K: int, shape: float, rate: float, years: np.ndarray) -> dict:
    changes = rng.choice(years[1:], K, replace=False)
    return {"rate": rng.gamma(shape, 1 / rate, K + 1), "year": np.sort(changes)}


@recreatable
def ChangePoint(
    y: ArrayLike | None = None, changes: int = 1, shape: float = 1.0, rate: float = 1.0, first_year: int | None = None
) -> Model:
    """Return a model of counts whose rate changes at unknown times.

    The model is ::

        y_t ~ Poisson(lambda_k) for tau_k < t <= tau_{k+1},     k = 0..K,     tau_0 = 0, tau_{K+1} = T
        lambda_k ~ Gamma(shape, rate),     0 < tau_1 < ... < tau_K < T with equal probabilities

    The variables are ``rate`` of shape (K + 1,) and the integers ``year`` of shape (K,), the first year of each new rate. The
    last K coordinates are discontinuous.

    Parameters
    ----------
    y : array_like of shape (T,), optional
        Counts of successive years. Defaults to the coal-mining disasters of 1851 to 1962.
    changes : int, default 1
        Number K of changes, from 1 to T - 1.
    shape : float, default 1.0
        Shape of the prior of each rate.
    rate : float, default 1.0
        Rate of the prior of each rate.
    first_year : int, optional
        Year of ``y[0]``. Defaults to 0.

    Returns
    -------
    Model
        The model, with exact moments and draws in ``reference``.

    Raises
    ------
    refhmc.errors.ShapeError
        If `y` is not a vector.
    ValueError
        If an argument is out of range.

    Notes
    -----
    Chains start at an exact draw. The posterior of the default data has a second, much lower mode at 1948, where a chain from
    another start may stay.

    References
    ----------
    B. P. Carlin, A. E. Gelfand and A. F. M. Smith (1992), Hierarchical Bayesian analysis of changepoint problems.
    P. Fearnhead (2006), Exact and efficient Bayesian inference for multiple changepoint problems.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.ChangePoint()
    >>> model.reference_names, round(float(model.reference.mean[2]))
    (['rate[0]', 'rate[1]', 'year[0]'], 1891)
    """
    if y is None:
        known = load_json("coal_mining_disasters")
        y, first_year = known["counts"], known["first_year"]
    y, first = counts("y", y), 0 if first_year is None else int(first_year)
    T = len(y)
    K = whole_number("changes", changes, 1, T - 1)
    shape, rate = positive("shape", shape), positive("rate", rate)
    law = ChangeLaw(y, K, shape, rate, first)
    mean, variance = law.moments()
    years = first + np.arange(T)
    return Model(
        2 * K + 1,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        data=in_rows([0.0, *np.cumsum(y)], [shape, rate]),
        names=[*(f"log_rate[{k}]" for k in range(K + 1)), *(f"change[{k}]" for k in range(K))],
        constrain=functools.partial(constrain, first_year=first),
        discontinuous=["change"],
        log_density_change=log_density_change,
        name="change-point",
        reference=Reference("exact sum over the changes", mean, variance, draw=law.draw),
        initial=law.draw(np.random.default_rng(0), 1)[0],
        dims={"rate": "regime", "year": "change", "y": "year"},
        coords=None if first_year is None else {"year": years},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y, years=years),
            posterior_predictive=functools.partial(posterior_predictive, years=years),
            prior=functools.partial(prior, K=K, shape=shape, rate=rate, years=years),
            observed_data={"y": y},
        ),
    )
