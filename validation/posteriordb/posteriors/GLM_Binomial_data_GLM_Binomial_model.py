"""Successful broods among 40 years of peregrines, on the year t and its square.

    C_t ~ Binomial(N_t, expit(alpha + beta_1 t + beta_2 t^2)),      alpha, beta_k ~ N(0, 100^2)

Source: Kery and Schaub (2012), Bayesian Population Analysis, chapter 3, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "GLM_Binomial_data-GLM_Binomial_model"


def constrain(q):
    return {"alpha": q[..., 0], "beta1": q[..., 1], "beta2": q[..., 2]}


def model(data):
    import sympy
    from sympy import exp, log

    a, b, c = coordinates = sympy.symbols("alpha beta1 beta2")
    C, N, t = (sympy.IndexedBase(name) for name in ("C", "N", "year"))
    i, n = sympy.symbols("i n", integer=True)
    eta = a + b * t[i] + c * t[i] ** 2
    L = sympy.Sum(C[i] * eta - N[i] * log(1 + exp(eta)), (i, 0, n - 1)) - (a**2 + b**2 + c**2) / 20_000
    return refhmc.from_sympy(L, coordinates, data={k: data[k] for k in ("C", "N", "year")}, constrain=constrain)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    t = data["year"]

    def broods():
        a, b, c = (numpyro.sample(name, dist.Normal(0, 100)) for name in ("alpha", "beta1", "beta2"))
        numpyro.sample("C", dist.BinomialLogits(a + b * t + c * t**2, data["N"]), obs=data["C"])

    return broods
