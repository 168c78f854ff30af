"""The targets of :mod:`validation.benchmarks.explicit`, with reference values for their scale parameters.

References are exact for the funnel and the normal distribution, and by quadrature for the eight schools. The others are long
runs of NUTS on the non-centred form, or on the only form. ``python -m validation.benchmarks.explicit --references`` stores them
with their standard errors. The reference of the horseshoe is a Gibbs sampler, since NUTS diverges there in both forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.integrate
import scipy.linalg

import refhmc
from refhmc import models
from validation.benchmarks import common, posteriors, problems
from validation.benchmarks import hierarchical_models as hierarchical

STORED = common.HERE / "explicit_references.json"
LONG_DRAWS = 25_000
T = 1000
SOME = (0, 50, 99)


class Estimate(NamedTuple):
    """A mean with its standard error."""

    value: float
    error: float


class Target(NamedTuple):
    """A posterior in the form that is sampled, with what it is compared with.

    `scales` are the indices of the scale parameters, or of the coordinates that are judged if there are none. They are the same
    in both forms. A target without a funnel has no `non_centred` form.
    """

    model: Callable[[], refhmc.Model]
    log_density: Callable[[], Callable[[Any], Any]]
    scales: tuple[int, ...]
    non_centred: Callable[[], refhmc.Model] | None = None
    draws: int = 4000
    exact: Callable[[], list[Estimate]] | None = None
    simulate: Callable[[], np.ndarray] | None = None  # draws (chain, draw, k) by another method, for a reference


def statistics_of(draws: np.ndarray, scales: tuple[int, ...]) -> list[Estimate]:
    """Return the means and the mean squares of the scale parameters, from draws (chain, draw, d)."""
    x = draws[:, :, list(scales)]
    x = np.concatenate([x, x * x], axis=2)
    errors = x.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(x))
    return [Estimate(float(m), float(e)) for m, e in zip(x.mean(axis=(0, 1)), errors, strict=True)]


def reference_of(name: str) -> list[Estimate] | None:
    """Return the reference of each statistic, or None if it was not computed yet."""
    target = TARGETS[name]
    if target.exact is not None:
        return target.exact()
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return [Estimate(*each) for each in stored[name]] if name in stored else None


def store_reference(name: str) -> None:
    """Make the long run of a target and store its statistics."""
    target = TARGETS[name]
    if target.simulate is not None:
        draws = target.simulate()
    else:
        kernel = refhmc.NUTS(target_accept=0.95, metric=refhmc.metrics.LowRank())
        options = {"init": "pathfinder", "random_seed": 2026, "raw": True, "generate": False, "progressbar": False}
        draws = refhmc.sample((target.non_centred or target.model)(), kernel, draws=LONG_DRAWS, **options).draws
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    stored[name] = statistics_of(draws, target.scales)
    STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ targets


def funnel(n: int) -> Target:
    """Return the funnel; v is exact, and the non-centred form is a normal distribution."""

    def log_density():
        import jax.numpy as jnp

        return lambda q: (0.5 * n - q[0] / 18) * q[0] - 0.5 * jnp.exp(q[0]) * jnp.dot(q[1:], q[1:])

    return Target(
        lambda: models.Funnel(n),
        log_density,
        (0,),
        lambda: models.Gaussian(np.zeros(n + 1), np.diag([9.0] + n * [1.0])),
        exact=lambda: [Estimate(0.0, 0.0), Estimate(9.0, 0.0)],
    )


def schools_density() -> Callable:
    """Return the log density of the centred eight schools in jax.numpy."""
    import jax.numpy as jnp

    y, sigma = jnp.array(problems.Y), jnp.array(problems.SIGMA)

    def log_density(q):
        theta, mu, u = q[:8], q[8], q[9]
        fit = -0.5 * jnp.sum(((y - theta) / sigma) ** 2) - 0.5 * jnp.sum((theta - mu) ** 2) * jnp.exp(-2 * u)
        return fit - 7 * u - mu * mu / 50 - jnp.log1p(jnp.exp(2 * u) / 25)

    return log_density


def schools_reference() -> list[Estimate]:
    """Return E u and E u^2, u = log tau, by quadrature over u; mu and theta are integrated exactly.

    With w_j = 1 / (sigma_j^2 + tau^2), mu has the precision P = sum w_j + 1/25 and the mean m = sum w_j y_j / P, and

        p(u | y) ~ tau / (1 + tau^2 / 25)  P^(-1/2) prod_j w_j^(1/2)  exp(-1/2 sum_j w_j y_j^2 + 1/2 P m^2)
    """
    y, variance = np.array(problems.Y), np.square(problems.SIGMA)

    def density(u):
        w = 1 / (variance + np.exp(2 * u))
        P = w.sum() + 1 / 25
        fit = 0.5 * np.log(w).sum() - 0.5 * np.log(P) - 0.5 * w @ y**2 + 0.5 * (w @ y) ** 2 / P
        return np.exp(fit + u - np.log1p(np.exp(2 * u) / 25))

    def integral(power):
        options = {"points": [-5, 0, 3], "limit": 500, "epsabs": 0.0, "epsrel": 1e-10}
        return scipy.integrate.quad(lambda u: u**power * density(u), -40, 20, **options)[0]

    return [Estimate(integral(k) / integral(0), 0.0) for k in (1, 2)]


def radon_density() -> Callable:
    """Return the log density of the centred varying intercepts in jax.numpy."""
    import jax.numpy as jnp

    given = models.VaryingIntercepts(centered=True).generated
    y, group, X = given.observed_data["y"], given.constant_data["group"], given.constant_data["X"]
    J, n = int(group.max()) + 1, len(y)

    def log_density(q):
        alpha, mu, beta, t, u = q[:J], q[J], q[J + 1 : -2], q[-2], q[-1]
        fit = -n * u - 0.5 * jnp.exp(-2 * u) * jnp.sum((y - alpha[group] - X @ beta) ** 2)
        effects = -J * t - 0.5 * jnp.exp(-2 * t) * jnp.sum((alpha - mu) ** 2)
        scales = t + u - 0.5 * (jnp.exp(2 * t) + jnp.exp(2 * u))
        return fit + effects + scales - (mu * mu + jnp.dot(beta, beta)) / 200

    return log_density


def horseshoe_density() -> Callable:
    """Return the log density of the centred horseshoe in jax.numpy."""
    import jax.numpy as jnp

    given = models.Horseshoe(centered=True).generated
    y, X = given.observed_data["y"], given.constant_data["X"]
    n, d = X.shape

    def log_density(q):
        beta, log_scale, u = q[:d], q[d : 2 * d] + q[-2], q[-1]
        fit = -n * u - 0.5 * jnp.exp(-2 * u) * jnp.sum((y - X @ beta) ** 2)
        effects = -jnp.sum(log_scale) - 0.5 * jnp.sum((beta * jnp.exp(-log_scale)) ** 2)
        return fit + effects - jnp.sum(jnp.logaddexp(q[d:], -q[d:]))

    return log_density


def horseshoe_by_gibbs(sweeps: int = 50_000, chains: int = 4) -> np.ndarray:
    """Return draws of (log tau, log sigma) of the horseshoe by Gibbs sampling (Makalic and Schmidt 2016).

    A scale s ~ C+(0, 1) is s^2 ~ IG(1/2, 1/a) with a ~ IG(1/2, 1). All conditional distributions are then standard::

        beta ~ N(A^-1 X'y / sigma^2, A^-1),   A = X'X / sigma^2 + diag(1 / (tau^2 lambda^2))
        lambda_j^2 ~ IG(1, 1/a_j + beta_j^2 / (2 tau^2)),      tau^2 ~ IG((d + 1)/2, 1/b + sum beta_j^2 / (2 lambda_j^2))
        sigma^2 ~ IG((n + 1)/2, 1/c + |y - X beta|^2 / 2),     a_j ~ IG(1, 1 + 1/lambda_j^2), and b and c in the same way
    """
    given = models.Horseshoe(centered=True).generated
    y, X = given.observed_data["y"], given.constant_data["X"]
    (n, d), XX, Xy = X.shape, X.T @ X, X.T @ y
    found = np.empty((chains, sweeps, 2))
    for chain in range(chains):
        rng = np.random.default_rng([2026, chain])

        def inverse_gamma(shape, scale, rng=rng):
            return scale / rng.gamma(shape, size=np.shape(scale))

        local, tau, sigma = np.ones(d), np.exp(rng.normal(-2.0, 2.0)), 1.0  # squares of the scales
        for k in range(-1000, sweeps):
            C = np.linalg.cholesky(XX / sigma + np.diag(1 / (tau * local)))
            half = scipy.linalg.solve_triangular(C, Xy / sigma, lower=True) + rng.normal(size=d)
            beta = scipy.linalg.solve_triangular(C, half, lower=True, trans=1)
            local = inverse_gamma(1.0, 1 / inverse_gamma(1.0, 1 + 1 / local) + beta**2 / (2 * tau))
            tau = inverse_gamma((d + 1) / 2, 1 / inverse_gamma(1.0, 1 + 1 / tau) + np.sum(beta**2 / local) / 2)
            sigma = inverse_gamma((n + 1) / 2, 1 / inverse_gamma(1.0, 1 + 1 / sigma) + np.sum((y - X @ beta) ** 2) / 2)
            if k >= 0:
                found[chain, k] = 0.5 * np.log([tau, sigma])
    return found


def without_funnel(name: str, scales: tuple[int, ...], exact: Callable | None = None) -> Target:
    """Return one of the posteriors of :mod:`validation.benchmarks.posteriors`."""
    posterior = posteriors.POSTERIORS[name]
    return Target(lambda: posterior().model(), lambda: posterior().log_density(), scales, draws=1000, exact=exact)


def normal_reference() -> list[Estimate]:
    """Return the means and variances of some coordinates of the normal distribution."""
    variances = np.diag(posteriors.covariance(100, 1e6))[list(SOME)]
    return [Estimate(0.0, 0.0) for _ in SOME] + [Estimate(float(v), 0.0) for v in variances]


volatility = posteriors.stochastic_volatility(T)
TARGETS: dict[str, Target] = {
    "funnel 2": funnel(2),
    "funnel 10": funnel(10),
    "funnel 100": funnel(100),
    "eight schools": Target(
        lambda: models.EightSchools(centered=True),
        schools_density,
        (-1,),
        models.EightSchools,
        exact=schools_reference,
    ),
    "radon": Target(
        lambda: models.VaryingIntercepts(centered=True), radon_density, (-2,), lambda: models.VaryingIntercepts()
    ),
    "horseshoe": Target(
        lambda: models.Horseshoe(centered=True),
        horseshoe_density,
        (-2,),
        lambda: models.Horseshoe(centered=False),
        simulate=horseshoe_by_gibbs,
    ),
    "hierarchical logistic": Target(
        hierarchical.hierarchical_logistic,
        hierarchical.hierarchical_logistic_density,
        (-2, -1),
        lambda: hierarchical.hierarchical_logistic(centred=False),
    ),
    "item response": Target(
        hierarchical.item_response,
        hierarchical.item_response_density,
        (-3, -2, -1),
        lambda: hierarchical.item_response(centred=False),
    ),
    "stochastic volatility": Target(
        volatility.model,
        volatility.log_density,
        (-2,),
        lambda: hierarchical.volatility_of_innovations(T),
    ),
    "eight schools, non-centred": without_funnel("eight schools", (8, 9)),
    "arK": without_funnel("arK", (0, 1, 5, 6)),
    "garch": without_funnel("garch", (0, 1, 2, 3)),
    "kidscore": without_funnel("kidscore", (0, 3, 4)),
    "logistic 768 x 9": without_funnel("logistic 768 x 9", (0, 4, 8)),
    "normal 100, condition 1e6": without_funnel("normal 100, condition 1e6", SOME, normal_reference),
}
