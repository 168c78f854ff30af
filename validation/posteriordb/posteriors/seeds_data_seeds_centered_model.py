"""Germinated seeds on 21 plates, on seed type x_1 and root extract x_2, with centred effects b of the plates.

    n_i ~ Binomial(N_i, expit(alpha_0 + alpha_1 x_1i + alpha_2 x_2i + alpha_12 x_1i x_2i + b_i)),      b = c - mean c
    c_i ~ N(0, sigma^2), alpha ~ N(0, 1), sigma ~ C+(0, 1)

Source: Crowder (1978), from WinBUGS Examples, volume 1.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "seeds_data-seeds_centered_model"
WHY_NOT = (
    "in part, because chains that change to the hierarchical metric have three quarters of the effective draws per gradient; "
    "without it, one chain of 40 did not mix"
)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    one, two = data["x1"], data["x2"]

    def seeds():
        a, a1, a2, a12 = (numpyro.sample(f"alpha{k}", dist.Normal(0, 1)) for k in (0, 1, 2, 12))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
        with numpyro.plate("plate", data["I"]):
            c = numpyro.sample("c", dist.Normal(0, sigma))
        b = numpyro.deterministic("b", c - c.mean())
        eta = a + a1 * one + a2 * two + a12 * one * two + b
        numpyro.sample("n", dist.BinomialLogits(eta, data["N"]), obs=data["n"])

    return seeds


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
