import jax
import jax.numpy as jnp
import numpy as np

import refhmc

jax.config.update("jax_enable_x64", True)
y = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
sigma = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def log_density(q):
    eta, mu, log_tau = q[:8], q[8], q[9]
    r = (y - mu - jnp.exp(log_tau) * eta) / sigma
    return -0.5 * jnp.sum(r * r + eta * eta) - mu * mu / 50 + log_tau - jnp.log1p(jnp.exp(2 * log_tau) / 25)


def constrain(q):
    return {"eta": q[..., :8], "mu": q[..., 8], "tau": np.exp(q[..., 9])}


names = [*(f"eta[{j}]" for j in range(8)), "mu", "log_tau"]
model = refhmc.from_jax(log_density, 10, names=names, constrain=constrain)
