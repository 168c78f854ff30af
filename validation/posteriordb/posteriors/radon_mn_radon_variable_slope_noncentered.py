"""Logarithm of radon in 919 houses of Minnesota, on the floor, with a standardised slope for each of 85 counties.

    y_i ~ N(alpha + beta_{c_i} floor_i, sigma_y^2),      beta_j = mu_beta + sigma_beta z_j, z_j ~ N(0, 1), alpha ~ N(0, 10^2)
    mu_beta ~ N(0, 10^2), sigma_beta, sigma_y ~ N+(0, 1)

Source: Gelman and Hill (2006), from the Stan case study on radon.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "radon_mn-radon_variable_slope_noncentered"


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    county, floor, y = data["county_idx"] - 1, data["floor_measure"], data["log_radon"]

    def radon():
        sigma_y = numpyro.sample("sigma_y", dist.HalfNormal(1))
        alpha = numpyro.sample("alpha", dist.Normal(0, 10))
        mu_beta = numpyro.sample("mu_beta", dist.Normal(0, 10))
        sigma_beta = numpyro.sample("sigma_beta", dist.HalfNormal(1))
        with numpyro.plate("county", data["J"]):
            raw = numpyro.sample("beta_raw", dist.Normal(0, 1))
        beta = numpyro.deterministic("beta", mu_beta + sigma_beta * raw)
        numpyro.sample("y", dist.Normal(alpha + beta[county] * floor, sigma_y), obs=y)

    return radon


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
