"""Effects of coaching in eight schools, with standardised effects eta as parameters.

    y_j ~ N(theta_j, s_j^2),  theta_j = mu + tau eta_j,      eta_j ~ N(0, 1), mu ~ N(0, 5^2), tau ~ C+(0, 5)

Source: Rubin (1981), from Gelman et al. (2013), Bayesian Data Analysis, section 5.5.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

NAME = "eight_schools-eight_schools_noncentered"


def log_density(values, data):
    eta, mu, tau = values
    y, s = data
    r = (y - mu - tau * eta) / s
    return -0.5 * (r @ r + eta @ eta) - mu**2 / 50 - np.log1p(tau**2 / 25)


def gradient(values, data):
    eta, mu, tau = values
    y, s = data
    w = (y - mu - tau * eta) / s**2
    return tau * w - eta, np.sum(w) - mu / 25, w @ eta - 2 * tau / (25 + tau**2)


def model(data):
    parameters = refhmc.Parameters(eta=Real(shape=len(data["y"])), mu=Real(), tau=Positive(), parents={})
    return parameters.model(log_density, gradient, data=(data["y"].astype(float), data["sigma"].astype(float)))


def reference_values(values):
    return {"theta": values["mu"][..., None] + values["tau"][..., None] * values["eta"]}


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    def schools():
        mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", len(data["y"])):
            eta = numpyro.sample("eta", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + tau * eta, data["sigma"]), obs=data["y"])

    return schools
