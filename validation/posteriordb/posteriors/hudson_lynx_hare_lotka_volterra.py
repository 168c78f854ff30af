"""Pelts of hares and lynxes, 1900 to 1920, by the equations of Lotka and Volterra with unknown initial state.

    du/dt = (alpha - beta v) u,      dv/dt = (delta u - gamma) v,      log y ~ N(log (u, v), sigma_k^2)
    alpha, gamma ~ N+(1, 0.5^2), beta, delta ~ N+(0.05, 0.05^2), sigma_k ~ LogNormal(-1, 1)
    initial state ~ LogNormal(log 10, 1)

Source: Howard (2009), from Hewitt (1921), from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc
from refhmc.models import error_laws, priors
from refhmc.parameters import Positive

NAME = "hudson_lynx_hare-lotka_volterra"
RATES, STATE = ("alpha", "beta", "gamma", "delta"), ("hares", "lynxes")


def rhs(t, x, theta):
    return np.array([(theta[0] - theta[1] * x[1]) * x[0], (theta[3] * x[0] - theta[2]) * x[1]])


def jacobian(t, x, theta, out):
    out[0, :4] = np.array([theta[0] - theta[1] * x[1], -theta[1] * x[0], x[0], -x[0] * x[1]])
    out[1, :2] = np.array([theta[3] * x[1], theta[3] * x[0] - theta[2]])
    out[1, 4:6] = np.array([-x[1], x[0] * x[1]])


def observed(data):
    return np.concatenate([[0], data["ts"]]), np.concatenate([data["y_init"][None], data["y"]])


def model(data):
    times, y = observed(data)
    rate, per_animal = priors.Normal(1, 0.5), priors.Normal(0.05, 0.05)
    prior = dict(zip(RATES, (rate, per_animal, rate, per_animal), strict=True))
    prior |= dict.fromkeys(STATE, priors.LogNormal(np.log(10), 1))
    return refhmc.models.ODE(
        rhs,
        jacobian,
        parameters=refhmc.Parameters(**dict.fromkeys(prior, Positive()), sigma=Positive(shape=2)),
        initial_state=list(STATE),
        times=times,
        y=y,
        errors=error_laws.LogNormal("sigma"),
        prior={**prior, "sigma": priors.LogNormal(-1, 1)},
    )


def reference_values(values):
    return {
        "theta": np.stack([values[name] for name in RATES], axis=-1),
        "z_init": np.stack([values[name] for name in STATE], axis=-1),
    }


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.experimental.ode import odeint

    times, y = (jnp.asarray(x, dtype=float) for x in observed(data))

    def change(x, t, a, b, c, d):
        return jnp.stack([(a - b * x[1]) * x[0], (d * x[0] - c) * x[1]])

    def cycles():
        means = (1.0, 0.05, 1.0, 0.05)
        normal = [dist.TruncatedNormal(m, 0.5 if m == 1 else 0.05, low=0) for m in means]
        rates = [numpyro.sample(name, law) for name, law in zip(RATES, normal, strict=True)]
        start = jnp.stack([numpyro.sample(name, dist.LogNormal(jnp.log(10.0), 1)) for name in STATE])
        sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]).to_event(1))
        x = odeint(change, start, times, *rates, rtol=1e-6, atol=1e-6, mxstep=1000)
        numpyro.sample("y", dist.LogNormal(jnp.log(x), sigma), obs=y)

    return cycles
