"""Logarithm of radon in 919 houses of Minnesota, on the floor, with a standardised intercept for each of 85 counties.

    y_i ~ N(alpha_{c_i} + beta floor_i, sigma_y^2),      alpha_j = mu_alpha + sigma_alpha z_j, z_j ~ N(0, 1), beta ~ N(0, 10^2)
    mu_alpha ~ N(0, 10^2), sigma_alpha, sigma_y ~ N+(0, 1)

Source: Gelman and Hill (2006), from the Stan case study on radon.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "radon_mn-radon_variable_intercept_noncentered"


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    county, floor, y = data["county_idx"] - 1, data["floor_measure"], data["log_radon"]

    def radon():
        sigma_y = numpyro.sample("sigma_y", dist.HalfNormal(1))
        beta = numpyro.sample("beta", dist.Normal(0, 10))
        mu_alpha = numpyro.sample("mu_alpha", dist.Normal(0, 10))
        sigma_alpha = numpyro.sample("sigma_alpha", dist.HalfNormal(1))
        with numpyro.plate("county", data["J"]):
            raw = numpyro.sample("alpha_raw", dist.Normal(0, 1))
        alpha = numpyro.deterministic("alpha", mu_alpha + sigma_alpha * raw)
        numpyro.sample("y", dist.Normal(alpha[county] + beta * floor, sigma_y), obs=y)

    return radon


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
