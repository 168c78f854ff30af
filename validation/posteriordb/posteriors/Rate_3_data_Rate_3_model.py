"""A common rate of two binomial counts, as a formula of its logit u.

    k_1 ~ Binomial(n_1, theta), k_2 ~ Binomial(n_2, theta),      theta ~ U(0, 1)

Source: Lee and Wagenmakers (2013), Bayesian Cognitive Modeling, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc

NAME = "Rate_3_data-Rate_3_model"


def hits(data):
    return data["k1"] + data["k2"]


def misses(data):
    return data["n1"] + data["n2"] - hits(data)


def constrain(q):
    return {"theta": 1 / (1 + np.exp(-q[..., 0]))}


def model(data):
    import sympy
    from sympy import exp, log

    coordinates = sympy.symbols("u,")
    L = -sum((hits(data) + 1) * log(1 + exp(-u)) + (misses(data) + 1) * log(1 + exp(u)) for u in coordinates)
    return refhmc.from_sympy(L, list(coordinates), constrain=constrain)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    def rates():
        theta = numpyro.sample("theta", dist.Uniform(0, 1))
        numpyro.sample("k1", dist.Binomial(data["n1"], theta), obs=data["k1"])
        numpyro.sample("k2", dist.Binomial(data["n2"], theta), obs=data["k2"])

    return rates


def exact(data):
    a, b = hits(data) + 1, misses(data) + 1
    return {"theta": (a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1)))}
