"""The difference of two binomial rates, as a formula of their logits u.

    k_j ~ Binomial(n_j, theta_j),      theta_j ~ U(0, 1),      delta = theta_1 - theta_2

Source: Lee and Wagenmakers (2013), Bayesian Cognitive Modeling, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc

NAME = "Rate_2_data-Rate_2_model"


def constrain(q):
    theta = 1 / (1 + np.exp(-q))
    return {"theta1": theta[..., 0], "theta2": theta[..., 1], "delta": theta[..., 0] - theta[..., 1]}


def model(data):
    import sympy
    from sympy import exp, log

    coordinates = sympy.symbols("u1 u2")
    L = -sum(
        (data[f"k{j}"] + 1) * log(1 + exp(-u)) + (data[f"n{j}"] - data[f"k{j}"] + 1) * log(1 + exp(u))
        for j, u in enumerate(coordinates, 1)
    )
    return refhmc.from_sympy(L, list(coordinates), constrain=constrain)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    def rates():
        theta = [numpyro.sample(f"theta{j}", dist.Uniform(0, 1)) for j in (1, 2)]
        numpyro.deterministic("delta", theta[0] - theta[1])
        for j in (1, 2):
            numpyro.sample(f"k{j}", dist.Binomial(data[f"n{j}"], theta[j - 1]), obs=data[f"k{j}"])

    return rates


def exact(data):
    found = {}
    for j in (1, 2):
        a, b = data[f"k{j}"] + 1, data[f"n{j}"] - data[f"k{j}"] + 1
        found[f"theta{j}"] = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    (mean, variance), (other, too) = found.values()
    return found | {"delta": (mean - other, variance + too)}
