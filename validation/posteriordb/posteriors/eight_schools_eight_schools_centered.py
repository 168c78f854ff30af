"""Effects of coaching in eight schools, with the effects themselves as parameters.

    y_j ~ N(theta_j, s_j^2),      theta_j ~ N(mu, tau^2), mu ~ N(0, 5^2), tau ~ C+(0, 5)

posteriordb's reference draws are those of the other form.

Source: Rubin (1981), from Gelman et al. (2013), Bayesian Data Analysis, section 5.5.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

NAME = "eight_schools-eight_schools_centered"


def log_density(values, data):
    theta, mu, tau = values
    y, s = data
    r, e = (y - theta) / s, (theta - mu) / tau
    return -0.5 * (r @ r + e @ e) - len(y) * np.log(tau) - mu**2 / 50 - np.log1p(tau**2 / 25)


def gradient(values, data):
    theta, mu, tau = values
    y, s = data
    e = (theta - mu) / tau
    of_tau = (e @ e - len(y)) / tau - 2 * tau / (25 + tau**2)
    return (y - theta) / s**2 - e / tau, np.sum(e) / tau - mu / 25, of_tau


def model(data):
    parents = {"theta": ["mu", "tau"]}
    parameters = refhmc.Parameters(theta=Real(shape=len(data["y"])), mu=Real(), tau=Positive(), parents=parents)
    return parameters.model(log_density, gradient, data=(data["y"].astype(float), data["sigma"].astype(float)))


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    def schools():
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", len(data["y"])):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, data["sigma"]), obs=data["y"])

    return schools
