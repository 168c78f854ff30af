"""Tempering on targets with two modes: ``python -m validation.tempering [--runs 20] [--seeds 25]``.

The first target is 0.2 N(-5 e_1, I) + 0.8 N(5 e_1, I) in d dimensions, whose modes are ten standard deviations apart. It is
normalised, so that log Z = 0. Each run has four chains with 1,000 iterations of warm-up and 1,000 draws. The columns are

- share: the mean share of draws in the minor mode over the runs, with its standard error (exact: 0.2);
- ESS: w (1 - w) divided by the variance of this share over the runs, and the same per 1,000 gradients of a run, with warm-up;
- log Z: the mean over the runs with its standard error, the spread over the runs, and the spread divided by the stated error;
- the mean barrier, and the mean number of round trips of a chain.

Chains of NUTS do not cross. The share that they report is that of the chains that started in the minor mode.

The adaptive tempered SMC of BlackJAX has 4,000 particles from N(0, 5^2), a target ESS of 90 %, and 5 transitions of HMC with 5
steps of size 0.5 at each temperature, chosen for the known scales of this target. Its share is that of the weighted particles.
The rows are left out if BlackJAX is not installed.

The second target is the mixture ``low_dim_gauss_mix`` of posteriordb. z is the error of a mean or a variance divided by its
standard error. The table has the largest absolute z over all seeds, and the number of seeds with an R-hat above 1.05.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc import NUTS, Tempered, diagnostics
from validation import common, judging

NAME = "tempering"
WEIGHT, HALF = 0.2, 5.0
OPTIONS: dict[str, Any] = {"raw": True, "progressbar": False, "preflight": False, "generate": False}
KERNELS = {
    "NUTS": NUTS(),
    "Tempered, 4 rungs": Tempered(NUTS(), rungs=4),
    "Tempered, 10 rungs": Tempered(NUTS(), rungs=10),
}


class Run(NamedTuple):
    """Share of the minor mode, log Z with its stated error, gradients, barrier, and round trips of a chain."""

    share: float
    log_z: float
    error: float
    gradients: int
    barrier: float = math.nan
    trips: float = math.nan


def two_modes(d: int) -> refhmc.Model:
    """Return the first target."""
    constant = -0.5 * d * math.log(2 * math.pi)
    odds, half = math.log(WEIGHT / (1 - WEIGHT)), HALF

    def value_and_gradient(q: np.ndarray, data: None, out: np.ndarray) -> float:
        squares = 0.0
        for i in range(q.shape[0]):
            squares += q[i] * q[i]
            out[i] = -q[i]
        t = odds - 2 * half * q[0]  # log odds of the minor mode
        small = math.exp(-abs(t))
        out[0] += half * (1 - 2 * (1 if t > 0 else small) / (1 + small))
        log_sum = max(t, 0.0) + math.log1p(small)
        return constant - 0.5 * (squares + half * half) + half * q[0] + math.log(0.8) + log_sum

    def log_density(q: np.ndarray, data: None) -> float:
        return value_and_gradient(q, data, np.empty_like(q))

    return refhmc.Model(
        d, log_density, value_and_gradient=value_and_gradient, gradient=None, name=f"two modes, d = {d}"
    )


def run_of(model: refhmc.Model, kernel: object, seed: int) -> Run:
    result = refhmc.sample(model, kernel, random_seed=seed, **OPTIONS)
    about, share = result.attributes, float((result.draws[:, :, 0] < 0).mean())
    found = [about.get(name, math.nan) for name in ("log_z", "log_z_error")]
    trips = float(np.mean(about.get("round_trips", math.nan)))
    return Run(share, *found, about["n_gradient_evaluations"], about.get("barrier", math.nan), trips)


def smc_of_blackjax(d: int, runs: int) -> list[Run]:
    """Return runs of the adaptive tempered SMC of BlackJAX."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.smc import extend_params, resampling

    jax.config.update("jax_enable_x64", True)
    particles, transitions, steps, scale = 4000, 5, 5, 5.0
    constant = -0.5 * d * math.log(2 * math.pi)

    def log_reference(q: Any) -> Any:
        return constant - d * math.log(scale) - 0.5 * jnp.sum((q / scale) ** 2)

    def log_target(q: Any) -> Any:
        rest = jnp.sum(q[1:] ** 2)
        terms = jnp.array([-0.5 * (q[0] + HALF) ** 2, -0.5 * (q[0] - HALF) ** 2])
        return constant - 0.5 * rest + jax.scipy.special.logsumexp(terms, b=jnp.array([WEIGHT, 1 - WEIGHT]))

    smc = blackjax.adaptive_tempered_smc(
        log_reference,
        lambda q: log_target(q) - log_reference(q),
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        extend_params(
            {"step_size": 0.5, "inverse_mass_matrix": jnp.ones(d), "num_integration_steps": steps},
        ),
        resampling.systematic,
        0.9,
        num_mcmc_steps=transitions,
    )
    step, made = jax.jit(smc.step), []
    for seed in range(runs):
        key, of_start = jax.random.split(jax.random.key(seed))
        state, log_z, n = smc.init(scale * jax.random.normal(of_start, (particles, d))), 0.0, 0
        while float(state.tempering_param) < 1:
            key, of_step = jax.random.split(key)
            state, info = step(of_step, state)
            log_z, n = log_z + float(info.log_likelihood_increment), n + 1
        share = float(jnp.sum(state.weights * (state.particles[:, 0] < 0)))
        made.append(Run(share, log_z, math.nan, particles * n * transitions * steps))
    return made


def row(d: int, name: str, runs: list[Run]) -> dict:
    """Return a row of the first table."""
    share, log_z, error, gradients, barrier, trips = np.array(runs).T
    n, spread = len(runs), share.std(ddof=1)
    ess = WEIGHT * (1 - WEIGHT) / spread**2
    crosses = name != "NUTS"
    sd = log_z.std(ddof=1)
    return {
        "d": d,
        "method": name,
        "share": f"{share.mean():.3f} +- {spread / math.sqrt(n):.3f}",
        "ESS": f"{ess:.0f}" if crosses else "none",
        "gradients": f"{gradients.mean():,.0f}",
        "ESS per 1,000 gradients": f"{1000 * ess / gradients.mean():.2f}" if crosses else "none",
        "log Z": f"{log_z.mean():.4f} +- {sd / math.sqrt(n):.4f}" if crosses else "none",
        "spread of log Z": f"{sd:.4f}" if crosses else "none",
        "spread / stated": f"{sd / error.mean():.2f}" if np.isfinite(error).all() else "none",
        "barrier": f"{barrier.mean():.2f}" if np.isfinite(barrier).all() else "none",
        "round trips": f"{trips.mean():.0f}" if np.isfinite(trips).all() else "none",
    }


def z_scores(model: refhmc.Model, result: refhmc.Result) -> np.ndarray:
    """Return z of each mean and of each variance."""
    x = np.concatenate([v.reshape(*v.shape[:2], -1) for v in result.posterior.values()], axis=2)
    truth, squares = model.reference, (x - x.mean(axis=(0, 1))) ** 2
    assert truth is not None
    z = []
    for values, theirs, error in ((x, truth.mean, truth.mean_se), (squares, truth.variance, truth.variance_se)):
        own = values.std(axis=(0, 1)) / np.sqrt(diagnostics.ess_of_mean(values))
        z.append((values.mean(axis=(0, 1)) - np.asarray(theirs)) / np.hypot(own, error))
    return np.concatenate(z)


def mixture(seeds: int) -> list[dict]:
    """Return the rows of the second table."""
    model, rows = refhmc.models.GaussianMixture(), []
    for name, kernel in {"NUTS": NUTS(), "Tempered, 6 rungs": Tempered(NUTS(), rungs=6)}.items():
        found = [refhmc.sample(model, kernel, random_seed=seed, **OPTIONS) for seed in range(seeds)]
        z = np.array([np.abs(z_scores(model, each)).max() for each in found])
        rhat = np.array([diagnostics.rhat(each.draws).max() for each in found])
        ess = np.mean([diagnostics.ess(each.draws).min() for each in found])
        gradients = np.mean([each.attributes["n_gradient_evaluations"] for each in found])
        log_z = [each.attributes.get("log_z", math.nan) for each in found]
        errors = [each.attributes.get("log_z_error", math.nan) for each in found]
        tempered = bool(np.isfinite(log_z).all())
        rows.append(
            {
                "kernel": name,
                "largest z": f"{z.max():.1f}",
                "seeds with z above 4": int((z > 4).sum()),
                "seeds with R-hat above 1.05": int((rhat > 1.05).sum()),
                "mean of the least ESS": f"{ess:.0f}",
                "gradients": f"{gradients:,.0f}",
                "log Z": f"{np.mean(log_z):.3f} +- {np.std(log_z, ddof=1) / math.sqrt(seeds):.3f}"
                if tempered
                else "none",
                "spread / stated": f"{np.std(log_z, ddof=1) / np.mean(errors):.2f}" if tempered else "none",
            }
        )
        print(rows[-1], flush=True)
    return rows


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    words = []
    for method in ("NUTS", "Tempered, 4 rungs", "Tempered, 10 rungs"):
        shares = [float(row["share"].split()[0]) for row in data["rows"] if row["method"] == method]
        words.append(f"{min(shares):.3f} to {max(shares):.3f} ({method.replace('Tempered, ', '')})")
    return judging.line("Found", f"the mean share of draws in the minor mode, exactly 0.2, is {', '.join(words)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=25)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for d in (2, 10, 50):
        model = two_modes(d)
        for name, kernel in KERNELS.items():
            rows.append(row(d, name, [run_of(model, kernel, seed) for seed in range(chosen.runs)]))
            print(rows[-1], flush=True)
        if importlib.util.find_spec("blackjax"):
            version = importlib.metadata.version("blackjax")
            rows.append(row(d, f"BlackJAX {version}, tempered SMC", smc_of_blackjax(d, chosen.runs)))
            print(rows[-1], flush=True)
    of_mixture = mixture(chosen.seeds)
    text = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    tables = [common.markdown(list(each[0]), [list(row.values()) for row in each]) for each in (rows, of_mixture)]
    page = f"{chosen.runs} runs of each, and {chosen.seeds} seeds of the mixture.\n\n{text}\n" + "\n\n".join(tables)
    common.write_results(NAME, "Tempering", page, {"rows": rows, "mixture": of_mixture}, opening)


if __name__ == "__main__":
    main()
