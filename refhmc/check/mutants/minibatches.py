"""Planted bugs of stochastic gradients and of their samplers, in NumPy code as a stranger would write it."""

from __future__ import annotations

import numpy as np

import refhmc.check as rc

from . import Pair

N, DIM = 30, 3
rng = np.random.default_rng(7)
X = rng.standard_normal((N, DIM))
Y = (rng.random(N) < 0.5).astype(float)
PRIOR = 0.25
COVARIANCE = np.array([[2.0, 0.6], [0.6, 0.5]])
PRECISION = np.linalg.inv(COVARIANCE)


def terms(q, rows):
    """Gradients of the log likelihood of single data, logistic regression."""
    return (Y[rows] - 1 / (1 + np.exp(-X[rows] @ q)))[:, None] * X[rows]


def full(q):
    return -PRIOR * q + terms(q, np.arange(N)).sum(axis=0)


def estimator(bug=None):
    def gradient(q, batch):
        data = terms(q, batch)
        scale = N / len(batch)
        if bug == "inverse":
            scale = len(batch) / N
        if bug == "unscaled":
            scale = 1.0
        if bug == "last left out":
            data, scale = data[:-1], N / (len(batch) - 1) * (len(batch) - 1) / len(batch)
        prior = -PRIOR * q
        if bug == "prior scaled too":
            prior = prior * scale
        if bug == "prior missing":
            prior = 0 * q
        return prior + scale * data.sum(axis=0)

    return gradient


CENTRE = np.array([0.3, -0.2, 0.1])
AT_CENTRE = terms(CENTRE, np.arange(N)).sum(axis=0)


def control_variate(q, batch):
    """Right: the difference to the gradient at a fixed centre, whose sum is known."""
    return -PRIOR * q + AT_CENTRE + N / len(batch) * (terms(q, batch) - terms(CENTRE, batch)).sum(axis=0)


def with_repeats(q, batch):
    """Right: it does not care whether indices repeat, or in which order they come."""
    counts = np.bincount(batch, minlength=N)
    return -PRIOR * q + N / counts.sum() * counts @ terms(q, np.arange(N))


def gaussian(q):
    return -PRECISION @ (q - 1.0)


def langevin(drift, variance):
    def step(rng, q, eps):
        return q + drift * eps * gaussian(q) + rng.normal(scale=np.sqrt(variance(eps)), size=len(q))

    return step


def preconditioned(wrong):
    root = np.linalg.cholesky(COVARIANCE)

    def step(draws, q, eps):
        noise = draws.normal(len(q))
        return q + 0.5 * eps * COVARIANCE @ gaussian(q) + np.sqrt(eps) * (noise if wrong else root @ noise)

    return step


def with_friction(factor, friction=2.0):
    def step(draws, q, p, eps):
        q = q + eps * p
        p = p + eps * gaussian(q) - eps * friction * p + np.sqrt(factor * friction * eps) * draws.normal(len(q))
        return q, p

    return step


def splitting(draws, q, p, eps):
    """Right: half kick, half drift, exact friction, half drift, half kick."""
    p = p + 0.5 * eps * gaussian(q)
    q = q + 0.5 * eps * p
    c = np.exp(-1.5 * eps)
    p = c * p + np.sqrt(1 - c * c) * draws.normal(len(p))
    q = q + 0.5 * eps * p
    return q, p + 0.5 * eps * gaussian(q)


def of_gradient(gradient, size=6):
    return lambda seed: rc.minibatch(gradient, full, N, size, dim=DIM, seed=seed)


def of_step(step):
    return lambda seed: rc.minibatch(full=gaussian, step=step, dim=2, seed=seed)


HALF, WHOLE = langevin(0.5, lambda eps: eps), langevin(1.0, lambda eps: 2 * eps)
MEAN, LAW = ("mean over batches",), ("stationary law as eps -> 0",)
PAIRS = [
    Pair("P24", "data scaled n/N for N/n", of_gradient(estimator("inverse")), of_gradient(estimator()), MEAN),
    Pair("P24b", "noise eps for sqrt(2 eps)", of_step(langevin(1.0, lambda e: e * e)), of_step(WHOLE), LAW),
    Pair("B01", "batch not scaled up", of_gradient(estimator("unscaled"), 2), of_gradient(estimator(), 2), MEAN),
    Pair(
        "B02",
        "prior scaled with the batch",
        of_gradient(estimator("prior scaled too")),
        of_gradient(control_variate),
        MEAN,
    ),
    Pair("B03", "prior missing", of_gradient(estimator("prior missing")), of_gradient(with_repeats), MEAN),
    Pair(
        "B04", "last of the batch left out", of_gradient(estimator("last left out")), of_gradient(estimator(), 1), MEAN
    ),
    Pair("B05", "drift eps with noise of variance eps", of_step(langevin(1.0, lambda e: e)), of_step(HALF), LAW),
    Pair(
        "B06", "preconditioned drift, plain noise", of_step(preconditioned(True)), of_step(preconditioned(False)), LAW
    ),
    Pair("B07", "noise of the friction without its 2", of_step(with_friction(1.0)), of_step(with_friction(2.0)), LAW),
    Pair(
        "B08",
        "noise of variance eps^2 beside a drift eps/2",
        of_step(langevin(0.5, lambda e: e * e)),
        of_step(splitting),
        LAW,
    ),
]
