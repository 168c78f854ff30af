"""A binomial rate, as a formula of its logit u.

    k ~ Binomial(n, theta),      theta ~ U(0, 1),      so that theta | k ~ Beta(k + 1, n - k + 1)

Source: Lee and Wagenmakers (2013), Bayesian Cognitive Modeling, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc

NAME = "Rate_1_data-Rate_1_model"


def constrain(q):
    return {"theta": 1 / (1 + np.exp(-q[..., 0]))}


def model(data):
    import sympy
    from sympy import exp, log

    coordinates = sympy.symbols("u,")
    L = -sum((data["k"] + 1) * log(1 + exp(-u)) + (data["n"] - data["k"] + 1) * log(1 + exp(u)) for u in coordinates)
    return refhmc.from_sympy(L, list(coordinates), constrain=constrain)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    def rates():
        theta = numpyro.sample("theta", dist.Uniform(0, 1))
        numpyro.sample("k", dist.Binomial(data["n"], theta), obs=data["k"])

    return rates


def exact(data):
    a, b = data["k"] + 1, data["n"] - data["k"] + 1
    return {"theta": (a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1)))}
