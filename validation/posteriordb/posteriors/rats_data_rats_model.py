"""Weights of 30 rats at five ages x, with a line for each.

    y_n ~ N(alpha_{r_n} + beta_{r_n} (x_n - mean x), sigma_y^2)
    alpha_r ~ N(mu_alpha, sigma_alpha^2), beta_r ~ N(mu_beta, sigma_beta^2)
    mu_alpha, mu_beta ~ N(0, 100^2), standard deviations flat

Source: Gelfand and Smith (1990), from WinBUGS Examples, volume 1.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "rats_data-rats_model"
WHY_NOT = (
    "chains start with mu_alpha near 0 in place of 240, first explain the weights by sigma_y near 200, and leave that region "
    "in trajectories of 60 to 500 steps; the draws take as many gradients as nutpie's"
)


def in_numpyro(data):
    import numpyro
    import numpyro.distributions as dist

    rat, x = data["rat"] - 1, data["x"] - data["xbar"]

    def rats():
        flat = dist.ImproperUniform(dist.constraints.positive, (), ())
        sigma_y, sigma_alpha, sigma_beta = (numpyro.sample(f"sigma_{name}", flat) for name in ("y", "alpha", "beta"))
        mu_alpha, mu_beta = (numpyro.sample(f"mu_{name}", dist.Normal(0, 100)) for name in ("alpha", "beta"))
        with numpyro.plate("rats", data["N"]):
            alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
            beta = numpyro.sample("beta", dist.Normal(mu_beta, sigma_beta))
        numpyro.sample("y", dist.Normal(alpha[rat] + beta[rat] * x, sigma_y), obs=data["y"])

    return rats


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
