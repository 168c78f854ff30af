"""Capture and recapture in a closed population of unknown size N: an integer and a smooth coordinate.

In T occasions each animal is caught with probability p. In total M different animals are caught, n times::

    P(data | N, p) = N! / (N - M)! p^n (1 - p)^(T N - n) x const,     P(N) ~ 1/N on M..N_max,     p ~ U(0, 1)

The coordinates are q = (logit p, x), with N = n(x) embedded with a_n = log n (:mod:`refhmc.models.embedding`). With s = p, ::

    L(q) = -log N + log N! - log (N - M)! + (n + 1) log s + (T N - n + 1) log(1 - s) - log log((N + 1) / N)
    dL/dq_0 = n + 1 - (T N + 2) s,     d^2L = -(T N + 2) s (1 - s),     d^3L = -(T N + 2) s (1 - s) (1 - 2 s)

Exact posterior: P(N | data) ~ 1/N N!/(N - M)! B(1 + n, 1 + T N - n) and p | N ~ Beta(1 + n, 1 + T N - n).

There are two observations. With P = 1 - (1 - p)^T, the probability that an animal is caught at all, ::

    M ~ Bin(N, P)      P(n | M) = A p^n (1 - p)^(T M - n) / P^M,     A = sum_j (-1)^j C(M, j) C(T (M - j), n)

A is the number of ways to catch M animals n times in total, each at least once.

The data are one row (T, n, M, N_max).
"""

from __future__ import annotations

import functools
import math

import numpy as np
import scipy.special

from refhmc.compile.compiled import jit
from refhmc.models.base import Model
from refhmc.models.densities import log_binomial
from refhmc.models.embedding import Embedding, log_integer, log_log_width
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.recipe import recreatable
from refhmc.models.reference import Reference
from refhmc.numerics.transforms import expit, softplus

T, CAPTURES, DISTINCT, LARGEST = range(4)


@jit
def log_of_integer(N: int, M: float) -> float:
    """Return the terms of the log density that do not depend on p."""
    return -math.log(N) + math.lgamma(N + 1.0) - math.lgamma(N - M + 1.0) - log_log_width(N, 0)


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    out[0] = out[1] = 0.0
    N = log_integer(q[1].real, 0)
    if data[0, DISTINCT] > N or data[0, LARGEST] < N:
        return -math.inf
    caught, missed = data[0, CAPTURES] + 1, data[0, T] * N - data[0, CAPTURES] + 1
    out[0] = caught - (caught + missed) * expit(q[0])
    return log_of_integer(N, data[0, DISTINCT]) - caught * softplus(-q[0]) - missed * softplus(q[0])


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    N = log_integer(q[1].real, 0)
    if data[0, DISTINCT] > N or data[0, LARGEST] < N:
        return -math.inf
    caught, missed = data[0, CAPTURES] + 1, data[0, T] * N - data[0, CAPTURES] + 1
    return log_of_integer(N, data[0, DISTINCT]) - caught * softplus(-q[0]) - missed * softplus(q[0])


@jit
def curvatures(q: np.ndarray, data: np.ndarray) -> tuple[float, float]:
    """Return the second and third derivative in q_0, 0 outside the support."""
    N = log_integer(q[1].real, 0)
    if data[0, DISTINCT] > N or data[0, LARGEST] < N:
        return 0.0 * q[0], 0.0 * q[0]
    second = -0.25 * (data[0, T] * N + 2) / np.cosh(0.5 * q[0]) ** 2  # s (1 - s) = 1 / (4 cosh^2(q_0 / 2))
    return second, -second * np.tanh(0.5 * q[0])


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    out[0, 0] = curvatures(q, data)[0]


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    out[0], out[1] = M[0, 0] * curvatures(q, data)[1], 0.0


@jit
def log_density_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
    if j == 0:
        N = log_integer(q[1], 0)
        caught, missed = data[0, CAPTURES] + 1, data[0, T] * N - data[0, CAPTURES] + 1
        less = softplus(-new_value) - softplus(-q[0])
        return -caught * less - missed * (softplus(new_value) - softplus(q[0]))
    N, before = log_integer(new_value, 0), log_integer(q[1], 0)
    if data[0, DISTINCT] > N or data[0, LARGEST] < N:
        return -math.inf
    if before == N:
        return 0.0
    M = data[0, DISTINCT]
    return log_of_integer(N, M) - log_of_integer(before, M) - data[0, T] * (N - before) * softplus(q[0])


def constrain(q: np.ndarray, embedding: Embedding) -> dict:
    return {"p": scipy.special.expit(q[..., 0]), "N": embedding.integers(q[..., 1])}


def probabilities(occasions: int, captures: int, distinct: int, largest: int) -> np.ndarray:
    """Return P(N | data) for N = distinct, ..., largest."""
    N = np.arange(distinct, largest + 1)
    log_weight = -np.log(N) + scipy.special.gammaln(N + 1) - scipy.special.gammaln(N - distinct + 1)
    log_weight += scipy.special.betaln(1 + captures, 1 + occasions * N - captures)
    return scipy.special.softmax(log_weight)


def draw(
    rng: np.random.Generator,
    n_draws: int,
    weights: np.ndarray,
    occasions: int,
    captures: int,
    distinct: int,
    embedding: Embedding,
) -> np.ndarray:
    """Return (n_draws, 2) independent positions."""
    N = distinct + rng.choice(len(weights), size=n_draws, p=weights)
    p = rng.beta(1.0 + captures, 1.0 + occasions * N - captures)
    return np.stack([scipy.special.logit(p), embedding.draw_position(rng, N)], axis=1)


def log_ways(occasions: int, captures: int, distinct: int) -> float:
    """Return log A, computed with integers of arbitrary length."""
    terms = (
        (-1) ** j * math.comb(distinct, j) * math.comb(occasions * (distinct - j), captures)
        for j in range(distinct + 1)
    )
    return math.log(sum(terms))


def log_likelihood(values: dict, occasions: int, captures: int, distinct: int, ways: float) -> dict:
    p = values["p"]
    caught = -np.expm1(occasions * np.log1p(-p))
    of_captures = captures * np.log(p) + (occasions * distinct - captures) * np.log1p(-p) - distinct * np.log(caught)
    return {"distinct": log_binomial(distinct, values["N"], caught), "captures": ways + of_captures}


def posterior_predictive(values: dict, rng: np.random.Generator, occasions: int) -> dict:
    times = np.arange(occasions + 1)
    chances = np.exp(log_binomial(times, occasions, values["p"][..., None]))
    animals = rng.multinomial(values["N"].astype(int), chances / chances.sum(axis=-1, keepdims=True))
    return {"distinct": values["N"].astype(int) - animals[..., 0], "captures": animals @ times}


@recreatable
def ClosedPopulation(occasions: int = 5, captures: int = 60, distinct: int = 38, largest: int = 5000) -> Model:
    """Return a capture-recapture model of a closed population.

    In T occasions each of N animals is caught with probability p; M different ones are caught, n times in total::

        P(data | N, p) = N! / (N - M)! p^n (1 - p)^(T N - n) x const,     P(N) ~ 1/N on M..N_max,     p ~ U(0, 1)

    The variables are the integer ``N`` and ``p``. The coordinate of N is discontinuous.

    Parameters
    ----------
    occasions : int, default 5
        Number T of occasions.
    captures : int, default 60
        Number n of captures.
    distinct : int, default 38
        Number M of different animals.
    largest : int, default 5000
        Upper limit N_max of N.

    Returns
    -------
    Model
        The model, with exact moments and draws in ``reference``.

    Raises
    ------
    ValueError
        Unless 1 <= distinct <= captures <= occasions * distinct and distinct <= largest.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.ClosedPopulation()
    >>> model.reference_names, bool(model.reference.mean[1] > 38)
    (['p', 'N'], True)
    """
    if not 1 <= distinct <= captures <= occasions * distinct or largest < distinct:
        raise ValueError(
            f"Counts must satisfy 1 <= distinct <= captures <= occasions * distinct and distinct <= largest; got {distinct=}, "
            f"{captures=}, {occasions=} and {largest=}."
        )
    embedding = Embedding(range(distinct, largest + 1), a="log n")
    weights = probabilities(occasions, captures, distinct, largest)
    N = np.arange(distinct, largest + 1)
    mean_p = (1 + captures) / (2 + occasions * N)
    square_p = mean_p * (2 + captures) / (3 + occasions * N)
    mean = np.array([weights @ mean_p, weights @ N])
    start = N[np.argmax(weights)]
    return Model(
        2,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        data=np.array([[occasions, captures, distinct, largest]], dtype=float),
        names=["logit_p", "log_N"],
        constrain=functools.partial(constrain, embedding=embedding),
        discontinuous=["log_N"],
        log_density_change=log_density_change,
        initial=[scipy.special.logit(captures / (occasions * start)), embedding.embed(start)],
        name="closed-population",
        reference=Reference(
            source="sum over N",
            mean=mean,
            variance=np.array([weights @ square_p, weights @ (N - mean[1]) ** 2]) - [mean[0] ** 2, 0.0],
            draw=functools.partial(
                draw, weights=weights, occasions=occasions, captures=captures, distinct=distinct, embedding=embedding
            ),
        ),
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(
                log_likelihood,
                occasions=occasions,
                captures=captures,
                distinct=distinct,
                ways=log_ways(occasions, captures, distinct),
            ),
            posterior_predictive=functools.partial(posterior_predictive, occasions=occasions),
            observed_data={"distinct": distinct, "captures": captures},
            constant_data={"occasions": occasions},
        ),
    )
