"""Planted bugs in transitions given data, with corrected counterparts, in plain NumPy.

The model has theta = (mu, s) and five data y_i ~ N(mu, e^s), with mu ~ N(0, 1) and e^s half-normal.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair

N_DATA = 5


def simulate(rng):
    mu, sigma = rng.standard_normal(), abs(rng.standard_normal())
    return np.array([mu, math.log(sigma)]), rng.normal(mu, sigma, N_DATA)


def log_likelihood(theta, y):
    return -len(y) * theta[1] - 0.5 * np.sum((y - theta[0]) ** 2) * math.exp(-2 * theta[1])


def log_prior(theta, jacobian=True):
    return -0.5 * theta[0] ** 2 - 0.5 * math.exp(2 * theta[1]) + (theta[1] if jacobian else 0.0)


def log_posterior(theta, y):
    return log_prior(theta) + log_likelihood(theta, y)


def without_jacobian(theta, y):
    return log_prior(theta, jacobian=False) + log_likelihood(theta, y)


def without_last(theta, y):
    return log_prior(theta) + log_likelihood(theta, y[:-1])


def variance_for_scale(theta, y):
    return log_prior(theta) - 0.5 * len(y) * theta[1] - 0.5 * np.sum((y - theta[0]) ** 2) * math.exp(-theta[1])


def walk(log_density, accepts=lambda rng, change: math.log(rng.random()) < change, width=0.7):
    """Random walk with an acceptance rule."""

    def given(y):
        def kernel(rng, theta):
            new = theta + width * rng.standard_normal(2)
            return new if accepts(rng, log_density(new, y) - log_density(theta, y)) else theta

        return kernel

    return given


def langevin(adjusted, eps=0.35):
    """Langevin's proposal with a gradient by hand, with or without Metropolis' rule."""

    def gradient(theta, y):
        r, precision = y - theta[0], math.exp(-2 * theta[1])
        slope = 1 - len(y) + np.sum(r * r) * precision - math.exp(2 * theta[1])
        return np.array([np.sum(r) * precision - theta[0], slope])

    def given(y):
        def log_q(new, old):
            return -0.5 * np.sum((new - old - 0.5 * eps**2 * gradient(old, y)) ** 2) / eps**2

        def kernel(rng, theta):
            new = theta + 0.5 * eps**2 * gradient(theta, y) + eps * rng.standard_normal(2)
            if not adjusted:
                return np.clip(new, -20, 5)
            ratio = log_posterior(new, y) - log_posterior(theta, y) + log_q(theta, new) - log_q(new, theta)
            return new if math.log(rng.random()) < ratio else theta

        return kernel

    return given


def sweep(precision_of):
    """mu from its conditional distribution, then a random walk of s: right, but not reversible."""

    def given(y):
        def kernel(rng, theta):
            weight = len(y) * math.exp(-2 * theta[1])
            mu = (weight * y.mean() + rng.standard_normal() * math.sqrt(precision_of(weight))) / precision_of(weight)
            old = np.array([mu, theta[1]])
            new = old + np.array([0.0, 0.6 * rng.standard_normal()])
            return new if math.log(rng.random()) < log_posterior(new, y) - log_posterior(old, y) else old

        return kernel

    return given


@functools.cache
def report(given, seed, reversible):
    options = {"reversible": reversible, "seconds": None, "quantities": log_likelihood}
    return rc.transition_with_data(simulate, given, seed=seed, **options)


def pair(id, what, wrong, right=None, reversible=True):
    expected = ("ranks", "stationarity") if reversible else ("stationarity",)
    right = right or CORRECT
    return Pair(
        id, what, lambda seed: report(wrong, seed, reversible), lambda seed: report(right, seed, reversible), expected
    )


CORRECT = walk(log_posterior)
PAIRS = [
    pair("data: prior only", "the transition ignores the data", walk(lambda theta, y: log_prior(theta))),
    pair("data: likelihood only", "the prior is missing", walk(log_likelihood)),
    pair("data: jacobian", "the log Jacobian of the scale is missing", walk(without_jacobian)),
    pair("data: last", "the last observation is left out", walk(without_last)),
    pair("data: variance", "e^s is taken for a variance", walk(variance_for_scale)),
    pair(
        "data: uphill",
        "only moves to a higher density are accepted",
        walk(log_posterior, lambda rng, change: change > 0),
    ),
    pair("data: unadjusted", "Langevin's proposal is always accepted", langevin(False), langevin(True)),
    pair(
        "data: sweep",
        "the prior's precision is missing in a conditional distribution",
        sweep(lambda weight: weight),
        sweep(lambda weight: 1 + weight),
        reversible=False,
    ),
]
