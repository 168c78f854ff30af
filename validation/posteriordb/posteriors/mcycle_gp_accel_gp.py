"""Acceleration in 133 simulated motorcycle accidents: mean and log standard deviation are approximate Gaussian processes.

    y_i ~ N(mu_i, e^{2 s_i}),  mu = a + X d * z,  s = a' + X' d' * z',      z, z' ~ N(0, I)
    d_m^2 = alpha^2 (2 pi)^{1/2} rho exp(-rho^2 lambda_m / 2), the spectral density at the square roots of the eigenvalues
    a ~ t_3(-13, 36), a' ~ t_3(0, 10), alpha, alpha' ~ t_3+(0, 36), rho, rho' ~ InverseGamma(1.124909, 0.0177)

Source: Venables and Ripley (2002), MASS, by brms.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "mcycle_gp-accel_gp"
WHY_NOT = (
    "transitions diverge in warm-up, so that the scales are learned from the draws alone, and trajectories have 500 steps; on "
    "the low-rank metric R-hat was 1.03 and 1.21 in two runs"
)
HARD = (
    "Between 6 and 9 % of the transitions diverged, which may have biased sdgp_1 in one of three runs. Stan had 65 divergences "
    "in 4,000 transitions."
)


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    X, Z = jnp.asarray(data["Xgp_1"]), jnp.asarray(data["Xgp_sigma_1"])
    roots = {"": jnp.asarray(data["slambda_1"])[:, 0], "sigma_": jnp.asarray(data["slambda_sigma_1"])[:, 0]}

    def process(X, which):
        n = X.shape[1]
        alpha = numpyro.sample(f"sdgp_{which}1", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.factor(f"prior_{which}1", dist.StudentT(3, 0, 36).log_prob(alpha))
        rho = numpyro.sample(f"lscale_{which}1", dist.InverseGamma(1.124909, 0.0177))
        z = numpyro.sample(f"zgp_{which}1", dist.Normal(0, 1).expand([n]).to_event(1))
        d = alpha * jnp.sqrt(jnp.sqrt(2 * jnp.pi) * rho) * jnp.exp(-0.25 * (rho * roots[which]) ** 2)
        return X @ (d * z)

    def accidents():
        mu = numpyro.sample("Intercept", dist.StudentT(3, -13, 36)) + process(X, "")
        log_sd = numpyro.sample("Intercept_sigma", dist.StudentT(3, 0, 10)) + process(Z, "sigma_")
        numpyro.sample("y", dist.Normal(mu, jnp.exp(log_sd)), obs=data["Y"])

    return accidents


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
